"""A revision that an earlier version has made is opened by this one, and its run goes on to the end."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

from prompt_sidecar.facts.trim_calls import RevisionUse
from prompt_sidecar.trim.revision import RULES, seal, unseal
from tests.conformance.replaying import JUDGES
from tests.conformance.table import CASES
from tests.earlier import runs
from tests.earlier.making import conversation_of
from tests.earlier.runs import MADE, Kept, KeptBound
from tests.promises.engine import Engine
from tests.promises.played import complaints, instability

_LARGE = {"bedrock_converse-masked.json.xz", "gemini_contents-masked.json.xz"}
LEFT_OUT = {7: _LARGE, 8: _LARGE}
"""Files that were not added, for their size; the versions before have them."""
NAMES = [f"{format}{kind}.json.xz" for format in CASES for kind in ("", "-masked")]
FILES = [(rules, name) for rules in MADE for name in NAMES if name not in LEFT_OUT.get(rules, ())]


@pytest.mark.parametrize("rules", MADE)
def test_every_format_has_its_files(rules: int) -> None:
    """No format is left out: each has a run, one with masks, and where thinking is bound one of these."""
    expected = {*NAMES, "store-openai_chat.json.xz", *(f"bound-{JUDGES[judge].format}.json.xz" for judge in runs.BOUND)}
    assert sorted(expected - LEFT_OUT.get(rules, set())) == runs.present(rules)


@pytest.mark.parametrize(("rules", "name"), FILES)
def test_the_run_of_a_revision_goes_on(rules: int, name: str) -> None:
    """The prompt is byte for byte the recorded one; then nothing changes but at a cut, and every original is there."""
    kept = runs.load(MADE[rules] / name, Kept)
    play, engine = kept.play(), kept.engine()
    turns, kept_tokens = play.turns(), 0
    before = play.trim(engine, play.raw(play.messages[: kept.length]), revision=kept.revision)
    assert RevisionUse.APPLIED is before.revision_use
    assert kept.returned == (before.prompt.body or b"").decode()
    for length in turns[turns.index(kept.length) + 1 :]:
        answer = play.trim(engine, play.raw(play.messages[:length]))
        assert [] == list(instability(play, before, answer))
        if not kept.masked:  # what is stored of masked text is not the text that was sent
            assert [] == list(complaints(play, length, answer, engine))
        assert [] == play.case.defects(json.loads(answer.prompt.body or b""))
        assert all(engine.original(trim.stash_id) is not None for trim in answer.trimmed.trims if trim.stash_id)
        kept_tokens += answer.cache.kept
        before = answer
    assert kept_tokens > 0


@pytest.mark.parametrize("rules", MADE)
def test_what_goes_on_is_of_the_present_rules(rules: int) -> None:
    """A revision of earlier rules is opened, and the next one is of these."""
    kept = runs.load(MADE[rules] / NAMES[0], Kept)
    play = kept.play()
    answer = play.trim(kept.engine(), play.raw(play.messages[: kept.length]), revision=kept.revision)
    before, now = (unseal(runs.KEY, revision) for revision in (kept.revision, answer.prompt.revision))
    assert (rules, RULES) == tuple(each.version for each in (before, now) if each is not None)


def test_a_revision_of_later_rules_is_ignored() -> None:
    """The answer is then that of a process that got none."""
    kept = runs.load(MADE[5] / NAMES[0], Kept)
    play = kept.play()
    raw = play.raw(play.messages[: kept.length])
    opened = unseal(runs.KEY, kept.revision)
    assert opened is not None
    later = seal(runs.KEY, msgspec.structs.replace(opened, version=RULES + 1))
    answer, without = play.trim(kept.engine(), raw, revision=later), play.trim(kept.engine(), raw)
    assert RevisionUse.MISMATCHED is answer.revision_use
    assert without.prompt.body == answer.prompt.body
    assert [] == play.case.defects(json.loads(answer.prompt.body or b""))


@pytest.mark.parametrize(("rules", "name"), [each for each in FILES if "masked" in each[1]])
def test_a_value_keeps_the_mask_that_it_had(rules: int, name: str) -> None:
    """The masks of the recorded prompt are those that this version makes of the same values."""
    kept = runs.load(MADE[rules] / name, Kept)
    play = kept.play()
    whole = replace(play, limit=1 << 30)
    untrimmed = whole.trim(runs.engine(whole.limit, masked=True), whole.raw(whole.messages)).prompt.body or b""
    assert masks(kept.returned.encode()) <= masks(untrimmed)
    assert masks(kept.returned.encode())


def masks(body: bytes) -> set[str]:
    """The masks in a prompt."""
    text = json.dumps(json.loads(body), ensure_ascii=False)
    return {each.split("⟧")[0] for each in text.split("⟦")[1:] if ":" in each.split("⟧")[0]}


@pytest.mark.parametrize("rules", MADE)
@pytest.mark.parametrize("judge", runs.BOUND)
def test_a_provider_refuses_no_thinking_afterwards(judge: str, rules: int) -> None:
    """Thinking that was produced under the recorded prompts is valid in those that follow."""
    kept = runs.load(MADE[rules] / f"bound-{JUDGES[judge].format}.json.xz", KeptBound)
    run, provider = conversation_of(kept), JUDGES[judge].provider()
    history: list[bytes] = []
    for returned, step in zip(kept.returned, run.steps, strict=False):
        reply = provider.ask(returned.encode(), step.answer)
        assert [] == list(reply.refusals)
        sent, history = [*history, *step.given], [*history, *step.given, *reply.messages]
    engine = Engine(limit=kept.limit, key=runs.KEY)
    before = engine.trim(run.format, run.body(sent), model=run.model, revision=kept.revision)
    assert RevisionUse.APPLIED is before.revision_use
    assert kept.returned[-1] == (before.prompt.body or b"").decode()
    carried = 0
    for step in run.steps[len(kept.returned) :]:
        history += step.given
        answer = engine.trim(run.format, run.body(history), model=run.model)
        reply = provider.ask(answer.prompt.body or b"", step.answer)
        assert [] == list(reply.refusals)
        carried += reply.carried
        history += reply.messages
    assert carried > 0
