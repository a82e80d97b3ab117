"""However many runs, models and tools there are, the figures stay as many as they were."""

from __future__ import annotations

from functools import partial

import grpc
import pytest

from prompt_sidecar.facts.known_models import ModelFacts, Models
from prompt_sidecar.facts.tool_calls import ToolAnswer, ToolCall, ToolOutcome
from prompt_sidecar.facts.trim_calls import TrimCall
from prompt_sidecar.providers import catalogue as catalogue_of_models
from prompt_sidecar.providers.models import known_family
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.catalog import OTHER
from prompt_sidecar.telemetry.labels import FIRST_TOOLS, MOST_TOOLS, AgentTools, ModelNames
from prompt_sidecar.telemetry.options import MOST_MODELS, TelemetryOptions
from tests.doors.grpc.serving import failure, runs
from tests.telemetry.watched import Watched, prompt, prompt_of, watched

RUNS = 10_000
NAMES = 1_000


def _series(server: Watched) -> set[tuple[str, frozenset[str]]]:
    """The series of a scrape, but for what OpenTelemetry's SDK tells of itself: its first ones come as time goes on."""
    samples = server.scrape().samples
    return {(each.name, frozenset(each.labels.values())) for each in samples if not each.name.startswith("otel_sdk_")}


def _call(channel: grpc.Channel, path: str) -> object:
    call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
    return call(b"")


def test_ten_thousand_runs_and_a_thousand_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told straight to the observer, as a server tells it: ten thousand calls by wire would take a minute."""
    monkeypatch.setenv("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED", "true")  # as the program does
    with watched() as server:
        answer = server.served.stub.TrimPrompt(prompt(3, model="gpt-4o"))
        assert answer.fits
        before = _series(server)
        core = runs()
        observer = server.served.server.shared.observer
        sample = core.trim(TrimCall("local", "run", "openai_chat", b'[{"role":"user","content":"a"}]'), lambda: None)
        for number in range(RUNS):
            call = TrimCall("local", f"run {number}", "openai_chat", model=f"made-up-{number % NAMES}")
            observer.trimmed(call, sample, 0)
        for number in range(NAMES):
            observer.tool_called(
                ToolCall("local", "run", f"tool_{number}", "{}"), ToolAnswer(ToolOutcome.UNKNOWN_TOOL, ""), 0
            )
            failure(partial(_call, server.served.channel, f"/made.Up{number}/Call"))
        figures = server.scrape()
        new = _series(server) - before
    assert RUNS + 1 == figures.of(catalog.PROMPTS)
    assert NAMES == figures.of(catalog.TOOL_CALLS, tool=OTHER)
    assert NAMES == figures.of(catalog.RPC_DURATION, **{"rpc.method": OTHER})
    # The one method that is not served, as one more series of the histogram of calls.
    assert {catalog.RPC_DURATION.name.replace(".", "_")} == {name.rpartition("_seconds")[0] for name, _ in new}


def test_only_tools_of_the_operators_list_are_distinguished() -> None:
    """The rest count together: a model may write any text as a name, and a wire cannot add series."""
    sent: list[dict[str, object]] = []
    names = [f"tool_{number}" for number in range(100)] + ['no"name\n', "x" * 1_000]
    for name in names:
        call = {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}}
        sent.append({"role": "assistant", "content": None, "tool_calls": [call]})
        sent.append({"role": "tool", "tool_call_id": name, "content": "a result"})
    with watched(TelemetryOptions(tools=("tool_7", "tool_8"))) as server:
        server.served.stub.TrimPrompt(prompt_of([{"role": "user", "content": "Go."}, *sent], context_window=100_000))
        figures = server.scrape()
    labels = {each.labels["tool"] for each in figures.samples if each.name.startswith("prompt_sidecar_tool_re")}
    assert {"tool_7", "tool_8", OTHER} == labels
    assert len(names) == figures.of(catalog.TOOL_RESULTS)
    assert len(names) - 2 == figures.of(catalog.TOOL_RESULTS, tool=OTHER)


def test_the_largest_tools_that_agents_define_are_distinguished() -> None:
    """Without a list: at most so many, late ones only if they are large, and none that the model alone names."""
    tools = AgentTools()
    first = [tools.label(f"tool_{number}", 10 + number, declared=True) for number in range(FIRST_TOOLS)]
    assert [f"tool_{number}" for number in range(FIRST_TOOLS)] == first
    assert OTHER == tools.label("made_up", 1_000_000, declared=False) == tools.known("made_up")
    assert OTHER == tools.label("late", 6, declared=True)
    assert "late" == tools.label("late", 5, declared=True) == tools.known("late")  # 11 in all: more than tool_0 had
    assert OTHER == tools.label("small", 1, declared=True)
    for number in range(NAMES):
        tools.label(f"large_{number}", 1_000_000, declared=True)
    labels = {tools.label(f"large_{number}", 1, declared=True) for number in range(NAMES)}
    assert MOST_TOOLS - FIRST_TOOLS - 1 == len(labels - {OTHER})
    assert "tool_0" == tools.label("tool_0", 1, declared=False)


def test_tools_of_definitions_have_labels_over_the_wire() -> None:
    """Names that stand in the body's tools; a name that the model made up is no label, nor are odd ones."""
    sent: list[dict[str, object]] = [{"role": "user", "content": "Go."}]
    for name in ("read_file", "made_up", "odd name", "bash"):
        call = {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}}
        sent.append({"role": "assistant", "content": None, "tool_calls": [call]})
        sent.append({"role": "tool", "tool_call_id": name, "content": "a result"})
    defined = [{"type": "function", "function": {"name": name}} for name in ("read_file", "odd name", "bash", "grep")]
    with watched() as server:
        server.served.stub.TrimPrompt(prompt_of({"messages": sent, "tools": defined}, context_window=100_000))
        figures = server.scrape()
    labels = {each.labels["tool"] for each in figures.samples if each.name.startswith("prompt_sidecar_tool_re")}
    assert {"read_file", "bash", OTHER} == labels
    assert (4, 2) == (figures.of(catalog.TOOL_RESULTS), figures.of(catalog.TOOL_RESULTS, tool=OTHER))


def test_models_are_distinguished_up_to_a_bound() -> None:
    """Known families under their own names, the operator's as they are, at most so many, the rest as one."""
    models = ModelNames(["our-own", "claude-3-5-sonnet"])
    assert ["our-own", OTHER, "gpt-4o", "gpt-4o", "claude-3-5-sonnet"] == [
        models.label(name)
        for name in ("our-own", "our-own-2", "gpt-4o", "openai/gpt-4o-2024-08-06", "claude-3-5-sonnet-20241022")
    ]
    many = [f"{family}-{number:03}" for family in ("gpt-4o", "o3") for number in range(NAMES)]
    assert {"gpt-4o", "o3"} == {models.label(name) for name in many}


def test_the_bound_on_models_holds_whoever_comes_first() -> None:
    """All known families are more than are distinguished; which came first stay."""
    names = [name for name in catalogue_of_models.names() if known_family(name) == name]
    assert len(names) > MOST_MODELS
    models = ModelNames(["mine"])
    labels = [models.label(name) for name in names]
    assert MOST_MODELS - 1 == len(set(labels) - {OTHER})
    assert labels == [models.label(name) for name in names]
    assert "mine" == models.label("mine")
    assert [known_family(name) for name in names[: MOST_MODELS - 1]] == labels[: MOST_MODELS - 1]


def test_models_of_the_settings_have_the_name_that_the_settings_give_them() -> None:
    """However an agent spells it, whatever other model it is like, and whoever comes first."""
    models = Models({"Prod-Chat": ModelFacts(like="gpt-5"), "ours": ModelFacts(window=65_536)})
    names = ModelNames(["mine"], models)
    families = [name for name in catalogue_of_models.names() if known_family(name) == name]
    assert MOST_MODELS - 3 == len({names.label(name) for name in families} - {OTHER})
    asked = ("azure/prod-chat", "PROD-CHAT", "ours", "ours-2", "mine")
    assert ["Prod-Chat", "Prod-Chat", "ours", OTHER, "mine"] == [names.label(name) for name in asked]


def test_the_operators_models_are_distinguished() -> None:
    """By the setting, over the wire."""
    with watched(TelemetryOptions(models=("our-own",))) as server:
        for model in ("our-own", "theirs", ""):
            server.served.stub.TrimPrompt(prompt(1, run_id=f"run {model}", model=model))
        figures = server.scrape()
    assert (1, 2) == (figures.of(catalog.PROMPTS, model="our-own"), figures.of(catalog.PROMPTS, model=OTHER))
