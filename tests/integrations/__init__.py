"""Frameworks, gateways and hosts that call the sidecar, each as it really is."""
