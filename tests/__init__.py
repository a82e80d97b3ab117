"""Tests, arranged as the code is; `oracle` and `promises` are shared by all formats."""
