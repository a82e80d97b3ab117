"""The scripts in the store, each rule by itself: what they write in which state of a run, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pytest

from prompt_sidecar.facts.archived import StoreReply
from prompt_sidecar.store import layout
from prompt_sidecar.store.options import StoreOptions
from prompt_sidecar.store.server import Argument, Failure, Server
from prompt_sidecar.store.task_values import digest
from tests.engine.runs.making import OPENAI_CHAT, send
from tests.store.sharing import PATIENT, Valkey, replica
from tests.store.test_replicas import grown

NAME: Final = "ps:{a run}"
OF_CALLER: Final = "pc:{a caller}"
LIFE: Final = 60_000
"""Milliseconds."""
FIRST, SECOND = b"first", b"second"
"""Births."""


@dataclass(frozen=True, slots=True)
class Scripts:
    """A server, and one run in it."""

    server: Server
    client: Any

    def write(
        self,
        epoch: int = 0,
        birth: bytes = FIRST,
        *,
        begins: bool = False,
        revision: tuple[Argument, ...] = ("", 0, -1),
        figures: tuple[Argument, ...] = ("", 0),
        tasks: tuple[Argument, ...] = ("", 0, ""),
        hidden: tuple[Argument, ...] = ("", "", ""),
        vault: tuple[Argument, ...] = (),
        bounds: tuple[int, int] = (2, 100),
        **fields: str,
    ) -> Any:
        """The reply to a write, without the end of it that says nothing of tasks, hidden turns and refused values."""
        values = chain.from_iterable(fields.items())
        given = [epoch, int(begins), birth, LIFE, *revision, *figures, *tasks, *hidden]
        given += [*bounds, len(vault) // 2, *vault, *values]
        reply = self.server.write(layout.WRITE, NAME, given, 0)
        if isinstance(reply, list) and [b"0", b"0"] == reply[4:]:
            del reply[4:]
        while isinstance(reply, list) and reply[-1] is None:
            reply.pop()
        return reply

    def run(self, script: str, *arguments: Argument, name: str = NAME) -> Any:
        """The reply of another script."""
        return self.server.run(script, name, arguments)

    @property
    def stored(self) -> dict[bytes, bytes]:
        """All that is stored of the run, without what says whether a full store lacks something of it."""
        found: dict[bytes, bytes] = self.client.hgetall(NAME)
        return {name: value for name, value in found.items() if name not in (b"m", b"c")}

    @property
    def left(self) -> int:
        """Milliseconds until it expires."""
        return int(self.client.pttl(NAME))


@pytest.fixture
def scripts(valkey: Valkey) -> Iterator[Scripts]:
    """On a server without keys."""
    server = Server(StoreOptions(url=valkey.url, timeout=PATIENT))
    yield Scripts(server, valkey.client)
    server.close()


def test_a_write_begins_a_run_only_where_it_says_so(scripts: Scripts) -> None:
    """It has epoch, birth and expiry then."""
    assert layout.GONE == scripts.write(oa="1")
    assert {} == scripts.stored
    assert [layout.DONE, FIRST] == scripts.write(begins=True, oa="1")
    assert {b"e": b"0", b"b": FIRST, b"oa": b"1"} == scripts.stored
    assert 0 < scripts.left <= LIFE
    scripts.client.persist(NAME)
    assert [layout.DONE, FIRST] == scripts.write(ob="2")
    assert 0 < scripts.left <= LIFE


def test_who_begins_a_run_that_is_there_takes_part_in_it(scripts: Scripts) -> None:
    """Nobody has to write it again as a whole."""
    scripts.write(begins=True, oa="1")
    assert [layout.DONE, FIRST] == scripts.write(birth=SECOND, begins=True, ob="2")
    assert [layout.DONE, FIRST] == scripts.write(oc="3")
    assert {b"oa", b"ob", b"oc"} < scripts.stored.keys()


def test_a_write_of_another_birth_is_refused(scripts: Scripts) -> None:
    """What it follows is lost."""
    scripts.write(birth=SECOND, begins=True, oa="1")
    assert layout.GONE == scripts.write(ob="2")
    assert {b"e", b"b", b"oa"} == scripts.stored.keys()


def test_a_write_of_an_earlier_life_is_refused(scripts: Scripts) -> None:
    """Also one that begins it."""
    scripts.write(epoch=1, begins=True, oa="1")
    for begins in (False, True):
        assert layout.ENDED == scripts.write(epoch=0, begins=begins, ob="2")
    assert {b"e": b"1", b"b": FIRST, b"oa": b"1"} == scripts.stored


def test_a_later_life_takes_nothing_of_the_one_before(scripts: Scripts) -> None:
    """As where its end comes after it; a write that follows others needs those."""
    scripts.write(begins=True, figures=("f", 9), oa="1")
    assert layout.GONE == scripts.write(epoch=1, ob="2")
    assert b"oa" in scripts.stored
    assert [layout.DONE, SECOND] == scripts.write(epoch=1, birth=SECOND, begins=True, figures=("g", 1), ob="2")
    assert {b"e": b"1", b"b": SECOND, b"s": b"g", b"si": b"1", b"ob": b"2"} == scripts.stored


def test_after_its_end_a_run_begins_or_is_gone(scripts: Scripts) -> None:
    """A store that went back to the tombstone, as in a failover, has lost the life that follows."""
    scripts.write(begins=True, oa="1")
    scripts.run(layout.END, 0, 2 * LIFE)
    assert {b"e": b"1", b"x": b"1"} == scripts.stored
    assert layout.GONE == scripts.write(epoch=1, ob="2")
    assert {b"e": b"1", b"x": b"1"} == scripts.stored
    assert [layout.DONE, SECOND] == scripts.write(epoch=1, birth=SECOND, begins=True, ob="2")
    assert {b"e": b"1", b"b": SECOND, b"ob": b"2"} == scripts.stored


def test_figures_go_forward(scripts: Scripts) -> None:
    """An older write that comes later does not change them; a repeated one is as the first."""
    found = []
    for value, number in (("a", 5), ("b", 4), ("c", 5), ("d", 6)):
        scripts.write(begins=True, figures=(value, number))
        found.append((scripts.stored[b"s"], scripts.stored[b"si"]))
    assert [(b"a", b"5"), (b"a", b"5"), (b"c", b"5"), (b"d", b"6")] == found


def test_tasks_come_in_the_place_of_those_that_the_writer_knew(scripts: Scripts) -> None:
    """Others are returned to it and stay, whatever their version; the rest of the write is made."""
    assert [layout.DONE, FIRST] == scripts.write(begins=True, tasks=("a", 5, ""))
    assert [layout.DONE, FIRST, b"a"] == scripts.write(tasks=("b", 6, ""), oa="1")
    assert (b"a", b"1") == (scripts.stored[b"t"], scripts.stored[b"oa"])
    assert [layout.DONE, FIRST] == scripts.write(tasks=("b", 2, digest(b"a")))
    assert (b"b", b"2") == (scripts.stored[b"t"], scripts.stored[b"ti"])


def test_tasks_that_the_store_has_lost_are_reported(scripts: Scripts) -> None:
    """The writer knew some, and there are none: it is told so, and writes them in the place of none."""
    scripts.write(begins=True)
    assert [layout.DONE, FIRST, b""] == scripts.write(tasks=("b", 6, digest(b"a")))
    assert b"t" not in scripts.stored


def test_hidden_turns_come_in_the_place_of_those_that_the_writer_knew(scripts: Scripts) -> None:
    """Others stay, and the writer is given their name; a repeated write is as the first; the rest is written."""
    assert [layout.DONE, FIRST] == scripts.write(begins=True, hidden=("a", "1", ""))
    assert [layout.DONE, FIRST, None, b"1"] == scripts.write(hidden=("b", "2", ""), oa="1")
    assert (b"a", b"1", b"1") == (scripts.stored[b"k"], scripts.stored[b"ki"], scripts.stored[b"oa"])
    for _ in range(2):
        assert [layout.DONE, FIRST] == scripts.write(hidden=("c", "3", "1"))
        assert (b"c", b"3") == (scripts.stored[b"k"], scripts.stored[b"ki"])


def test_hidden_turns_are_read_where_they_are_others(scripts: Scripts) -> None:
    """What a process knows already is not sent to it again; a tombstone is not renewed."""
    assert [None] * 6 == scripts.run(layout.CHANGES, LIFE, "", "")
    scripts.write(begins=True, tasks=("t", 1, ""), hidden=("a", "1", ""))
    assert [b"0", None, b"t", b"1", b"a", None] == scripts.run(layout.CHANGES, 5 * LIFE, "", "")
    assert scripts.left > LIFE
    assert [b"0", None, b"t", b"1", None, None] == scripts.run(layout.CHANGES, LIFE, "1", "")
    scripts.run(layout.END, 0, LIFE)
    assert [b"1", b"1", None, None, None, None] == scripts.run(layout.CHANGES, 5 * LIFE, "1", "")
    assert 0 < scripts.left <= LIFE


def test_revisions_go_forward_but_for_one_that_follows_the_last(scripts: Scripts) -> None:
    """An agent that goes back in its history has a lower iteration, after the one that is stored."""
    found = []
    for value, number, before in (("a", 5, -1), ("b", 4, 3), ("c", 3, 5), ("d", 3, 2), ("e", 6, 9)):
        scripts.write(begins=True, revision=(value, number, before))
        found.append((scripts.stored[b"r"], scripts.stored[b"ri"]))
    assert [(b"a", b"5"), (b"a", b"5"), (b"c", b"3"), (b"d", b"3"), (b"e", b"6")] == found


def test_a_read_renews_a_run_and_no_tombstone(scripts: Scripts) -> None:
    """A tombstone is to outlive what it is there for, not longer."""
    scripts.write(begins=True, oa="1")
    assert [b"0", None, b"1", None] == scripts.run(layout.READ, 5 * LIFE, "oa", "ob")
    assert scripts.left > LIFE
    scripts.run(layout.END, 0, LIFE)
    assert [b"1", b"1", None] == scripts.run(layout.READ, 5 * LIFE, "oa")
    assert 0 < scripts.left <= LIFE


def test_an_end_leaves_a_later_life_alone(scripts: Scripts) -> None:
    """It came late; a repeated one leaves the tombstone."""
    scripts.write(epoch=1, begins=True, oa="1")
    assert layout.DONE == scripts.run(layout.END, 0, LIFE)
    assert b"oa" in scripts.stored
    for _ in range(2):
        assert layout.DONE == scripts.run(layout.END, 1, LIFE)
        assert {b"e": b"2", b"x": b"1"} == scripts.stored


def test_the_end_of_all_ends_what_is_there(scripts: Scripts) -> None:
    """One whose first write is on its way too, and none twice."""
    assert layout.GONE == scripts.run(layout.END_NOW, LIFE)
    assert {b"e": b"1", b"x": b"1"} == scripts.stored
    assert layout.ENDED == scripts.write(begins=True, oa="1")
    scripts.write(epoch=1, begins=True, oa="1")
    for reply in (layout.DONE, layout.GONE):
        assert reply == scripts.run(layout.END_NOW, LIFE)
        assert {b"e": b"2", b"x": b"1"} == scripts.stored
    assert 0 < scripts.left <= LIFE


def test_names_are_noted_for_a_time(scripts: Scripts) -> None:
    """Those that are over are forgotten with the next; a page has so many and no more."""
    for name in ("a", "b", "c"):
        assert layout.DONE == scripts.run(layout.NOTE, LIFE, name, name=OF_CALLER)
    assert 0 < scripts.client.pttl(OF_CALLER) <= LIFE
    assert [b"a", b"b"] == scripts.run(layout.NOTED, 2, name=OF_CALLER)
    scripts.client.zadd(OF_CALLER, {"a": 1})
    scripts.run(layout.NOTE, LIFE, "d", name=OF_CALLER)
    assert [b"b", b"c", b"d"] == scripts.run(layout.NOTED, 9, name=OF_CALLER)
    scripts.run(layout.FORGET, "b", "d", name=OF_CALLER)
    assert [b"c"] == scripts.run(layout.NOTED, 9, name=OF_CALLER)


def test_a_store_that_goes_back_gets_all_of_a_run_again(valkey: Valkey) -> None:
    """As by a failover to a replica that had yet to hear of the end of the life before, or of what came after it."""
    for again in (False, True):
        valkey.client.flushall()
        first, writing = grown(valkey)
        (name,) = valkey.client.keys("ps:*")
        if again:
            first.runs.end("promises", "run-1")
        old = valkey.client.dump(name)
        if not again:
            first.runs.end("promises", "run-1")
        send(first, OPENAI_CHAT, 12)
        writing.drain()
        valkey.client.restore(name, LIFE, old, replace=True)
        answer = send(first, OPENAI_CHAT, 13)
        writing.drain()
        second, _ = replica(valkey)

        assert answer.trimmed.trims
        for trim in answer.trimmed.trims:
            assert first.original(trim.stash_id) == second.original(trim.stash_id)


def test_values_behind_masks_have_bounds(scripts: Scripts) -> None:
    """So many of a run and so many bytes, whoever writes them; one that is there is not counted again."""
    assert [layout.DONE, FIRST] == scripts.write(begins=True, vault=("a" * 10, "1"))
    assert [layout.DONE, FIRST] == scripts.write(vault=("a" * 10, "other", "b" * 10, "2"))
    assert [layout.DONE, FIRST, None, None, b"1", b"0"] == scripts.write(vault=("c" * 10, "3"))
    assert [layout.DONE, FIRST, None, None, b"0", b"1"] == scripts.write(vault=("c" * 10, "3" * 99), bounds=(9, 100))
    found = {name: value for name, value in scripts.stored.items() if name.startswith(b"v")}
    assert {b"v" + b"a" * 10: b"1", b"v" + b"b" * 10: b"2", b"vi": b"a" * 10 + b"b" * 10, b"vb": b"2"} == found
    for known, ids in ((0, found[b"vi"]), (10, found[b"vi"]), (20, None), ("", None)):
        assert [b"0", None, None, None, None, ids] == scripts.run(layout.CHANGES, LIFE, layout.NOT_ASKED, known)


def test_a_full_store_gets_what_it_lacks(scripts: Scripts) -> None:
    """By a command that needs no memory; of the epoch alone that the writer knows; until it has written."""
    assert layout.GONE == scripts.run(layout.UNWRITTEN_HERE, 0)
    scripts.write(begins=True, oa="1")
    scripts.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(Failure) as refused:
            scripts.write(ob="2")
        assert StoreReply.FULL is refused.value.reply
        assert layout.GONE == scripts.run(layout.UNWRITTEN_HERE, 1)
        assert layout.DONE == scripts.run(layout.UNWRITTEN_HERE, 0)
        assert layout.UNWRITTEN == scripts.run(layout.UNWRITTEN_HERE, 0)
    finally:
        scripts.client.config_set("maxmemory", 0)
    assert layout.UNWRITTEN == scripts.run(layout.TOUCH)
    scripts.write(ob="2")
    assert layout.UNWRITTEN == scripts.run(layout.TOUCH)
    scripts.run(layout.WRITTEN_SINCE, 0)
    assert layout.DONE == scripts.run(layout.TOUCH)
    scripts.client.hdel(NAME, "m", "c")  # as of a version that does not know them
    assert layout.DONE == scripts.run(layout.TOUCH)
