"""The lines that the program can log, read from its source: level, logger, and a pattern of the message.

A message is a constant, an f-string, or a name to which such texts are assigned in the function or at the module's top;
what is put into it may be the same, or what a function of the package returns. All else may be any text, and a place
whose whole message may be any text counts only by the sentences at the top of its module.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

PACKAGE: Final = Path(__file__).parents[2] / "sidecar" / "prompt_sidecar"
LEVELS: Final = ("debug", "info", "warning", "error")
_ANY: Final = ".+"
_MOST_DEEP: Final = 4
"""How far a text is followed through names and functions."""
_WORDS: Final = re.compile(r"[a-z]{3,}\\ [a-z]{2,}")
"""Of a pattern that is no name or number."""
_PUT: Final = re.compile(r"%[a-z]|%%")
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class LogCall:
    """One place that logs."""

    level: str
    logger: str
    pattern: re.Pattern[str]
    """Of the whole message."""


@dataclass(slots=True)
class _Module:
    loggers: dict[str, str] = field(default_factory=dict)
    top: Mapping[str, list[ast.expr]] = field(default_factory=dict)
    calls: list[tuple[ast.Call, Mapping[str, list[ast.expr]]]] = field(default_factory=list)
    """Calls of loggers, with what is assigned in their functions."""
    sentences: list[str] = field(default_factory=list)
    """Patterns of the texts of several words that are assigned at its top, or in its classes."""


@cache
def log_calls() -> tuple[LogCall, ...]:
    """Every place that logs with a level of its own."""
    trees = {path: ast.parse(path.read_bytes()) for path in PACKAGE.rglob("*.py") if not path.name.endswith("_pb2.py")}
    returns: defaultdict[str, list[ast.expr]] = defaultdict(list)
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, _Function):
                returns[node.name] += [
                    each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value is not None
                ]
    return tuple(call for path, tree in trees.items() for call in _of_module(_read(path, tree), returns))


def _read(path: Path, tree: ast.Module) -> _Module:
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    module = _Module(top=_assigned(tree.body))
    for variable, values in module.top.items():
        for value in values:
            if isinstance(value, ast.Call) and ast.unparse(value.func) == "logging.getLogger" and value.args:
                given = value.args[0]
                module.loggers[variable] = str(given.value) if isinstance(given, ast.Constant) else name
    of_classes = (_assigned(node.body) for node in tree.body if isinstance(node, ast.ClassDef))
    for values in (value for names in (module.top, *of_classes) for value in names.values()):
        texts = (each.value for each in values if isinstance(each, ast.Constant) and isinstance(each.value, str))
        module.sentences += [_filled(re.escape(text), []) for text in texts if " " in text]
    functions = [node for node in ast.walk(tree) if isinstance(node, _Function)]
    for function in functions:
        inside = _assigned(list(ast.walk(function)))
        module.calls += [(node, inside) for node in ast.walk(function) if isinstance(node, ast.Call)]
    return module


def _assigned(nodes: list[ast.stmt] | list[ast.AST]) -> dict[str, list[ast.expr]]:
    """The values that names get; of one to which something is added, also any text behind it."""
    found: defaultdict[str, list[ast.expr]] = defaultdict(list)
    for node in nodes:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr | ast.AugAssign):
            targets = [node.target]
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.AugAssign) else None
        for target in targets:
            if isinstance(target, ast.Name) and value is not None:
                more = ast.Name("+") if isinstance(node, ast.AugAssign) else value
                found[target.id].append(more)
    return found


def _of_module(module: _Module, returns: Mapping[str, list[ast.expr]]) -> Iterator[LogCall]:
    for call, inside in module.calls:
        if not (isinstance(call.func, ast.Attribute) and call.func.attr in LEVELS):
            continue
        arguments, of = list(call.args), call.func.value
        if ast.unparse(of).endswith("once") and arguments:  # as `Once.warning` takes them
            of = arguments.pop(0)
        logger = module.loggers.get(of.id) if isinstance(of, ast.Name) else None
        if logger is None or not arguments:
            continue
        names = {**module.top, **inside}
        for template in _texts(arguments[0], names, returns):
            values = [value for value in arguments[1:] if not isinstance(value, ast.Starred)]
            made = _filled(template, [_one(value, names, returns) for value in values])
            sentences = module.sentences if made.strip("(?:)") == _ANY else [made]
            yield from (LogCall(call.func.attr.upper(), logger, re.compile(each)) for each in sentences)


def _filled(template: str, values: list[str]) -> str:
    """Put patterns of values into a pattern that `_texts` has made, whose `%s` are not escaped."""
    rest = iter(values)
    return _PUT.sub(lambda put: "%" if put[0] == "%%" else next(rest, _ANY), template)


def _one(value: ast.expr, names: Mapping[str, list[ast.expr]], returns: Mapping[str, list[ast.expr]]) -> str:
    texts = _texts(value, names, returns)
    known = [text for text in texts if not text or _WORDS.search(text)]
    known = known if any(known) else []
    return "(?:" + "|".join(known or texts) + ")"


def _texts(
    value: ast.expr, names: Mapping[str, list[ast.expr]], returns: Mapping[str, list[ast.expr]], deep: int = 0
) -> list[str]:
    """Patterns of the texts that an expression may be."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return [re.escape(value.value)]
    if isinstance(value, ast.JoinedStr):
        return [
            "".join(re.escape(str(each.value)) if isinstance(each, ast.Constant) else ".*" for each in value.values)
        ]
    if isinstance(value, ast.IfExp):
        return [*_texts(value.body, names, returns, deep), *_texts(value.orelse, names, returns, deep)]
    found: list[ast.expr] = []
    if isinstance(value, ast.Name):
        found = names.get(value.id, [])
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        found = returns.get(value.func.id, [])
    if deep == _MOST_DEEP or not found:
        return [_ANY]
    more = ".*" if any(isinstance(each, ast.Name) and each.id == "+" for each in found) else ""
    kept = [each for each in found if not (isinstance(each, ast.Name) and each.id == "+")]
    return [text + more for each in kept for text in _texts(each, names, returns, deep + 1)]
