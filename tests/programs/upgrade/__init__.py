"""`python -m tests.programs.upgrade COMMIT`: this version and an earlier one side by side on one store."""
