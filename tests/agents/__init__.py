"""Real agents from the npm registry behind the HTTP door, by their default settings, against strict providers."""
