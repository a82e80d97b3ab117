"""Programs that replay runs against the rules of providers."""
