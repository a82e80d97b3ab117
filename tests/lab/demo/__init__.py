"""A scripted agent sends a long run through a real server; `make demo` shows it and checks it."""
