"""The history's size: what is kept equals a recount; every token has one kind."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.engine.steps.frame import FramedPrompt
from prompt_sidecar.engine.steps.recording import IncomingMessage, MessageAnnotations, Recorder
from prompt_sidecar.engine.steps.size_tracker import Around, SizeTracker, around_of
from prompt_sidecar.facts.history_size import HistorySize, KindSize, SizeKind
from prompt_sidecar.facts.trim_calls import OwnText, OwnTextKind, OwnTextPlace
from prompt_sidecar.prompt.body import split
from prompt_sidecar.prompt.format import CALL_TOKENS as PER_CALL
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.tokens.weigh import PER_MESSAGE, PRIMING, weigh
from prompt_sidecar.trim.entries import Action, Reason, Record
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.presets import preset
from tests.trim.histories import Fold, count, few, histories, limits, plain

AROUND = Around(
    overhead=PRIMING + 30,
    tool_schemas=20,
    schema_members=1,
    system_texts=2,
    system_messages=2,
    own_tokens=7,
    own_texts=1,
    messages_returned=5,
)


def recount(ledger: Ledger, around: Around, limit: int) -> HistorySize:
    """The slow twin: every item of every record, one by one."""
    sent, returned, items = (dict.fromkeys(SizeKind, 0) for _ in range(3))
    sent |= {
        SizeKind.SYSTEM: around.overhead - around.tool_schemas - PRIMING,
        SizeKind.TOOL_SCHEMAS: around.tool_schemas,
        SizeKind.OTHER: PRIMING,
    }
    returned |= sent | {SizeKind.OWN_TEXT: around.own_tokens}
    items |= {
        SizeKind.SYSTEM: around.system_texts,
        SizeKind.TOOL_SCHEMAS: around.schema_members,
        SizeKind.OWN_TEXT: around.own_texts,
    }
    for record in ledger.records:
        home = home_of(record)
        sent[home] += record.full_tokens - sum(entry.full_tokens for entry in record.entries)
        if not record.dropped:
            returned[home] += record.tokens - sum(entry.tokens for entry in record.entries)
        for entry in record.entries:
            kind = kind_of(entry.kind, record.role)
            items[kind] += 1
            sent[kind] += entry.full_tokens
            returned[kind] += 0 if record.dropped else entry.tokens
    return HistorySize(
        by_kind={kind: KindSize(sent[kind], returned[kind], items[kind]) for kind in SizeKind},
        messages=len(ledger) + around.system_messages,
        messages_returned=around.messages_returned,
        tokens_sent=sum(sent.values()),
        tokens_returned=sum(returned.values()),
        share_of_limit=sum(returned.values()) / limit,
    )


def kind_of(item: ItemKind, role: Role) -> SizeKind:
    """What an item counts as."""
    match item:
        case ItemKind.ARGUMENTS:
            return SizeKind.CALLS
        case ItemKind.RESULT:
            return SizeKind.RESULTS
        case ItemKind.IMAGE:
            return SizeKind.MEDIA
        case ItemKind.OPAQUE:
            return SizeKind.OTHER
    return speaker(role)


def speaker(role: Role) -> SizeKind:
    """What a text counts as."""
    match role:
        case Role.SYSTEM:
            return SizeKind.SYSTEM
        case Role.USER:
            return SizeKind.USER
        case Role.ASSISTANT:
            return SizeKind.ASSISTANT_TEXT
        case Role.TOOL:
            return SizeKind.RESULTS
    return SizeKind.OTHER


def home_of(record: Record) -> SizeKind:
    """What a message's framing counts as."""
    if ItemKind.OPAQUE in [entry.kind for entry in record.entries]:
        return SizeKind.OTHER
    if record.calls:
        return SizeKind.CALLS
    return SizeKind.RESULTS if record.answers else speaker(record.role)


def size_of(tracker: SizeTracker, ledger: Ledger, limit: int) -> HistorySize:
    """Measure as a call does: then what was changed is no longer news."""
    size = tracker.measure(ledger, AROUND, limit)
    ledger.decisions.dirty = set()
    return size


def ledger_of(format: str, messages: Sequence[Any]) -> Ledger:
    """The ledger of a provider's messages, counted as the tests of the stages count."""
    recorder, ledger = Recorder(b"key of a run", 1 << 20), Ledger()
    for index, value in enumerate(messages):
        raw = json.dumps(value).encode()
        message = FORMATS[format].read(raw, "message")
        weight = weigh([message], lambda texts: [count(text) if text else 0 for text in texts])[0]
        record, _ = recorder.record(
            IncomingMessage(message, weight, len(raw), index, 1), ledger.chain, MessageAnnotations(Policy())
        )
        ledger.append(record)
    return ledger


presets = st.sampled_from(["cache_first", "fit_only", "lean", "cap_only"])


@few
@given(histories(), limits, presets, st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=12))
def test_what_is_kept_equals_a_recount(
    messages: list[plain], limit: int, name: str, steps: list[tuple[int, bool]]
) -> None:
    """However a history grows, is trimmed, is cut back and grows again, the sums are those of a recount."""
    fold, tracker = Fold(messages, limit, preset(name)), SizeTracker()
    for length, back in [*steps, (len(messages), False)]:
        if back:
            fold.ledger.rewind(length)
        if length:  # a rewind with nothing new after it, and one with
            fold.take(min(length, len(messages)))
        assert recount(fold.ledger, AROUND, limit) == size_of(tracker, fold.ledger, limit)


@few
@given(histories(), limits, presets)
def test_kinds_add_up_to_the_prompt(messages: list[plain], limit: int, name: str) -> None:
    """The kinds' tokens are the prompt's: overhead, history and own text, before and after trimming."""
    fold = Fold(messages, limit, preset(name))
    fold.take()
    size = size_of(SizeTracker(), fold.ledger, limit)
    before = AROUND.overhead + sum(record.full_tokens for record in fold.ledger.records)
    after = AROUND.overhead + fold.ledger.decisions.total + AROUND.own_tokens
    assert (before, after) == (size.tokens_sent, size.tokens_returned)
    assert before == sum(kind.tokens_sent for kind in size.by_kind.values())
    assert after == sum(kind.tokens_returned for kind in size.by_kind.values())
    assert (after / limit, list(SizeKind)) == (size.share_of_limit, list(size.by_kind))


@few
@given(histories(), limits)
def test_a_copy_goes_its_own_way(messages: list[plain], limit: int) -> None:
    """Ledger and sums copied together for a dry run go on alone; the run's own are as they were."""
    fold, tracker = Fold(messages, limit), SizeTracker()
    fold.take(len(messages) // 2)
    before = size_of(tracker, fold.ledger, limit)
    copied, copied_tracker = copy.deepcopy((fold, tracker))
    copied.take()
    assert recount(copied.ledger, AROUND, limit) == size_of(copied_tracker, copied.ledger, limit)
    assert before == size_of(tracker, fold.ledger, limit)
    fold.take()
    assert recount(fold.ledger, AROUND, limit) == size_of(tracker, fold.ledger, limit)


def test_a_rewind_is_noticed_where_as_many_messages_come_again() -> None:
    """A branch that is as long as what it replaces is another history, though nothing is dirty and the length equal."""
    fold = Fold([plain(Role.USER, ((ItemKind.TEXT, "word " * words),)) for words in (5, 900, 40)], 100_000)
    tracker = SizeTracker()
    fold.take()
    size_of(tracker, fold.ledger, fold.limit)
    fold.ledger.rewind(1)
    fold.messages[1:] = [plain(Role.ASSISTANT, ((ItemKind.TEXT, "said " * 30),)), plain(Role.USER)]
    fold.take()
    assert recount(fold.ledger, AROUND, fold.limit) == size_of(tracker, fold.ledger, fold.limit)


def test_what_was_trimmed_at_a_place_is_forgotten_with_it() -> None:
    """A message that takes the place of a trimmed one adds, and later takes back, what it takes itself."""
    words = plain(Role.USER, ((ItemKind.TEXT, "word " * 90),))
    fold, tracker = Fold([words] * 2, 100_000), SizeTracker()
    fold.take()
    entry = fold.ledger.records[1].entries[0]
    fold.ledger.decisions.decide(entry, Action.CLIPPED, None, 9, Reason.FIT)
    assert recount(fold.ledger, AROUND, fold.limit) == size_of(tracker, fold.ledger, fold.limit)
    for _ in range(2):
        fold.ledger.rewind(1)
        fold.take()
        assert recount(fold.ledger, AROUND, fold.limit) == size_of(tracker, fold.ledger, fold.limit)


def test_only_what_changed_is_counted_again() -> None:
    """A call without news reads no record: one changed behind the ledger's back is not noticed until it is dirty."""
    fold, tracker = Fold([plain(Role.USER, ((ItemKind.TEXT, "word " * 50),))] * 3, 100_000), SizeTracker()
    fold.take()
    before = size_of(tracker, fold.ledger, fold.limit)
    fold.ledger.records[1].tokens -= 40
    fold.ledger.records[1].touched += 1
    assert before == size_of(tracker, fold.ledger, fold.limit)
    fold.ledger.decisions.dirty = {1}
    assert before.tokens_returned - 40 == size_of(tracker, fold.ledger, fold.limit).tokens_returned


def test_openai_items_have_their_kinds() -> None:
    """Texts by speaker, calls with their names and framing, results, images, reasoning."""
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}
    ledger = ledger_of(
        "openai_chat",
        [
            {"role": "user", "content": [{"type": "text", "text": "Look at this."}, image]},
            {"role": "assistant", "content": "I read it.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "line\n" * 40},
            {"role": "system", "content": "Be brief."},
            {"role": "assistant", "content": "Done.", "reasoning_content": "because " * 20},
        ],
    )
    kinds = size_of(SizeTracker(), ledger, 1_000).by_kind
    assert {
        SizeKind.SYSTEM: (30 - 20 + count("Be brief.") + PER_MESSAGE, 3),
        SizeKind.TOOL_SCHEMAS: (20, 1),
        SizeKind.USER: (count("Look at this.") + PER_MESSAGE, 1),
        SizeKind.ASSISTANT_TEXT: (count("I read it.") + count("Done.") + PER_MESSAGE, 2),
        SizeKind.CALLS: (count('{"path": "a.py"}') + count("read") + PER_CALL + PER_MESSAGE, 1),
        SizeKind.RESULTS: (count("line\n" * 40) + PER_CALL + PER_MESSAGE, 1),
        SizeKind.MEDIA: (1_600, 1),
        SizeKind.OWN_TEXT: (0, 1),
        SizeKind.OTHER: (PRIMING, 0),
        SizeKind.REASONING: (count("because " * 20), 1),
    } == {kind: (size.tokens_sent, size.items) for kind, size in kinds.items()}


def test_anthropic_results_are_not_the_users() -> None:
    """Results stand in user turns, and are results; what the user adds to them is the user's."""
    ledger = ledger_of(
        "anthropic_messages",
        [
            {"role": "user", "content": "Task."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "ls", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "a.py\nb.py"}]},
                    {"type": "text", "text": "Go on."},
                ],
            },
        ],
    )
    kinds = size_of(SizeTracker(), ledger, 1_000).by_kind
    assert (count("a.py\nb.py") + PER_CALL + PER_MESSAGE, 1) == (
        kinds[SizeKind.RESULTS].tokens_sent,
        kinds[SizeKind.RESULTS].items,
    )
    assert count("Task.") + PER_MESSAGE + count("Go on.") == kinds[SizeKind.USER].tokens_sent


def test_a_page_is_the_users() -> None:
    """A snapshot is a user's text."""
    page = "<EXTERNAL-CONTENT>" + "word " * 50 + "</EXTERNAL-CONTENT>"
    ledger = ledger_of("openai_chat", [{"role": "user", "content": page}])
    assert count(page) + PER_MESSAGE == size_of(SizeTracker(), ledger, 1_000).by_kind[SizeKind.USER].tokens_sent


@pytest.mark.parametrize(
    ("format", "members", "expected"),
    [
        ("openai_chat", {"tools": [{"a": 1}], "response_format": None}, (2, 2, 1, 20)),
        ("openai_chat", {"functions": []}, (2, 2, 1, 5)),
        ("anthropic_messages", {"tools": [{"a": 1}], "system": "Be brief."}, (1, 0, 1, 20)),
        ("anthropic_messages", {"system": None}, (0, 0, 0, 0)),
    ],
)
def test_what_surrounds_a_history(format: str, members: dict[str, object], expected: tuple[int, int, int, int]) -> None:
    """System texts, system messages, members with schemas and their tokens; those that are gone do not count."""
    body = split(json.dumps(members | {"messages": [{"role": "user", "content": "x"}]}).encode())
    known = {"tools": (b"", 20), "functions": (b"", 5), "response_format": (b"", 9), "system": (b"", 11)}
    own = [OwnText(OwnTextKind.DIRECTIVES, OwnTextPlace.SYSTEM, -1, "text")]
    framed = FramedPrompt(b"", [b"1", b"2"], b"", own)
    leading = 2 if format == "openai_chat" else 0
    around = around_of(FORMATS[format], body, framed, known, overhead=40, system_messages=leading, own_tokens=7)
    assert expected == (
        around.system_texts,
        around.system_messages,
        around.schema_members,
        around.tool_schemas,
    )
    assert (40, 7, 1, 2) == (around.overhead, around.own_tokens, around.own_texts, around.messages_returned)
