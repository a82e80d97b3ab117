"""What the external processor adds through Envoy: to a request, and to an answer with masks.

Envoys with the filter, without usage, and without the filter take turns before one provider that answers at once. The
difference at the median is what a user pays: the body to the sidecar and back, the trim, and Envoy's own work for both.
Where values are put back the prompt is short, so that the difference is the answer's. Its calls hold masks: one answer
whole, one a stream of events of some characters each, sent without a pause. On a busy machine the sidecar's own
processor time for each request and answer is the steadier figure.
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
from tests.lab.bench.servers import real
from tests.lab.harness.components import Missing
from tests.lab.harness.figures import Section, Spread, in_turns, milliseconds
from tests.lab.harness.prompts import Prompts
from tests.lab.harness.servers import Server

_PATHS = {"openai_chat": "/v1/chat/completions", "anthropic_messages": "/v1/messages"}
_SIZES = ((60_000, 130_000, "some 91 kB"), (850_000, 1_150_000, "some 1 MB"))
"""Bytes of the bodies that are told apart."""
_PORT = r"external processor.* 127\.0\.0\.1:(\d+)"


def processor(*, usage: bool, **settings: str) -> Server:
    """Start the program with an external processor, and with more settings by their variables."""
    return real("--ext-proc", "127.0.0.1:0", "--set", f"envoy.usage={str(usage).lower()}", **settings)


class _Agent:
    """An agent with one connection that stays open."""

    def __init__(self, proxy: Envoy, path: str, **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=PATIENCE)
        self._path = path
        self._headers = {"content-type": "application/json"} | headers

    def send(self, run: str, body: bytes) -> tuple[float, bytes]:
        """Send a prompt; return the seconds until the whole answer was there, and the answer."""
        began = perf_counter()
        self._connection.request("POST", self._path, body, self._headers | {"x-prompt-sidecar-run": run})
        with self._connection.getresponse() as response:
            answer = response.read()
            assert response.status == http.client.OK
        return perf_counter() - began, answer


def through_envoy(prompts: Prompts, limit: int, rounds: int) -> Section:
    """Send the run `rounds` times each way, after one round that warms up."""
    try:
        envoy_binary()
    except Missing as error:
        return Section("envoy", "Through Envoy", ("way",), [], {}, [str(error)])
    ways = ("Envoy alone", "trimmed, usage off", "trimmed, usage on")
    times: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        upstream = stack.enter_context(provider())
        agents = []
        for number, (usage, filtered) in enumerate(((False, False), (False, True), (True, True))):
            port = int(stack.enter_context(processor(usage=usage)).found(_PORT)) if filtered else 9
            own = folder / str(number)
            own.mkdir()
            proxy = stack.enter_context(envoy(own, configuration(port, upstream.port, filtered=filtered)))
            agents.append(_Agent(proxy, _PATHS[prompts.format], **{"x-prompt-sidecar-context-window": str(limit)}))
        for number in range(rounds + 1):
            salted = prompts.salted(number)
            for index, body in enumerate(salted.bodies()):
                for way, agent in in_turns(list(zip(ways, agents, strict=True)), index + number):
                    took, _ = agent.send(f"envoy-{number}", body)
                    upstream.next()
                    for low, high, size in _SIZES:
                        if number and low <= len(body) <= high:
                            times.setdefault((way, size), []).append(took)
    rows, facts = [], {}
    for _, _, size in _SIZES:
        alone = times.get((ways[0], size))
        for way in ways:
            if alone is None or (way, size) not in times:
                continue
            spread, base = Spread.of(times[way, size]), Spread.of(alone)
            added = spread.p50 - base.p50
            rows.append((f"{size}, {way}", *spread.cells, milliseconds(added)))
            facts[f"{size}, {way}"] = {**spread.facts(), "added_p50_us": round(added * 1e6, 1)}
    return Section(
        "envoy",
        "Through Envoy: a request and its answer (ms)",
        ("body and way", "p50", "p99", "added p50"),
        rows,
        facts,
        [f"{rounds} rounds of {prompts.name}; three Envoys, two sidecars, provider and agent share this machine"],
    )


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
            port = 9 if sidecar is None else int(sidecar.found(_PORT))
            own = folder / str(number)
            own.mkdir()
            proxy = stack.enter_context(envoy(own, configuration(port, upstream.port, filtered=usage is not None)))
            agents.append(_Agent(proxy, _PATH))
        agents[-1].send("masks", _body(stream=False))
        found = re.search("⟦github_token:[a-z0-9]+⟧", upstream.next().body.decode())
        assert found is not None, "the prompt was not masked"
        for stream, named in ((False, "whole"), (True, "stream")):
            pieces = _answers(upstream, found[0], stream=stream)
            times: dict[str, list[float]] = {way: [] for way in WAYS}
            before = [0.0 if sidecar is None else sidecar.cpu() for sidecar in sidecars]
            for number in range(rounds + 1):
                for way, agent in in_turns(list(zip(WAYS, agents, strict=True)), number):
                    for _ in range(pieces - 1):
                        upstream.gate.release()
                    took, answer = agent.send("masks", _body(stream=stream))
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
                rows.append((f"{size}, {way}", *spread.cells, milliseconds(added), milliseconds(took)))
                facts[f"{named}, {way}"] = {
                    **spread.facts(),
                    "added_p50_us": round(added * 1e6, 1),
                    "sidecar_cpu_us": round(took * 1e6, 1),
                }
    remarks = [
        f"{rounds} rounds; {_CALLS} masks an answer; four Envoys, three sidecars, provider and agent share this machine"
    ]
    return Section("envoy_masks", title, columns, rows, facts, remarks)
