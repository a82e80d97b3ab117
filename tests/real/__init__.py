"""Telemetry held against real components: Prometheus, promtool, and an OpenTelemetry collector."""
