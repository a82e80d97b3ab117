"""Telemetry: figures and spans, from facts, and what of them leaves the process."""
