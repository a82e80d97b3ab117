"""A provider's answer, whole or as a stream: its events, masks put back, hidden turns. One file for each API."""
