"""Next-action evidence: whether the text that a model used next was still in the trimmed prompt. `make evidence`."""
