"""Transcripts that people have, read as the prompts that an agent sent: one reader for each source."""
