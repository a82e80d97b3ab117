"""Anthropic's SDK: messages, with the whole history in each request."""

from __future__ import annotations

from typing import Any

import anthropic

from tests.agents.loops.common import MODEL, SCHEMA, TASK, read_log, tell

client = anthropic.Anthropic()
tools: Any = [{"name": "read_log", "description": "Read the log of a build.", "input_schema": SCHEMA}]
history: list[Any] = [{"role": "user", "content": TASK}]
while True:
    answer: Any = client.messages.create(model=MODEL, max_tokens=1_000, messages=history, tools=tools)
    history.append({"role": "assistant", "content": answer.content})
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": read_log(**block.input)}
        for block in answer.content
        if block.type == "tool_use"
    ]
    if not results:
        tell(answer.content[-1].text, history)
        break
    history.append({"role": "user", "content": results})
