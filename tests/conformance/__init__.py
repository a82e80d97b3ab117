"""What providers accept: a validator for each format, recorded requests, and what the sidecar returns held to both."""
