"""Agent loops of SDKs and frameworks as their first page shows them: one tool, a base URL from the environment, a task.

Each runs in its framework's own environment, by default settings. Where a default ends a loop of sixty calls, the
program raises that one, and `tests.agents.rows` says which.
"""
