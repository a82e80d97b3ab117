"""The Envoy door: an external processor that trims prompts on their way through Envoy."""
