"""The real program with one door alone: it serves through that door, listens nowhere else, drains and ends."""

from __future__ import annotations

import http.client
import json
import re
import signal
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from prompt_sidecar.doors.envoy.v1 import ext_proc_pb2 as wire
from tests.cli.running import PATIENCE, Program, program, run
from tests.client.provider import Says
from tests.doors.envoy.test_door import body, headers
from tests.doors.envoy.through import chat
from tests.doors.grpc.serving import request
from tests.doors.http.upstream import Upstream

NO_GRPC = {"SERVER__LISTEN": "", "TELEMETRY__METRICS_LISTEN": ""}
LISTENS = "0A"
"""The state of a socket that listens, in the tables of Linux (net/tcp_states.h)."""


def ports(served: Program) -> set[int]:
    """The TCP ports at which a program listens."""
    folder = Path("/proc", str(served.process.pid))
    links = set()
    for each in (folder / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            links.add(str(each.readlink()))
    own = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    tables = ((folder / "net" / name).read_text().splitlines()[1:] for name in ("tcp", "tcp6"))
    rows = [row.split() for table in tables for row in table]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == LISTENS and row[9] in own}


def ended(served: Program) -> bool:
    """Whether the program drains and ends with all that was asked of it done."""
    served.process.send_signal(signal.SIGTERM)
    return served.end() == 0


def test_the_http_door_alone() -> None:
    """An agent is answered by its provider, probes say that the process is ready, and there is no gRPC."""
    with Upstream(lambda _: Says("Hello.")) as provider:
        settings = NO_GRPC | {"HTTP__LISTEN": "127.0.0.1:0", "HTTP__OPENAI_UPSTREAM": provider.url}
        with program(**settings, SERVER__HEALTH_LISTEN="127.0.0.1:0") as served:
            probes = int(served.wait_for(r"probes over HTTP: listening on \S+:(\d+)")[1])
            url = served.wait_for(r"ready: listening on (http://127\.0\.0\.1:\d+)$")[1]
            asked = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi."}]}).encode()
            sent = urllib.request.Request(f"{url}/v1/chat/completions", asked, {"content-type": "application/json"})
            with urllib.request.urlopen(sent, timeout=PATIENCE) as answer:
                assert answer.headers["x-prompt-sidecar-run"].startswith("http-")
            probe = http.client.HTTPConnection("127.0.0.1", probes, timeout=PATIENCE)
            probe.request("GET", "/readyz")
            assert 200 == probe.getresponse().status
            assert {int(url.rpartition(":")[2]), probes} == ports(served)
            assert ended(served)


def test_the_envoy_door_alone() -> None:
    """A prompt is trimmed on its way through Envoy."""
    with program(**NO_GRPC, ENVOY__LISTEN="127.0.0.1:0") as served:
        address = served.wait_for(r"external processor for Envoy: listening on (\S+)")[1]
        served.wait_for(r"ready$")
        with grpc.insecure_channel(address) as channel:
            call = channel.stream_stream(
                "/envoy.service.ext_proc.v3.ExternalProcessor/Process",
                request_serializer=wire.ProcessingRequest.SerializeToString,
                response_deserializer=wire.ProcessingResponse.FromString,
            )
            *_, last = call(iter([headers(), body(chat(1, "found it"))]), timeout=PATIENCE)
            assert last.HasField("request_body")
            own: Any = channel.unary_unary("/prompt_sidecar.v1.SidecarService/TrimPrompt")
            with pytest.raises(grpc.RpcError) as refused:
                own(request().SerializeToString(), timeout=PATIENCE)
            assert grpc.StatusCode.UNIMPLEMENTED is refused.value.code()
        assert {int(address.rpartition(":")[2])} == ports(served)
        assert ended(served)


def test_the_grpc_door_alone() -> None:
    """It is the default."""
    with program("--listen", "127.0.0.1:0", TELEMETRY__METRICS_LISTEN="") as served:
        address = served.wait_for(r"ready: listening on (\S+)$")[1]
        with grpc.insecure_channel(address) as channel:
            own: Any = channel.unary_unary("/prompt_sidecar.v1.SidecarService/TrimPrompt")
            own(request().SerializeToString(), timeout=PATIENCE)
        assert {int(address.rpartition(":")[2])} == ports(served)
        assert ended(served)


def test_a_process_without_a_door_is_refused() -> None:
    """At the start, with what may be set; pages for people are no door for agents."""
    errors = run("serve", **NO_GRPC, ADMIN__LISTEN="127.0.0.1:0").stderr
    assert re.search(r"server\.listen, server\.socket, http\.listen and envoy\.listen are all empty", errors)
