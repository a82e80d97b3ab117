"""An agent's loop with planted keys through the real program, which is killed between two calls."""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.client import Client, GuardRefused
from tests.cli.running import PATIENCE, Program, program
from tests.real.otlp import Span, sink

MASK = re.compile("⟦github_token:[a-z0-9]{10}⟧")


def key(place: str) -> str:
    """A made-up key that no other place has."""
    return "ghp_" + (place.title() + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEaD3")[:36]


PLACES = ("system", "user", "result", "listing", "arguments")
KEYS = {place: key(place) for place in PLACES}
DAYS = 12
IBAN = "DE89 3704 0044 0532 0130 00"


@contextmanager
def sidecar(socket: Path, collector: int) -> Iterator[tuple[Program, str]]:
    """The program, with the address of its metrics; its spans go to a collector's port."""
    settings = {
        "KEY": "k" * 32,
        "SERVER__LISTEN": "",
        "SERVER__SOCKET": str(socket),
        "TELEMETRY__METRICS_LISTEN": "127.0.0.1:0",
        "TELEMETRY__OTLP_ENDPOINT": f"http://127.0.0.1:{collector}",
        "LOG__LEVEL": "debug",
        "GUARD__MODE": "enforce",
        "GUARD__RESTORE": "deploy:github_token",
        "GUARD__ACTIONS": "iban=refuse",
        "POLICY__PRESET": "lean",
    }
    with program(**settings) as running:
        metrics = ""
        while not metrics:
            line = running.wait_for(r"(http://[\d.:]+/metrics)|(ready: listening)")
            assert line[1] or line[2]
            metrics = line[1] or metrics
            if line[2]:
                break
        assert running.process.stderr is not None
        reader = threading.Thread(target=lambda: running.lines.extend(running.process.stderr or ()), daemon=True)
        reader.start()
        yield running, metrics


def history(days: int) -> list[dict[str, Any]]:
    """The agent's untrimmed history, with a key in each place."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": f"You deploy with {KEYS['system']}."},
        {"role": "user", "content": f"My key is {KEYS['user']}; look around, then deploy."},
    ]
    for day in range(days):
        arguments = json.dumps({"path": f"day{day}.log", "token": KEYS["arguments"]})
        call = {"id": f"c{day}", "type": "function", "function": {"name": "read", "arguments": arguments}}
        listing = f"config.{KEYS['listing']}.yaml\n" if day % 2 else f"GITHUB_TOKEN={KEYS['result']}\n"
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{day}", "content": listing + f"line of day {day}\n" * 60},
        ]
    return messages


def trimmed_as_often(times: int, spans: list[Span]) -> bool:
    """Whether that many spans of TrimPrompt have arrived, or more."""
    return times <= sum("TrimPrompt" in span.name for span in spans)


def test_no_byte_of_a_key_leaves(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Not in prompts, recall, errors, revisions, logs, metrics, spans; the listed tool gets it, over a SIGKILL too."""
    socket = tmp_path_factory.mktemp("s") / "s"
    seen: list[str] = []
    masks: list[str] = []

    def model(**keywords: Any) -> dict[str, Any]:
        prompt = json.dumps(keywords["messages"], ensure_ascii=False)
        seen.append(prompt)
        masks[:] = MASK.findall(prompt)
        made = [("deploy", json.dumps({"token": masks[0]})), ("http_post", json.dumps({"body": masks[0]}))]
        calls = [
            {"id": f"d{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for number, (name, arguments) in enumerate(made)
        ]
        return {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": calls}}]}

    logs: list[list[str]] = []
    with sink() as (kept, port):
        for first, last in ((0, DAYS // 2), (DAYS // 2, DAYS)):  # a process for each half; the first one is killed
            with sidecar(socket, port) as (running, metrics):
                logs.append(running.lines)
                with Client(f"unix:{socket}", deadline=PATIENCE, fail_open=False) as client:
                    run = client.run("planted")
                    for day in range(first, last):
                        trimmed = run.trim({"model": "gpt-5", "messages": history(day + 1)})
                        seen.append(json.dumps(trimmed.prompt, ensure_ascii=False) + repr(trimmed))
                    completion = run.complete("openai_chat", model, model="gpt-5", messages=history(last))
                    deploy, post = completion.calls
                    assert json.loads(deploy.arguments)["token"] in KEYS.values()
                    assert (0, 1) == (deploy.masks_left, post.masks_left)
                    seen += [
                        post.arguments,
                        repr(client.search("planted", "GITHUB_TOKEN config.yaml", max_snippets=20)),
                    ]
                    for entry in trimmed.stash_entries:
                        seen.append(repr(client.retrieve("planted", entry.stash_id)))
                    leaving = [*history(last), {"role": "user", "content": f"{KEYS['user']}: {IBAN}"}]
                    with pytest.raises(GuardRefused) as refused:
                        run.trim({"messages": leaving})
                    seen += [str(refused.value), repr(client.get_run("planted"))]
                with urllib.request.urlopen(metrics) as page:
                    seen.append(page.read().decode())
                    assert "prompt_sidecar_guard" in seen[-1]
                kept.wait_for(partial(trimmed_as_often, last))
                running.process.kill()
                running.process.wait()
            socket.unlink(missing_ok=True)
    assert len(set(masks)) == len(KEYS)
    spans = b"".join(kept.raw)
    written = "\n".join(seen) + "".join(line for lines in logs for line in lines)
    for place, value in KEYS.items():
        assert value not in written, place
        assert value[8:24] not in written, place
        assert value[8:24].encode() not in spans, place
