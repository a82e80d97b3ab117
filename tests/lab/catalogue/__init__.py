"""Builds the catalogue of models from maintained tables and our own rows: `make catalogue`."""
