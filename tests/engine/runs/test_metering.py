"""What prompts count for, and ceilings that refuse: before anything is recorded, over restarts and among threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from prompt_sidecar.engine.runs.metering import CALLERS_BOUND, CallerRules, CallerTotals, Rules
from prompt_sidecar.errors import CallerCeiling, CeilingReached, RunCeiling, TooLarge
from prompt_sidecar.facts.money import Money
from prompt_sidecar.facts.trim_calls import OwnTextKind, TrimAnswer, TrimCall
from prompt_sidecar.facts.usage_calls import ReportedRefusal, UsageCall
from prompt_sidecar.guard.ceilings import (
    NOTHING,
    CeilingAction,
    CeilingKind,
    CeilingPrices,
    Ceilings,
    CeilingScope,
    CeilingUsage,
    Price,
)
from prompt_sidecar.trim.presets import preset
from tests.engine.runs.making import LIMIT, ROOM, Engine, body, history, send
from tests.promises.engine import CALLER, RUN_ID
from tests.steps import growth

CHAT = "openai_chat"
REFUSE = CeilingAction.REFUSE
PRICE = Price(input=2.0, output=8.0, cached=0.2, written=2.5)


def rules(observe: bool = False, **ceilings: Any) -> Rules:
    """Rules with these ceilings, and a price for every model."""
    return Rules(
        CallerRules(preset("cache_first"), {}, Ceilings(**ceilings)),
        {},
        Money(CeilingPrices({"*": PRICE})),
        observe=observe,
    )


def engine(observe: bool = False, **ceilings: Any) -> Engine:
    """An engine with these ceilings."""
    return Engine(limit=LIMIT, policy=ROOM, rules=rules(observe, **ceilings))


def used(answer: TrimAnswer, kind: CeilingKind, scope: CeilingScope = CeilingScope.RUN) -> float:
    """What an answer says is used of a ceiling."""
    (found,) = (use.used for use in answer.guard.ceilings if (use.scope, use.kind) == (scope, kind))
    return found


def report(asked: Engine, **fields: Any) -> None:
    """Report on the last prompt."""
    asked.runs.report_usage(UsageCall(caller=CALLER, run_id=asked.run_id, **fields))


def recorded(asked: Engine) -> tuple[Any, ...]:
    """All that a refused prompt must leave as it is."""
    run = asked.runs.table.known(CALLER, asked.run_id)
    assert run is not None
    figures = run.figures(0.0)
    return figures.calls, figures.messages, figures.history.items, figures.stash.entries, run.used, run.memory.own.texts


def test_prompts_count_by_their_estimate() -> None:
    """Tokens of what is returned, one call each; the kept prefix at its own price, and answers as output."""
    asked = engine(run_input_tokens=10**9, run_cost=10**6, run_model_calls=10**6)
    total, cost, before = 0, 0.0, None
    for number in range(4):
        answer = send(asked, CHAT, number)
        kept = answer.cache.kept
        total += answer.tokens.after
        cost += PRICE.of(cached=kept, written=answer.tokens.after - kept)
        if before is not None:
            records = asked.runs.table.known(CALLER, RUN_ID).memory.ledger.records  # type: ignore[union-attr]
            cost += PRICE.of(output=records[-2].full_tokens)
        before = answer
        assert total == used(answer, CeilingKind.INPUT_TOKENS)
        assert number + 1 == used(answer, CeilingKind.MODEL_CALLS)
        assert cost == pytest.approx(used(answer, CeilingKind.COST))
    assert cost == pytest.approx(asked.figures().cost)


def test_a_report_takes_the_place_of_the_estimate() -> None:
    """Tokens and cost of a prompt are the provider's once reported; a second report changes nothing."""
    asked = engine(run_input_tokens=10**9, run_cost=10**6, caller_cost=10**6)
    send(asked, CHAT, 0)
    for _ in range(2):
        report(asked, input_tokens=10_000, cached_tokens=4_000, output_tokens=500)
    expected = PRICE.of(plain=6_000, cached=4_000, output=500)
    figures = asked.figures()
    assert expected == pytest.approx(figures.cost)
    assert [10_000.0, pytest.approx(expected), pytest.approx(expected)] == [use.used for use in figures.ceilings]


def test_a_prompt_that_the_provider_refused_costs_nothing() -> None:
    """It counts as a call and as no tokens."""
    asked = engine(run_input_tokens=10**9, run_cost=10**6, run_model_calls=10**6)
    send(asked, CHAT, 0)
    report(asked, refusal=ReportedRefusal("prompt is too long: 9000 tokens > 5000 maximum"))
    assert [0.0, 0.0, 1.0] == [use.used for use in asked.figures().ceilings]


def test_a_model_without_a_price_costs_nothing_and_says_so() -> None:
    """The figures of its run have no cost."""
    asked = Engine(limit=LIMIT, rules=Rules(rules().general, {}, Money(CeilingPrices({"claude": PRICE}))))
    assert not send(asked, CHAT, 0, model="gpt-5").guard.priced
    assert asked.figures().cost is None
    assert send(asked, CHAT, 1, model="claude-5").guard.priced
    assert asked.figures().cost


@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        (CeilingKind.INPUT_TOKENS, 8_000),
        (CeilingKind.COST, 0.02),
        (CeilingKind.MODEL_CALLS, 4),
    ],
)
@pytest.mark.parametrize("scope", CeilingScope)
def test_a_refusal_records_nothing(scope: CeilingScope, kind: CeilingKind, limit: float) -> None:
    """The limit is never passed; the error has limit and use, and the run is as it was, however often it is asked."""
    fields: dict[str, Any] = {f"{scope}_{kind}": limit, f"{scope}_{kind}_action": REFUSE}
    asked = engine(**fields)
    answered, refusals = send(asked, CHAT, 0), list[CeilingReached]()
    for number in range(1, 9):
        before = recorded(asked)
        try:
            answered = send(asked, CHAT, number)
        except CeilingReached as error:
            refusals.append(error)
            assert before == recorded(asked)
    assert 0 < used(answered, kind, scope) <= limit
    assert {RunCeiling if scope is CeilingScope.RUN else CallerCeiling} == set(map(type, refusals))
    assert all(f"ceilings.{scope}_{kind}" in error.message for error in refusals)


def test_a_refused_first_prompt_leaves_no_run() -> None:
    """A run that never had an answer is not known."""
    asked = engine(run_input_tokens=10, run_input_tokens_action=REFUSE)
    with pytest.raises(RunCeiling):
        send(asked, CHAT, 3)
    assert 0 == len(asked.runs)
    assert NOTHING == asked.runs._meter.callers.of(CALLER)  # noqa: SLF001


def test_messages_of_a_refused_prompt_cost_linear_work() -> None:
    """Steps of the interpreter, which are the same on a busy machine. No limit makes the longer prompt shorter."""
    pair = '{"role":"user","content":"%d"},{"role":"assistant","content":"ok %d"},'

    def refused(count: int) -> None:
        messages = "".join(pair % (number, number) for number in range(count)) + '{"role":"user","content":"x"}'
        asked = Engine(limit=10**9, rules=rules(run_input_tokens=1, run_input_tokens_action=REFUSE))
        for _ in range(2):
            with pytest.raises(RunCeiling):
                asked.trim(CHAT, f'{{"messages":[{messages}]}}'.encode())

    assert growth(refused, 50) < 4.2


def test_one_call_that_has_the_same_result_again() -> None:
    """A run counts how often its most repeated call had one result; past the ceiling its prompts are refused."""
    asked = engine(run_repeated_calls=2, run_repeated_calls_action=REFUSE, caller_repeated_calls=10)
    messages = history(CHAT, 1)
    again = messages[2:]
    assert 1 == used(asked.trim(CHAT, body(CHAT, messages)), CeilingKind.REPEATED_CALLS)
    answer = asked.trim(CHAT, body(CHAT, [*messages, *again]))
    assert 2 == used(answer, CeilingKind.REPEATED_CALLS)
    assert 1 == used(answer, CeilingKind.REPEATED_CALLS, CeilingScope.CALLER)
    with pytest.raises(RunCeiling):
        asked.trim(CHAT, body(CHAT, [*messages, *again, *again]))
    # The agent takes another way: what it left behind does not count.
    assert 1 == used(asked.trim(CHAT, body(CHAT, messages)), CeilingKind.REPEATED_CALLS)


def test_the_note_says_what_is_left() -> None:
    """From four fifths of a ceiling that warns; nothing is refused."""
    asked = engine(run_model_calls=5, run_model_calls_action=CeilingAction.WARN)
    notes = []
    for number in range(7):
        texts = send(asked, CHAT, number).prompt.own_text
        notes.append("".join(own.text for own in texts if own.kind is OwnTextKind.NOTE))
    assert ["Left" in note for note in notes] == [False] * 4 + [True] * 3
    assert "1 of 5 model calls" in notes[4]
    assert "0 of 5 model calls" in notes[6]


def test_a_dry_run_is_reported_and_never_refused() -> None:
    """It says what would be used, and changes nothing."""
    asked = engine(run_model_calls=1, run_model_calls_action=REFUSE)
    send(asked, CHAT, 0)
    before = recorded(asked)
    assert 2 == used(send(asked, CHAT, 1, dry_run=True), CeilingKind.MODEL_CALLS)
    assert before == recorded(asked)


def test_a_side_call_counts_for_nothing() -> None:
    """It is no call of the agent's model that the sidecar could follow."""
    asked = engine(run_model_calls=1, run_model_calls_action=REFUSE)
    send(asked, CHAT, 0)
    before = recorded(asked)
    assert () == tuple(send(asked, CHAT, 0, side_call=True).guard.ceilings)
    assert before == recorded(asked)


def test_an_answer_that_is_too_large_counts_for_nothing() -> None:
    """What was held for the caller is given back."""
    asked = engine(caller_model_calls=9, caller_model_calls_action=REFUSE)
    with pytest.raises(TooLarge):
        send(asked, CHAT, 3, accept_bytes=100)
    assert NOTHING == asked.runs._meter.callers.of(CALLER)  # noqa: SLF001


def test_another_process_goes_on_from_the_revision() -> None:
    """It carries tokens, cost and calls; without it the history implies the calls and about the tokens."""
    ceilings: dict[str, Any] = {"run_input_tokens": 10**9, "run_cost": 1e6, "run_model_calls": 10**6}
    first = engine(**ceilings)
    answer = None
    for number in range(6):
        answer = send(first, CHAT, number)
    assert answer is not None
    report(first, input_tokens=50_000, cached_tokens=0, output_tokens=10)  # the next revision has it
    answer = send(first, CHAT, 6)
    carried = send(engine(**ceilings), CHAT, 7, revision=answer.prompt.revision)
    implied = send(engine(**ceilings), CHAT, 7)
    here = send(first, CHAT, 7)
    assert 8 == used(here, CeilingKind.MODEL_CALLS)
    for kind in (CeilingKind.INPUT_TOKENS, CeilingKind.MODEL_CALLS):
        assert used(here, kind) == used(carried, kind)
    # A process that has not seen the prompt before takes all of this one to be written to the cache.
    assert used(here, CeilingKind.COST) < used(carried, CeilingKind.COST)
    assert 8 == used(implied, CeilingKind.MODEL_CALLS)
    unreported = sum(send(engine(**ceilings), CHAT, number, dry_run=True).tokens.after for number in range(8))
    assert unreported == pytest.approx(used(implied, CeilingKind.INPUT_TOKENS), rel=0.01)


def test_a_replica_that_was_left_behind_learns_from_the_revision() -> None:
    """A run that went on elsewhere and comes back has used what the other process counted."""
    one, other = engine(run_model_calls=100), engine(run_model_calls=100)
    answer = send(one, CHAT, 0)
    for number in (1, 1, 1, 2):
        answer = send(other, CHAT, number, revision=answer.prompt.revision)
    assert 6 == used(send(one, CHAT, 3, revision=answer.prompt.revision), CeilingKind.MODEL_CALLS)


def test_without_ceilings_revisions_do_not_depend_on_the_way() -> None:
    """The same prompt has the same revision whenever it is sent."""
    asked = Engine(limit=LIMIT)
    assert send(asked, CHAT, 3).prompt.revision == send(asked, CHAT, 3).prompt.revision


def test_runs_of_one_caller_share_what_is_left() -> None:
    """Threads never pass a ceiling together that one would not pass, and all of it can be used."""
    asked = engine(caller_model_calls=20, caller_model_calls_action=REFUSE)

    def one(number: int) -> bool:
        call = TrimCall(
            caller=CALLER,
            run_id=f"run-{number}",
            format=CHAT,
            body=body(CHAT, history(CHAT, 0)),
            context_window=LIMIT,
            output_reserve=0,
        )
        try:
            asked.runs.trim(call, lambda: None)
        except CallerCeiling:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        answered = sum(pool.map(one, range(60)))
    assert 20 == answered
    assert 20 == asked.runs._meter.callers.of(CALLER).model_calls  # noqa: SLF001


def test_callers_have_their_own_ceilings_and_policies() -> None:
    """What is set for one holds for it alone, also over a preset that a request names."""
    general, own = rules().general, rules(run_model_calls=7, run_model_calls_action=REFUSE).general
    strict = CallerRules(preset("lean").override({"fit_high": 0.5}), {"fit_high": 0.5}, own.ceilings)
    runs = Engine(limit=LIMIT, rules=Rules(general, {"token:x": strict}, Money(CeilingPrices({})))).runs

    def send_as(caller: str, number: int) -> TrimAnswer:
        raw = body(CHAT, history(CHAT, number))
        call = TrimCall(caller, "run", CHAT, raw, context_window=LIMIT, output_reserve=0, accept_bytes=1 << 30)
        return runs.trim(call, lambda: None)

    lean, plain = send_as("token:x", 6), send_as("token:y", 6)
    assert len(lean.trimmed.trims) > len(plain.trimmed.trims)
    with pytest.raises(RunCeiling):
        send_as("token:x", 7)
    assert () == tuple(send_as("token:y", 7).guard.ceilings)


def test_callers_are_bounded() -> None:
    """The one that called longest ago is forgotten, which is counted; a correction that comes late does no harm."""
    reached: list[str] = []
    totals = CallerTotals(2, reached.append)
    for caller in ("a", "b", "a", "c"):
        totals.add(caller, CeilingUsage(model_calls=1))
    assert [2, 0, 1] == [totals.of(caller).model_calls for caller in ("a", "b", "c")]
    assert [CALLERS_BOUND] == reached
    assert NOTHING == totals.add("b", CeilingUsage(input_tokens=-5))


def test_observe_returns_what_was_sent_and_refuses_nothing() -> None:
    """Every answer has the sent bytes and no own text, and says what would have been done and used."""
    asked, active = engine(True, run_model_calls=2, run_model_calls_action=REFUSE), Engine(limit=LIMIT, policy=ROOM)
    for number in range(13):
        raw = body(CHAT, history(CHAT, number))
        seen, done = asked.trim(CHAT, raw), active.trim(CHAT, raw)
        assert (raw, True, b"") == (seen.prompt.body, seen.prompt.observed_only, seen.prompt.revision)
        assert ((), ()) == (tuple(seen.prompt.own_text), tuple(seen.prompt.edits))
        assert (done.trimmed.trims, done.tokens.after, done.fits) == (seen.trimmed.trims, seen.tokens.after, seen.fits)
        assert number + 1 == used(seen, CeilingKind.MODEL_CALLS)
    assert seen.trimmed.trims
    assert asked.figures().observed_only
