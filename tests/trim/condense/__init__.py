"""Tests of condensing."""
