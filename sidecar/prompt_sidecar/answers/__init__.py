"""A provider's answer, whole or as a stream: its events, restored masks, hidden turns. One file for each API."""
