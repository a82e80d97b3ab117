"""Tests of one prompt through one run, without I/O."""
