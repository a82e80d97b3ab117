"""Reasoning in a run: bound to its prompt, of turns that are over, recorded, weighed. With the sidecar's own judge."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_sidecar.facts.trim_calls import NoFit, OwnTextKind, OwnTextPlace, RevisionUse, TrimAnswer
from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.prompt.provider_edits import ProviderEdit
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.trim.entries import Action, Reason
from tests.engine.runs.making import Engine, body

ANTHROPIC = "anthropic_messages"
LIMIT = 9_000
BOUND, UNBOUND = "claude-opus-5-5", "claude-opus-4-6"


def answer_of(number: int, *, thinks: bool = True) -> dict[str, Any]:
    """What the model says in an iteration: thinking, a text, a call."""
    thinking = {"type": "thinking", "thinking": f"I wonder {number}.", "signature": f"sig{number}" * 100}
    use = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"path": f"{number}.py"}}
    return {"role": "assistant", "content": [*([thinking] if thinks else []), {"type": "text", "text": "Next."}, use]}


def got(number: int, words: int = 300) -> dict[str, Any]:
    """What the tool answered."""
    text = " ".join(f"w{number}x{word}" for word in range(words))
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{number}", "content": text}]}


def history(iterations: int, *, words_at: tuple[int, ...] = ()) -> list[Any]:
    """A run of so many iterations; after some of them the user speaks."""
    messages: list[Any] = [{"role": "user", "content": "Find the bug."}]
    for number in range(iterations):
        messages += [answer_of(number), got(number)]
        if number in words_at:
            messages += [{"role": "assistant", "content": "Here."}, {"role": "user", "content": f"Go on {number}."}]
    return messages


def thinking_of(message: Any) -> list[str]:
    """Signatures of a message's thinking."""
    content = message["content"] if isinstance(message["content"], list) else []
    return [block["signature"] for block in content if block["type"] == "thinking"]


class Judge:
    """A provider that signs thinking over the prompt that it answers, and finds what is not valid in a later one."""

    def __init__(self) -> None:
        self._under: dict[str, tuple[str, tuple[str, ...]]] = {}

    def answered(self, sent: Any, message: Any) -> None:
        """The model answers a prompt."""
        before = tuple(each for one in sent["messages"] for each in thinking_of(one))
        for signature in thinking_of(message):
            self._under[signature] = (self._prefix(sent, len(sent["messages"])), before)
            before = (*before, signature)

    def invalid(self, sent: Any) -> list[str]:
        """Signatures of thinking that is not valid in a prompt."""
        found: list[str] = []
        before: tuple[str, ...] = ()
        for place, message in enumerate(sent["messages"]):
            for signature in thinking_of(message):
                prefix, chain = self._under[signature]
                if prefix != self._prefix(sent, place) or chain[-1:] != before[-1:]:
                    found.append(signature)
                before = (*before, signature)
        return found

    @staticmethod
    def _prefix(sent: Any, place: int) -> str:
        """All before a message, without thinking."""
        messages = [
            [block for block in message["content"] if block["type"] != "thinking"]
            if isinstance(message["content"], list)
            else message["content"]
            for message in sent["messages"][:place]
        ]
        return json.dumps([sent.get("system"), sent.get("tools"), messages])


def trim(engine: Engine, messages: list[Any], **fields: Any) -> tuple[TrimAnswer, Any]:
    """Trim a prompt; the answer, and its body decoded."""
    answer = engine.trim(ANTHROPIC, body(ANTHROPIC, messages), **({"model": BOUND} | fields))
    return answer, json.loads(answer.prompt.body or b"null")


def prompts(messages: list[Any]) -> list[int]:
    """How many messages each prompt has."""
    return [at for at, message in enumerate(messages) if message["role"] == "assistant"]


@pytest.mark.parametrize("preset", ["cache_first", "lean", "cap_only", "fit_only"])
@pytest.mark.parametrize("words_at", [(), (3, 9)])
def test_bound_thinking_is_always_valid(preset: str, words_at: tuple[int, ...]) -> None:
    """At every turn; and what a batch did not need to remove is there."""
    engine, judge = Engine(limit=LIMIT, preset=preset), Judge()
    messages = history(30, words_at=words_at)
    carried = batches = 0
    for length in prompts(messages):
        answer, sent = trim(engine, messages[:length])
        assert [] == judge.invalid(sent)
        judge.answered(sent, messages[length])
        carried += sum(bool(thinking_of(message)) for message in sent["messages"])
        batches = answer.cache.batch_points
    assert batches > 1 or preset == "cap_only"
    assert carried > 25 or preset in ("lean", "fit_only")


@pytest.mark.parametrize("with_revision", [True, False])
def test_a_new_process_sends_no_invalid_thinking(with_revision: bool) -> None:
    """With the same key it makes the same prompts; with another, ids differ, and what they stand before is invalid."""
    messages, judge = history(30), Judge()
    engine, other = Engine(limit=LIMIT), Engine(limit=LIMIT)
    revision = b""
    for turn, length in enumerate(prompts(messages)):
        same, _ = trim(other, messages[:length], revision=revision)
        answer, sent = trim(engine, messages[:length], revision=revision)
        assert same.prompt.body == answer.prompt.body
        assert [] == judge.invalid(sent)
        judge.answered(sent, messages[length])
        revision = answer.prompt.revision if with_revision else b""
        if turn % 7 == 6:
            engine = Engine(limit=LIMIT)
    answer, sent = trim(Engine(limit=LIMIT, key=b"another key, of thirty-two bytes and more"), messages, revision=b"x")
    assert RevisionUse.MISMATCHED is answer.revision_use
    assert [] == judge.invalid(sent)


@pytest.mark.parametrize("lasting", [True, False])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_limits_that_change_between_calls(lasting: bool, data: st.DataObject) -> None:
    """A limit that comes down cuts what the model said under the old one with all before it, in any process."""
    engine, judge, messages = Engine(limit=LIMIT), Judge(), history(20)
    revision = b""
    for length in prompts(messages):
        window = data.draw(st.integers(LIMIT // 3, LIMIT))
        answer, sent = trim(engine, messages[:length], revision=revision, context_window=window)
        assert [] == judge.invalid(sent)
        judge.answered(sent, messages[length])
        revision = answer.prompt.revision
        if not lasting and data.draw(st.booleans()):
            engine = Engine(limit=LIMIT)


def branching(preset: str, branches: Iterable[int], limit: int = LIMIT) -> int:
    """A run that goes on, at each turn, from the prompt that many back of those returned; -1: from the newest.

    Returns how many blocks of thinking its prompts had in all.
    """
    engine, judge, returned = Engine(limit=limit, preset=preset), Judge(), dict[int, tuple[list[Any], Any]]()
    messages, carried = history(0), 0
    for number, branch in enumerate(branches):
        _, sent = trim(engine, messages)
        assert [] == judge.invalid(sent)
        carried += sum(len(thinking_of(message)) for message in sent["messages"])
        returned[len(messages)] = messages, sent
        if branch >= 0:
            messages, sent = returned[sorted(returned)[-1 - branch % len(returned)]]
        answer = answer_of(number)
        judge.answered(sent, answer)
        messages = [*messages, answer, got(number, 300 if number % 3 else 600)]
    return carried


@pytest.mark.parametrize(
    ("preset", "back"), [("lean", 3), ("lean", 4), ("lean", 5), ("fit_only", 3), ("cache_first", 3)]
)
def test_another_answer_to_an_earlier_prompt(preset: str, back: int) -> None:
    """An agent may go on with one, twice: what was cut since stands before its thinking, which goes."""
    branching(preset, [-1] * 9 + [back, -1, back, -1])


@pytest.mark.parametrize("back", [(2, 0, 1), (1, 3, 0, 1), (2, 5, 1, 1), (0, 3, 0, 2)])
def test_a_branch_again_after_another(back: tuple[int, ...]) -> None:
    """Its prompts were returned before the other branch was cut: what the model said to them goes."""
    branching("cache_first", [-1] * 6 + [*back, -1, -1])


@pytest.mark.parametrize("preset", ["cache_first", "fit_only"])
@pytest.mark.parametrize("limit", [100, 300, 1_000])
def test_a_prompt_that_cannot_fit_sent_again(preset: str, limit: int) -> None:
    """It has the same answer: what could still go goes at first."""
    engine, messages = Engine(limit=limit, preset=preset, policy={"age_keep_iterations": 0}), history(3)
    for length in (*prompts(messages), len(messages)):
        _, sent = trim(engine, messages[:length])
        _, again = trim(engine, messages[:length])
        assert sent == again


@settings(max_examples=60, deadline=None)
@given(
    preset=st.sampled_from(["cache_first", "lean", "fit_only", "cap_only"]),
    start=st.integers(1, 12),
    branches=st.lists(st.integers(-1, 9), min_size=2, max_size=8),
    limit=st.sampled_from([4_000, 6_000, LIMIT, 14_000]),
)
def test_any_branches(preset: str, start: int, branches: list[int], limit: int) -> None:
    """Whichever of its earlier prompts an agent goes on from, in any order."""
    branching(preset, [-1] * start + [*branches, -1, -1], limit)


def test_another_answer_keeps_its_thinking() -> None:
    """Where nothing was decided since its prompt was returned, it came of the same prompt."""
    engine, judge, messages = Engine(limit=LIMIT), Judge(), history(8)
    for length in prompts(messages):
        _, sent = trim(engine, messages[:length])
        judge.answered(sent, messages[length])
    for number in (98, 99):  # the newest answer again, and once more
        messages = [*messages[:length], answer_of(number), got(number, 20)]
        judge.answered(sent, messages[-2])
        answer, again = trim(engine, messages)
        assert [] == judge.invalid(again)
        assert [f"sig{number}" * 100] == thinking_of(again["messages"][-2])
        assert answer.cache.batch_points


def test_answers_to_other_prompts_are_removed() -> None:
    """The revision says up to where the agent had our prompts; the thinking of what the model said since is removed."""
    engine, judge, messages = Engine(limit=LIMIT), Judge(), history(30)
    revision = b""
    for turn, length in enumerate(prompts(messages)):
        if 10 <= turn < 14:  # the sidecar is down, and the agent sends the history without thinking
            bare = [
                message | {"content": [block for block in message["content"] if block["type"] != "thinking"]}
                if message["role"] == "assistant"
                else message
                for message in messages[:length]
            ]
            judge.answered({"messages": bare}, messages[length])
            continue
        answer, sent = trim(engine, messages[:length], revision=revision)
        revision = answer.prompt.revision
        assert [] == judge.invalid(sent)
        judge.answered(sent, messages[length])


def test_an_answer_that_never_arrived() -> None:
    """The agent sent another prompt in its place, as the revision that it sends next tells."""
    engine, messages = Engine(limit=LIMIT), history(4)
    lengths = prompts(messages)
    last, _ = trim(engine, messages[: lengths[2]])
    trim(engine, messages[: lengths[3]], revision=last.prompt.revision)  # lost on its way
    _, sent = trim(engine, messages, revision=last.prompt.revision)
    assert [True] * 3 + [False] == [bool(thinking_of(message)) for message in sent["messages"][1::2]]


def test_recall_that_ends_in_mid_run() -> None:
    """Our text leaves the system prompt then, and with it goes all thinking that it stood before."""
    engine, judge, messages = Engine(limit=LIMIT), Judge(), history(12)
    for turn, length in enumerate(prompts(messages)):
        _, sent = trim(engine, messages[:length], recall_unavailable=turn in (5, 6, 9))
        assert [] == judge.invalid(sent)
        judge.answered(sent, messages[length])


@pytest.mark.parametrize("served", [0, 5])
def test_an_agent_may_say_which_prompts_were_ours(served: int) -> None:
    """So can one that begins in the middle of a run."""
    answer, sent = trim(Engine(limit=100_000), history(10), served_iterations=served)
    assert served == sum(bool(thinking_of(message)) for message in sent["messages"])
    assert {Reason.REASONING} == {trim.reason for trim in answer.trimmed.trims}
    assert not answer.cache.batch_point


def test_a_side_call_has_no_bound_thinking() -> None:
    """A slice is another prompt."""
    engine, messages = Engine(limit=LIMIT), history(12)
    for length in prompts(messages):
        trim(engine, messages[:length])
    _, sent = trim(engine, messages[15:20], side_call=True)
    assert [] == [each for message in sent["messages"] for each in thinking_of(message)]


def test_own_text_changes_nothing_before_kept_thinking() -> None:
    """Directives stand in `system` from the first call; the registry is a system message after a user's; no note."""
    engine, messages = Engine(limit=LIMIT, policy={"registry_share": 0.02}), history(30)
    systems, registries = set(), set()
    for length in prompts(messages):
        answer, sent = trim(engine, messages[:length])
        systems.add(json.dumps(sent["system"]))
        assert OwnTextKind.NOTE not in {own.kind for own in answer.prompt.own_text}
        for own in answer.prompt.own_text:
            if own.kind is OwnTextKind.REGISTRY:
                assert OwnTextPlace.HISTORY is own.place
                roles = [message["role"] for message in sent["messages"][own.message_index - 1 : own.message_index + 2]]
                assert ["user", "system", "assistant"] == roles
                registries.add(own.text)
    assert 1 == len(systems)
    assert len(registries) > 1


def test_adopted_prompts() -> None:
    """An agent that goes on from what it got gets the same prompts as one that sends its own history."""
    own, adopting, judge = Engine(limit=LIMIT), Engine(limit=LIMIT), Judge()
    messages = history(30)
    kept: list[Any] = []
    before = 0
    for length in prompts(messages):
        kept += messages[before:length]
        before = length
        _, sent = trim(own, messages[:length])
        _, other = trim(adopting, kept)
        assert sent == other
        assert [] == judge.invalid(sent)
        judge.answered(sent, messages[length])
        kept = list(sent["messages"])


def test_untrimmed_thinking_is_reported() -> None:
    """The answer says from which message on the agent's own prompt would hold thinking that is not valid."""
    assert 0 == trim(Engine(limit=LIMIT), history(3))[0].prompt.thinking_invalid_from
    assert trim(Engine(limit=LIMIT), history(3), model=UNBOUND)[0].prompt.thinking_invalid_from is None
    plain = Engine(limit=LIMIT)
    assert trim(plain, history(3), recall_unavailable=True)[0].prompt.thinking_invalid_from is None
    answer, sent = trim(plain, history(25), recall_unavailable=True)
    pairs = zip(history(25), sent["messages"], strict=False)
    assert (
        next(at for at, (own, returned) in enumerate(pairs) if own != returned) == answer.prompt.thinking_invalid_from
    )


def test_unbound_thinking_of_turns_that_are_over_goes_first() -> None:
    """And only that: the turn that goes on has all of its own."""
    engine, messages = Engine(limit=LIMIT), history(30, words_at=(8, 16))
    removed = 0
    for length in prompts(messages):
        answer, sent = trim(engine, messages[:length], model=UNBOUND)
        words = max(at for at, message in enumerate(sent["messages"]) if isinstance(message["content"], str)
                    and message["role"] == "user")  # fmt: skip
        last = [message for message in sent["messages"][words:] if message["role"] == "assistant"]
        assert all(thinking_of(message) or message["content"] == "Here." for message in last)
        removed += sum(trim.reason is Reason.REASONING for trim in answer.trimmed.trims)
    assert removed > 0


def test_one_turn_keeps_its_thinking() -> None:
    """Where the user spoke once, an older model's thinking leaves with its iteration alone."""
    engine, messages = Engine(limit=LIMIT), history(30)
    for length in prompts(messages):
        answer, _ = trim(engine, messages[:length], model=UNBOUND)
        assert Reason.REASONING not in {trim.reason for trim in answer.trimmed.trims}


def test_a_turn_that_goes_on_again_has_its_thinking() -> None:
    """An agent may go back to a turn that was finished, and has lost its thinking: the provider requires it there."""
    engine, messages = Engine(limit=LIMIT), history(30, words_at=(8, 16))
    for length in prompts(messages):
        answer, _ = trim(engine, messages[:length], model=UNBOUND)
    removed = {trim.message_index for trim in answer.trimmed.trims if trim.reason is Reason.REASONING}
    back = max(at for at in prompts(messages) if at - 2 in removed)  # answers to calls end the prompt
    answer, sent = trim(engine, messages[:back], model=UNBOUND)
    words = max(at for at, message in enumerate(sent["messages"]) if isinstance(message["content"], str)
                and message["role"] == "user")  # fmt: skip
    going_on = [message for message in sent["messages"][words:] if message["role"] == "assistant"]
    assert going_on
    assert all(thinking_of(message) for message in going_on)


def test_reasoning_that_the_agent_has_no_more_is_not_counted() -> None:
    """An agent that goes on from trimmed prompts goes back to a turn whose thinking was removed: it stays removed."""
    engine, messages = Engine(limit=LIMIT), history(30, words_at=(8, 16))
    removed = False
    for length in prompts(messages):
        answer, sent = trim(engine, messages[:length], model=UNBOUND)
        removed = any(trim.reason is Reason.REASONING for trim in answer.trimmed.trims)
        if removed:
            break
    assert removed
    compared = 0
    for back in range(3, len(sent["messages"]), 2):
        held = sent["messages"][:back]
        engine = Engine(limit=LIMIT)
        trim(engine, messages[:length], model=UNBOUND)
        answer, again = trim(engine, held, model=UNBOUND)
        if again["messages"] == held:
            assert answer.tokens.before + answer.tokens.own_text == answer.tokens.after
            compared += 1
    assert compared


def test_originals_and_search() -> None:
    """A block comes back as JSON with its signature; its text is found by search; neither id is shown to the model."""
    engine, messages = Engine(limit=LIMIT), history(25)
    answer = None
    for length in prompts(messages):
        answer, sent = trim(engine, messages[:length])
        assert "reasoning removed" not in json.dumps(sent)
    assert answer is not None
    trims = [
        trim for trim in answer.trimmed.trims if trim.kind is ItemKind.REASONING and trim.action is Action.CLIPPED
    ][:2]
    number = trims[0].message_index // 2
    assert answer_of(number)["content"][0] == json.loads(engine.original(trims[0].stash_id) or b"")
    assert f"I wonder {number}.".encode() == engine.original(trims[1].stash_id)
    found = engine.search(f"wonder {number}")
    assert trims[1].stash_id in [snippet.item.stash_id for snippet in found.snippets]
    assert not engine.search(f"sig{number}" * 3).snippets
    assert not {trim.stash_id for trim in trims} & {entry.stash_id for entry in answer.trimmed.stash_entries}


def test_the_model_is_not_shown_what_is_encrypted() -> None:
    """Not by the recall tool either, whoever gave it the id."""
    engine, messages = Engine(limit=LIMIT), history(25)
    answer, _ = trim(engine, messages)
    block, text = [trim for trim in answer.trimmed.trims if trim.kind is ItemKind.REASONING][:2]
    assert Outcome.HIT is engine.retrieve(block.stash_id).outcome
    assert "sig0" not in engine.call("recall_elided_content", {"id": block.stash_id}).content
    assert "I wonder" in engine.call("recall_elided_content", {"id": text.stash_id}).content


def test_encrypted_text_has_a_weight_and_a_factor_of_its_own() -> None:
    """0.28 tokens a character, divided by what text is multiplied with."""
    light, heavy = history(1), history(1)
    heavy[1]["content"][0]["signature"] = "s" * 10_000
    one, other = (trim(Engine(limit=100_000), each)[0].tokens.after for each in (light, heavy))
    assert 2_800 - round(400 * 0.28) == other - one


@pytest.mark.parametrize(
    ("management", "edits", "trimmed"),
    [
        ({"edits": [{"type": "clear_tool_uses_20250919"}]}, [ProviderEdit.CLEAR_TOOL_USES], False),
        ({"edits": [{"type": "compact_20260112"}]}, [ProviderEdit.COMPACT], False),
        ({"edits": [{"type": "clear_thinking_20251015"}]}, [ProviderEdit.CLEAR_THINKING], True),
        ({"edits": [{"type": "something_new"}, 7]}, [ProviderEdit.OTHER], False),
        ({"edits": []}, [], True),
        (None, [], True),
    ],
)
def test_what_the_provider_trims_is_not_trimmed_twice(management: Any, edits: list[Any], trimmed: bool) -> None:
    """It is told in the answer, and the policy may say otherwise."""
    messages = history(30)
    raw = json.dumps({"model": UNBOUND, "context_management": management, "messages": messages}).encode()
    answer = Engine(limit=LIMIT).trim(ANTHROPIC, raw)
    assert edits == list(answer.provider_edits)
    assert trimmed == bool(answer.trimmed.trims)
    assert trimmed == answer.fits
    assert answer.no_fit is (None if trimmed else NoFit.POLICY)
    asked = Engine(limit=LIMIT, policy={"trim_beside_provider": True}).trim(ANTHROPIC, raw)
    assert asked.trimmed.trims
    assert asked.fits


def test_the_setting_overrides_the_name() -> None:
    """A gateway may give a model another name."""
    messages = history(30)
    for binding, model in (("bound", "my-model"), ("unbound", BOUND)):
        answer, _ = trim(Engine(limit=LIMIT, policy={"reasoning_binding": binding}), messages, model=model)
        assert (binding == "bound") == (answer.prompt.thinking_invalid_from is not None)


def test_dropping_invalid_thinking_is_asked_for_by_a_setting_alone() -> None:
    """It is the request's own member that says so."""
    raw = json.dumps({"model": BOUND, "thinking": {"type": "adaptive"}, "messages": history(2)}).encode()
    plain = json.loads(Engine(limit=LIMIT).trim(ANTHROPIC, raw).prompt.body or b"")
    assert {"type": "adaptive"} == plain["thinking"]
    asked = json.loads(
        Engine(limit=LIMIT, policy={"reasoning_drop_invalid": True}).trim(ANTHROPIC, raw).prompt.body or b""
    )
    assert {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}} == asked["thinking"]
    assert plain["system"] == asked["system"]


@settings(max_examples=40, deadline=None)
@given(
    iterations=st.integers(5, 25),
    limit=st.integers(3_000, 9_000),
    retries=st.lists(st.tuples(st.integers(0, 24), st.integers(1, 6)), max_size=3),
    preset=st.sampled_from(["cache_first", "lean", "fit_only"]),
)
def test_retries_and_branches(iterations: int, limit: int, retries: list[tuple[int, int]], preset: str) -> None:
    """An agent that goes back some iterations and asks again sends no thinking that is not valid."""
    engine, judge = Engine(limit=limit, preset=preset), Judge()
    back = dict(retries)
    messages: list[Any] = [{"role": "user", "content": "Find the bug."}]
    number = turn = 0
    while number < iterations and turn < 60:
        _, sent = trim(engine, messages)
        assert [] == judge.invalid(sent)
        answer = answer_of(turn)
        judge.answered(sent, answer)
        messages += [answer, got(turn, 120)]
        number += 1
        if turn in back and number > back[turn]:
            number -= back[turn]
            del messages[1 + 2 * number :]
        turn += 1


@settings(max_examples=60, deadline=None)
@given(
    words_at=st.sets(st.integers(2, 26), min_size=1, max_size=8),
    moves=st.lists(st.integers(-6, 8), min_size=4, max_size=14),
    limit=st.sampled_from([3_000, LIMIT, 14_000]),
)
def test_a_new_process_removes_the_same_reasoning(words_at: set[int], moves: list[int], limit: int) -> None:
    """With the revision, wherever the history went forth and back: also what was passed over stays passed over."""
    messages = history(28, words_at=tuple(words_at))
    lengths, engine, at, revision = prompts(messages), Engine(limit=limit), 0, b""
    for move in moves:
        at = min(max(at + move, 0), len(lengths) - 1)
        prompt = messages[: lengths[at]]
        other, _ = trim(Engine(limit=limit), prompt, model=UNBOUND, revision=revision)
        answer, _ = trim(engine, prompt, model=UNBOUND, revision=revision)
        # A revision of a longer history is not applied, so what was decided about the rest is not known then.
        assert other.prompt.body == answer.prompt.body or other.revision_use is RevisionUse.MISMATCHED
        revision = answer.prompt.revision
