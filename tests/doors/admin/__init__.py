"""The pages of single runs."""
