"""The real program's HTTP door in a container's memory: bodies and answers that become much more than their bytes.

Each is tried in a memory cgroup, where one can be made, in which the kernel kills a process that takes too much; and
under a limit of addresses, which needs no privilege, and under which a process that takes too much fails.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import aiohttp
import pytest
import zstandard
from aiohttp import web

from prompt_sidecar.process.cgroups import CGROUPS
from tests.cli.running import PATIENCE, Program, environment
from tests.doors.http.upstream import Upstream, scripted

MB: Final = 1_000_000
ADDRESSES: Final = 850 * MB
"""Bytes of addresses that a server with all its threads has, most of them stacks and heaps that hold nothing; about."""
RESIDENT: Final = 150 * MB
"""Bytes of memory that it takes."""
OPENAI: Final = "/v1/chat/completions"
BEFORE: Final = b'{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"'
EVENT: Final = b'data: {"choices":[{"index":0,"delta":{"content":"'
SAYS: Final = BEFORE + b'Hello."}}]}'


def _request(text: str, *, stream: bool = False) -> bytes:
    tool = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "tools": [tool], "stream": stream}
    return json.dumps(body).encode()


class _Zstd:
    """As a zlib compressor."""

    def __init__(self) -> None:
        self._packer = zstandard.ZstdCompressor().compressobj()
        self.compress, self.flush = self._packer.compress, self._packer.flush


PACKERS: Final[dict[str, Callable[[], Any]]] = {
    "gzip": lambda: zlib.compressobj(9, wbits=31),
    "deflate": lambda: zlib.compressobj(9),
    "zstd": _Zstd,
}


@cache
def _packed(encoding: str, begins: bytes, megabytes: int, ends: bytes) -> bytes:
    """A text of one letter, between two others, with an encoding."""
    packer, letters = PACKERS[encoding](), b"y" * MB
    parts = [packer.compress(begins), *(packer.compress(letters) for _ in range(megabytes)), packer.compress(ends)]
    return b"".join([*parts, packer.flush()])


@dataclass(frozen=True, slots=True)
class Case:
    """Requests that are sent at once, and what the provider answers to each."""

    name: str
    megabytes: int
    """Of the container."""
    times: int
    make_request: Callable[[], bytes]
    encoding: str = ""
    """Of the request."""
    kind: str = "application/json"
    answer: tuple[bytes, int, bytes] = (SAYS, 0, b"")
    """What it begins with, megabytes of one letter, and what it ends with."""
    packed: str = ""
    """The encoding of the answer."""


def _bomb(encoding: str) -> bytes:
    begins, ends = _request("|").split(b"|")
    return _packed(encoding, begins, 33, ends)


CASES: Final = [
    *(Case(f"requests packed by {each}", 600, 4, partial(_bomb, each), each) for each in PACKERS),
    Case("streams of one event", 600, 2, partial(_request, "a", stream=True), kind="text/event-stream",
         answer=(EVENT, 100, b'"}}]}\n\ndata: [DONE]\n\n')),
    Case("eight streams of one event", 1_200, 8, partial(_request, "a", stream=True), kind="text/event-stream",
         answer=(EVENT, 100, b'"}}]}\n\ndata: [DONE]\n\n')),
    Case("streams packed by gzip", 600, 4, partial(_request, "a", stream=True), kind="text/event-stream",
         answer=(EVENT, 300, b'"}}]}\n\ndata: [DONE]\n\n'), packed="gzip"),
    Case("whole answers", 600, 4, partial(_request, "a"), answer=(BEFORE, 60, b'"}}]}')),
    *(Case(f"answers packed by {each}", 600, 4, partial(_request, "a"), answer=(BEFORE, 1_000, b'"}}]}'), packed=each)
      for each in PACKERS),
]  # fmt: skip


@contextmanager
def _memory_cgroup(megabytes: int) -> Iterator[Callable[[], None]]:
    """Make a memory cgroup without swap; yield what puts the process that calls it there. Skips where it cannot."""
    version1 = (CGROUPS / "memory").is_dir()
    group = (CGROUPS / "memory" if version1 else CGROUPS) / f"prompt-sidecar-test-{os.getpid()}"
    names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes") if version1 else ("memory.max", "memory.swap.max")
    try:
        group.mkdir()
    except OSError:
        pytest.skip("skipped: no memory cgroup can be made here, which takes root and a writable /sys/fs/cgroup")

    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    try:
        try:
            (group / names[0]).write_text(str(megabytes * MB))
        except OSError:
            pytest.skip("skipped: a cgroup here has no controller of memory")
        with suppress(OSError):  # a system without swap has none
            (group / names[1]).write_text(str(megabytes * MB) if version1 else "0")
        yield enter
    finally:
        with suppress(OSError):
            group.rmdir()


def _addresses(megabytes: int) -> str:
    """Python that limits the addresses of its own process to those of an idle server and so many megabytes more."""
    most = ADDRESSES + megabytes * MB - RESIDENT
    return f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({most}, {most}))"


@contextmanager
def _limited(how: str, megabytes: int, upstream: str) -> Iterator[tuple[Program, str]]:
    """A server with so much memory, and the address of its HTTP door."""
    limit = _addresses(megabytes) if how == "addresses" else "pass"
    code = (
        f"import runpy, sys; {limit}; sys.argv[0] = 'prompt_sidecar'; "
        "runpy.run_module('prompt_sidecar', run_name='__main__', alter_sys=True)"
    )
    settings = {"HTTP__OPENAI_UPSTREAM": upstream, "TELEMETRY__METRICS_LISTEN": ""}
    command = [sys.executable, "-c", code, "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with (
        _memory_cgroup(megabytes) if how == "cgroup" else nullcontext() as enter,
        subprocess.Popen(
            command,
            env=environment(**settings),
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=enter,  # noqa: PLW1509 - no thread of this process holds a lock that it needs
        ) as process,
    ):
        served = Program(process)
        try:
            url = served.wait_for(r"(http://127\.0\.0\.1:\d+)")[1]
            served.keep_reading()
            yield served, url
        finally:
            process.kill()


async def _answer(case: Case, request: web.Request) -> web.StreamResponse:
    await request.read()
    headers = {"content-type": case.kind} | ({"content-encoding": case.packed} if case.packed else {})
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    begins, megabytes, ends = case.answer
    with suppress(ConnectionError):  # the sidecar may have had enough
        if case.packed:
            await response.write(_packed(case.packed, begins, megabytes, ends))
        else:
            await response.write(begins)
            for _ in range(megabytes):
                await response.write(b"y" * MB)
            await response.write(ends)
        await response.write_eof()
    return response


async def _ask(url: str, body: bytes, encoding: str = "") -> tuple[int, int]:
    """Return the status and the bytes of the answer to a request."""
    headers = {"content-type": "application/json"} | ({"content-encoding": encoding} if encoding else {})
    timeout = aiohttp.ClientTimeout(PATIENCE)
    async with (
        aiohttp.ClientSession(auto_decompress=False, timeout=timeout) as session,
        session.post(url + OPENAI, data=body, headers=headers) as answer,
    ):
        size = 0
        async for chunk in answer.content.iter_any():
            size += len(chunk)
        return answer.status, size


async def _all(case: Case, url: str) -> Sequence[tuple[int, int]]:
    return await asyncio.gather(*(_ask(url, case.make_request(), case.encoding) for _ in range(case.times)))


@pytest.mark.parametrize(
    ("case", "how"),
    [(case, ("cgroup", "addresses")[number % 2]) for number, case in enumerate(CASES)],
    ids=[case.name for case in CASES],
)
def test_what_becomes_much_more_than_its_bytes(case: Case, how: str) -> None:
    """Requests are refused or answered; answers, which are paid for, arrive; the process lives, and serves on."""
    now = case
    with Upstream(scripted()) as upstream:
        upstream.only_other, upstream.other = True, lambda request: _answer(now, request)
        with _limited(how, case.megabytes, upstream.url) as (served, url):
            got = asyncio.run(_all(case, url))
            now = Case("small", 0, 1, bytes)
            assert (200, len(SAYS)) == asyncio.run(_ask(url, _request("hello")))
            assert served.process.poll() is None
    begins, megabytes, ends = case.answer
    whole = len(_packed(case.packed, *case.answer)) if case.packed else len(begins) + megabytes * MB + len(ends)
    if case.packed and case.kind != "application/json":  # streams are unpacked as they pass
        whole = len(begins) + megabytes * MB + len(ends)
    # A packed answer of more than http.max_body_bytes is refused where there is room for it, and else passes packed.
    others = {"requests": {200, 503}, "answers": {200, 502}}.get(case.name.partition(" ")[0], {200})
    assert others >= {status for status, _ in got}
    assert case.encoding or {size for status, size in got if status == 200} <= {whole}


@pytest.mark.parametrize("how", ["cgroup", "addresses"])
def test_usual_bodies_and_answers_pass_in_little_memory(how: str) -> None:
    """A packed request of some hundred kilobytes is trimmed, and a packed answer is read."""
    text = " ".join(f"line {number} of the log" for number in range(20_000))
    case = Case("usual", 600, 8, partial(gzip.compress, _request(text)), "gzip", answer=(SAYS, 0, b""), packed="gzip")

    async def ask(url: str) -> list[str]:
        headers = {"content-type": "application/json", "content-encoding": "gzip"}
        async with aiohttp.ClientSession() as session:
            posts = [session.post(url + OPENAI, data=case.make_request(), headers=headers) for _ in range(case.times)]
            answers = await asyncio.gather(*posts)
            return [each.headers.get("x-prompt-sidecar-untrimmed", "") for each in answers if each.status == 200]

    with Upstream(scripted()) as upstream:
        upstream.only_other, upstream.other = True, lambda request: _answer(case, request)
        with _limited(how, case.megabytes, upstream.url) as (_, url):
            assert {"", "protected_text", "no_need"}.issuperset(asyncio.run(ask(url)))
