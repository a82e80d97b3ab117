"""`make live`: what the sidecar changes of an agent's work with a real model, by tasks whose end can be checked."""
