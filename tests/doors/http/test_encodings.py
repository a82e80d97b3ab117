"""Compressed request bodies: trimmed where they can be read, sent on as they came where not, and bounded."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
import zstandard
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.doors.http.encodings import decoded
from tests.client.histories import history
from tests.client.provider import Says
from tests.doors.http.serving import proxied
from tests.doors.http.upstream import scripted

MOST = 100_000
BODY = json.dumps({"model": "scripted", "messages": history("openai_chat", 30)}).encode()


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def _of_unknown_size(data: bytes) -> bytes:
    packer = zstandard.ZstdCompressor().compressobj()
    return packer.compress(data) + packer.flush()


PACKED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "deflate without a header": ("deflate", _raw_deflate),
    "zstd": ("zstd", zstandard.ZstdCompressor().compress),
    "zstd of unknown size": ("ZSTD", _of_unknown_size),
}


@pytest.mark.parametrize("name", PACKED)
@given(data=st.binary(max_size=2_000))
def test_what_was_packed_is_read(name: str, data: bytes) -> None:
    """Every encoding gives back what went in; cut short it gives nothing."""
    encoding, pack = PACKED[name]
    packed = pack(data)
    assert data == decoded(packed, encoding, MOST)
    assert decoded(packed[:-1], encoding, MOST) is None
    several = data * 2 if encoding != "deflate" else None
    assert several == decoded(packed * 2, encoding, MOST)


@pytest.mark.parametrize("padding", [b"\0", bytes(100_000), b"\n", b"odd" * 50_000])
@pytest.mark.parametrize("name", PACKED)
def test_what_follows_the_end_is_left_out_of_an_answer(name: str, padding: bytes) -> None:
    """And makes a request one that cannot be read."""
    encoding, pack = PACKED[name]
    data = b"a line\n" * 1_000
    packed = pack(data) + padding

    assert data == decoded(packed, encoding, MOST, padded=True)
    assert decoded(packed, encoding, MOST) is None
    assert decoded(pack(data)[:-1], encoding, MOST, padded=True) is None


def _skippable(size: int, kind: int = 0) -> bytes:
    """A zstd frame that holds nothing for the reader (RFC 8878, 3.1.2)."""
    return (0x184D2A50 + kind).to_bytes(4, "little") + size.to_bytes(4, "little") + bytes(size)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("size", [0, 5, 200_000])
@pytest.mark.parametrize("where", ["S.", ".S", ".S.", "SS.", "S.S.S", "E.", ".E", "E.SE.", "S", "E"])
def test_frames_that_hold_nothing(where: str, size: int, *, padded: bool) -> None:
    """Skippable frames and empty ones, before, between and behind others: each of the others counts once."""
    data = b"a line\n" * 1_000
    frame, empty = _of_unknown_size(data), zstandard.ZstdCompressor().compress(b"")
    frames = {"S": _skippable(size, kind=size % 16), "E": empty, ".": frame}
    packed = b"".join(frames[each] for each in where)

    assert data * where.count(".") == decoded(packed, "zstd", MOST, padded=padded)
    assert decoded(packed[:-1], "zstd", MOST, padded=padded) is None


def test_zstd_that_grows_a_thousand_times_and_more_is_bounded() -> None:
    """Blocks of four bytes that become 128 KB each: little more than the bound is ever unpacked."""
    packed = zstandard.ZstdCompressor().compress(b"x" * 1_000) + _skippable(9) + _of_unknown_size(bytes(200_000_000))
    tracemalloc.start()
    found = decoded(packed, "zstd", 8_000_000)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert found is not None
    assert 8_000_001 == len(found)
    assert most < 40_000_000


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_many_members_are_bounded(encoding: str) -> None:
    """Together they are read up to the bound; so many that their number alone takes long are not read."""
    _, pack = PACKED[encoding]
    found = decoded(pack(bytes(60_000)) * 1_000, encoding, MOST)

    assert found is not None
    assert MOST + 1 == len(found)
    assert decoded(pack(b"") * 20_000, encoding, MOST, padded=True) is None


@pytest.mark.parametrize("name", PACKED)
def test_reading_ends_at_the_bound(name: str) -> None:
    """A body of some kilobytes that would become 64 MB is read up to the bound."""
    encoding, pack = PACKED[name]
    found = decoded(pack(bytes(64_000_000)), encoding, MOST)
    assert found is not None
    assert MOST + 1 == len(found)


def test_what_cannot_be_read() -> None:
    """Another encoding, several, none, and what is not what it says."""
    for encoding in ("br", "gzip, zstd", "identity", ""):
        assert decoded(gzip.compress(b"{}"), encoding, MOST) is None
    for encoding in ("gzip", "deflate", "zstd"):
        assert decoded(b"no such thing", encoding, MOST) is None


async def _post(url: str, body: bytes, encoding: str) -> tuple[int, Any]:
    headers = {"content-encoding": encoding, "content-type": "application/json"}
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as answer:
        await answer.read()
        return answer.status, answer.headers


@pytest.mark.parametrize("name", PACKED)
def test_a_compressed_prompt_is_trimmed(name: str) -> None:
    """The provider gets it trimmed and uncompressed."""
    encoding, pack = PACKED[name]
    with proxied(scripted(Says("Done."))) as here:
        status, headers = asyncio.run(_post(f"{here.url}/v1/chat/completions", pack(BODY), encoding))
        (sent,) = here.upstream.sent
        defects = here.upstream.defects

    assert 200 == status
    assert int(headers["x-prompt-sidecar-trims"]) > 0
    assert len(json.dumps(sent.body)) < len(BODY) / 2
    assert "content-encoding" not in {name.lower() for name in sent.headers}
    assert [] == defects


def test_a_body_that_grows_too_large_is_refused() -> None:
    """413 in the provider's shape; the provider gets nothing."""
    with proxied(scripted(), max_body_bytes=1_000_000) as here:
        packed = gzip.compress(bytes(1_000_001))
        status, _ = asyncio.run(_post(f"{here.url}/v1/chat/completions", packed, "gzip"))
        assert (413, []) == (status, here.upstream.sent)


def test_an_encoding_that_cannot_be_read_passes() -> None:
    """As it came, and the answer says that it was not trimmed."""
    seen: list[tuple[bytes, str]] = []

    async def other(request: web.Request) -> web.StreamResponse:
        seen.append((await request.read(), request.headers["content-encoding"]))
        return web.json_response({})

    with proxied(scripted()) as here:
        here.upstream.other = other
        status, headers = asyncio.run(_post(f"{here.url}/v2/chat/completions", BODY[::-1], "x-odd"))

    assert (200, [(BODY[::-1], "x-odd")]) == (status, seen)
    assert "encoded" == headers["x-prompt-sidecar-untrimmed"]
