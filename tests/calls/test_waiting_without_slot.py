"""No call waits for long while it holds one of the few slots of calls that run: three that do would stop all others."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

import pytest

import prompt_sidecar
from prompt_sidecar.calls.call_pool import CallPool
from prompt_sidecar.calls.turns import Owner
from prompt_sidecar.recall import pattern
from prompt_sidecar.recall.selection import PatternMatch
from prompt_sidecar.tokens.count import Counter

PATIENCE: Final = 60.0
SIDECAR: Final = Path(prompt_sidecar.__file__).parent
IN_THE_POOL: Final = (
    "prompt", "tokens", "trim", "recall", "guard", "engine", "store", "process", "answers", "calls", "doors/http",
    "doors/envoy", "doors/grpc/conversion",
)  # fmt: skip
"""Folders whose code runs in the pool's threads."""
LONG: Final = frozenset({"lock", "tools_lock", "_TURN", "_TABLES", "_loading", "_fetch_lock", "_index_lock"})
"""Names of locks that are held for long: while a run's prompt is decided on, a vocabulary is loaded, and so on."""
SHORT: Final = frozenset({"_lock", "_record_lock", "_turns"})
"""Names of locks that are held for some microseconds, or, for what its caller bounds, a millisecond."""
NEW: Final = frozenset({"mine", "none"})
"""Names of locks that are made by who waits for them, without a slot or for some milliseconds."""
OWN_THREADS: Final = frozenset(
    {
        "calls/pool.py",  # the end of the server waits for its calls; threads that are warmed wait for each other
        "calls/call_pool.py",  # a heavy call gives way in its slot to short ones, for 20 ms at most
        "calls/housekeeping.py",
        "calls/indexing.py",
        "process/logs.py",
        "calls/shared.py",  # the start waits for the vocabulary, and the end for background work
        "process/signals.py",
        "doors/http/lifecycle.py",
        "doors/envoy/door.py",
        "store/server.py",
    }
)
"""Files in which threads of their own wait, or event loops."""
WAITS: Final = frozenset({"acquire", "wait", "wait_for", "result", "join"})


def _files() -> Iterator[Path]:
    for folder in IN_THE_POOL:
        files = sorted((SIDECAR / folder).rglob("*.py"))
        if not files:
            raise FileNotFoundError(folder)
        yield from files


def _name(of: ast.AST) -> str:
    """The last name of an expression: `_lock` of `self._lock`."""
    return of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""


def _is_waiting(node: ast.AST) -> bool:
    """Whether a statement gives up the slot."""
    return isinstance(node, ast.With) and any(
        isinstance(each.context_expr, ast.Call) and _name(each.context_expr.func) == "waiting" for each in node.items
    )


def _is_holding(node: ast.AST) -> bool:
    """Whether a call takes a lock without a slot."""
    return isinstance(node, ast.Call) and _name(node.func) in {"holding", "hold"}


def _walk(node: ast.AST, inside: tuple[ast.AST, ...] = ()) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    yield node, inside
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, (*inside, node))


@pytest.mark.parametrize("file", list(_files()), ids=lambda file: str(file.relative_to(SIDECAR)))
def test_each_lock_is_held_shortly_or_waited_for_without_a_slot(file: Path) -> None:
    """Each lock's name says which, and one that is held for long is never waited for in a `with` of its own."""
    for node, _ in _walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if _name(node.value.func) in {"Lock", "RLock"}:
                names = {_name(each) for each in targets}
                assert names <= LONG | SHORT | NEW, f"line {node.lineno}: say how long the lock is held"
        if isinstance(node, ast.With):
            for each in node.items:
                bare = {_name(part) for part, within in _walk(each.context_expr) if not any(map(_is_holding, within))}
                assert bare.isdisjoint(LONG), f"line {node.lineno}: use slots.holding"


@pytest.mark.parametrize("file", list(_files()), ids=lambda file: str(file.relative_to(SIDECAR)))
def test_what_waits_gives_up_its_slot(file: Path) -> None:
    """For another thread's result, for a condition, or for a lock that it takes without a `with`."""
    if str(file.relative_to(SIDECAR)) in OWN_THREADS:
        return
    for node, inside in _walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WAITS):
            continue
        if any(isinstance(each, (ast.Await, ast.AsyncFunctionDef)) for each in inside) or _is_string(node):
            continue
        if any(isinstance(each, ast.FunctionDef) and each.name in {"close", "_work"} for each in inside):
            continue  # a thread of its own, or the server has ended
        if any(keyword.arg == "blocking" for keyword in node.keywords) or _is_new(node):
            continue
        assert any(map(_is_waiting, inside)), f"line {node.lineno}: it waits in its slot"


def _is_string(call: ast.Call) -> bool:
    """Whether this is a join of strings or of paths."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "join"


def _is_new(call: ast.Call) -> bool:
    """Whether this takes a lock that nobody else has yet."""
    return isinstance(call.func, ast.Attribute) and _name(call.func.value) in NEW and not call.keywords


def test_work_in_the_pool_says_how_large_it_is() -> None:
    """Doors to providers give each piece of work with its owner and the bytes that it works on."""
    for folder in ("doors/http", "doors/envoy"):
        for file in sorted((SIDECAR / folder).rglob("*.py")):
            for node, _ in _walk(ast.parse(file.read_text(encoding="utf-8"))):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                    continue
                place = f"{file.name}, line {node.lineno}"
                assert node.func.attr != "run_in_executor", place
                assert (node.func.attr, _name(node.func.value)) != ("submit", "workers"), place
                if node.func.attr == "submit_for":
                    assert not isinstance(node.args[1], ast.Constant), place


@pytest.fixture
def pool() -> Iterator[CallPool]:
    """A pool in which one call runs at a time."""
    made = CallPool(4, 1, "t")
    yield made
    made.shutdown()


def _beside(pool: CallPool, lock: Any, work: Callable[[], object]) -> None:
    """Have work begin that needs a lock which somebody else holds; check that another call runs meanwhile."""
    begun = threading.Event()

    def run() -> object:
        begun.set()
        return work()

    with lock:
        waits: Future[object] = pool.submit_for(Owner("a", "a"), 0, run)
        assert begun.wait(PATIENCE)
        assert "ran" == pool.submit_for(Owner("b", "b"), 0, lambda: "ran").result(PATIENCE)
        assert not waits.done()
    waits.result(PATIENCE)


def test_a_costly_expression_waits_for_its_turn_without_a_slot(pool: CallPool) -> None:
    """Others run meanwhile, however many such expressions wait."""
    original = b"abcdefg hijklm\n" * 40_000
    costly = PatternMatch("[a-q][^u-z]{13}x", 0, False)
    _beside(pool, pattern._TURN, lambda: pattern.matching_stretches(original, costly))  # noqa: SLF001


def test_a_call_waits_for_a_vocabulary_without_a_slot(pool: CallPool) -> None:
    """Loading one takes up to a second."""
    counter = Counter({"o200k_base": lambda: len})
    coder = counter._coders["o200k_base"]  # noqa: SLF001
    _beside(pool, coder._loading, coder.counter)  # noqa: SLF001
