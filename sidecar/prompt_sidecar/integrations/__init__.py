"""Trimming inside frameworks and HTTP clients that agents are built with. Each module needs only its framework.

| module | framework | what it is |
|---|---|---|
| `httpx` | httpx and httpx2, which SDKs of providers use | a transport |
| `langchain` | LangChain 1 | a middleware of agents |
| `openai_agents` | OpenAI Agents SDK | an input filter, hooks and tools |
| `pydantic_ai` | Pydantic AI 2 | a capability |
| `litellm` | LiteLLM, its proxy above all | a callback |

They import `prompt_sidecar.client` and nothing else of this project. All fail open as the client does. The run of a
model call is configured as a string or a function, or set with `in_run` around the calls.
"""

from __future__ import annotations

from prompt_sidecar.integrations.naming import current_run, in_run

__all__ = ["current_run", "in_run"]
