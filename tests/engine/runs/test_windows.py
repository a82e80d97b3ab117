"""A run goes by the windows that its first prompts found, whatever settings and catalogue say later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from prompt_sidecar.engine.runs.taught_windows import CALLER_MODELS, LEAST_TAUGHT, MOST_MODELS, Taught, TaughtWindows
from prompt_sidecar.engine.steps.windows import MODELS_OF_RUN, RunWindows, Window
from prompt_sidecar.facts.known_models import ModelFacts, Models
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.facts.usage_calls import ReportedRefusal, UsageCall
from tests.promises.engine import CALLER, Engine

CHAT = "openai_chat"
OURS = "our-deployment"
SMALL, LARGE = 6_000, 60_000
OTHER_WINDOWS = (SMALL, 4_000, LARGE, 0)
"""What the settings may say of a model later: the same, less, more, nothing."""


def history(turns: int) -> list[dict[str, Any]]:
    """A task, and so many turns of 250 tokens each."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Fix the failing test."}]
    for turn in range(turns):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "read", "arguments": f'{{"file": {turn}}}'}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        lines = "\n".join(f"line {line} of file {turn} says something" for line in range(25))
        messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": lines})
    return messages


def engine(window: int = 0, *, default: int = LARGE, name: str = OURS) -> Engine:
    """An engine whose settings know the model's window; 0: they do not."""
    models = Models({name: ModelFacts(window=window)} if window else {})
    return Engine(limit=0, models=models, limits=Limits(default_window=default))


def trim(of: Engine, turns: int, *, model: str = OURS, **fields: Any) -> TrimAnswer:
    """Send a history."""
    body = json.dumps({"model": model, "messages": history(turns)}).encode()
    return of.trim(CHAT, body, **fields)


def messages_of(answer: TrimAnswer) -> Sequence[Any]:
    """The messages that the model gets, without the note at the end, which is new at each call."""
    messages: list[Any] = json.loads(answer.prompt.body or b"")["messages"]
    return [each for each in messages if not (each["role"] == "system" and each is messages[-1])]


@pytest.mark.parametrize("later", OTHER_WINDOWS)
def test_another_window_in_the_settings_changes_no_running_prompt(later: int) -> None:
    """A replica with other settings, or the process started again with them, goes on by the run's revision."""
    before, same, other = engine(SMALL), engine(SMALL), engine(later)
    revision = trim(before, 40).prompt.revision
    kept, changed = trim(same, 42, revision=revision), trim(other, 42, revision=revision)
    assert messages_of(kept) == messages_of(changed)
    assert (kept.tokens.limit, SMALL) == (changed.tokens.limit, changed.tokens.limit)
    again, once = trim(same, 60), trim(other, 60)
    assert messages_of(again) == messages_of(once)


@pytest.mark.parametrize("default", [4_000, LARGE])
def test_another_default_changes_no_running_prompt(default: int) -> None:
    """The window that is assumed of an unknown model is found once, too; it stays an assumption."""
    revision = trim(engine(default=SMALL), 40).prompt.revision
    changed = trim(engine(default=default), 42, revision=revision)
    assert (SMALL, True) == (changed.tokens.limit, changed.tokens.window_assumed)


def test_a_dry_run_keeps_no_window() -> None:
    """Nor does a side call: neither is a prompt of the run."""
    run = engine(SMALL)
    trim(run, 3, dry_run=True)
    assert not run.runs.table.known(CALLER, "run-1")
    trim(run, 3)
    trim(run, 3, model="another", side_call=True)
    found = run.runs.table.known(CALLER, "run-1")
    assert found is not None
    assert found.windows.find(OURS) == Window(SMALL)
    assert found.windows.find("another") is None


def test_what_the_agent_asks_for_holds_at_once() -> None:
    """A window in the request is no look-up: it lowers the limit of that prompt, and of that one alone."""
    run = engine(SMALL)
    limits = [trim(run, 3, context_window=asked).tokens.limit for asked in (0, 4_000, LARGE, 0)]
    assert [SMALL, 4_000, SMALL, SMALL] == limits


def test_a_prompt_for_a_smaller_model_fits_there() -> None:
    """It is cut where it has to be; a prompt that fits as it is is the same for both models."""
    models = Models({"main": ModelFacts(window=LARGE), "small": ModelFacts(window=SMALL)})
    run = Engine(limit=0, models=models)
    short = trim(run, 10, model="main")
    aside, back = trim(run, 10, model="small"), trim(run, 11, model="main")
    assert messages_of(short) == messages_of(aside) == messages_of(back)[: len(messages_of(short))]
    assert (SMALL, LARGE) == (aside.tokens.limit, back.tokens.limit)
    trim(run, 40, model="main")
    cut = trim(run, 41, model="small")
    assert cut.fits
    assert cut.tokens.after <= SMALL


def test_a_larger_model_writes_nothing_again() -> None:
    """The limit rises, what was cut stays as it is."""
    models = Models({"main": ModelFacts(window=SMALL), "large": ModelFacts(window=LARGE)})
    run = Engine(limit=0, models=models)
    cut = trim(run, 40, model="main")
    larger = trim(run, 42, model="large")
    assert cut.trimmed.trims
    assert LARGE == larger.tokens.limit
    assert messages_of(cut) == messages_of(larger)[: len(messages_of(cut))]


def test_a_run_of_many_models_keeps_the_first_ones() -> None:
    """Of further models the window is looked up each time; the bound is counted."""
    run = RunWindows()
    kept = [run.keep(f"model {number}", Window(number)) for number in range(MODELS_OF_RUN + 1)]
    assert [True] * MODELS_OF_RUN + [False] == kept
    assert run.keep("MODEL 3", Window(99))
    assert Window(3) == run.find("Model 3")
    carried = run.carried("model 99", Window(99))
    assert MODELS_OF_RUN == len(carried)
    other = RunWindows()
    other.take_over([*carried, *carried], None)
    assert carried == other.carried("model 99", Window(99))


def refuse(of: Engine, run_id: str, message: str, *, caller: str = CALLER) -> None:
    """Report that the provider refused the run's last prompt."""
    of.runs.report_usage(UsageCall(caller=caller, run_id=run_id, refusal=ReportedRefusal(message)))


TOO_LONG = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."


def test_what_a_refusal_teaches_of_an_unknown_model_holds_for_the_callers_later_runs() -> None:
    """Not for a run that is under way, not for another model, not for another caller."""
    of = engine()
    under_way = trim(of, 3, run_id="under way").tokens.limit
    trim(of, 20, run_id="refused")
    refuse(of, "refused", TOO_LONG)
    assert LARGE == under_way == trim(of, 4, run_id="under way").tokens.limit
    later = trim(of, 3, run_id="later")
    assert (8_192, True) == (later.tokens.limit, later.tokens.window_assumed)
    assert 8_192 == trim(of, 3, run_id="asked", context_window=100_000).tokens.limit
    assert LARGE == trim(of, 3, run_id="other model", model="another").tokens.limit
    assert LARGE == trim(of, 3, run_id="later", caller="somebody else").tokens.limit
    carried = trim(engine(), 5, run_id="later", revision=later.prompt.revision)
    assert 8_192 == carried.tokens.limit


def test_a_known_model_is_not_taught() -> None:
    """Settings and catalogue say better what its window is; the limit is the run's alone."""
    of = engine(LARGE)
    trim(of, 20, run_id="refused")
    refuse(of, "refused", TOO_LONG)
    assert LARGE == trim(of, 3, run_id="later").tokens.limit


def test_a_refusal_teaches_no_window_that_no_model_has() -> None:
    """One false report cannot make all later prompts of a caller tiny; what was accepted raises it again."""
    taught = TaughtWindows()
    taught.refused("a", "Model", 300, input_only=False)
    assert Taught(LEAST_TAUGHT) == taught.of("a", "model")
    taught.accepted("a", "model", 9_000)
    taught.accepted("a", "model", 100)
    assert Taught(9_000) == taught.of("a", "MODEL")
    taught.refused("a", "model", 8_000, input_only=True)
    taught.refused("a", "model", 20_000, input_only=False)
    assert (Taught(9_000, 8_000), Taught()) == (taught.of("a", "model"), taught.of("b", "model"))


def test_taught_windows_are_bounded() -> None:
    """A caller that makes up models forgets its own; all together forget those of the caller idle for longest."""
    reached: list[str] = []
    taught = TaughtWindows(reached.append)
    for number in range(CALLER_MODELS + 1):
        taught.refused("first", f"model {number}", 8_000, input_only=False)
    assert (Taught(), Taught(8_000)) == (taught.of("first", "model 0"), taught.of("first", "model 1"))
    for number in range(MOST_MODELS):
        taught.refused(f"caller {number}", "model", 8_000, input_only=False)
    assert Taught() == taught.of("first", f"model {CALLER_MODELS}")
    assert Taught(8_000) == taught.of("caller 0", "model")
    assert ["limits.taught_windows"] * (1 + CALLER_MODELS) == reached
