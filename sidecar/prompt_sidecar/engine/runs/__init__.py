"""What outlives a call: the runs that this process knows, their bounds, and the use cases."""
