"""Faults to plant: each a small patch that breaks a promise of the product, which `make test` must catch."""
