"""Precision and recall of the guard's rules: `python -m tests.programs.guard_eval`."""
