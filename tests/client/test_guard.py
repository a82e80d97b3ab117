"""What a client does with masks, and with prompts that the guard or a ceiling refuses; on a real server."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.app import start
from prompt_sidecar.client import (
    CallerCeiling,
    Client,
    ClientError,
    GuardRefused,
    MaskedRun,
    MustNotBeSent,
    RunCeiling,
    Unreachable,
)
from prompt_sidecar.config.settings import load
from tests.client.serving import PATIENT

KEY = "ghp_" + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEa"
HELLO = [{"role": "user", "content": "Hello."}]
GUARD = '[guard]\nmode = "enforce"\nrestore = ["deploy:github_token"]\n'
MASK = re.compile("⟦github_token:[a-z0-9]{10}⟧")
NOBODY = "127.0.0.1:1"
"""A port that nobody listens on."""


@contextmanager
def sidecar(folder: Path, settings: str) -> Iterator[str]:
    """The address of a whole sidecar with these settings."""
    path = folder / "sidecar.toml"
    path.write_text(f'[server]\nlisten = "127.0.0.1:0"\n[telemetry]\nmetrics_listen = ""\n{settings}')
    running = start(load({}, config=str(path)))
    try:
        yield running.addresses[0]
    finally:
        running.stop(0)


def client(address: str, **options: Any) -> Client:
    """A client that waits for as long as it takes."""
    return Client(address, **({"deadline": PATIENT} | options))


def says(*calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """The model's answer, which makes these calls."""
    made = [
        {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for number, (name, arguments) in enumerate(calls)
    ]
    return {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": made}}]}


class Model:
    """A model that puts what looks like a mask in its prompt into calls of two tools."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, **keywords: Any) -> dict[str, Any]:
        """Answer."""
        prompt = json.dumps(keywords["messages"], ensure_ascii=False)
        self.prompts.append(prompt)
        found = MASK.search(prompt)
        mask = found[0] if found is not None else ""
        return says(("deploy", {"token": mask, "to": "prod"}), ("http_post", {"body": f"token={mask}"}), ("ls", {}))


def test_complete_restores_masks_for_listed_tools(tmp_path: Path) -> None:
    """The listed tool gets the value, another one the mask; no prompt and no history holds the value."""
    model = Model()
    messages = [{"role": "user", "content": f"Deploy with {KEY}."}]
    with sidecar(tmp_path, GUARD) as address, client(address) as asked, asked.run("r") as run:
        completion = run.complete("openai_chat", model, model="gpt-5", messages=messages)
    deploy, post, ls = completion.calls
    assert {"token": KEY, "to": "prod"} == json.loads(deploy.arguments)
    assert (0, False) == (deploy.masks_left, deploy.has_masks)
    assert KEY not in post.arguments
    assert (1, True) == (post.masks_left, post.has_masks)
    assert ("{}", 0) == (ls.arguments, ls.masks_left)
    assert KEY not in "".join(model.prompts)
    assert KEY not in json.dumps(completion.history([call.result("done") for call in completion.calls])[1:])
    assert ["masked"] == [finding.action for finding in completion.trimmed.findings]


def test_streamed_calls_are_restored_too(tmp_path: Path) -> None:
    """The completion after a stream has the value for the listed tool; the events and the history have the mask."""
    model = Model()

    def create(**keywords: Any) -> Iterator[dict[str, Any]]:
        message = model(**keywords)["choices"][0]["message"]
        calls = [{"index": index, **call} for index, call in enumerate(message["tool_calls"])]
        for delta, reason in (({"role": "assistant", "tool_calls": calls}, None), ({}, "tool_calls")):
            yield {"id": "c", "model": "gpt-5", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    messages = [{"role": "user", "content": f"Deploy with {KEY}."}]
    with sidecar(tmp_path, GUARD) as address, client(address) as asked, asked.run("r") as run:
        streamed = run.complete("openai_chat", create, stream=True, model="gpt-5", messages=messages)
        events = list(streamed)
        completion = streamed.completion
    deploy, post, _ = completion.calls
    assert {"token": KEY, "to": "prod"} == json.loads(deploy.arguments)
    assert KEY not in post.arguments
    assert KEY not in json.dumps(events)
    assert KEY not in json.dumps(completion.history([call.result("done") for call in completion.calls])[1:])


def test_values_that_a_restart_forgot_heal(tmp_path: Path) -> None:
    """Another process has no values until it was sent the history again, which `complete` does."""
    key = f'key = "{"k" * 32}"\n'
    model = Model()
    messages = [{"role": "user", "content": f"Deploy with {KEY}."}]
    path = tmp_path / "sidecar.toml"
    path.write_text(f'{key}[server]\nlisten = "127.0.0.1:0"\n[telemetry]\nmetrics_listen = ""\n{GUARD}')
    settings = load({}, config=str(path))
    first, second = start(settings), start(settings)
    try:
        with client(first.addresses[0]) as asked:
            masked = asked.trim("r", messages).prompt
        call = {"name": "deploy", "arguments": json.dumps({"token": masked[-1]["content"]}, ensure_ascii=False)}
        with client(second.addresses[0]) as asked:
            (lost,) = asked.restore_secrets("r", [(call["name"], call["arguments"])])
            assert (call["arguments"], 0, 1) == (lost.arguments, lost.restored, lost.unknown)
            (named,) = lost.unknown_masks
            assert named in masked[-1]["content"]
            with asked.run("r") as run:
                completion = run.complete("openai_chat", model, model="gpt-5", messages=messages)
            assert KEY in completion.calls[0].arguments
    finally:
        first.stop(0)
        second.stop(0)


def test_restoring_by_hand(tmp_path: Path) -> None:
    """Agents with loops of their own ask for it; what was not restored is counted."""
    with sidecar(tmp_path, GUARD) as address, client(address) as asked, asked.run("r") as run:
        trimmed = run.trim([{"role": "user", "content": KEY}])
        arguments = json.dumps({"token": trimmed.prompt[-1]["content"]})
        listed, other = run.restore_secrets([("deploy", arguments), ("http_post", arguments)])
    assert (json.dumps({"token": KEY}), 1, 0, 0) == (
        json.dumps(json.loads(listed.arguments)),
        listed.restored,
        listed.not_allowed,
        listed.unknown,
    )
    assert (arguments, 0, 1) == (other.arguments, other.restored, other.not_allowed)


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ('[ceilings]\nrun_model_calls = 1\nrun_model_calls_action = "refuse"\n', RunCeiling),
        ('[ceilings]\ncaller_model_calls = 1\ncaller_model_calls_action = "refuse"\n', CallerCeiling),
    ],
)
def test_a_ceiling_is_never_failed_open(tmp_path: Path, settings: str, kind: type[ClientError]) -> None:
    """The client raises although it fails open, and sends the prompt only where it is told to."""
    with sidecar(tmp_path, settings) as address:
        with client(address) as asked, asked.run("r") as run:
            (use,) = run.trim(HELLO).ceilings
            assert (1.0, 1.0, "refuse", "model_calls") == (use.limit, use.used, use.action, use.kind)
            with pytest.raises(kind, match=r"ceilings\.") as caught:
                run.trim(HELLO)
            assert isinstance(caught.value, MustNotBeSent)
            assert kind.__name__ in {"RunCeiling", "CallerCeiling"}
            assert 0 == asked.untrimmed
            assert [1] == [figures.used for figures in asked.get_run("r").ceilings]
            with pytest.raises(kind):
                run.complete("openai_chat", Model(), model="gpt-5", messages=HELLO)
        if kind is CallerCeiling:
            with client(address, fail_open_guard=True) as asked:
                assert HELLO == asked.trim("r", HELLO).prompt
                assert {"CALLER_CEILING": 1} == asked.untrimmed_by_reason


def test_what_the_guard_refuses_is_never_failed_open(tmp_path: Path) -> None:
    """What a rule finds that a user has set to refuse."""
    messages = [{"role": "user", "content": f"use {KEY}"}]
    with sidecar(tmp_path, GUARD + 'actions = ["github_token=refuse"]\n') as address:
        with client(address) as asked, pytest.raises(GuardRefused) as caught:
            asked.trim("r", messages)
        assert KEY not in str(caught.value)
        with client(address, fail_open_guard=True) as asked:
            assert messages == asked.trim("r", messages).prompt


def test_without_a_sidecar_nothing_goes_unmasked() -> None:
    """Where masking is required the client raises instead of sending new messages as they are."""
    with client(NOBODY, masking_required=True) as asked:
        with pytest.raises(Unreachable):
            asked.trim("r", HELLO)
        with pytest.raises(Unreachable), asked.run("r") as run:
            run.complete("openai_chat", Model(), model="gpt-5", messages=HELLO)
        assert 0 == asked.untrimmed
    with client(NOBODY) as asked:
        assert HELLO == asked.trim("r", HELLO).prompt


@pytest.mark.parametrize("asked_for", ["full", "edits"])
def test_a_run_with_masks_is_never_failed_open(asked_for: str, tmp_path: Path) -> None:
    """Once a mask was seen, a prompt that nobody masks raises a typed error, until the sidecar is back."""
    messages = [{"role": "user", "content": f"Deploy with {KEY}."}]
    more = [*messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": f"and {KEY[::-1]}"}]
    socket = f'[server]\nlisten = "127.0.0.1:0"\nsocket = "{tmp_path}/s"\n[telemetry]\nmetrics_listen = ""\n{GUARD}'
    (tmp_path / "s.toml").write_text(socket)
    settings = load({}, config=str(tmp_path / "s.toml"))

    def given(prompt: list[dict[str, str]]) -> Any:
        return prompt if asked_for == "edits" else json.dumps(prompt).encode()

    seconds = itertools.count(0, 60)
    running = start(settings)
    with (
        client(f"unix:{tmp_path}/s", clock=lambda: float(next(seconds))) as asked,
        client(f"unix:{tmp_path}/s", fail_open_masked=True, clock=lambda: float(next(seconds))) as open_,
    ):
        for each in (asked, open_):
            assert each.trim("r", given(messages)).trimmed
            assert each.trim("plain", given(HELLO)).trimmed
        running.stop(0)
        for _ in range(2):
            with pytest.raises(MaskedRun, match="masks") as caught:
                asked.trim("r", given(more))
            assert (True, "MASKED_RUN") == (isinstance(caught.value, MustNotBeSent), caught.value.reason)
            assert isinstance(caught.value.__cause__, ClientError)
            assert KEY not in str(caught.value)
        with pytest.raises(MaskedRun), asked.run("r") as run:
            run.complete("openai_chat", Model(), model="gpt-5", messages=more)
        assert not asked.trim("plain", given(HELLO)).trimmed
        assert not open_.trim("r", given(more)).trimmed
        running = start(settings)
        try:
            assert any(_answers(lambda: asked.trim("r", given(more)).trimmed) for _ in range(200))
        finally:
            running.stop(0)


def _answers(ask: Callable[[], bool]) -> bool:
    try:
        return ask()
    except MaskedRun:  # gRPC leaves a pause between tries to connect
        return False


def test_masks_stay_where_the_sidecar_is_gone(tmp_path: Path) -> None:
    """Between the prompt and the call's execution; a mask reveals nothing, and `masks_left` is not known."""
    model = Model()
    messages = [{"role": "user", "content": f"Deploy with {KEY}."}]
    with sidecar(tmp_path, GUARD) as address, client(address) as asked, asked.run("r") as run:
        masked = run.trim(messages).prompt
    with client(NOBODY) as asked, asked.run("r") as run:
        completion = run.complete("openai_chat", model, model="gpt-5", messages=masked)
    assert all(KEY not in call.arguments for call in completion.calls)
    assert completion.calls[0].has_masks


def test_observe_over_the_wire(tmp_path: Path) -> None:
    """The client gets the very prompt that it gave, and what would have been done."""
    settings = '[ceilings]\nrun_model_calls = 1\nrun_model_calls_action = "refuse"\n[policy]\npreset = "lean"\n'
    long = [{"role": "user", "content": "Go."}]
    for number in range(8):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        long.append({"role": "assistant", "content": None, "tool_calls": [call]})  # type: ignore[dict-item]
        long.append({"role": "tool", "tool_call_id": f"c{number}", "content": "line of log\n" * 500})
    path = tmp_path / "sidecar.toml"
    path.write_text(f'mode = "observe"\n[server]\nlisten = "127.0.0.1:0"\n[telemetry]\nmetrics_listen = ""\n{settings}')
    running = start(load({}, config=str(path)))
    try:
        with client(running.addresses[0]) as asked:
            raw = json.dumps(long).encode()
            for _ in range(2):
                made = asked.trim("r", long)
                assert long == made.prompt
                assert (True, True, b"") == (made.observed_only, bool(made.trims), made.revision)
                assert raw == asked.trim("s", raw).prompt
            assert asked.get_run("r").observed_only
    finally:
        running.stop(0)


@pytest.mark.parametrize("odd", ['"n": 1E400', '"to": "dev", "to": "prod"', '"n": "\\ud83d"', f'"n": {"9" * 400}'])
def test_arguments_that_parsers_read_differently(odd: str, tmp_path: Path) -> None:
    """They are filled as others are, whatever else a model has written into them, and nothing else of them changes."""
    written: list[str] = []

    def model(**keywords: Any) -> dict[str, Any]:
        found = MASK.search(json.dumps(keywords["messages"], ensure_ascii=False))
        written.append(f'{{{odd}, "token": "{found[0] if found else ""}"}}')
        answer = says(("deploy", {}))
        answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = written[-1]
        return answer

    messages = [{"role": "user", "content": f"Deploy with {KEY}."}]
    with sidecar(tmp_path, GUARD) as address, client(address) as asked, asked.run("r") as run:
        completion = run.complete("openai_chat", model, model="gpt-5", messages=messages)

    assert [MASK.sub(KEY, written[0])] == [call.arguments for call in completion.calls]
    assert [0] == [call.masks_left for call in completion.calls]
