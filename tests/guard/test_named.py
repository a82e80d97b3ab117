"""Values behind the names of members: in arguments and results that are JSON, a name and its value are two strings."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import re2

from prompt_sidecar.errors import GuardRefused
from prompt_sidecar.guard.named import NEAR
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.guard.rules import default_rules
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.strings import StringUse
from tests.conformance.table import CASES
from tests.guard.planting import FORMATS_WITH_HISTORIES, named, serialised, structured
from tests.guard.test_masking import ENFORCE, PLAIN
from tests.promises.engine import Engine

VALUE = named(random.Random(7))
OTHER = named(random.Random(8))
FOUND: dict[str, Any] = {
    "password": VALUE,
    "deep": [{"api_keys": ["-", OTHER], "auth": {"Authorization": VALUE + "xY9"}}],
}
"""In these the rules find three values."""
LEFT: dict[str, Any] = {
    "query": VALUE,
    "password": "correct horse battery",
    "next_page_token": VALUE,
    "token_count": VALUE,
    "secret": 12345,
    "pass" * 40: VALUE,
    "note": {"text": VALUE},
}
"""In these none: the name says no secret, or the value is none."""


def history(format: str, data: dict[str, Any]) -> tuple[bytes, int]:
    """A history in which all structured arguments and results hold some data, and how many they are."""
    body = CASES[format].history(random.Random(3), 4)
    member = FORMATS[format].messages_field
    count = 0
    for message in body[member]:
        for each in structured(message):
            each.update(data)
            count += 1
    for index, message in enumerate(body[member]):
        text = json.dumps(message)
        for leaf in FORMATS[format].strings.leaves(text.encode(), "message"):
            if leaf.use is StringUse.ARGUMENTS:
                written = json.dumps({**json.loads(leaf.text), **data})
                text = text.replace(json.dumps(leaf.text), json.dumps(written))
                count += 1
        body[member][index] = json.loads(text)
    return serialised(body), count


@pytest.mark.parametrize("format", FORMATS_WITH_HISTORIES)
def test_masked_restored_and_sent_again(format: str) -> None:
    """In arguments and results of every format; raw or masked, it is the same message."""
    sent, count = history(format, FOUND)
    assert count
    engine = Engine(limit=1_000_000, guard=ENFORCE)
    answer = engine.trim(format, sent, **PLAIN)
    masked = answer.prompt.body or b""
    assert not any(each.encode() in masked for each in (VALUE, OTHER))
    assert 3 * count == sum(each.count for each in answer.guard.findings if each.action == "masked")
    restored = engine.restore("any", masked)
    assert json.loads(sent) == json.loads(restored.arguments)
    assert (0, 0) == (restored.not_allowed, restored.unknown)
    for process in (engine, Engine(limit=1_000_000, guard=ENFORCE)):
        for again in (masked, sent):
            once_more = process.trim(format, again, **PLAIN)
            assert json.loads(masked) == json.loads(once_more.prompt.body or b"")
            if process is engine:
                assert answer.prompt.revision == once_more.prompt.revision


@pytest.mark.parametrize("format", FORMATS_WITH_HISTORIES)
def test_only_the_names_of_secrets(format: str) -> None:
    """Another name, or a value that is no secret, is left alone; under audit it is only reported."""
    plain, _ = history(format, LEFT)
    engine = Engine(limit=1_000_000, guard=ENFORCE)
    answer = engine.trim(format, plain, **PLAIN)
    assert json.loads(plain) == json.loads(answer.prompt.body or b"")
    assert () == tuple(answer.guard.findings)
    sent, count = history(format, FOUND)
    looked = Engine(limit=1_000_000).trim(format, sent, **PLAIN)
    assert json.loads(sent) == json.loads(looked.prompt.body or b"")
    assert 3 * count == sum(each.count for each in looked.guard.findings)


def test_signed_arguments() -> None:
    """What cannot be masked is reported, and refused only where a rule refuses."""
    call = {"functionCall": {"name": "login", "args": {"password": VALUE}}, "thoughtSignature": "c2lnbmVk" * 8}
    contents = [{"role": "user", "parts": [{"text": "hello"}]}, {"role": "model", "parts": [call]}]
    sent = json.dumps({"contents": contents}).encode()
    answer = Engine(limit=5_000, guard=ENFORCE).trim("gemini_contents", sent)
    assert [("named_secret", "observed")] == [(each.rule, each.action.value) for each in answer.guard.findings]
    refuse = GuardOptions(mode="enforce", actions=("named_secret=refuse",))
    with pytest.raises(GuardRefused, match="named_secret"):
        Engine(limit=5_000, guard=refuse).trim("gemini_contents", sent)
    off = GuardOptions(mode="enforce", actions=("named_secret=off",))
    assert Engine(limit=5_000, guard=off).trim("gemini_contents", sent).fits


def test_a_result_of_a_tool() -> None:
    """A single result, and where in its value the value stands."""
    result = {"content": [], "structuredContent": {"client_secret": VALUE, "user": f"x {VALUE}"}}
    engine = Engine(limit=5_000, guard=ENFORCE)
    masked = json.loads(engine.trim("mcp_tool_result", json.dumps(result).encode()).prompt.body or b"")[
        "structuredContent"
    ]
    assert masked["user"] == f"x {masked['client_secret']}"
    assert masked["client_secret"].startswith("⟦named_secret:")


def test_names_that_are_looked_at() -> None:
    """Which names are looked at; where no rule is for names, none."""
    rules = default_rules()
    for name in ("password", "DB_PASSWORD", "apiKey", "aws_secret_access_key", "Authorization", "smtp-password-2"):
        assert rules.names(name), name
    for name in ("query", "text", "path", "command", "", "password (old)"):
        assert not rules.names(name), name
    assert not default_rules(GuardOptions(actions=("secrets=off",))).names("password")
    (found,) = rules.scan_named([("aws_secret_key", "FaKe0rNoTrEaL1bUt2" + "x/" * 11)])
    assert ["aws_secret_key"] == [find.rule.name for find in found][:1]


@pytest.mark.parametrize(
    ("text", "is_near"),
    [
        ("tests/test_x.py::test_a1 PASSED [ 12%]\ntests/test_x.py::test_a2 PASSED", False),
        ('{"usage":{"input_tokens":12000,"total_tokens":13000}}\n{"usage": 1}', False),
        (json.dumps('{"usage":{"input_tokens":12000,"total_tokens":13000}}\n{"usage": 1}'), False),
        ("db_pass=12345678a!", True),
        ("password: a1b2c3d4", True),
        ("password: 7)kXc3d4", True),
    ],
)
def test_where_the_rules_for_names_look(text: str, is_near: bool) -> None:
    """Not at numbers and passed tests, of which outputs have thousands."""
    assert is_near is (re2.search(NEAR, text) is not None)
