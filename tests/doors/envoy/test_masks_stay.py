"""Responses whose masks stay: they pass byte by byte, and are counted by reason."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.client.provider import Says
from tests.doors.envoy.test_masked import VALUE, Way, way
from tests.doors.envoy.test_through_envoy import counted
from tests.doors.envoy.through import PATIENCE
from tests.doors.http.agents import TOOL
from tests.doors.http.path_models import WAYS, pieces
from tests.waiting import until

GEMINI = WAYS["gemini"]
BODY = json.dumps({"contents": [{"role": "user", "parts": [{"text": f"Deploy with {VALUE}."}]}]}).encode()


class _Provider:
    """Answers with a call that has the mask it was shown, in pieces, under headers of a test's own."""

    def __init__(
        self, way: str = "gemini", *, compressed: bool = False, halved: bool = False, more: int = 0, **headers: str
    ) -> None:
        self.way = WAYS[way]
        self.goes_on = threading.Event()
        """Where the answer is halved, its second half waits for this."""
        self._halved = halved
        self._compressed = compressed
        self._more = more
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.asked: list[Any] = []
        self.answered = b""

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        raw = await request.read()
        self.asked.append(dict(request.headers))
        found = re.search("⟦github_token:[a-z0-9]+⟧", raw.decode())
        assert found is not None
        says = Says("Now. " + "x" * self._more, [("c", TOOL, {"token": found[0]})])
        made = pieces(self.way, says)
        if self._compressed:
            made = [gzip.compress(b"".join(made))]
        self.answered = b"".join(made)
        response = web.StreamResponse(headers={"content-type": self.way.kind} | self._headers)
        await response.prepare(request)
        if self._halved:
            await response.write(self.answered[:100])
            await asyncio.get_running_loop().run_in_executor(None, self.goes_on.wait, PATIENCE)
            made = [self.answered[100:]]
        for piece in made:
            await response.write(piece)
        await response.write_eof()
        return response


def _passes(through: Way, provider: _Provider, reason: str) -> None:
    """Ask; the answer is the provider's, and counted."""
    through.upstream.other = provider
    status, body = through.envoy.send(BODY, provider.way.path, accept_encoding="gzip, br")

    assert 200 == status
    assert provider.answered == body
    until(lambda: through.stayed(reason) == 1)


@pytest.mark.parametrize("usage", ["true", "false"])
def test_a_provider_that_compresses_all_the_same(tmp_path: Path, usage: str) -> None:
    """It was asked not to."""
    provider = _Provider(compressed=True, content_encoding="gzip")
    with way(tmp_path, ENVOY__USAGE=usage) as through:
        _passes(through, provider, "encoded")

    assert ["identity"] == [headers["Accept-Encoding"] for headers in provider.asked]


def test_other_content_types(tmp_path: Path) -> None:
    """One that is no form of the provider's answers, and two at once."""
    with way(tmp_path) as through:
        _passes(through, _Provider(content_type="text/plain"), "unreadable")


@pytest.mark.parametrize("name", ["gemini", "gemini-sse", "gemini-array", "bedrock-stream"])
def test_answers_beyond_their_bound(tmp_path: Path, name: str) -> None:
    """Whole ones and streams; what reached the bound is counted too."""
    provider = _Provider(name, more=5_000)
    body = BODY if name.startswith("gemini") else BODY.replace(b"contents", b"messages").replace(b"parts", b"content")
    with way(tmp_path, ENVOY__ANSWER_BYTES="2048") as through:
        through.upstream.other = provider
        status, answer = through.envoy.send(body, provider.way.path)
        until(lambda: through.stayed("too_long") == 1)
        reached = counted(through.metrics, "prompt_sidecar_bound_hits_total", bound="envoy.answer_bytes")

    assert 200 == status
    assert provider.answered == answer
    assert 1 == reached


def test_an_envoy_that_gives_no_whole_answers(tmp_path: Path) -> None:
    """Without allow_mode_override an answer comes in pieces, and none waits for the next."""

    def refused(whole: dict[str, Any]) -> None:
        manager = whole["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
        manager["http_filters"][0]["typed_config"]["allow_mode_override"] = False

    provider = _Provider(halved=True)
    with way(tmp_path, refused) as through:
        through.upstream.other = provider
        with through.envoy.open(BODY, provider.way.path) as response:
            first = response.read1()
            provider.goes_on.set()
            rest = response.read()
        until(lambda: through.stayed("unchangeable") == 1)

    assert len(first) < len(provider.answered)
    assert provider.answered == first + rest


def test_what_is_not_of_its_content_type(tmp_path: Path) -> None:
    """JSON that is none, and a stream that is none."""
    with way(tmp_path) as through:
        _passes(through, _Provider("gemini-sse", content_type="application/json"), "unreadable")
