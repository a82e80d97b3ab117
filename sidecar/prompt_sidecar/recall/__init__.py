"""Recall: originals by id, whole or in pages, and search of a run's history. No I/O; the clock is passed in."""
