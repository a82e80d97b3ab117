"""A report over the recorded runs, and the picture of it in docs/."""
