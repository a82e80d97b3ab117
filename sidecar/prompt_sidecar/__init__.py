"""Prompt Sidecar: trims the prompts of LLM agents to their limit, and loses nothing."""

if __name__ != "prompt_sidecar":
    # From a checkout's root Python finds the folder `sidecar/` as a namespace package. A second copy of each module,
    # with its own classes, would fail later and for no visible reason.
    raise ImportError(f"import this package as prompt_sidecar, not as {__name__}")
