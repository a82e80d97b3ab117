"""Tests on the repository itself: what is shipped, pinned, generated, and how its scripts choose."""
