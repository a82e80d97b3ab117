"""What putting values back adds to an answer through Envoy.

Four Envoys take turns before one provider that answers at once: without the filter, with a sidecar that trims alone,
with one that reads usage, and with one that restores masks and reads no usage. The prompt is short, so that the
difference is the answer's. Its calls hold masks: one answer whole, one a stream of events of some characters each, sent
without a pause. On a busy machine the sidecar's own processor time for each request and answer is the steadier figure.
"""

from __future__ import annotations

import http.client
import json
import re
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

from tests.doors.envoy.through import PATIENCE, Envoy, Provider, configuration, envoy, envoy_binary, provider
from tests.lab.bench.through_envoy import processor
from tests.lab.harness.components import Missing
from tests.lab.harness.figures import Section, Spread, milliseconds

VALUE: Final = "ghp_" + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEa"
WAYS: Final = ("Envoy alone", "trimmed, usage off", "trimmed, usage on", "masks restored, usage off")
_CALLS: Final = 10
"""Calls of an answer, each with one mask among some text."""
_TEXT: Final = "a line of what the call is given, " * 60
_PIECE: Final = 16
"""Characters of arguments in one event: four tokens."""
_PATH: Final = "/v1/chat/completions"


def _body(*, stream: bool) -> bytes:
    asked = [{"role": "user", "content": f"Deploy with {VALUE}."}]
    return json.dumps({"model": "unlisted", "stream": stream, "messages": asked}).encode()


def _arguments(mask: str) -> str:
    return json.dumps({"text": _TEXT, "token": f"Bearer {mask}", "more": _TEXT}, ensure_ascii=False)


def _whole(mask: str) -> tuple[bytes, ...]:
    function = {"name": "deploy", "arguments": _arguments(mask)}
    calls = [{"id": f"c{index}", "type": "function", "function": function} for index in range(_CALLS)]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    usage = {"prompt_tokens": 20, "completion_tokens": 9}
    choices = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    return (json.dumps({"id": "c", "model": "gpt-4o", "choices": choices, "usage": usage}).encode(),)


def _events(mask: str) -> tuple[bytes, ...]:
    made = []

    def event(delta: Any, finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        made.append(b"data: " + json.dumps({"id": "c", "model": "gpt-4o", "choices": [choice]}).encode() + b"\n\n")

    text = _arguments(mask)
    for index in range(_CALLS):
        function = {"name": "deploy", "arguments": ""}
        event({"tool_calls": [{"index": index, "id": f"c{index}", "type": "function", "function": function}]})
        for at in range(0, len(text), _PIECE):
            event({"tool_calls": [{"index": index, "function": {"arguments": text[at : at + _PIECE]}}]})
    event({}, "tool_calls")
    return (*made, b"data: [DONE]\n\n")


class _Agent:
    """An agent with one connection that stays open, and one run."""

    def __init__(self, proxy: Envoy) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=PATIENCE)

    def ask(self, *, stream: bool) -> tuple[float, bytes]:
        """Send the prompt; return the seconds until the whole answer was there, and the answer."""
        headers = {"content-type": "application/json", "x-prompt-sidecar-run": "masks"}
        body = _body(stream=stream)
        began = perf_counter()
        self._connection.request("POST", _PATH, body, headers)
        with self._connection.getresponse() as response:
            answer = response.read()
            assert response.status == http.client.OK
        return perf_counter() - began, answer


def _answers(upstream: Provider, mask: str, *, stream: bool) -> int:
    """Have the provider answer with a mask; return how many pieces the answer has."""
    upstream.content_type = "text/event-stream" if stream else "application/json"
    upstream.pieces = _events(mask) if stream else _whole(mask)
    return len(upstream.pieces)


def masks_through_envoy(rounds: int) -> Section:
    """Ask `rounds` times each way, for a whole answer and for a stream, after one round that warms up."""
    title = "Masks through Envoy: a short prompt and its answer with masks (ms)"
    columns = ("answer and way", "p50", "p99", "added p50", "sidecar's CPU")
    try:
        envoy_binary()
    except Missing as error:
        return Section("envoy_masks", title, columns, [], {}, [str(error)])
    guard = {"GUARD__MODE": "enforce", "GUARD__RESTORE": json.dumps(["deploy:github_token"])}
    rows, facts = [], {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        upstream = stack.enter_context(provider())
        agents, sidecars = [], []
        for number, (usage, settings) in enumerate([(None, {}), (False, {}), (True, {}), (False, guard)]):
            sidecar = None if usage is None else stack.enter_context(processor(usage=usage, **settings))
            sidecars.append(sidecar)
            port = 9 if sidecar is None else sidecar.port
            own = folder / str(number)
            own.mkdir()
            proxy = stack.enter_context(envoy(own, configuration(port, upstream.port, filtered=usage is not None)))
            agents.append(_Agent(proxy))
        agents[-1].ask(stream=False)
        found = re.search("⟦github_token:[a-z0-9]+⟧", upstream.next().body.decode())
        assert found is not None, "the prompt was not masked"
        for stream, named in ((False, "whole"), (True, "stream")):
            pieces = _answers(upstream, found[0], stream=stream)
            times: dict[str, list[float]] = {way: [] for way in WAYS}
            before = [0.0 if sidecar is None else sidecar.cpu() for sidecar in sidecars]
            for number in range(rounds + 1):
                turn = list(zip(WAYS, agents, strict=True))
                for way, agent in turn if number % 2 else turn[::-1]:
                    for _ in range(pieces - 1):
                        upstream.gate.release()
                    took, answer = agent.ask(stream=stream)
                    upstream.next()
                    restores = way == WAYS[-1]
                    assert restores * _CALLS == answer.count(VALUE.encode()), "values are not where they should be"
                    if number:
                        times[way].append(took)
            size = f"{named} of {sum(map(len, upstream.pieces)) // 1_000} kB" + (f", {pieces} events" if stream else "")
            base = Spread.of(times[WAYS[0]])
            after = [0.0 if sidecar is None else sidecar.cpu() for sidecar in sidecars]
            for way, early, late in zip(WAYS, before, after, strict=True):
                took = (late - early) / (rounds + 1)
                spread = Spread.of(times[way])
                added = spread.p50 - base.p50
                shown = (milliseconds(spread.p50), milliseconds(spread.p99), milliseconds(added), milliseconds(took))
                rows.append((f"{size}, {way}", *shown))
                facts[f"{named}, {way}"] = {
                    **spread.facts(),
                    "added_p50_us": round(added * 1e6, 1),
                    "sidecar_cpu_us": round(took * 1e6, 1),
                }
    remarks = [
        f"{rounds} rounds; {_CALLS} masks an answer; four Envoys, three sidecars, provider and agent share this machine"
    ]
    return Section("envoy_masks", title, columns, rows, facts, remarks)
