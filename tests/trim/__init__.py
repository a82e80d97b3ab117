"""Tests of deciding what to trim."""
