"""An agent on Amazon's SDK that knows nothing of the sidecar but an endpoint URL, a key and an authority."""

from __future__ import annotations

import json
import os
from typing import Any

import boto3

from tests.integrations.programs.common import QUESTION, result, settings_read, tell

MODEL = "maker.scripted-v1:0"
TOOLS = {
    "tools": [
        {
            "toolSpec": {
                "name": "read_log",
                "description": "Read the log of a build.",
                "inputSchema": {"json": {"type": "object", "properties": {}}},
            }
        }
    ]
}


def main() -> None:
    """Run it."""
    words = settings_read()
    os.environ |= {
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": words["base"],
        "AWS_BEARER_TOKEN_BEDROCK": "secret-key",
        "AWS_CA_BUNDLE": words["authority"],
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
    }
    client = boto3.client("bedrock-runtime")
    history: list[Any] = [{"role": "user", "content": [{"text": QUESTION}]}]
    answered, output = 0, 0
    while True:
        asked = {"modelId": MODEL, "messages": history, "system": [{"text": "You read logs."}], "toolConfig": TOOLS}
        try:
            if words["stream"]:
                blocks, usage = _streamed(client.converse_stream(**asked)["stream"])
            else:
                answer = client.converse(**asked)
                blocks, usage = answer["output"]["message"]["content"], answer["usage"]
        except client.exceptions.ClientError as error:
            tell(error=str(error))
            return
        output += usage["outputTokens"]
        history.append({"role": "assistant", "content": blocks})
        calls = [block["toolUse"] for block in blocks if "toolUse" in block]
        if not calls:
            break
        results = []
        for call in calls:
            answered += 1
            content = [{"text": result(answered)}]
            results.append({"toolResult": {"toolUseId": call["toolUseId"], "content": content}})
        history.append({"role": "user", "content": results})
    text = "".join(block.get("text", "") for block in blocks)
    tell(answer=text, answered=answered, kept=len(str(history)), output=output, recalls="own-" in str(history))


def _streamed(events: Any) -> tuple[list[Any], Any]:
    """The blocks of a stream, and its usage."""
    blocks: dict[int, Any] = {}
    inputs: dict[int, str] = {}
    usage: Any = None
    for event in events:
        ((kind, data),) = event.items()
        index = data.get("contentBlockIndex")
        if kind == "contentBlockStart":
            blocks[index] = {"toolUse": dict(data["start"]["toolUse"])}
        elif kind == "contentBlockDelta" and "toolUse" in data["delta"]:
            inputs[index] = inputs.get(index, "") + data["delta"]["toolUse"]["input"]
        elif kind == "contentBlockDelta":
            block = blocks.setdefault(index, {"text": ""})
            block["text"] += data["delta"]["text"]
        elif kind == "metadata":
            usage = data["usage"]
    for index, text in inputs.items():
        blocks[index]["toolUse"]["input"] = json.loads(text)
    return [blocks[index] for index in sorted(blocks)], usage


main()
