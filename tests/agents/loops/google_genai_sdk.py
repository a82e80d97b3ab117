"""Google's SDK: a chat that calls functions by itself."""

from __future__ import annotations

from google import genai
from google.genai import types

from tests.agents.loops.common import MODEL, TASK, read_log, tell

client = genai.Client()
calling = types.AutomaticFunctionCallingConfig(maximum_remote_calls=100)
chat = client.chats.create(
    model=MODEL, config=types.GenerateContentConfig(tools=[read_log], automatic_function_calling=calling)
)
answer = chat.send_message(TASK)
tell(answer.text, chat.get_history())
