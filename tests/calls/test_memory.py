"""Prompts are admitted while there is memory for them, and running out of it loses nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from errno import ENOMEM
from functools import partial

import pytest

from prompt_sidecar.calls import memory
from prompt_sidecar.calls.call_pool import CallPool
from prompt_sidecar.calls.memory import (
    BASELINE_BYTES,
    CALL_BYTES,
    COPIES,
    LEAST_BUDGET,
    LEAST_MESSAGE,
    MESSAGE_BYTES,
    RESERVE,
    ROOMY,
    SMALL_BYTES,
    SPARE,
    MemoryGate,
    changed,
    fitted,
    sizing,
)
from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.errors import TooLarge
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.recall_calls import RetrieveCall
from prompt_sidecar.facts.tool_calls import RECALL, ToolCall, ToolOutcome
from prompt_sidecar.recall.holding import StoredOriginal
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.recall.stash import Stash
from prompt_sidecar.v1 import retrieve_pb2
from tests.doors.grpc.serving import PATIENCE, failure, request, serving
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, Engine, body, history, send
from tests.promises.engine import CALLER

PLAIN = b"x" * 10_000
LEAST = CALL_BYTES + COPIES * len(PLAIN)
WORST = LEAST + MESSAGE_BYTES * (len(PLAIN) // LEAST_MESSAGE)


def taking(resident: int) -> Callable[[], tuple[int, int]]:
    """A process that takes so much."""
    return lambda: (0, resident)


def test_a_prompt_is_admitted_while_its_estimate_fits() -> None:
    """To the byte; and what one call reserves, another cannot have until it is through."""
    gate = MemoryGate(LEAST + 5_000, taking(5_000))
    with gate.admit(PLAIN):
        with pytest.raises(TooLarge, match=f"may need {LEAST:,} bytes of memory and 0 are left") as refused:
            gate.admit(PLAIN).__enter__()
        assert "limits.process_bytes" == refused.value.bound
    with gate.admit(PLAIN):
        pass
    with pytest.raises(TooLarge):
        MemoryGate(LEAST + 4_999, taking(5_000)).admit(PLAIN).__enter__()


def test_large_needs_leave_memory_to_small_ones() -> None:
    """However many large prompts come, an ordinary one is admitted beside them."""
    limit = 400_000_000
    gate, large = MemoryGate(limit, taking(0)), b"x" * 3_000_000
    admitted = 0
    with ExitStack() as stack:
        with suppress(TooLarge):
            while True:
                stack.enter_context(gate.admit(large))
                admitted += 1
        assert 0 < admitted < limit // len(large)
        assert limit // SPARE <= gate.room()
        stack.enter_context(gate.admit(b'{"text":"%s"},' % (b"x" * 500) * 400))
        stack.enter_context(gate.admit(PLAIN))


def test_the_worst_is_reserved_only_where_there_is_room_for_more() -> None:
    """Where little is left, the messages that are there are counted, so that calls beside each other are admitted."""
    two = MemoryGate(LEAST * 2, taking(0))
    with ExitStack() as stack:
        stack.enter_context(two.admit(PLAIN))
        stack.enter_context(two.admit(PLAIN))
        with pytest.raises(TooLarge):
            stack.enter_context(two.admit(PLAIN))
    roomy = MemoryGate(WORST * ROOMY, taking(0))
    with roomy.admit(PLAIN), pytest.raises(TooLarge), roomy.admit(b"x" * ((WORST * ROOMY - WORST) // COPIES)):
        pass
    braces = b'{"a":1},' * 1_250
    with MemoryGate(LEAST + MESSAGE_BYTES * (len(braces) // LEAST_MESSAGE), taking(0)).admit(braces):
        pass
    with pytest.raises(TooLarge):
        MemoryGate(LEAST + MESSAGE_BYTES, taking(0)).admit(braces).__enter__()


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("quoted", [1, 2])
def test_json_that_is_quoted_in_a_string_is_not_taken_for_messages(
    quoted: int, indent: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result made by `json.dumps` needs what its bytes need, once more quoted too; messages count as before."""
    monkeypatch.setattr(memory, "_PIECE", 1_000)
    text = json.dumps([{"a": {"b": 1}} for _ in range(5_000)], indent=indent)
    for _ in range(quoted - 1):
        text = json.dumps(text)
    raw = json.dumps([{"role": "tool", "content": text}]).encode()
    need = CALL_BYTES + COPIES * len(raw) + MESSAGE_BYTES
    with MemoryGate(need, taking(0)).admit(raw):
        pass
    with pytest.raises(TooLarge, match=f"may need {need:,} bytes"):
        MemoryGate(need - 1, taking(0)).admit(raw).__enter__()


def test_what_can_never_be_admitted_is_refused_as_such() -> None:
    """The error says that a retry does not help, and how much memory does: with that it is admitted, with less not."""
    resident, large = 150_000_000, b"x" * 30_000_000
    gate = MemoryGate(400_000_000, taking(resident))
    gate.settle()
    with pytest.raises(TooLarge, match="an idle sidecar has 225,000,000, so a retry does not help") as refused:
        gate.admit(large).__enter__()
    enough = int(str(refused.value).partition("give the sidecar ")[2].split()[0].replace(",", ""))
    with MemoryGate(enough, taking(resident)).admit(large):
        pass
    with pytest.raises(TooLarge):
        MemoryGate(enough - 100, taking(resident)).admit(large).__enter__()
    busy = MemoryGate(enough, taking(resident + 1_000_000))
    with pytest.raises(TooLarge, match="retry a little later"):
        busy.admit(large).__enter__()


def test_a_large_original_is_read_while_there_is_room() -> None:
    """A small one always, as any call."""
    gate = MemoryGate(2 * SMALL_BYTES, taking(0))
    with gate.reserve(SMALL_BYTES):
        with pytest.raises(TooLarge, match="and 0 are left"):
            gate.reserve(SMALL_BYTES).__enter__()
        with gate.reserve(SMALL_BYTES - 1):
            pass
    with gate.reserve(SMALL_BYTES):
        pass


def test_a_call_that_fails_gives_its_reserve_back() -> None:
    """Whatever ends a call."""
    gate = MemoryGate(LEAST, taking(0))
    for _ in range(3):
        with pytest.raises(KeyError), gate.admit(PLAIN):
            raise KeyError


def test_a_container_that_is_too_small_is_reported() -> None:
    """Where budgets, baseline and reserve pass the container's limit; the sizes of docs/operations.md fit theirs."""
    assert "" == sizing(Limits(), 0)
    assert "" == sizing(Limits(), 1_200_000_000)
    assert "limits.memory_bytes" in sizing(Limits(), 1_000_000_000)
    small = Limits(stash_bytes=96 << 20, run_stash_bytes=48 << 20, memory_bytes=128 << 20)
    assert "" == sizing(small, 512 << 20)


@pytest.mark.parametrize("container", [0, 1_200_000_000, 1_000_000_000, 512 << 20, 256 << 20, 1])
def test_budgets_follow_the_container(container: int) -> None:
    """They shrink together until all fits, down to a least; what decides is never touched."""
    limits = Limits()
    found = fitted(limits, container)
    least = int((BASELINE_BYTES + 2 * LEAST_BUDGET) * RESERVE)

    assert "" == sizing(found, container) or container < least
    assert found.run_stash_bytes <= found.stash_bytes
    assert min(found.stash_bytes, found.memory_bytes) >= LEAST_BUDGET
    assert limits.original_bytes == found.original_bytes
    assert (found == limits) == (changed(limits, found, container) == "")
    assert (found == limits) == (not container or container >= 1_200_000_000)


def test_near_the_limit_originals_are_evicted() -> None:
    """From nine tenths of what the process may take, as many bytes as are too many; those of idle runs first."""
    now = iter(range(1_000))
    stash = Stash(1 << 20, 1 << 20, 3_600, lambda: float(next(now)))
    for run in ("idle", "busy"):
        for number in range(10):
            stash.put(run, "caller", f"{run}-{number}", bytes([number]) * 500, "text/plain")
    excess = MemoryGate(100_000, taking(91_000)).excess()
    shed = stash.shed(excess)

    assert 0 == MemoryGate(100_000, taking(90_000)).excess()
    assert 1_000 == excess
    assert shed >= excess
    assert Outcome.EVICTED is stash.get("idle", "idle-0")
    assert isinstance(stash.get("busy", "busy-0"), StoredOriginal)
    assert 10_000 - shed == stash.totals().held_bytes
    stash.shed(1 << 20)
    assert 0 == stash.totals().held_bytes


def test_a_small_budget_that_was_set_stays() -> None:
    """No budget grows because the least is larger."""
    small = Limits(stash_bytes=1 << 20, run_stash_bytes=1 << 20, memory_bytes=1 << 20)

    assert small == fitted(small, 1)


def test_a_prompt_without_room_is_refused_before_anything_is_done() -> None:
    """RESOURCE_EXHAUSTED, with the bound's name; the run does not begin, and other calls are served."""
    with serving(limits=Limits(process_bytes=1)) as served:
        refused = failure(partial(served.stub.TrimPrompt, request(), timeout=PATIENCE))
        assert ("RESOURCE_EXHAUSTED", "TOO_LARGE") == (refused.code, refused.reason)
        assert "limits.process_bytes" in refused.message
        asked = retrieve_pb2.RetrieveContentRequest(run_id="run", stash_id="none")
        assert retrieve_pb2.RETRIEVE_OUTCOME_RUN_UNKNOWN == served.stub.RetrieveContent(asked).outcome


def test_an_original_without_room_is_refused() -> None:
    """By id and by the model's tool: what it may need is asked for before it is read."""
    asked: list[int] = []
    engine = Engine(limit=LIMIT)
    answer = send(engine, OPENAI_CHAT, 12)
    trim = next(trim for trim in answer.trimmed.trims if trim.stash_id)

    @contextmanager
    def reserve(size: int) -> Iterator[None]:
        asked.append(size)
        if len(asked) > 2:
            raise TooLarge("no room")
        yield

    by_id = RetrieveCall(CALLER, engine.run_id, trim.stash_id)
    by_tool = ToolCall(CALLER, engine.run_id, RECALL, json.dumps({"id": trim.stash_id}), "")
    hit = engine.runs.recalling.retrieve(by_id, lambda: None, reserve)
    assert ToolOutcome.OK is engine.runs.recalling.call_tool(by_tool, lambda: None, reserve).outcome
    assert [hit.page.total_bytes] * 2 == asked
    with pytest.raises(TooLarge):
        engine.runs.recalling.retrieve(by_id, lambda: None, reserve)
    with pytest.raises(TooLarge):
        engine.runs.recalling.call_tool(by_tool, lambda: None, reserve)
    retrievals = engine.figures().stash.retrievals
    assert 2 == sum(retrievals.values())


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        RuntimeError("can't allocate lock"),
        OSError(ENOMEM, "Cannot allocate memory"),
    ],
    ids=repr,
)
def test_running_out_of_memory_loses_nothing(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory runs out in the middle of a change, the call is RESOURCE_EXHAUSTED, and the next one is as ever."""
    sent = {iterations: request(body=body(OPENAI_CHAT, history(OPENAI_CHAT, iterations))) for iterations in (9, 12)}
    for each in sent.values():
        each.context_window = LIMIT
    with serving() as served:
        expected = [served.stub.TrimPrompt(each, timeout=PATIENCE) for each in sent.values()][-1]
    with serving() as served:
        served.stub.TrimPrompt(sent[9], timeout=PATIENCE)
        with monkeypatch.context() as patch:

            def runs_out(*_: object, **__: object) -> None:
                raise error

            patch.setattr("prompt_sidecar.engine.steps.turn._Turn._render", runs_out)
            refused = failure(partial(served.stub.TrimPrompt, sent[12], timeout=PATIENCE))
        assert ("RESOURCE_EXHAUSTED", "OUT_OF_MEMORY") == (refused.code, refused.reason)
        found = served.stub.TrimPrompt(sent[12], timeout=PATIENCE)
        assert expected.json_body == found.json_body
        assert expected.trims
        assert len(expected.trims) == len(found.trims)
        for trim in found.trims:
            asked = retrieve_pb2.RetrieveContentRequest(run_id="run", stash_id=trim.stash_id)
            assert retrieve_pb2.RETRIEVE_OUTCOME_HIT == served.stub.RetrieveContent(asked, timeout=PATIENCE).outcome


@pytest.mark.parametrize("where", ["start", "submit_for"])
@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate lock")], ids=repr)
def test_calls_that_get_no_thread_leave_no_place_taken(
    where: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of them memory ran out for, the next call has its place, and a stop knows when all have ended."""
    with serving(ServerOptions(listen="127.0.0.1:0", max_calls=4)) as served:
        with monkeypatch.context() as patch:

            def runs_out(*_: object, **__: object) -> None:
                raise error

            patch.setattr(CallPool, where, runs_out)
            for _ in range(12):
                assert failure(partial(served.stub.TrimPrompt, request(), timeout=PATIENCE)).code != "DEADLINE_EXCEEDED"
        assert served.stub.TrimPrompt(request(), timeout=PATIENCE).fits
        assert served.server.stop(PATIENCE)
