"""What trimming would have done to recorded runs: measured run by run, and shown on one page."""
