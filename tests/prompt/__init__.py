"""Tests of reading and writing prompts."""
