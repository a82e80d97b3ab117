"""Tests of the HTTP door, with real servers on both sides of it."""
