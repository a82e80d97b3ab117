"""The guard behind a real Envoy: providers see masks, tools get the values that the settings allow them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from tests.cli.running import Program
from tests.client.provider import Says
from tests.doors.envoy.test_through_envoy import counted, sidecar
from tests.doors.envoy.through import Envoy, configuration, envoy, envoy_binary
from tests.doors.http.agents import FORMATS, TOOL, Agent
from tests.doors.http.path_models import WAYS, PathAgent, PathUpstream, hear
from tests.doors.http.upstream import Upstream
from tests.real.needing import need

VALUE: Final = "ghp_" + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEa"
FOREIGN: Final = "⟦github_token:aaaaaaaaaa⟧"
"""A mask that this run has not."""


@dataclass(frozen=True, slots=True)
class Way:
    """An Envoy and the provider behind it."""

    envoy: Envoy
    upstream: Upstream
    sidecar: Program
    metrics: int
    """The port of /metrics."""

    def stayed(self, reason: str) -> float:
        """Return how many responses kept their masks for a reason."""
        return counted(self.metrics, "prompt_sidecar_envoy_masks_stayed_total", reason=reason)

    @property
    def url(self) -> str:
        """Where agents reach the provider."""
        return f"http://127.0.0.1:{self.envoy.port}"


def _calls_with_masks(body: Any) -> Says:
    """The model calls two tools with the first mask that it was shown, and with one that it made up."""
    found = re.search("⟦github_token:[a-z0-9]+⟧", json.dumps(body, ensure_ascii=False))
    mask = found[0] if found is not None else "no mask"
    nested = json.dumps({"header": f'say "{mask}"'})
    allowed = {"token": f"a {mask} b", "body": nested, "other": FOREIGN}
    return Says("Now.", [("call-1", TOOL, allowed), ("call-2", "print", {"text": mask})])


Changed = Callable[[dict[str, Any]], None]
"""Changes Envoy's configuration."""


def _unchanged(_: dict[str, Any]) -> None:
    pass


@contextmanager
def way(folder: Path, change: Changed = _unchanged, **settings: str) -> Iterator[Way]:
    """Run a sidecar that masks, an Envoy that asks it, and a model that calls tools with masks."""
    need(envoy_binary)
    guard = {"GUARD__MODE": "enforce", "GUARD__RESTORE": json.dumps([f"{TOOL}:github_token"])}
    with (
        Upstream(_calls_with_masks) as upstream,
        sidecar(0, **(guard | {"LIMITS__DEFAULT_WINDOW": "100000"} | settings)) as (started, listens, metrics),
    ):
        whole = configuration(listens, upstream.port)
        change(whole)
        with envoy(folder, whole) as proxy:
            yield Way(proxy, upstream, started, metrics)


def _arguments(history: list[Any]) -> list[Any]:
    found = [call["function"]["arguments"] for entry in history for call in entry.get("tool_calls") or []]
    found += [entry["arguments"] for entry in history if entry.get("type") == "function_call"]
    blocks = [each for entry in history if isinstance(entry.get("content"), list) for each in entry["content"]]
    return [*map(json.loads, found), *(each["input"] for each in blocks if each.get("type") == "tool_use")]


@pytest.mark.parametrize("usage", ["true", "false"])
def test_tools_get_values_that_no_provider_sees(tmp_path: Path, usage: str) -> None:
    """In whole answers and in streams of each API. Another tool's masks stay, and so do masks of another run."""
    got: dict[tuple[str, bool], list[Any]] = {}
    with way(tmp_path, ENVOY__USAGE=usage) as through:
        for format in FORMATS:
            for stream in (False, True):
                run = {"x-prompt-sidecar-run": f"{format} {stream}".replace(" ", "-")}
                asked = [{"role": "user", "content": f"Deploy with {VALUE}."}]
                agent = Agent(format, stream, through.url, asked, headers=run)
                answer = agent.ask()
                got[format, stream] = _arguments(agent.history[1:])
                agent.answer(answer, lambda _: "deployed")
                agent.ask()  # with values in the history, which become the same masks again
        sent = [each.raw for each in through.upstream.sent]
        defects = through.upstream.defects

    allowed = {"token": f"a {VALUE} b", "body": json.dumps({"header": f'say "{VALUE}"'}), "other": FOREIGN}
    assert {key: [allowed] for key in got} == {key: calls[:1] for key, calls in got.items()}
    assert [] == [calls for calls in got.values() if not calls[1]["text"].startswith("⟦github_token:")]
    assert [] == [body for body in sent if VALUE.encode() in body]
    assert 4 * len(FORMATS) == len(sent)
    assert [] == defects


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_without_masks_gets_the_answer_unchanged(tmp_path: Path, *, stream: bool) -> None:
    """Byte by byte, with whatever looks like a mask."""
    body = {"model": "scripted", "stream": stream, "messages": [{"role": "user", "content": "Deploy."}]}
    with way(tmp_path) as through:
        status, answer = through.envoy.send(json.dumps(body).encode())
        (sent,) = through.upstream.sent

    assert 200 == status
    assert sent.answered == answer


def test_a_whole_answer_has_the_length_of_what_it_became(tmp_path: Path) -> None:
    """Values are longer than masks."""
    body = {"model": "scripted", "messages": [{"role": "user", "content": f"Deploy with {VALUE}."}]}
    with way(tmp_path) as through, through.envoy.open(json.dumps(body).encode()) as response:
        length, answer = response.getheader("content-length"), response.read()
        (sent,) = through.upstream.sent

    assert VALUE.encode() in answer
    assert VALUE.encode() not in sent.answered
    assert str(len(answer)) == length


@pytest.mark.parametrize("name", WAYS)
def test_tools_of_models_named_in_the_path_get_values(tmp_path: Path, name: str) -> None:
    """Gemini's and Bedrock's calls, whole and in each form of their streams, with checksums that are right."""
    kind = WAYS[name]
    with way(tmp_path) as through:
        provider = PathUpstream(_calls_with_masks, kind)
        through.upstream.other = provider
        agent = PathAgent(kind, through.url, headers={"x-prompt-sidecar-run": name})
        agent.add_user_text(f"Deploy with {VALUE}.")
        status, body, headers = agent.ask()

    calls = _calls(name, body)
    assert 200 == status
    assert {"token": f"a {VALUE} b", "body": json.dumps({"header": f'say "{VALUE}"'}), "other": FOREIGN} == calls[TOOL]
    assert calls["print"]["text"].startswith("⟦github_token:")
    assert headers["content-type"].startswith(kind.kind)
    assert [] == [raw for raw in provider.raw if VALUE.encode() in raw]
    assert [] == provider.defects


def _calls(name: str, body: bytes) -> dict[str, Any]:
    """The arguments of an answer's calls, by their tools."""
    if name != "gemini-array":
        return {tool: arguments for _, tool, arguments in hear(WAYS[name], body, {}).calls}
    parts = [part for each in json.loads(body) for part in each["candidates"][0]["content"]["parts"]]
    return {each["functionCall"]["name"]: each["functionCall"]["args"] for each in parts if "functionCall" in each}


@pytest.mark.parametrize("stream", [False, True])
def test_each_choice_gets_values(tmp_path: Path, *, stream: bool) -> None:
    """Where a request asks for several answers at once."""
    asked = [{"role": "user", "content": f"Deploy with {VALUE}."}]
    body = {"model": "scripted", "stream": stream, "n": 3, "messages": asked}
    with way(tmp_path) as through:
        through.upstream.other = _three_choices
        status, answer = through.envoy.send(json.dumps(body).encode(), "/deployments/scripted/chat/completions")

    found: dict[int, str] = {}
    for each in answer.decode().replace("data: ", "").splitlines():
        for choice in json.loads(each)["choices"] if each.startswith("{") else ():
            (call,) = choice["delta" if stream else "message"]["tool_calls"]
            found[choice["index"]] = found.get(choice["index"], "") + call["function"]["arguments"]
    assert 200 == status
    assert {number: {"token": f"{number} {VALUE}"} for number in range(3)} == {
        number: json.loads(text) for number, text in found.items()
    }


async def _three_choices(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    mask = re.search("⟦github_token:[a-z0-9]+⟧", json.dumps(body, ensure_ascii=False))
    assert mask is not None
    texts = [json.dumps({"token": f"{number} {mask[0]}"}) for number in range(body["n"])]

    def choices(part: str, pieces: list[str]) -> str:
        functions = [{"name": TOOL, "arguments": piece} for piece in pieces]
        calls = [[{"index": 0, "id": "c", "type": "function", "function": each}] for each in functions]
        made = [{"index": number, part: {"tool_calls": each}} for number, each in enumerate(calls)]
        return json.dumps({"choices": made})

    if not body["stream"]:
        return web.Response(text=choices("message", texts), content_type="application/json")
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for at in range(0, len(texts[0]), 9):
        await response.write(f"data: {choices('delta', [text[at : at + 9] for text in texts])}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response
