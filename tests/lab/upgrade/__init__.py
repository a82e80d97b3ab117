"""`python -m tests.lab.upgrade COMMIT`: this version and an earlier one side by side on one store."""
