"""Tests of the doors of one process together."""
