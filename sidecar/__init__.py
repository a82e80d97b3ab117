"""Prompt Sidecar: trims the prompts of LLM agents to their limit, and loses nothing."""
