"""The doors: how agents and people reach the sidecar. Each translates; none knows another."""
