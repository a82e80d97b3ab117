"""OpenAI's SDK: chat completions or responses, with the whole history in each request."""

from __future__ import annotations

import json
from typing import Any

import openai

from tests.agents.loops.common import MODEL, SCHEMA, TASK, WAY, read_log, tell

client = openai.OpenAI()
declaration: Any = {"name": "read_log", "description": "Read the log of a build.", "parameters": SCHEMA}
history: list[Any] = [{"role": "user", "content": TASK}]
if WAY == "responses":
    while True:
        tools: Any = [{"type": "function", "strict": False, **declaration}]
        answer: Any = client.responses.create(model=MODEL, input=history, tools=tools)
        history += answer.output
        calls = [item for item in answer.output if item.type == "function_call"]
        for call in calls:
            output = read_log(**json.loads(call.arguments))
            history.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
        if not calls:
            tell(answer.output_text, history)
            break
else:
    while True:
        made: Any = client.chat.completions.create(
            model=MODEL, messages=history, tools=[{"type": "function", "function": declaration}]
        )
        message = made.choices[0].message
        history.append(message)
        for call in message.tool_calls or []:
            content = read_log(**json.loads(call.function.arguments))
            history.append({"role": "tool", "tool_call_id": call.id, "content": content})
        if not message.tool_calls:
            tell(message.content, history)
            break
