"""Tests of what all doors share."""
