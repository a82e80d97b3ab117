"""What all doors share: the use cases with telemetry, whether there is memory, whose a token is, threads, and logs."""
