"""The command line, with the two clients of a running server that it has: probe and replay."""
