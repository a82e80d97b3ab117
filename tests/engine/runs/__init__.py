"""Tests of runs, their bounds and the use cases."""
