"""What outlives a call: the runs that this process has seen, their resource limits, and the use cases."""
