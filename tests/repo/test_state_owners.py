"""The run's trim state is written by the part that owns it: no other code assigns its fields, or what they hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "sidecar" / "prompt_sidecar"
DATA = "trim/entries.py"
_MUTATORS = """
    add append appendleft clear discard extend insert pop popitem popleft remove reverse setdefault sort update
"""
MUTATORS = frozenset(_MUTATORS.split())
"""Methods that change a list, a set, a dict or a deque."""
EXCEPTIONS = {
    "engine/runs/metering.py": {"done", "held"},  # of its own reservations
    "engine/runs/trimming.py": {"calls", "size"},  # of a run
    "engine/steps/recording.py": {
        "annotated",
        "feedback",
        "injected",
        "kind",
    },  # it makes the records that the ledger is given
    "engine/steps/rendering.py": {"stored"},  # of this process: whether the stash has the original
    "engine/steps/turn.py": {
        "stored",
        "foreign",
        "listed",
    },  # as above; of records that the ledger is given; of the memory
}
"""Fields that a module may write: of its own values with a field of that name, and of records that it makes."""


@cache
def tree_of(module: str) -> ast.Module:
    """A module's syntax tree."""
    return ast.parse((PACKAGE / module).read_text(encoding="utf-8"))


MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "_pb2" not in path.name)
PARTS = [module for module in MODULES if module.startswith("trim/ledger/")]


def declared(tree: ast.Module) -> frozenset[str]:
    """The fields of a module's dataclasses."""
    return frozenset(
        field.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(each) for each in node.decorator_list)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    )


def assigned(tree: ast.Module) -> frozenset[str]:
    """The fields that a module's classes assign to themselves."""
    return frozenset(
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value)
    )


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


@cache
def of_parts() -> frozenset[str]:
    """The fields that parts own."""
    fields = (assigned(tree_of(module)) for module in PARTS)
    return frozenset[str]().union(*fields, declared(tree_of("trim/ledger/queues.py")))


@cache
def of_data() -> frozenset[str]:
    """The fields of records and items."""
    return declared(tree_of(DATA))


def written(tree: ast.AST, fields: frozenset[str]) -> Iterator[str]:
    """Yield which of these fields code changes of anything but `self`, and where."""
    for node in ast.walk(tree):
        target: ast.AST | None = None
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            target = node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            target = node.func.value
        while isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, ast.Attribute) and target.attr in fields and not _is_self(target.value):
            yield f"{target.attr} in line {target.lineno}"


def knows_a_ledger(tree: ast.Module) -> bool:
    """Whether a module can reach a ledger, or the records in it."""
    return any(
        (
            isinstance(node, ast.ImportFrom)
            and node.module in {"prompt_sidecar.trim.ledger", "prompt_sidecar.trim.entries"}
        )
        or (isinstance(node, ast.Attribute) and node.attr.lstrip("_") == "ledger")
        for node in ast.walk(tree)
    )


def test_modules_leave_the_state_to_its_parts() -> None:
    """They ask a part to change what is the part's, or an item's. All in one test: to list them, each is parsed."""
    found = {}
    for module in MODULES:
        if module not in PARTS and knows_a_ledger(tree_of(module)):
            found[module] = list(written(tree_of(module), (of_parts() | of_data()) - EXCEPTIONS.get(module, set())))
    assert found.keys() >= EXCEPTIONS.keys()
    assert {} == {module: fields for module, fields in found.items() if fields}


@pytest.mark.parametrize("module", PARTS)
def test_a_part_writes_its_own_fields(module: str) -> None:
    """A part changes records and items, and of parts itself alone."""
    tree = tree_of(module)
    assert [] == list(written(tree, of_parts() - of_data() - declared(tree)))


@pytest.mark.parametrize("module", EXCEPTIONS)
def test_an_exception_is_still_needed(module: str) -> None:
    """Each field that a module may write it writes."""
    found = {each.split()[0] for each in written(tree_of(module), of_parts() | of_data())}
    assert EXCEPTIONS[module] == found


@pytest.mark.parametrize(
    ("code", "field"),
    [
        ("ledger.drops.done = 1", "done"),
        ("self._ledger.drops.done += 1", "done"),
        ("ledger.queues.by_age[kind].entries.append(entry)", "entries"),
        ("del ledger.messages.by_id[stash_id]", "by_id"),
        ("ledger.decisions.dirty.add(1)", "dirty"),
        ("registry.names, other = [], 1", "names"),
        ("for drops.carrier in entries: pass", "carrier"),
        ("ledger.records[0].dropped = True", "dropped"),
    ],
)
def test_a_planted_write_is_found(code: str, field: str) -> None:
    """Whatever the way to a field, and however it is changed."""
    assert [f"{field} in line 1"] == list(written(ast.parse(code), of_parts() | of_data()))


def test_reading_is_no_write() -> None:
    """What a part knows may be read, and kept under another name."""
    code = "self.names = ledger.registry.names; first = ledger.records[0].entries; self._moved.add(1)"
    assert [] == list(written(ast.parse(code), of_parts() | of_data()))
