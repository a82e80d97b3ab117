"""Agents written with frameworks, each run in its framework's environment: nothing here imports the tests' packages."""
