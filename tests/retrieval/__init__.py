"""How well search finds: `python -m tests.retrieval` prints it."""
