"""The effect that trimming would have had on recorded runs: measured run by run, and shown on one page."""
