"""The process that the sidecar is: its log, signals, clock, memory limits and allocator."""
