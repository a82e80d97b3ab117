"""One prompt through one run: read, aligned with the history, recorded, decided on, rendered, framed."""
