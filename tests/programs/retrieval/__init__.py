"""How well search finds: `python -m tests.programs.retrieval` prints it."""
