"""The process: its log, signals, clock, memory limits and allocator."""
