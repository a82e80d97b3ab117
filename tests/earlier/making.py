"""`python -m tests.earlier.making FOLDER`: write what this version makes, for later ones to go on with."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from prompt_sidecar.facts.task_calls import CreateTasksCall
from tests.conformance.conversations import Conversation
from tests.conformance.conversations import Step as Call
from tests.conformance.conversations import made as conversation
from tests.conformance.replaying import JUDGES, size_of
from tests.conformance.table import CASES
from tests.earlier import runs
from tests.earlier.runs import KEY, POLICY, Kept, KeptBound, KeptStore, Step
from tests.guard.planting import planted, secrets
from tests.promises.engine import CALLER, RUN_ID, Engine
from tests.promises.played import Played
from tests.store.sharing import Stepped, Valkey, running_valkey

ITERATIONS = 36
TURNS = 24
"""Model calls of a run with bound thinking."""
SEED = 7
SHARE = 0.45
"""Of the size of the whole run: the limit. It is passed some times, and our own text has room in it."""
TASKS = ["read the log", "try the build again"]
STORED = ("openai_chat",)
"""Formats of the runs in a store: what it holds is alike for all of them."""


def main(arguments: list[str]) -> int:
    """Write the files."""
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for format in CASES:
        runs.save(folder / f"{format}.json.xz", begun(format, masked=False))
        runs.save(folder / f"{format}-masked.json.xz", begun(format, masked=True))
    for judge in runs.BOUND:
        runs.save(folder / f"bound-{JUDGES[judge].format}.json.xz", bound(judge))
    for format in STORED:
        runs.save(folder / f"store-{format}.json.xz", stored(format))
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:>8,} {path.name}")
    return 0


def history(format: str, *, masked: bool) -> dict[str, Any]:
    """A run in a format; masked: one with secrets in it."""
    chance = random.Random(SEED)
    if masked:
        return planted(format, chance, ITERATIONS, secrets(chance))
    return CASES[format].history(chance, ITERATIONS)


def begun(format: str, *, masked: bool) -> Kept:
    """Play a run up to two thirds of its turns.

    Raises ValueError: nothing was trimmed by then, or nothing masked, so that the file would hold nothing.
    """
    play = played(format, masked=masked)
    engine, turns = runs.engine(play.limit, masked=masked), play.turns()
    until = turns[len(turns) * 2 // 3]
    for length in turns[: turns.index(until) + 1]:
        answer = play.trim(engine, play.raw(play.messages[:length]))
    assert answer.prompt.body is not None
    if not answer.trimmed.trims or (masked and "⟦".encode() not in answer.prompt.body):
        raise ValueError(f"{format}: {len(answer.trimmed.trims)} trims in {until} messages")
    return Kept(format, masked, play.limit, play.body, until, answer.prompt.body.decode(), answer.prompt.revision)


def played(format: str, *, masked: bool) -> Played:
    """A run of a format and its limit."""
    play = Played(CASES[format], history(format, masked=masked), 1 << 30, "cache_first", bare=False, policy=POLICY)
    size = play.trim(Engine(limit=play.limit), play.raw(play.messages), dry_run=True).tokens.before
    return replace(play, limit=int(SHARE * size))


def bound(judge: str) -> KeptBound:
    """Play a run whose provider checks its thinking up to two thirds of its turns."""
    rules = JUDGES[judge]
    run = conversation(rules.format, rules.model, seed=SEED, turns=TURNS)
    limit = size_of(run) // 3
    provider, engine = rules.provider(), Engine(limit=limit, key=KEY)
    history: list[bytes] = []
    returned: list[str] = []
    until = len(run.steps) * 2 // 3
    for step in run.steps[:until]:
        history += step.given
        answer = engine.trim(run.format, run.body(history), model=run.model)
        assert answer.prompt.body is not None
        reply = provider.ask(answer.prompt.body, step.answer)
        assert not reply.refusals
        returned.append(answer.prompt.body.decode())
        history += reply.messages
    if not answer.trimmed.trims:
        raise ValueError(f"{judge}: nothing was trimmed")
    done, rest = ([_kept(step) for step in part] for part in (run.steps[:until], run.steps[until:]))
    return KeptBound(judge, limit, returned, done, rest, answer.prompt.revision)


def _kept(step: Call) -> Step:
    return Step([raw.decode() for raw in step.given], [raw.decode() for raw in step.answer])


def conversation_of(kept: KeptBound) -> Conversation:
    """The run of a file as a conversation; its messages are the file's."""
    rules = JUDGES[kept.judge]
    steps = [
        Call(tuple(map(str.encode, step.given)), tuple(map(str.encode, step.answer)))
        for step in (*kept.done, *kept.rest)
    ]
    head = conversation(rules.format, rules.model, seed=SEED, turns=1).head
    return Conversation("kept", rules.format, rules.model, steps, head)


def stored(format: str) -> KeptStore:
    """Play a run with a store and tasks, and read all that the store has then."""
    begins = begun(format, masked=True)
    play = begins.play()
    with running_valkey() as valkey:
        archive = Stepped(valkey.url)
        engine, turns = begins.engine(archive), play.turns()
        for length in turns[: turns.index(begins.length)]:
            play.trim(engine, play.raw(play.messages[:length]))
        engine.runs.recalling.create_tasks(CreateTasksCall(CALLER, RUN_ID, TASKS, request_id="a"))
        answer = play.trim(engine, play.raw(play.messages[: begins.length]))
        assert answer.prompt.body is not None
        archive.drain()
        run = msgspec.structs.replace(begins, returned=answer.prompt.body.decode(), revision=answer.prompt.revision)
        originals = {
            trim.stash_id: engine.original(trim.stash_id) or b"" for trim in answer.trimmed.trims if trim.stash_id
        }
        hashes, sets = dump(valkey)
        return KeptStore(run, hashes, sets, originals, TASKS, engine.figures().calls)


def dump(valkey: Valkey) -> tuple[dict[str, dict[str, bytes]], dict[str, dict[str, float]]]:
    """All hashes and all sorted sets of a server."""
    client, named = valkey.client, runs.named
    names = [bytes(name) for name in client.keys("*")]
    hashes = {
        named(name): {named(field): bytes(value) for field, value in client.hgetall(name).items()}
        for name in names
        if client.type(name) == b"hash"
    }
    sets = {
        named(name): {named(member): score for member, score in client.zrange(name, 0, -1, withscores=True)}
        for name in names
        if client.type(name) == b"zset"
    }
    assert set(names) == {runs.raw(name) for name in (*hashes, *sets)}
    return hashes, sets


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
