"""Readers of transcripts, on small files made here."""
