"""A run whose prompts go from replica to replica, each of which is given reports of usage that differ by some per cent.

What it costs is counted as a provider's cache does: what a prompt begins with as the one before it did is read from the
cache, and the rest is written anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from random import Random
from time import sleep
from typing import Any, Final

from prompt_sidecar.facts.trim_calls import RevisionUse, TrimAnswer
from prompt_sidecar.facts.usage_calls import UsageCall
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.items import Role
from prompt_sidecar.store.options import StoreOptions
from prompt_sidecar.store.server import Server
from prompt_sidecar.store.shared import SharedArchive
from tests.conformance.case import Case
from tests.engine.runs.making import ROOM
from tests.promises.engine import CALLER, FIRST_WAIT, Engine
from tests.store.sharing import LIFE, Stepped, Valkey

LIMIT: Final = 12_000
"""Tokens: so few that a short history passes it several times."""
NOISE: Final = 0.04
"""Share by which what a provider counts is more or less than what was expected."""
FACTOR: Final = 1.1
"""What a provider counts for a token of ours, in the mean."""
REPLICAS: Final = 3

MEDIA: Final = ("image", "file", "document", "inline", "media", "computer")
"""What the names of blocks with pictures and files have in them."""

Routing = Callable[[int, Random], int]
"""The replica that a prompt goes to, by its number."""

ROUTINGS: Final[dict[str, Routing]] = {
    "one": lambda _number, _chance: 0,
    "away_and_back": lambda number, _chance: int(number // 20 % 2 == 1),
    "every_five": lambda number, _chance: number // 5 % REPLICAS,
    "each_call": lambda number, _chance: number % REPLICAS,
    "random": lambda _number, chance: chance.randrange(REPLICAS),
}


@dataclass(frozen=True, slots=True)
class Grown:
    """A history as the agent sends it, a prompt for each model call."""

    format: str
    prompts: Sequence[bytes]


@dataclass(slots=True)
class Played:
    """What a run cost. Bytes of what the provider reads, in its order."""

    prompts: int = 0
    written: int = 0
    """Beyond what the prompt before began with, too."""
    other: int = 0
    """Prompts that lack a decision of the one before."""
    cuts: int = 0
    uses: list[RevisionUse] = field(default_factory=list)


def grown(case: Case, seed: int, turns: int, *, masked: bool = False) -> Grown:
    """A made history of so many turns, with an address in each message if it is to be masked."""
    whole = case.history(Random(seed), turns)
    format_ = FORMATS[case.format]
    messages: list[Any] = whole[format_.messages_field]
    messages = [_without_media(message) for message in messages]
    if masked:
        messages = [_addressed(message, number) for number, message in enumerate(messages)]
    roles = [format_.read(json.dumps(message).encode(), "history").role for message in messages]
    ends = [
        at
        for at in range(1, len(messages) + 1)
        if roles[at - 1] is not Role.ASSISTANT and (at == len(messages) or roles[at] is Role.ASSISTANT)
    ]
    bodies = [json.dumps(whole | {format_.messages_field: messages[:end]}).encode() for end in ends]
    return Grown(case.format, bodies)


def _without_media(value: Any) -> Any:
    """The value without pictures and files: a prompt with one teaches nothing of how a provider counts."""
    if isinstance(value, dict):
        return {name: _without_media(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_media(each) for each in value if not (isinstance(each, dict) and _is_media(each))]
    return value


def _is_media(block: dict[str, Any]) -> bool:
    named = str(block.get("type", "")).lower()
    return any(word in name.lower() for name in (named, *block) for word in MEDIA)


def _addressed(message: Any, number: int) -> Any:
    """The message with an address in the place of the first word of each of its longer texts."""

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: changed(each) for name, each in value.items()}
        if isinstance(value, list):
            return [changed(each) for each in value]
        if isinstance(value, str) and value.count(" ") > 10:
            return f"write to person{number}@example.com {value}"
        return value

    return changed(message)


def play(
    valkey: Valkey | None,
    history: Grown,
    routing: str,
    *,
    carries: bool = False,
    masked: bool = False,
    seed: int = 1,
    limit: int = LIMIT,
    pause: float | None = None,
    **options: Any,
) -> Played:
    """Send a run's prompts to replicas that share a server, or to some that share nothing.

    Args:
        valkey: the server; None: there is none.
        history: the prompts.
        routing: which of `ROUTINGS`.
        carries: whether the agent sends the last revision.
        masked: whether the guard masks.
        seed: of the noise and of the routing.
        limit: tokens that a prompt may take.
        pause: seconds from an answer to the next prompt, while what it brought is written behind it and a prompt waits
            for the store as by default; None: all is written before the next prompt, which waits for the store.
        options: of the store.
    """
    guard = GuardOptions(mode="enforce") if masked else GuardOptions()
    behind = [_threaded(valkey.url, **options) for _ in range(REPLICAS)] if valkey and pause is not None else []
    stepped = [Stepped(valkey.url, **options) for _ in range(REPLICAS)] if valkey and pause is None else []
    archives: Sequence[SharedArchive | None] = behind or stepped or [None] * REPLICAS
    wait = FIRST_WAIT if pause is None else StoreOptions().first_wait
    engines = [Engine(limit=limit, policy=ROOM, archive=archive, guard=guard, first_wait=wait) for archive in archives]
    noise, chance = Random(f"noise {seed}"), Random(f"routing {seed}")
    played = Played()
    before: list[bytes] = []
    last: TrimAnswer | None = None
    for number, prompt in enumerate(history.prompts):
        at = ROUTINGS[routing](number, chance)
        revision = last.prompt.revision if carries and last is not None else b""
        answer = engines[at].trim(history.format, prompt, revision=revision)
        now = list(_read(history.format, answer.prompt.body or b""))
        kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, now, strict=False)))
        played.written += sum(map(len, now[kept:]))
        played.prompts += 1
        played.other += last is not None and not _holds(last, answer)
        played.cuts += answer.cache.batch_point
        played.uses.append(answer.revision_use)
        before, last = now, answer
        counted = answer.tokens.after / answer.tokens.factor
        real = round(counted * FACTOR * (1 + noise.uniform(-NOISE, NOISE)))
        engines[at].runs.report_usage(
            UsageCall(CALLER, engines[at].run_id, input_tokens=real, revision=answer.prompt.revision)
        )
        if stepped:
            stepped[at].drain()
        if pause:
            sleep(pause)
    for archive in behind:
        archive.close()
    return played


def _threaded(url: str, **options: Any) -> SharedArchive:
    """An archive that writes by itself, with default settings but for `options`."""
    settings = StoreOptions(url=url, **options)
    return SharedArchive(settings, Server(settings), LIFE)


def _read(format: str, body: bytes) -> Iterator[bytes]:
    """What a provider reads of a body, in its order: tools, system prompt, messages."""
    whole, field_ = json.loads(body), FORMATS[format].messages_field
    for name in sorted(set(whole) - {field_}):
        yield json.dumps(whole[name]).encode()
    for message in whole[field_]:
        yield json.dumps(message).encode()


def _holds(before: TrimAnswer, after: TrimAnswer) -> bool:
    """Whether what an answer has trimmed is trimmed in the next one too, no less."""
    now = {(trim.message_index, trim.item_index): trim.tokens_saved for trim in after.trimmed.trims}
    return all(now.get((trim.message_index, trim.item_index), -1) >= trim.tokens_saved for trim in before.trimmed.trims)
