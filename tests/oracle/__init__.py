"""Independent judges of a prompt: code that shares nothing with the sidecar, so that it cannot share its mistakes."""
