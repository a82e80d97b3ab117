"""The gRPC server: requests to calls of the core, answers to responses, errors to statuses; start, drain and stop."""
