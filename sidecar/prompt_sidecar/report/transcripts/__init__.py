"""Transcripts of agents, read as the prompts that were sent: one reader for each source."""
