"""Processing that every call has before the engine: its caller, admission by memory, a thread, and its use case."""
