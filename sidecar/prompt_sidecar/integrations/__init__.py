"""Trimming inside frameworks and HTTP clients that agents are built with. Each module needs its framework alone.

| module | framework | what it is |
|---|---|---|
| `httpx` | httpx and httpx2, which SDKs of providers use | a transport |
| `langchain` | LangChain 1 | a middleware of agents |
| `openai_agents` | OpenAI Agents SDK | an input filter, hooks and tools |
| `pydantic_ai` | Pydantic AI 2 | a capability |
| `litellm` | LiteLLM, its proxy above all | a callback |

They import `prompt_sidecar.client` and nothing else of this project. All fail open as the client does. Each of them is
given the run that a model call belongs to: as a text, as a function, or around the calls with `in_run`.
"""

from __future__ import annotations

from prompt_sidecar.integrations.naming import current_run, in_run

__all__ = ["current_run", "in_run"]
