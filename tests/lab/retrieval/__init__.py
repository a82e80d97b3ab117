"""How well search finds: `python -m tests.lab.retrieval` prints it."""
