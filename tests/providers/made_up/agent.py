"""An agent of the made-up provider: by the client, by the HTTP door, and by `replay`. Prints what it has seen."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from prompt_sidecar.client import Client

TOOLS = [{"device": "read", "about": "Reads a file.", "takes": {"type": "object"}}]


def asked(url: str, body: dict[str, Any], **headers: str) -> tuple[int, str]:
    """Send a request; return status and body of the answer."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def through_the_client(target: str, upstream: str, dialogue: list[Any]) -> dict[str, Any]:
    """Trim by gRPC, and let the client drive the provider's SDK, whole and as a stream."""

    def create(**keywords: Any) -> Any:
        _, answer = asked(f"{upstream}/talk", {name: value for name, value in keywords.items() if name != "stream"})
        return json.loads(answer)

    def flowing(**keywords: Any) -> Any:
        keywords["flow"] = keywords.pop("stream")
        _, answer = asked(f"{upstream}/talk", keywords)
        return iter([json.loads(line.removeprefix("data: ")) for line in answer.splitlines() if line])

    with Client(target, deadline=60.0) as client:
        format: Any = "made_up"
        trimmed = client.trim("direct", {"dialogue": dialogue}, format=format, context_window=4_000)
        run = client.run("loop", context_window=4_000)
        whole = run.complete(format, create, model="m", dialogue=dialogue, tools=TOOLS)
        streamed = client.run("flow", context_window=4_000).complete(
            format, flowing, model="m", dialogue=dialogue, tools=TOOLS, stream=True
        )
        events = list(streamed)
        usage: Any = client.get_run("loop").usage
        return {
            "trimmed": [trimmed.fits, len(trimmed.trims) > 0, [each["role"] for each in trimmed.prompt["dialogue"]]],
            "whole": [whole.response["reply"]["said"], whole.turns, whole.recalls],
            "reported": [usage.reports, usage.input_tokens, usage.cached_tokens, usage.output_tokens],
            "streamed": [streamed.completion.response["reply"]["said"], streamed.completion.recalls],
            "events": events,
        }


def main(target: str, door: str, upstream: str, run: str) -> None:
    """Go every way."""
    dialogue = json.loads(Path(run).read_text(encoding="utf-8"))["dialogue"]
    seen = through_the_client(target, upstream, dialogue)
    body = {"model": "m", "dialogue": dialogue, "tools": TOOLS}
    seen["door"] = asked(f"{door}/talk", body)
    seen["door_streamed"] = asked(f"{door}/talk", {**body, "flow": True})
    seen["door_error"] = asked(f"{door}/talk", body, **{"x-prompt-sidecar-run": "x" * 1_000})
    command = [sys.executable, "-m", "prompt_sidecar", "replay", run, "--limit", "4000", "--address", target, "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    seen["replay"] = ended.stdout or ended.stderr
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
