"""A sidecar that goes down or is slow while a stream with masks passes: the agent gets all of it, in order."""

from __future__ import annotations

import asyncio
import http.client
import json
import queue
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.doors.envoy.test_masked import VALUE, Way, way
from tests.doors.envoy.through import PATIENCE
from tests.doors.http.agents import FORMATS, TOOL
from tests.waiting import until

PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
}
TOOLS: dict[str, Any] = {
    "openai_chat": {"type": "function", "function": {"name": TOOL, "parameters": {"type": "object"}}},
    "openai_responses": {"type": "function", "name": TOOL, "parameters": {"type": "object"}, "strict": False},
    "anthropic_messages": {"name": TOOL, "input_schema": {"type": "object"}},
}


def _body(format: str) -> bytes:
    asked = [{"role": "user", "content": f"Deploy with {VALUE}."}]
    history = "input" if format == "openai_responses" else "messages"
    more = {"max_tokens": 300} if format == "anthropic_messages" else {}
    body = {"model": "scripted", "stream": True, "tools": [TOOLS[format]], history: asked, **more}
    return json.dumps(body).encode()


@dataclass
class _Stepped:
    """A stream whose events are sent one by one, and what the agent has got of it."""

    through: Way
    format: str
    steps: queue.SimpleQueue[None] = field(default_factory=queue.SimpleQueue)
    got: bytearray = field(default_factory=bytearray)
    over: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        """Ask, and read what comes."""

        async def step() -> None:
            await asyncio.get_running_loop().run_in_executor(None, self.steps.get, True, PATIENCE)

        self.through.upstream.before = step

        def read() -> None:
            connection = http.client.HTTPConnection("127.0.0.1", self.through.envoy.port, timeout=PATIENCE)
            headers = {"content-type": "application/json"}
            connection.request("POST", PATHS[self.format], _body(self.format), headers)
            with connection.getresponse() as response:
                while piece := response.read1():
                    self.got += piece
            self.over.set()

        threading.Thread(target=read, daemon=True).start()
        self.steps.put(None)
        until(lambda: bool(self.got))  # on a busy machine more time was asked for to trim the prompt

    @property
    def sent(self) -> bytes:
        """What the provider has sent."""
        return b"".join(each.answered for each in self.through.upstream.sent)

    def waits(self) -> bool:
        """Send an event; return whether something of it waits in the sidecar."""
        before, asked = len(self.got), self._asked()
        self.steps.put(None)
        until(lambda: len(self.got) > before or self._asked() > asked)
        return self._asked() > asked

    def _asked(self) -> int:
        return self.through.envoy.figure("ext_proc.override_message_timeout_received")

    def rest(self) -> None:
        """Send all further events, and wait for the end."""
        for _ in range(1_000):
            self.steps.put(None)
        assert self.over.wait(PATIENCE)


def _kill(through: Way) -> None:
    through.sidecar.process.send_signal(signal.SIGKILL)
    through.sidecar.process.wait(PATIENCE)


@pytest.mark.parametrize("format", FORMATS)
def test_a_sidecar_killed_within_a_mask_loses_nothing(tmp_path: Path, format: str) -> None:
    """Envoy still holds what had not gone on: the agent gets the provider's bytes, no half of a mask."""
    with way(tmp_path) as through:
        stream = _Stepped(through, format)
        stream.begin()
        while not stream.waits():
            pass
        waited = [stream.waits(), stream.waits()]
        half = stream.sent
        _kill(through)
        stream.rest()
        sent = stream.sent

    assert [True, True] == waited
    assert b"u27e6" in half
    assert b"u27e7" not in half
    assert sent == bytes(stream.got)


def test_a_sidecar_killed_after_a_mask_leaves_the_others(tmp_path: Path) -> None:
    """The value that was put back stays, what had not gone on has its mask; nothing comes twice."""
    with way(tmp_path) as through:
        stream = _Stepped(through, "openai_chat")
        stream.begin()
        while VALUE.encode() not in stream.got or not stream.waits():
            if VALUE.encode() not in stream.got:
                stream.waits()
        _kill(through)
        stream.rest()
    calls: dict[int, str] = {}
    for line in bytes(stream.got).splitlines():
        if line.startswith(b"data: {"):
            for call in json.loads(line[6:])["choices"][0]["delta"].get("tool_calls") or []:
                calls[call["index"]] = calls.get(call["index"], "") + call["function"].get("arguments", "")
    arguments = json.loads(calls[0])

    assert f"a {VALUE} b" == arguments["token"]
    assert json.loads(arguments["body"])["header"].startswith('say "⟦github_token:')
    assert json.loads(calls[1])["text"].startswith("⟦github_token:")


def test_a_model_that_pauses_within_a_mask_is_waited_for(tmp_path: Path) -> None:
    """Longer than Envoy's message_timeout, as the sidecar asks for more: the value is put back."""

    def impatient(whole: dict[str, Any]) -> None:
        manager = whole["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
        manager["http_filters"][0]["typed_config"]["message_timeout"] = "1s"

    with way(tmp_path, impatient) as through:
        stream = _Stepped(through, "openai_chat")
        stream.begin()
        while not stream.waits():
            pass
        began = _uptime(through)
        until(lambda: through.envoy.figure("ext_proc.message_timeouts") > 0 or _uptime(through) > began + 2)
        stream.rest()
        timeouts = through.envoy.figure("ext_proc.message_timeouts")

    assert VALUE.encode() in stream.got
    assert 0 == timeouts


def _uptime(through: Way) -> int:
    """Return the seconds that Envoy has run, by its own clock."""
    connection = http.client.HTTPConnection("127.0.0.1", through.envoy.admin, timeout=PATIENCE)
    connection.request("GET", "/server_info")
    return int(json.loads(connection.getresponse().read())["uptime_current_epoch"].rstrip("s"))
