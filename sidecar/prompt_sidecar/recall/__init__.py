"""Recall: the originals by id, whole or in pages. Pure: bytes in, bytes and facts out, the clock passed in."""
