"""Amazon's SDK: Bedrock's Converse, with the whole history in each request."""

from __future__ import annotations

from typing import Any

import boto3

from tests.agents.loops.common import SCHEMA, TASK, read_log, tell

client = boto3.client("bedrock-runtime")
spec = {"name": "read_log", "description": "Read the log of a build.", "inputSchema": {"json": SCHEMA}}
history: list[Any] = [{"role": "user", "content": [{"text": TASK}]}]
while True:
    answer = client.converse(
        modelId="maker.scripted-v1:0", messages=history, toolConfig={"tools": [{"toolSpec": spec}]}
    )
    message = answer["output"]["message"]
    history.append(message)
    uses = [block["toolUse"] for block in message["content"] if "toolUse" in block]
    if not uses:
        tell(message["content"][-1]["text"], history)
        break
    results = [
        {"toolResult": {"toolUseId": use["toolUseId"], "content": [{"text": read_log(**use["input"])}]}} for use in uses
    ]
    history.append({"role": "user", "content": results})
