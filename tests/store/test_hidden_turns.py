"""Hidden turns of runs that move between two HTTP doors which share a store: each prompt has them where they were."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from prompt_sidecar.doors.http.prompting import Modes
from prompt_sidecar.engine.runs.pace import Clocks
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.archived import StoreLoss
from prompt_sidecar.facts.limits import CoreLimits, Limits
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.store import layout
from prompt_sidecar.store.sealing import Sealer
from prompt_sidecar.trim.ids import Keys
from tests.client.provider import Says
from tests.conformance.bound_thinking import BoundThinking
from tests.doors.grpc.serving import counter, guarded
from tests.doors.http.agents import TOOL, log_of
from tests.doors.http.agents import Agent as Speaking
from tests.doors.http.habits import APIS, SEARCH, Api, Turn
from tests.doors.http.serving import KEY, Proxied, opened, options
from tests.doors.http.test_gateways import SECRET
from tests.doors.http.test_hidden import kept_of
from tests.doors.http.upstream import Upstream, scripted
from tests.store.sharing import Stepped, Valkey

CALLER, RUN = "local", "habits"
WINDOW: Final = 100_000
"""Tokens: so many that nothing is trimmed, and a prompt begins with the one before it."""
LARGE: Final = 3_000
"""Characters of an answer's text, so that two of them pass the least bound on a run's hidden turns."""


@dataclass(frozen=True, slots=True)
class Door:
    """One process's HTTP door, and what it shares."""

    here: Proxied
    archive: Stepped


@dataclass(slots=True)
class Agent:
    """An agent whose model searches the history in a turn that is hidden before it calls a tool."""

    api: str
    history: list[Any] = field(default_factory=list)
    turns: int = 0
    run: str = RUN
    text: str = "Step {}."

    @property
    def spoken(self) -> Api:
        """How it speaks."""
        return APIS[self.api]

    def ask(self, door: Door) -> list[list[Any]]:
        """Make a model call through a door; return the histories that the provider was sent."""
        number, text = self.turns, self.text.format(self.turns)
        self.turns += 1
        if not self.history:
            self.history.append(self.spoken.asked("Go"))
        answers = scripted(
            Says("", [(f"own{number}", SEARCH, {"query": "line"})]), Says(text, [(f"c{number}", TOOL, {"n": 1})])
        )
        sent = self.spoken.upstream(door.here, answers, stream=False)
        before = 0 if self.spoken.way else len(sent()[0])
        self.spoken.exchange(door.here, self.history, stream=False)
        bodies, defects = sent()
        assert [] == defects
        turn = Turn(text, call=f"c{number}")
        self.history += [*self.spoken.answer_entries(turn), self.spoken.result(turn, f"line {number}")]
        return [self.spoken.entries(body) for body in bodies[before:]]


@contextmanager
def doors(
    valkey: Valkey,
    *,
    guard: GuardOptions | None = None,
    store: Mapping[str, Any] | None = None,
    **more: object,
) -> Iterator[Sequence[Door]]:
    """Two processes' doors, before one provider. What waits for the store is written when a test says so."""
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream(scripted()))
        made = []
        for _ in range(2):
            archive = Stepped(valkey.url, **(store or {}))
            limits = CoreLimits(Limits(default_window=WINDOW))
            core = Runs(counter(), Keys(KEY), guarded(None, guard), Clocks(time.time), limits, archive)
            modes = Modes(restores=bool(guard and guard.restore))
            door = stack.enter_context(opened(options(upstream.url, **more), core, modes=modes))
            made.append(Door(Proxied(door, upstream, core), archive))
        yield made


def searches(history: Sequence[Any]) -> int:
    """How many of the model's calls of the sidecar's tool a history has."""
    answers = [each for each in history if each.get("role") in ("assistant", "model") or "arguments" in each]
    return json.dumps(answers).count(f'"{SEARCH}"')


def sealer(caller: str = CALLER) -> Sealer:
    """What seals the values of the run."""
    return Sealer(Keys(KEY).of_run(caller, RUN)[0])


def thinking(thought: str, text: str, *calls: tuple[str, str, Mapping[str, Any]]) -> Says:
    """A turn of the model with thinking that is signed."""
    return Says(text, calls, blocks=[{"type": "thinking", "thinking": thought, "signature": "s" * 300}])


MOVES: Final[Mapping[str, Callable[[int], int]]] = {
    "at each call": lambda number: number % 2,
    "away and back": lambda number: int(2 <= number < 4),
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("moves", MOVES)
def test_a_prompt_begins_with_the_one_before_it_wherever_it_goes(valkey: Valkey, api: str, moves: str) -> None:
    """Hidden turns stand where they were, byte for byte, at a door that has not seen them, or not the last ones."""
    agent = Agent(api)
    last: list[Any] = []
    with doors(valkey) as both:
        for number in range(6):
            door = both[MOVES[moves](number)]
            for prompt in agent.ask(door):
                assert last == prompt[: len(last)]
                last = prompt
            door.archive.drain()
    assert 6 == searches(last)


def test_thinking_stays_valid_where_a_run_moves(valkey: Valkey) -> None:
    """It is bound to the hidden turns before it, which the second door has from the store."""
    history: list[Any] = [{"role": "user", "content": "Which build failed?"}]
    scripts = (
        [thinking("Hidden.", "", ("own-1", SEARCH, {"query": "x"})), thinking("Before.", "", ("call-1", TOOL, {}))],
        [thinking("Last.", "Done.")],
    )
    with doors(valkey) as both:
        upstream = both[0].here.upstream
        upstream.thinking = BoundThinking()
        for door, script in zip(both, scripts, strict=True):
            upstream.model = scripted(*script)
            agent = Speaking("anthropic_messages", False, door.here.url, history, model="claude-opus-5-5")
            agent.headers = {"x-prompt-sidecar-run": RUN}
            agent.answer(agent.ask(), log_of)
            door.archive.drain()
        assert [] == upstream.defects
        assert 3 == len(upstream.bodies)
        last = json.dumps(upstream.bodies[-1])
    assert [1, 1] == [last.count(thought) for thought in ("Hidden.", "Before.")]


def test_both_doors_have_all_that_either_was_given(valkey: Valkey) -> None:
    """Also where one had yet to write what it knew when the other wrote: both parts are in the next value."""
    agent = Agent("chat")
    with doors(valkey) as (first, second):
        agent.ask(first)
        agent.ask(second)
        for door in (first, second):
            door.archive.drain()
        agent.ask(second)
        second.archive.drain()
        *_, last = agent.ask(first)
    assert 4 == searches(last)


def test_one_read_and_no_more(valkey: Valkey) -> None:
    """A door asks the store once before a prompt, as without hidden turns; what it knows is not sent to it again."""
    agent = Agent("chat")
    with doors(valkey) as (first, second):
        agent.ask(first)
        first.archive.drain()
        backend = second.archive._backend  # noqa: SLF001 - nothing else shows single commands
        run, replies = backend.run, []

        def noted(script: str, *rest: Any) -> Any:
            reply = run(script, *rest)
            replies.append((script, reply[-1]))
            return reply

        def answers(_: Any) -> Says:
            seen.append(replies.copy())
            return Says("Done.")

        backend.run = noted  # type: ignore[method-assign, assignment]
        seen: list[list[tuple[str, Any]]] = []
        for _ in range(2):
            agent.spoken.upstream(second.here, scripted(answers), stream=False)
            agent.spoken.exchange(second.here, agent.history, stream=False)
        assert [layout.READ] == [script for script, _ in seen[0]]
        assert [None] == [hidden for script, hidden in seen[1] if script == layout.CHANGES]


def test_a_value_that_cannot_be_read_is_as_none(valkey: Valkey) -> None:
    """Damaged, or in another form: the prompt goes on without hidden turns, and the next value takes its place."""
    name = sealer().name
    odd = {
        "damaged": b"\x01 not sealed with the key",
        "form": sealer().seal(layout.HIDDEN, 0, b"[{}]"),
        "none": sealer().seal(layout.HIDDEN, 0, b"no JSON"),
    }
    for value in odd.values():
        valkey.client.flushall()
        agent = Agent("chat")
        with doors(valkey) as (first, second):
            agent.ask(first)
            first.archive.drain()
            assert {b"k", b"ki"} <= set(valkey.client.hkeys(name))
            valkey.client.hset(name, mapping={layout.HIDDEN: value, layout.HIDDEN_NAME: b"another"})
            *_, last = agent.ask(second)
            assert 1 == searches(last)
            second.archive.drain()
            assert 3 == searches(agent.ask(first)[-1])
            assert (value == odd["damaged"]) == (StoreLoss.UNREADABLE in second.archive.store.lost)


def test_a_store_without_them_is_as_none(valkey: Valkey) -> None:
    """As an earlier version leaves it: the prompt goes on without; what this door has it writes again."""
    agent = Agent("chat")
    with doors(valkey) as (first, second):
        agent.ask(first)
        first.archive.drain()
        valkey.client.hdel(sealer().name, layout.HIDDEN, layout.HIDDEN_NAME)
        assert 1 == searches(agent.ask(second)[-1])
        assert 2 == searches(agent.ask(first)[-1])
        first.archive.drain()
        assert 4 == searches(agent.ask(second)[-1])


def test_a_store_that_gives_no_answer_costs_hidden_turns_only(valkey: Valkey) -> None:
    """The agent gets its answer."""
    agent = Agent("chat")
    with doors(valkey) as (first, second):
        agent.ask(first)
        first.archive.drain()

        def fails(*_: Any) -> Any:
            raise MemoryError

        second.archive._backend.run = fails  # type: ignore[method-assign, assignment]  # noqa: SLF001 - a fault of the library
        *_, last = agent.ask(second)
    assert 1 == searches(last)


def test_hidden_turns_end_with_their_run(valkey: Valkey) -> None:
    """The other door finds none of a run that was ended, nor of the one that begins under its name."""
    agent = Agent("chat")
    with doors(valkey) as (first, second):
        agent.ask(first)
        first.archive.drain()
        assert first.here.core.end(CALLER, RUN) is not None
        assert {b"e", b"x"} == set(valkey.client.hkeys(sealer().name))
        *_, last = agent.ask(second)
        assert 1 == searches(last)
        second.archive.drain()
        *_, last = agent.ask(first)
        assert 2 == searches(last)


def test_they_are_sealed_and_another_callers_run_has_none(valkey: Valkey) -> None:
    """What is stored shows nothing of them, and its place follows from the caller."""
    agent = Agent("chat")
    with doors(valkey) as (first, second):
        agent.ask(first)
        first.archive.drain()
        stored = valkey.client.hget(sealer().name, layout.HIDDEN)
        assert b"Step" not in stored
        assert SEARCH.encode() not in stored
        assert b"Step" in sealer().open(layout.HIDDEN, 0, stored)
        assert sealer("other").name != sealer().name
        with second.here.core.awaiting("other", RUN, b"", lambda: None) as found:
            assert found is None
        with second.here.core.awaiting(CALLER, RUN, b"", lambda: None) as found:
            assert found


def test_they_are_bounded_as_in_the_process(valkey: Valkey) -> None:
    """The oldest are left out of what is written, too; a value that the store's bound is too small for is not."""
    agent = Agent("chat", text="x" * LARGE + " {}")
    with doors(valkey, run_hidden_bytes=8 * LARGE) as (first, second):
        for _ in range(4):
            agent.ask(first)
            first.archive.drain()
        sizes = [len(each.splice.entries) for each in kept_of(first.here)._runs[CALLER, RUN].splices]  # noqa: SLF001
        assert 0 < len(sizes) < 4
        assert len(sizes) + 1 == searches(agent.ask(second)[-1])
    valkey.client.flushall()
    agent = Agent("chat", text="x" * LARGE + " {}")
    with doors(valkey, store={"item_bytes": 4_096}) as (first, second):
        agent.ask(first)
        first.archive.drain()
        assert 1 == first.archive.store.lost[StoreLoss.TOO_LARGE]
        assert layout.HIDDEN not in valkey.client.hkeys(sealer().name)
        assert 1 == searches(agent.ask(second)[-1])


def test_what_the_guard_masks_reaches_no_store(valkey: Valkey) -> None:
    """A hidden turn whose answer holds a secret stays in its process; others of its run are shared."""
    agent = Agent("chat", text="Step {}.")
    with doors(valkey, guard=GuardOptions(mode="enforce")) as (first, second):
        agent.ask(first)
        agent = replace(agent, text=f"{SECRET} {{}}")
        agent.ask(first)
        first.archive.drain()
        stored = sealer().open(layout.HIDDEN, 0, valkey.client.hget(sealer().name, layout.HIDDEN))
        assert SECRET.encode() not in stored
        assert b"Step 0" in stored
        agent = replace(agent, text="Step {}.")
        assert 2 == searches(agent.ask(second)[-1])


def test_acknowledged_waits_for_them(valkey: Valkey) -> None:
    """The end of an answer with a hidden turn waits until the store has it; the answer comes all the same."""
    agent = Agent("chat")
    with doors(valkey, store={"durability": "acknowledged", "acknowledge_timeout": 0.05}) as (first, second):
        began = time.monotonic()
        agent.ask(first)
        assert time.monotonic() - began >= 0.05
        first.archive.drain()
        assert 2 == searches(agent.ask(second)[-1])
