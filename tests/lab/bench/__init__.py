"""How fast the sidecar is, as ratios within one run: `python -m tests.lab.bench`."""
