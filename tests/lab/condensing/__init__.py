"""What condensing saves on recorded runs, and what it hides."""
