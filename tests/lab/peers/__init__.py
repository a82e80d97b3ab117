"""The bench of peers: one table of what trimming the recorded runs costs by each of several strategies."""
