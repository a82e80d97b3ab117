"""Tests of one prompt through one run."""
