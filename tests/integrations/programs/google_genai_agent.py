"""An agent on Google's SDK that knows nothing of the sidecar but a base URL, from the environment or as an option."""

from __future__ import annotations

import os
from typing import Any

from google import genai
from google.genai import types

from tests.integrations.programs.common import QUESTION, result, settings_read, tell

TOOL = types.FunctionDeclaration(
    name="read_log",
    description="Read the log of a build.",
    parameters=types.Schema(type=types.Type.OBJECT, properties={"number": types.Schema(type=types.Type.INTEGER)}),
)


def client(words: Any) -> genai.Client:
    """A client whose base URL is the door's."""
    if words["by_environment"]:
        os.environ["GOOGLE_GEMINI_BASE_URL"] = words["base"]
        return genai.Client(api_key="key")
    return genai.Client(api_key="key", http_options=types.HttpOptions(base_url=words["base"]))


def main() -> None:
    """Run it."""
    words = settings_read()
    made = client(words)  # it closes its connections when it is collected
    models = made.models
    history = [types.Content(role="user", parts=[types.Part(text=QUESTION)])]
    config = types.GenerateContentConfig(
        system_instruction="You read logs.", tools=[types.Tool(function_declarations=[TOOL])]
    )
    tokens = 0
    while True:
        asked: Any = {"model": "scripted", "contents": history, "config": config}
        stream = models.generate_content_stream(**asked) if words["stream"] else [models.generate_content(**asked)]
        parts: list[types.Part] = []
        for piece in stream:
            parts += piece.candidates[0].content.parts or []
            counted = piece.usage_metadata.prompt_token_count
        tokens += counted
        history.append(types.Content(role="model", parts=parts))
        calls = [part.function_call for part in parts if part.function_call]
        if not calls:
            break
        answers = [
            types.Part.from_function_response(name=call.name, response={"result": result(call.args["number"])})
            for call in calls
        ]
        history.append(types.Content(role="user", parts=answers))
    answer = "".join(part.text or "" for part in history[-1].parts or [])
    left = models.count_tokens(model="scripted", contents=history).total_tokens
    tell(answer=answer, kept=len(str(history)), tokens=tokens, counted=left, recalls="query" in str(history))


main()
