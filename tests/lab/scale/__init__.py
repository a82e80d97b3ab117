"""Replicas behind a real Envoy with a real store, under many agents, while one after another is killed."""
