"""`make observe`: real components under a load of replayed agents, and a picture of every dashboard."""
