"""An agent of LangChain with the sidecar's middleware."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from prompt_sidecar.client import Client
from prompt_sidecar.integrations.langchain import SidecarMiddleware
from tests.integrations.programs.common import GOT, QUESTION, deploy, result, settings_read, show, tell


@tool
def read_log(number: int) -> str:
    """Read the log of a build."""
    return result(number)


def model(words: Any) -> BaseChatModel:
    """The model of a provider."""
    url = words["upstream"]
    if words["api"] == "anthropic_messages":
        return ChatAnthropic(model_name="scripted", base_url=url, api_key="k", max_retries=0, max_tokens=500)
    responses = words["api"] == "openai_responses"
    return ChatOpenAI(
        model="scripted",
        base_url=f"{url}/v1",
        api_key="k",
        max_retries=0,
        use_responses_api=responses,
        stream_usage=True,
    )


async def streamed(agent: Any, given: Any, config: Any) -> Any:
    """Run the agent with the model's tokens streamed; return its last state and the number of pieces."""
    pieces, last = 0, None
    async for mode, event in agent.astream(given, config, stream_mode=["messages", "values"]):
        pieces += mode == "messages"
        last = event if mode == "values" else last
    return last, pieces


def main() -> None:
    """Run it."""
    words = settings_read()
    with Client(words["sidecar"], deadline=60.0) as client:
        middleware = SidecarMiddleware(client, context_window=words["window"], output_reserve=500, **words["options"])
        more = [tool(deploy), tool(show)] if "question" in words else []
        agent = create_agent(model(words), [read_log, *more], system_prompt="You read logs.", middleware=[middleware])
        given: Any = {"messages": [{"role": "user", "content": words.get("question", QUESTION)}]}
        config: Any = {"configurable": {"thread_id": "run"}, "recursion_limit": 1_000}
        pieces = 0
        if words["stream"]:
            last, pieces = asyncio.run(streamed(agent, given, config))
        else:
            last = agent.invoke(given, config)
        messages = last["messages"]
        tell(
            answer=messages[-1].text,
            kept=sum(len(str(message.content)) for message in messages),
            pieces=pieces,
            untrimmed=client.untrimmed,
            got=GOT,
            held=str(messages),
            tools=[each.name for each in middleware.tools],
        )


main()
