"""The command line, with its two clients of a running server: probe and replay."""
