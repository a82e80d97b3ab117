"""The three promises, checked on recorded and on synthetic runs."""
