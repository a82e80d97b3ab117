"""Histories with secrets in them: values of several kinds, planted wherever text of users, models and tools stands."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.literals import TextEdit
from prompt_sidecar.prompt.strings import StringUse
from tests.conformance.table import CASES

FORMATS_WITH_HISTORIES: Final = tuple(CASES)
_ALPHABET: Final = string.ascii_letters + string.digits


def secrets(chance: random.Random, count: int = 4) -> list[tuple[str, str]]:
    """Made-up values, each with a text in which a rule finds it."""
    made: list[tuple[str, str]] = []
    for _ in range(count):
        kind = chance.randrange(5)
        if kind == 0:
            value = "ghp_" + _drawn(chance, _ALPHABET, 36)
            made.append((value, value))
        elif kind == 1:
            value = "AKIA" + _drawn(chance, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16)
            made.append((value, f"id={value};"))
        elif kind == 2:
            value = "sk-ant-api03-" + _drawn(chance, _ALPHABET, 80)
            made.append((value, f'export KEY="{value}"'))
        elif kind == 3:
            value = named(chance)
            made.append((value, f"DB_PASSWORD={value}"))
        else:
            value = _drawn(chance, _ALPHABET, 18)
            made.append((value, f"postgres://app:{value}@db.internal/orders"))
    return made


def _at(message: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        message = message[step]
    return message


def named(chance: random.Random) -> str:
    """A value that a rule finds behind the name of a secret only."""
    kinds = (string.ascii_uppercase, string.ascii_lowercase, string.digits)
    return "".join(_drawn(chance, each, 1) for _ in range(6) for each in kinds)


def _drawn(chance: random.Random, alphabet: str, length: int) -> str:
    return "".join(chance.choice(alphabet) for _ in range(length))


def planted(format: str, chance: random.Random, iterations: int, values: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """A body with a history in which values stand: alone, in text, next to each other, in JSON in a string.

    The first place of each value, in the order of the prompt, is one in which a rule finds it.
    """
    body = CASES[format].history(chance, iterations)
    form = FORMATS[format]
    member = form.messages_field
    met: set[str] = set()
    for index, message in enumerate(body[member]):
        raw = json.dumps(message, ensure_ascii=chance.random() < 0.5).encode()
        changes: dict[int, list[TextEdit]] = {}
        for leaf in form.strings.leaves(raw, "message"):
            if leaf.use not in {StringUse.TEXT, StringUse.ARGUMENTS} or chance.random() < 0.6:
                continue
            if _at(message, leaf.path) != leaf.text:  # the name of a member, which is never filled
                continue
            edit = _arguments(leaf.text, chance, values, met) if leaf.use is StringUse.ARGUMENTS else None
            if leaf.use is StringUse.TEXT:
                edit = _text(leaf.text, chance, values, met)
            if edit is not None:
                changes[leaf.place] = [edit]
        body[member][index] = json.loads(form.strings.changed(raw, changes))
        for data in structured(body[member][index]):
            if chance.random() < 0.4:
                # Bare, though no rule has found it yet if it is a value that is found by its name.
                value, found = chance.choice(values)
                data["db_password"] = value if found.startswith("DB_PASSWORD=") or value in met else found
                met.add(value)
    return body


def structured(value: Any) -> Iterator[dict[str, Any]]:
    """The objects in a message that are arguments of a call or a result, where they are not covered by a signature."""
    if isinstance(value, list):
        for each in value:
            yield from structured(each)
    elif isinstance(value, dict) and not {"thoughtSignature", "thought_signature", "thought"} & value.keys():
        for name, each in value.items():
            if name in {"input", "args", "response", "json", "structuredContent", "value"} and isinstance(each, dict):
                yield each
            else:
                yield from structured(each)


def _words(chance: random.Random, values: Sequence[tuple[str, str]], met: set[str]) -> str:
    value, found = chance.choice(values)
    shown = value if value in met and chance.random() < 0.5 else found
    met.add(value)
    return shown


def _text(text: str, chance: random.Random, values: Sequence[tuple[str, str]], met: set[str]) -> TextEdit:
    shown = [_words(chance, values, met) for _ in range(chance.randint(1, 3))]
    how = chance.randrange(4)
    if how == 0:  # JSON in the text of a result
        return TextEdit(0, len(text), json.dumps({"note": text[:40], "found": " ".join(shown), "é": "ö\n"}))
    if how == 1:
        at = chance.randint(0, len(text))
        return TextEdit(at, at, f"\n{' | '.join(shown)}\n")
    if how == 2:
        return TextEdit(len(text), len(text), "\n" + "\n".join(shown))
    return TextEdit(0, len(text), " ".join(shown))


def _arguments(text: str, chance: random.Random, values: Sequence[tuple[str, str]], met: set[str]) -> TextEdit | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    shown = _words(chance, values, met)
    if chance.random() < 0.3:
        value["api_key"] = shown.removeprefix("DB_PASSWORD=")
    value["command"] = f"curl '{shown}'"
    if chance.random() < 0.5:
        value["body"] = json.dumps({"inner": json.dumps({"deep": f"x {shown}"})})
    return TextEdit(0, len(text), json.dumps(value))


def serialised(body: Mapping[str, Any]) -> bytes:
    """A body as a client in Python writes it."""
    return json.dumps(body, ensure_ascii=False).encode()


def turns(body: dict[str, Any], member: str) -> list[dict[str, Any]]:
    """The bodies in which a history grew, the whole one last."""
    count = len(body[member])
    steps = sorted({1, count // 3, 2 * count // 3, count} - {0})
    return [{**body, member: body[member][:step]} for step in steps]
