"""How far estimates of what prompts cost are from what providers counted, in recorded runs."""
