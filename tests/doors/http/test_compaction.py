"""Paths beside the model's: what is counted, compacted, or passes with a reason."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from prompt_sidecar.guard.options import GuardOptions
from tests.client.provider import Says
from tests.doors.http.serving import Proxied, proxied

MODEL = {"model": "scripted", "store": False}
TOOL = {"type": "function", "name": "read", "parameters": {"type": "object"}, "strict": False}
ITEM = {"id": "cmp_1", "type": "compaction", "encrypted_content": "gAAAAA" * 300, "created_by": "x"}
RUN = "x-prompt-sidecar-run"


def items(iterations: int) -> list[Any]:
    """A history whose iterations take some 600 tokens each."""
    found: list[Any] = [{"role": "user", "content": "Find the bug."}]
    for number in range(iterations):
        text = "".join(f"src/module_{number}.py:{line}: warning: unused value_{number}\n" for line in range(40))
        found.append({"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": "{}"})
        found.append({"type": "function_call_output", "call_id": f"c{number}", "output": text})
    return found


class Beside:
    """A provider's other paths: what it was sent there, and its answers."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        self.answered: list[bytes] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer with the user's items and a compaction, or a count."""
        raw = await request.read()
        self.bodies.append((request.path, raw))
        made: dict[str, Any] = {"object": "response.input_tokens", "input_tokens": 321}
        if request.path.endswith("/compact"):
            kept = [each for each in json.loads(raw)["input"] if each.get("role") == "user"]
            usage = {"input_tokens": 3_000, "output_tokens": 20, "total_tokens": 3_020}
            made = {"id": "resp_1", "object": "response.compaction", "output": [*kept, ITEM], "usage": usage}
        self.answered.append(json.dumps(made, indent=1).encode())
        return web.Response(body=self.answered[-1], content_type="application/json")


@contextmanager
def serving(**fields: Any) -> Iterator[tuple[Proxied, Beside]]:
    """A door before a model that says a word, and a provider's other paths."""
    beside = Beside()
    with proxied(lambda _: Says("Done."), **fields) as here:
        here.upstream.other = beside.answer
        yield here, beside


def post(here: Proxied, path: str, body: Any) -> tuple[bytes, Any]:
    """Send a request; the answer's bytes and headers."""

    async def send() -> tuple[bytes, Any]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with aiohttp.ClientSession() as session, session.post(here.url + path, data=raw) as answer:
            assert 200 == answer.status
            return await answer.read(), answer.headers

    return asyncio.run(send())


def last(beside: Beside) -> Any:
    """The body that came last, decoded."""
    return json.loads(beside.bodies[-1][1])


def test_input_tokens_are_those_of_the_trimmed_prompt() -> None:
    """Of the run's own, though the body says neither how it is stored nor, perhaps, its tools; nothing is recorded."""
    with serving() as (here, beside):
        for number in range(1, 15):
            _, headers = post(here, "/v1/responses", {**MODEL, "tools": [TOOL], "input": items(number)})
        sent = here.upstream.bodies[-1]["input"]
        for tools in ({"tools": [TOOL]}, {}):
            body, answer_headers = post(
                here, "/v1/responses/input_tokens", {"model": "scripted", "input": items(14), **tools}
            )
            assert beside.answered[-1] == body
            assert headers[RUN] == answer_headers[RUN]
            assert "x-prompt-sidecar-untrimmed" not in answer_headers
            asked = last(beside)["input"]
            assert [each for each in sent if "role" not in each] == [each for each in asked if "role" not in each]
        again, _ = post(here, "/v1/responses", {**MODEL, "tools": [TOOL], "input": items(14)})
        assert again
        assert sent == here.upstream.bodies[-1]["input"]
    assert len(json.dumps(sent)) < len(json.dumps(items(14))) / 2


@pytest.mark.parametrize("tools", [{"tools": [TOOL]}, {}])
def test_a_history_is_compacted_as_it_was_trimmed(tools: dict[str, Any]) -> None:
    """It fits, is of the same run, and so is what goes on from it; the item passes as it came, and all in front."""
    with serving() as (here, beside):
        for number in range(1, 15):
            _, headers = post(here, "/v1/responses", {**MODEL, "tools": [TOOL], "input": items(number)})
        sent = here.upstream.bodies[-1]["input"]
        body, answer_headers = post(here, "/v1/responses/compact", {"model": "scripted", "input": items(14), **tools})
        assert beside.answered[-1] == body
        assert headers[RUN] == answer_headers[RUN]
        assert "true" == answer_headers["x-prompt-sidecar-fits"]
        asked = last(beside)["input"]
        assert [each for each in sent if "role" not in each] == [each for each in asked if "role" not in each]

        window = json.loads(body)["output"]
        history = [*window, {"role": "user", "content": "Go on."}, *items(12)[1:]]
        _, later = post(here, "/v1/responses", {**MODEL, "tools": [TOOL], "input": history})
        assert headers[RUN] == later[RUN]
        assert int(later["x-prompt-sidecar-trims"])
        returned = here.upstream.bodies[-1]["input"]
        first = returned.index(window[0])
        assert window == returned[first : first + len(window)]
        figures = here.core.figures("local", headers[RUN])
        assert figures.usage.reports


def test_a_history_that_no_process_has_seen_is_compacted() -> None:
    """It must fit as well."""
    with serving() as (here, beside):
        _, answer_headers = post(here, "/v1/responses/compact", {"model": "scripted", "input": items(14)})
    assert "true" == answer_headers["x-prompt-sidecar-fits"]
    assert int(answer_headers["x-prompt-sidecar-trims"])
    assert len(beside.bodies[0][1]) < len(json.dumps(items(14)))


def test_a_secret_is_masked_before_it_is_compacted() -> None:
    """As in any prompt."""
    secret = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hI6"  # a made-up token
    history = [*items(2), {"role": "user", "content": f"It is {secret}."}]
    with serving(guard=GuardOptions(mode="enforce", scan_seconds=60)) as (here, beside):
        for path in ("compact", "input_tokens"):
            post(here, f"/v1/responses/{path}", {"model": "scripted", "input": history})
            assert secret.encode() not in beside.bodies[-1][1]
            assert b"It is " in beside.bodies[-1][1]


def test_a_block_that_stands_first() -> None:
    """After Anthropic's compaction on demand the block stands first: nothing may stand before it; the run goes on."""
    block = {"type": "compaction", "content": "All was read.", "signature": "c2lnbmF0dXJl" * 9}
    tools = [{"name": "read", "input_schema": {"type": "object"}}]
    common = {"model": "scripted", "max_tokens": 99, "tools": tools}
    answers = iter([Says("First."), Says("", blocks=[block]), Says("On.")])
    with proxied(lambda _: next(answers)) as here:
        history: list[Any] = [{"role": "user", "content": "Find the bug."}]
        _, headers = post(here, "/v1/messages", {**common, "messages": history})
        history += [{"role": "assistant", "content": "First."}, {"role": "user", "content": "Go on."}]
        answer, answer_headers = post(
            here, "/v1/messages", {**common, "messages": history, "compaction": {"type": "summarize"}}
        )
        assert headers[RUN] == answer_headers[RUN]
        assert block in json.loads(answer)["content"]
        history = [{"role": "assistant", "content": [block]}, {"role": "user", "content": "What was it?"}]
        here.upstream.only_other = True
        seen: list[Any] = []

        async def other(request: web.Request) -> web.StreamResponse:
            seen.append(json.loads(await request.read()))
            return web.json_response({"type": "message", "role": "assistant", "content": []})

        here.upstream.other = other
        _, later = post(here, "/v1/messages", {**common, "messages": history})
    assert headers[RUN] == later[RUN]
    assert history == seen[0]["messages"]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/v1/messages/batches", "batch"),
        ("/v1/batches", "batch"),
        ("/v1/completions", "text_prompt"),
        ("/v1/embeddings", "no_prompt"),
    ],
)
@pytest.mark.parametrize("guard", [None, GuardOptions(mode="enforce", scan_seconds=60)])
def test_what_passes_unchanged_says_why(path: str, why: str, guard: GuardOptions | None) -> None:
    """Prompts that are not trimmed, and what is no prompt."""
    raw = b'{ "model": "scripted", "prompt": "Once upon a time" }'
    with serving(guard=guard) as (here, beside):
        _, answer_headers = post(here, path, raw)
    assert [(path, raw)] == beside.bodies
    assert why == answer_headers.get("x-prompt-sidecar-untrimmed")
