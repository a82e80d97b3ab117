"""Tests of what the process itself is: log, signals, clock, limits."""
