"""An agent of Pydantic AI with the sidecar's capability."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from prompt_sidecar.client import Client
from prompt_sidecar.integrations.pydantic_ai import SidecarCapability
from tests.integrations.programs.common import GOT, QUESTION, deploy, result, settings_read, show, tell


def model(words: Any) -> Model:
    """The model of a provider."""
    url = words["upstream"]
    if words["api"] == "anthropic_messages":
        return AnthropicModel("scripted", provider=AnthropicProvider(base_url=url, api_key="k"))
    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="k")
    made: type[Any] = OpenAIResponsesModel if words["api"] == "openai_responses" else OpenAIChatModel
    return made("scripted", provider=provider)


async def main() -> None:
    """Run it."""
    words = settings_read()
    with Client(words["sidecar"], deadline=60.0) as client:
        sidecar = SidecarCapability(
            client, "run", context_window=words["window"], output_reserve=500, **words["options"]
        )
        agent = Agent(model(words), system_prompt="You read logs.", capabilities=[sidecar])

        @agent.tool_plain
        def read_log(number: int) -> str:
            """Read the log of a build."""
            return result(number)

        question = words.get("question", QUESTION)
        if "question" in words:
            agent.tool_plain(deploy)
            agent.tool_plain(show)
        pieces, limits = 0, UsageLimits(request_limit=100)
        if words["stream"]:
            async with agent.run_stream_events(question, usage_limits=limits) as events:
                async for event in events:
                    pieces += 1
                    ran = getattr(event, "result", None)
        else:
            ran = await agent.run(question, usage_limits=limits)
        assert ran is not None
        tell(
            answer=ran.output,
            kept=len(str(ran.all_messages())),
            pieces=pieces,
            untrimmed=client.untrimmed,
            got=GOT,
            held=str(ran.all_messages()),
            tools=sorted(sidecar._own),  # noqa: SLF001
        )


asyncio.run(main())
