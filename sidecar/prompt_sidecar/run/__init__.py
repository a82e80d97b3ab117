"""One run's memory and the use cases: no gRPC, no telemetry; clock and key are passed in."""
