"""`lean` against the acceptance list of the discussion it comes from: fifty iterations of a browser agent, any format.

Each test is named after a point of that list. A run is sent prompt by prompt, as an agent does, and the last answer is
looked at. Small items stay: a placeholder must save `MIN_SAVING` tokens, or it costs more than it clips.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from prompt_sidecar.facts.history_size import SizeKind
from prompt_sidecar.facts.trim_calls import Trim, TrimAnswer
from prompt_sidecar.trim.entries import Action, Reason
from prompt_sidecar.trim.stages import MIN_SAVING
from tests.oracle.browsing import ALL_FORMATS, Browsing, History, Part, Seen, browsing, returned, seen, sent
from tests.oracle.shapes import ANTHROPIC_MESSAGES
from tests.promises.engine import Engine, counter

formats = pytest.mark.parametrize("format", ALL_FORMATS)
KEEP = 3
"""Iterations that `lean` keeps."""
LIMIT = 100_000
"""Tokens: more than the run comes to, so that what is trimmed is trimmed for its age alone."""
LABEL_TOKENS = 26
"""Tokens that a placeholder takes at the most."""


@cache
def scenario(format: str) -> History:
    """Fifty iterations with pages, screenshots and every kind of feedback."""
    return browsing(11, format, Browsing(iterations=50))


@cache
def grown(format: str, **policy: Any) -> tuple[Engine, list[TrimAnswer]]:
    """An engine that was sent the scenario as it grew, and its answers."""
    history = scenario(format)
    engine = Engine(limit=LIMIT, preset="lean", policy=policy)
    return engine, [engine.trim(**history.prompt(length)) for length in history.lengths]


def tokens(text: str) -> int:
    """Tokens of a text."""
    return counter().count(text, "o200k_base")


def newest_call(history: History, back: int = 1) -> int:
    """Index of the assistant message so many from the end."""
    return history.places(Part.CALL)[-back]


def pairs(format: str) -> list[tuple[Seen, Seen, int]]:
    """What was sent beside what was returned, with the index; messages that went are left out.

    Calls and results are found by their ids, snapshots by their first line, which stays.
    """

    def key(message: Seen) -> tuple[object, ...]:
        if message.calls or message.results:
            return (message.role, *(each[0] for each in (*message.calls, *message.results)))
        return (message.role, message.text.split("\n")[0])

    got = {key(message): message for message in seen(grown(format)[1][-1])}
    return [
        (message, got[key(message)], at) for at, message in enumerate(sent(scenario(format))) if key(message) in got
    ]


@formats
def test_assistant_messages_older_than_k_have_their_arguments_clipped(format: str) -> None:
    """Old arguments are valid empty JSON; tool name and call id are kept; the newest ones are untouched."""
    history, clipped = scenario(format), 0
    old = newest_call(history, KEEP)
    for before, after, at in pairs(format):
        for (call_id, name, arguments), (id_now, name_now, arguments_now) in zip(
            before.calls, after.calls, strict=True
        ):
            assert (call_id, name) == (id_now, name_now)
            if at >= old:
                assert arguments == arguments_now
            elif arguments != arguments_now or tokens(arguments) > MIN_SAVING + 8:  # compactly spelled it takes fewer
                assert "{}" == arguments_now
                clipped += 1
    assert clipped > 10


@formats
def test_text_beside_old_calls_is_clipped(format: str) -> None:
    """What the model said beside an old call becomes a placeholder; the newest stays."""
    old, clipped = newest_call(scenario(format), KEEP), 0
    for before, after, at in pairs(format):
        if before.role == "assistant" and before.calls and before.texts:
            if at >= old or tokens(before.text) < MIN_SAVING:
                assert before.texts == after.texts
            elif before.texts != after.texts or tokens(before.text) > LABEL_TOKENS + MIN_SAVING:
                assert after.text.startswith("[content clipped — id=")
                clipped += 1
    assert clipped > 10


@formats
def test_tool_results_older_than_k_are_placeholders(format: str) -> None:
    """Old results become placeholders that state id and bytes; each still answers its call."""
    old, clipped = newest_call(scenario(format), KEEP), 0
    for before, after, at in pairs(format):
        for (call_id, text), (id_now, text_now) in zip(before.results, after.results, strict=True):
            assert call_id == id_now
            if text_now.startswith("[content clipped, the same again in iteration "):
                continue  # the older of two that are alike, whatever its age
            if at > old:
                assert text == text_now
            elif text != text_now or tokens(text) > LABEL_TOKENS + MIN_SAVING:
                assert text_now.startswith("[content clipped — id=")
                assert text_now.endswith(f"{len(text.encode()):,} bytes]")
                clipped += 1
    assert clipped > 10


@formats
def test_feedback_collapses_into_one_counting_placeholder(format: str) -> None:
    """All old feedback of a stretch is one placeholder, whose counts are those of the messages that it stands for."""
    history = scenario(format)
    labels = [text for message in seen(grown(format)[1][-1]) for text in message.texts if "earlier feedback" in text]
    old = newest_call(history, KEEP)
    kinds = (Part.VALIDATION, Part.ERROR, Part.REPETITION)
    newest = {kind: history.places(kind)[-1] for kind in kinds}
    gone = [at for kind in kinds for at in history.places(kind) if at < old and at != newest[kind]]
    stretches = 1 + len([at for at in history.places(Part.PERSON) if any(each < at for each in gone)])
    assert 1 <= len(labels) <= stretches
    assert len(gone) == sum(int(label[1:].split(" ")[0]) for label in labels)


@formats
def test_the_newest_feedback_of_each_kind_stays_whole(format: str) -> None:
    """However old, the last validation rejection, step error and repetition warning are as they were."""
    history = scenario(format)
    texts = {text for message in seen(grown(format)[1][-1]) for text in message.texts}
    for part in (Part.VALIDATION, Part.ERROR, Part.REPETITION):
        assert sent(history)[history.places(part)[-1]].text in texts


@formats
def test_snapshot_bodies_are_clipped_and_tags_kept(format: str) -> None:
    """Of an old page both tags and what stands around them stay; the body is a placeholder."""
    history, clipped = scenario(format), 0
    old = newest_call(history, KEEP)
    for before, after, at in pairs(format):
        if history.parts[at] is not Part.SNAPSHOT:
            continue
        if at > old:
            assert before == after
            continue
        head, _, rest = before.texts[0].partition(">\n")
        assert after.texts[0].startswith(f"{head}>\n[page clipped for brevity — id=")
        assert after.texts[0].endswith("\n</EXTERNAL-CONTENT>" + rest.partition("</EXTERNAL-CONTENT>")[2])
        clipped += 1
    assert clipped > 20


@formats
def test_old_images_are_clipped(format: str) -> None:
    """Old screenshots become text; the newest ones stay."""
    history = scenario(format)
    old = newest_call(history, KEEP)
    for before, after, at in pairs(format):
        if before.images and at < old:
            assert 0 == after.images
            assert after.texts[-1].startswith("[screenshot clipped for brevity — id=")
        elif before.images and at > old:
            assert before.images == after.images


@formats
def test_the_newest_assistant_call_is_never_touched(format: str) -> None:
    """Not even where no iteration is to be kept, at any prompt of the run."""
    history = scenario(format)
    calls = history.places(Part.CALL)
    _, answers = grown(format, age_keep_iterations=0)
    for length, answer in zip(history.lengths, answers, strict=True):
        newest = [at for at in calls if at < length][-1:]
        for at in newest:
            assert history.slices[at] in returned(answer)


@formats
def test_pinned_messages_are_never_touched(format: str) -> None:
    """A pinned page, call and result come back byte for byte at the end of the run."""
    history = scenario(format)
    pinned = frozenset({history.places(Part.SNAPSHOT)[3], history.places(Part.CALL)[5], history.places(Part.RESULT)[5]})
    engine = Engine(limit=LIMIT, preset="lean", policy={"age_hard_cap_iterations": 10})
    for length in history.lengths:
        answer = engine.trim(**history.prompt(length), pinned=frozenset(at for at in pinned if at < length))
    raw = returned(answer)
    assert [] == [at for at in pinned if history.slices[at] not in raw]


@formats
def test_system_and_task_are_untouched(format: str) -> None:
    """The first messages are the very bytes that were sent, hard cap or not."""
    history = scenario(format)
    opening = [at for at in history.places(Part.SYSTEM, Part.TASK) if format != ANTHROPIC_MESSAGES or at == 0]
    for policy in ({}, {"age_hard_cap_iterations": 10}):
        raw = returned(grown(format, **policy)[1][-1])
        assert [] == [at for at in opening if history.slices[at] not in raw]


@formats
def test_pairing_is_not_broken(format: str) -> None:
    """Clipping deletes no call and no result: as many are returned as were sent, in the same order."""
    before, after = sent(scenario(format)), seen(grown(format)[1][-1])
    for field in ("calls", "results"):
        ids = [[each[0] for message in messages for each in getattr(message, field)] for messages in (before, after)]
        assert ids[0] == ids[1]


@formats
def test_fifty_iterations_plateau_rather_than_grow_linearly(format: str) -> None:
    """In the second half an iteration adds under a tenth of what it brings; with the hard cap nothing."""
    _, answers = grown(format)
    after, before = ([getattr(answer.tokens, name) for answer in answers] for name in ("after", "before"))
    assert _rise(after) < 0.1 * _rise(before)
    capped = [answer.tokens.after for answer in grown(format, age_hard_cap_iterations=10)[1]]
    assert abs(_rise(capped)) < 0.05 * _rise(before)


@formats
def test_hard_cap_drops_whole_iterations(format: str) -> None:
    """With a cap of ten, the newest ten iterations are there, and one that is clipped and counts the older ones."""
    history = scenario(format)
    _, answers = grown(format, age_hard_cap_iterations=10)
    answer = answers[-1]
    calls = history.places(Part.CALL)
    shown = seen(answer)
    assert 11 == sum(message.role == "assistant" for message in shown)
    called = [each[0] for message in shown for each in message.calls]
    assert called == [each[0] for message in shown for each in message.results]
    older, newest = (
        [each[0] for at in places for each in sent(history)[at].calls] for places in (calls[:-10], calls[-10:])
    )
    assert newest == called[-len(newest) :]
    assert set(called[: -len(newest)]) < set(older)
    counting = [each[1] for message in shown for each in message.results if "dropped]" in each[1]]
    assert 1 == len(counting)
    assert not [own.text for own in answer.prompt.own_text if own.kind == "dropped"]
    least = int(re.search(r"(\d+)\+ \w+ iterations? dropped", counting[0])[1])  # type: ignore[index]
    assert least <= len(calls) - 11 < 10 * least
    assert {Reason.AGE} == {trim.reason for trim in answer.trimmed.trims if trim.action is Action.DROPPED}


@formats
@pytest.mark.parametrize("kind", ["arguments", "text", "results", "snapshots", "images"])
def test_keep_iterations_of_one_kind(format: str, kind: str) -> None:
    """Each kind has its own number of iterations; the others age as the general one says."""
    item = {"arguments": "arguments", "text": "text", "results": "result", "snapshots": "snapshot", "images": "image"}
    usual, kept, shorter = (
        [_clipped(answer) for answer in grown(format, **policy)[1]]
        for policy in ({}, {f"age_keep_{kind}": 60}, {f"age_keep_{kind}": 1})
    )
    mine = [{each for each in clipped if each[0] == item[kind]} for clipped in usual]
    assert any(mine)
    assert [all_ - own for all_, own in zip(usual, mine, strict=True)] == kept
    more = [after - before for before, after in zip(usual, shorter, strict=True)]
    assert {item[kind]} == {each[0] for places in more for each in places}
    assert all(before <= after for before, after in zip(usual, shorter, strict=True))


@formats
def test_everything_clipped_comes_back(format: str) -> None:
    """Every original is fetched by its id, and a word of it is found by search."""
    engine, answers = grown(format)
    trims = answers[-1].trimmed.trims
    assert len(trims) > 100
    assert [] == [trim for trim in trims if not engine.original(trim.stash_id)]
    texts = [trim for trim in trims if trim.kind in ("result", "snapshot")]
    for trim in texts[::20]:
        found = engine.search(trim.stash_id)
        assert trim.stash_id == found.snippets[0].item.stash_id


@formats
def test_history_size_is_reported_with_every_prompt(format: str) -> None:
    """Once an iteration, before the model call: estimated tokens, messages, and both by kind."""
    history = scenario(format)
    _, answers = grown(format)
    for length, answer in zip(history.lengths, answers, strict=True):
        size = answer.size
        assert size is not None
        assert length == size.messages
        assert len(returned(answer)) == size.messages_returned
        assert (answer.tokens.before, answer.tokens.after) == (size.tokens_sent, size.tokens_returned)
        assert answer.tokens.after == sum(kind.tokens_returned for kind in size.by_kind.values())
    last = answers[-1].size
    assert last is not None
    for kind in ("user", "assistant_text", "calls", "results", "media"):
        of_kind = last.by_kind[SizeKind(kind)]
        assert of_kind.tokens_returned < 0.85 * of_kind.tokens_sent  # the framing of calls stays


@formats
def test_a_repeated_result_points_to_the_newer_one(format: str) -> None:
    """The older of two that are alike says in which iteration it came again."""
    history = scenario(format)
    _, answers = grown(format)
    for length, answer in zip(history.lengths, answers, strict=True):
        for message in seen(answer):
            for _, text in message.results:
                if "the same again in iteration" in text:
                    newer = int(text.partition("in iteration ")[2].partition(" ")[0])
                    assert newer <= 1 + sum(at < length for at in history.places(Part.CALL))
    assert [trim for trim in answers[-1].trimmed.trims if trim.reason is Reason.REPEATED]


@formats
def test_a_trim_gives_its_reason(format: str) -> None:
    """What was trimmed says that it was its age, or that it was old feedback."""
    trims = grown(format)[1][-1].trimmed.trims
    assert {Reason.AGE, Reason.FEEDBACK} == {trim.reason for trim in trims} - {Reason.REPEATED}


def _rise(values: list[int]) -> float:
    """By how much values rise at each step over their second half: last fifth against the fifth at the middle."""
    fifth = len(values) // 5
    middle = values[len(values) // 2 : len(values) // 2 + fifth]
    return (sum(values[-fifth:]) - sum(middle)) / fifth / (len(values) - fifth - len(values) // 2)


def _clipped(answer: TrimAnswer) -> set[tuple[str, int, int]]:
    """Kind and place of what was clipped for its age."""

    def place(trim: Trim) -> tuple[str, int, int]:
        return trim.kind.value, trim.message_index, trim.item_index

    return {place(trim) for trim in answer.trimmed.trims if trim.reason is Reason.AGE}
