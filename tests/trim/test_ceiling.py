"""A ceiling in tokens: trimmed as if the limit were that, while the window stays what it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.errors import InvalidPolicy
from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.trim.inputs import PROTECTED_ROOM
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.ledger.decisions import BESIDE_PINNED
from prompt_sidecar.trim.policy import AUTO_CEILING, AUTO_FROM, AUTO_TOKENS, KNOBS, Policy
from prompt_sidecar.trim.presets import PRESETS, preset
from tests.promises.engine import CALLER, Engine

CEILING, WINDOW = 8_000, 100_000
CHAT = "openai_chat"


def history(turns: int, *, words: int = 0) -> list[dict[str, Any]]:
    """A task, so many words of a user after the third turn, and turns of 250 tokens."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Fix the failing test."}]
    for turn in range(turns):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "read", "arguments": f'{{"file": {turn}}}'}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        lines = "\n".join(f"line {line} of file {turn} says something" for line in range(25))
        messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": lines})
        if words and turn == 2:
            messages.append({"role": "user", "content": " ".join(["please"] * words)})
    return messages


def trim(of: Engine, turns: int, *, words: int = 0, pinned: int = 0, **fields: Any) -> TrimAnswer:
    """Send a history of so many turns, with so many tokens of a user's words and pinned results in the midst."""
    messages = history(turns, words=words)
    if pinned:
        fields["pinned"] = frozenset(range(4, 4 + 2 * pinned, 2))
    return of.trim(CHAT, json.dumps({"model": "", "messages": messages}).encode(), **fields)


def test_prompts_are_those_of_a_window_of_that_size() -> None:
    """Byte for byte, at every call; only the limit, and what goes by it, is the window's."""
    with_ceiling = Engine(limit=WINDOW, policy={"ceiling_tokens": CEILING})
    small = Engine(limit=CEILING)
    for turns in range(2, 60, 3):
        one, other = trim(with_ceiling, turns), trim(small, turns)
        assert one.prompt.body == other.prompt.body
        assert (WINDOW, CEILING) == (one.tokens.limit, one.tokens.ceiling)
        assert (CEILING, 0) == (other.tokens.limit, other.tokens.ceiling)
        assert one.fits
    assert one.trimmed.trims
    assert one.size is not None
    assert other.size is not None
    assert one.size.share_of_limit < other.size.share_of_limit / 10
    assert 0 < with_ceiling.figures().ceiling_cuts
    assert 0 == small.figures().ceiling_cuts


def test_condensing_puts_off_no_cut() -> None:
    """Below a ceiling a condensed result counts as it was: the first cut comes when it did, and prompts are smaller."""
    cuts, sizes = played(ceiling=CEILING, condense="exact")
    expected, without = played(ceiling=CEILING, condense="off")
    assert expected
    assert expected[0] == next(iter(cuts), None)
    assert all(size <= plain for size, plain in zip(sizes[: cuts[0]], without, strict=False))
    assert sum(sizes) < 0.85 * sum(without)


def test_condensing_makes_room_below_the_limit() -> None:
    """Where there is no ceiling the window is used, so that cuts come later."""
    cuts, _ = played(ceiling=0, condense="exact")
    without, _ = played(ceiling=0, condense="off")
    assert without
    assert not cuts


def played(*, ceiling: int, condense: str) -> tuple[list[int], list[int]]:
    """The calls of a run of coloured output that were cuts, and the tokens of each prompt as it was returned."""
    run = Engine(limit=WINDOW if ceiling else CEILING, policy={"ceiling_tokens": ceiling, "condense": condense})
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Fix the failing test."}]
    cuts, sizes = list[int](), list[int]()
    for turn in range(22):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        lines = "".join(f"\x1b[31mFAIL\x1b[0m case {turn}.{line}\n" for line in range(100 if turn % 4 == 0 else 3))
        messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": lines})
        answer = run.trim(CHAT, json.dumps({"model": "", "messages": messages}).encode())
        sizes.append(answer.tokens.after)
        if answer.cache.batch_point:
            cuts.append(turn)
    return cuts, sizes


def test_off_changes_nothing() -> None:
    """By default; and above the limit there is none."""
    plain = Engine(limit=CEILING)
    above = Engine(limit=CEILING, policy={"ceiling_tokens": WINDOW})
    one, other = trim(plain, 40), trim(above, 40)
    assert one.prompt.body == other.prompt.body
    assert 0 == one.tokens.ceiling == other.tokens.ceiling


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "cache_first"])
def test_other_presets_ignore_it(name: str) -> None:
    """They trim at every call, not at all, or no more than needed."""
    plain = Engine(limit=WINDOW, preset=name)
    ceiling = Engine(limit=WINDOW, preset=name, policy={"ceiling_tokens": CEILING})
    one, other = trim(plain, 40), trim(ceiling, 40)
    assert (one.prompt.body, 0) == (other.prompt.body, other.tokens.ceiling)


@pytest.mark.parametrize(
    ("window", "expected"), [(AUTO_FROM, AUTO_TOKENS), (AUTO_FROM - 1, 0), (1_000_000, AUTO_TOKENS)]
)
def test_auto_is_for_large_windows(window: int, expected: int) -> None:
    """By the window in force, whoever says it."""
    answer = trim(Engine(limit=window, policy={"ceiling_tokens": AUTO_CEILING}), 3)
    assert expected == answer.tokens.ceiling


@pytest.mark.parametrize("kind", ["words", "pinned"])
def test_it_is_above_what_is_never_trimmed(kind: str) -> None:
    """Three tenths more than that, so that a cut frees something; the prompt fits, and nothing of it is touched."""
    fields: dict[str, Any] = {"words": 12_000} if kind == "words" else {"pinned": 30}
    run = Engine(limit=WINDOW, policy={"ceiling_tokens": 1_000 if kind == "pinned" else CEILING})
    answers = [trim(run, turns, **fields) for turns in range(40, 60)]
    answer = answers[-1]
    least = 12_000 if kind == "words" else 30 * 220
    assert PROTECTED_ROOM * least < answer.tokens.ceiling < WINDOW
    assert answer.fits
    assert any(each.trimmed.trims for each in answers)
    assert sum(each.cache.batch_point for each in answers) < len(answers) / 2
    body = json.loads(answer.prompt.body or b"")
    sent = history(59, words=fields.get("words", 0))
    protected = [each for each in sent if each["role"] == "user"]
    if kind == "pinned":
        protected += sent[4:64:2]
    assert all(each in body["messages"] for each in protected)


def test_the_settings_ceiling_is_that_of_the_runs_first_prompt() -> None:
    """Another process with other settings goes on with it; what a request says holds at once."""
    rules: Mapping[str, object] = {"ceiling_tokens": CEILING}
    before, same, other = configured(rules), configured(rules), configured({})
    revision = trim(before, 40, policy={}).prompt.revision
    kept, changed = (trim(each, 42, policy={}, revision=revision) for each in (same, other))
    assert kept.prompt.body == changed.prompt.body
    assert (CEILING, CEILING) == (kept.tokens.ceiling, changed.tokens.ceiling)
    assert 0 == trim(other, 42, policy={"ceiling_tokens": 0}).tokens.ceiling
    assert CEILING == trim(other, 42, policy={}).tokens.ceiling
    begun_without = trim(configured({}), 40, policy={}).prompt.revision
    assert 0 == trim(configured(rules), 42, policy={}, revision=begun_without).tokens.ceiling


def configured(policy: Mapping[str, object]) -> Engine:
    """An engine whose settings have a policy, which requests do not repeat."""
    return Engine(limit=WINDOW, preset="", rules=Rules(CallerRules(preset("cache_first").override(policy), policy)))


def test_settings_say_a_number_or_a_word() -> None:
    """In a file, in the environment, in a request."""
    kind = KNOBS["ceiling_tokens"].kind
    read = [kind.read(value) for value in ("auto", "off", 0, "0", -1, 60_000, "60000")]
    assert [AUTO_CEILING, 0, 0, 0, AUTO_CEILING, 60_000, 60_000] == read
    assert ['"auto"', '"off"', "60000"] == [kind.show(value) for value in (AUTO_CEILING, 0, 60_000)]
    for wrong in ("some", 5, -2, True, 1.5, 200_000_000, None):
        with pytest.raises(ValueError, match=r"^"):
            kind.read(wrong)
    with pytest.raises(
        InvalidPolicy, match="ceiling_tokens is 5; it may be off, auto, or a whole number of tokens from 1,000"
    ):
        Policy().override({"ceiling_tokens": 5})


def test_what_is_pinned_is_counted_as_it_changes() -> None:
    """Pinned late, rewound, taken over from a revision, or of a tool that is never trimmed: as if added up anew."""
    policy = {"never_trim_tools": ["keep"], "ceiling_tokens": CEILING}
    messages = history(40)
    for turn in (5, 9, 30):
        messages[1 + 2 * turn]["tool_calls"][0]["function"]["name"] = "keep"
    run = Engine(limit=WINDOW, policy=policy)
    answer = None
    for length, pinned in ((20, set()), (60, {8, 14}), (81, {8}), (41, {4}), (81, {4, 60})):
        body = json.dumps({"messages": messages[:length]}).encode()
        answer = run.trim(CHAT, body, pinned=frozenset(pinned))
        assert _added_up(run) == _ledger(run).decisions.pinned > 0
    assert answer is not None
    other = Engine(limit=WINDOW, policy=policy)
    other.trim(CHAT, json.dumps({"messages": messages}).encode(), revision=answer.prompt.revision)
    assert _added_up(other) == _ledger(other).decisions.pinned == _ledger(run).decisions.pinned


def _ledger(of: Engine) -> Ledger:
    run = of.runs.table.known(CALLER, of.run_id)
    assert run is not None
    return run.memory.ledger


def _added_up(of: Engine) -> int:
    stay = (record for record in _ledger(of).records if record.group >= 0 and not (record.words or record.dropped))
    return sum(record.tokens + BESIDE_PINNED for record in stay if record.pinned or record.kept)
