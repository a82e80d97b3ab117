"""Telemetry: translates the core's facts into OpenTelemetry instruments and spans."""
