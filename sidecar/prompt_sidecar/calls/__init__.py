"""What every call passes before the engine: its caller, admission by memory, a thread, and its use case."""
