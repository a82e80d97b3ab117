"""Precision and recall of the guard's rules: `python -m tests.lab.guard_eval`."""
