"""The shared store, on a real server."""
