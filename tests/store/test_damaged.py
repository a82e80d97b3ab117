"""A store that holds or answers what no sidecar wrote: calls are told that it cannot be used, and prompts go on."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from msgspec import msgpack

from prompt_sidecar.errors import StoreUnavailable
from prompt_sidecar.facts.archived import StoreLoss, StoreReply
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.store import layout, reading
from prompt_sidecar.store.sealing import Sealer, caller_name
from prompt_sidecar.trim.ids import Keys, caller_key
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, ROOM, send
from tests.promises.engine import CALLER, KEY, RUN_ID, Engine
from tests.store.sharing import Stepped, Valkey, replica

ITERATIONS = 12


class Odd(socketserver.StreamRequestHandler):
    """Answers all scripts with the same bytes."""

    def handle(self) -> None:
        """Answer one command after another."""
        with suppress(OSError, ValueError):
            while head := self.rfile.readline():
                words = [self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2] for _ in range(int(head[1:]))]
                scripts = words[0].upper() in {b"EVAL", b"EVALSHA"}
                self.wfile.write(self.server.reply if scripts else b"+OK\r\n")  # type: ignore[attr-defined]


@contextmanager
def answering(reply: bytes) -> Iterator[Stepped]:
    """An archive in a store that answers all scripts so."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Odd) as server:
        server.daemon_threads = True
        server.reply = reply  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield Stepped(f"valkey://127.0.0.1:{server.server_address[1]}/0")
        finally:
            server.shutdown()


def values(*parts: bytes | None) -> bytes:
    """A reply of values."""
    written = (b"$-1\r\n" if part is None else b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
    return b"*%d\r\n%b" % (len(parts), b"".join(written))


REPLIES = {
    "nothing": b"$-1\r\n",
    "a number": b":5\r\n",
    "a word": b"+so\r\n",
    "no list": b"*-1\r\n",
    "an empty list": b"*0\r\n",
    "one name": values(b"1"),
    "too few": values(b"0", None, b"birth"),
    "numbers": b"*8\r\n" + b":1\r\n" * 8,
    "no epoch": values(b"abc", None, b"birth", *[None] * 5),
    "a long epoch": values(b"9" * 5_000, None, b"birth", *[None] * 5),
    "a length that is none": b"*abc\r\n",
    "a size that is none": b"$zz\r\n",
    "lists in lists": b"*1\r\n" * 5_000 + b":1\r\n",
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_odd_replies(reply: bytes) -> None:
    """Prompts are answered as without a store; recall of a run that only it may know says that it cannot be asked."""
    with answering(reply) as archive:
        engine, alone = Engine(LIMIT, policy=ROOM, archive=archive), Engine(LIMIT, policy=ROOM)
        answer = send(engine, OPENAI_CHAT, ITERATIONS)
        assert send(alone, OPENAI_CHAT, ITERATIONS).prompt.body == answer.prompt.body
        archive.step()
        stash_id = next(trim.stash_id for trim in answer.trimmed.trims if trim.stash_id)
        assert Outcome.HIT == engine.retrieve(stash_id).outcome
        engine.run_id = "another"
        with pytest.raises(StoreUnavailable):
            engine.retrieve("aaaaaaaaaa")
        with pytest.raises(StoreUnavailable):
            engine.figures()
        assert any(of is StoreReply.FAILED for _, of in archive.store.commands)


def test_a_list_of_runs_that_does_not_get_shorter() -> None:
    """The end of all runs of a caller ends, though no deadline ends it."""
    with answering(values(b"1")) as archive:
        engine = Engine(LIMIT, policy=ROOM, archive=archive)
        with pytest.raises(StoreUnavailable):
            engine.runs.end_all(CALLER)


def sealer() -> Sealer:
    """What seals the values of the engine's run."""
    return Sealer(Keys(KEY, ()).of_run(CALLER, RUN_ID)[0])


def test_an_epoch_that_is_none(valkey: Valkey) -> None:
    """Of a run whose epoch was damaged prompts are answered, and recall elsewhere says that the store cannot tell."""
    first, archive = replica(valkey)
    expected = send(first, OPENAI_CHAT, ITERATIONS).prompt.body
    archive.drain()
    valkey.client.hset(sealer().name, layout.EPOCH, "x")
    second, _ = replica(valkey)
    with pytest.raises(StoreUnavailable):
        second.figures()
    assert expected == send(second, OPENAI_CHAT, ITERATIONS).prompt.body


def test_a_key_of_another_type(valkey: Valkey) -> None:
    """Neither a run's key nor a caller's that holds a text keeps prompts from being answered."""
    valkey.client.set(sealer().name, "text")
    valkey.client.set(caller_name(caller_key(KEY, CALLER)), "text")
    engine, archive = replica(valkey)
    alone = Engine(LIMIT, policy=ROOM)
    assert send(alone, OPENAI_CHAT, ITERATIONS).prompt.body == send(engine, OPENAI_CHAT, ITERATIONS).prompt.body
    archive.step()
    with pytest.raises(StoreUnavailable):
        engine.runs.end_all(CALLER)


def test_values_of_another_version(valkey: Valkey) -> None:
    """Originals and facts that cannot be read are missing, counted, and keep nothing else from being found."""
    first, archive = replica(valkey)
    ids = [trim.stash_id for trim in send(first, OPENAI_CHAT, ITERATIONS).trimmed.trims if trim.stash_id]
    archive.drain()
    of_run, odd = sealer(), msgpack.encode({"of": "another version"})
    facts = next(name for name in valkey.client.hkeys(of_run.name) if name.startswith(layout.ITEMS))
    for name in (facts, reading.original_field(ids[0])):
        valkey.client.hset(of_run.name, name, of_run.seal(name, 0, odd))
    second, theirs = replica(valkey)
    assert Outcome.NOT_FOUND == second.retrieve(ids[0]).outcome
    assert Outcome.HIT == second.retrieve(ids[1]).outcome
    second.search("anything")
    assert 2 <= theirs.store.lost[StoreLoss.UNREADABLE]


def test_names_that_are_no_runs(valkey: Valkey) -> None:
    """Who writes other keys among the names of a caller's runs does not have them ended, nor keeps runs from it."""
    engine, archive = replica(valkey)
    send(engine, OPENAI_CHAT, ITERATIONS)
    archive.drain()
    others: list[Any] = [b"theirs", b"\xff\xfe", b"ps:{short}"]
    valkey.client.hset(b"theirs", "field", "value")
    valkey.client.zadd(caller_name(caller_key(KEY, CALLER)), dict.fromkeys(others, 2.0**50))
    second, _ = replica(valkey)
    assert 1 == second.runs.end_all(CALLER)
    assert b"value" == valkey.client.hget(b"theirs", "field")
    assert not valkey.client.exists(*others[1:])
