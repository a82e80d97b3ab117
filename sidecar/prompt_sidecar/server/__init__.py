"""gRPC: requests to facts, facts to answers, errors to statuses, and the life of the server."""
