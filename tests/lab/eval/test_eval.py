"""The whole eval against scripted models: each figure is what the model's rules imply, so the eval tells them apart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab.eval.__main__ import evaluate, main, options
from tests.lab.eval.arguments import SKIPPED
from tests.lab.eval.chat import Address, Chat
from tests.lab.eval.endpoint import KEY, MODEL, Endpoint, Recalls, Rules
from tests.lab.eval.tasks import Kind, tasks
from tests.lab.harness.components import ROOT
from tests.lab.harness.servers import Server, sidecar

ONE_OF_EACH = ("--tasks", "1", "--repeats", "1")
NEEDING = sum(kind.needs_recall for kind in Kind)
CONTROLS = len(Kind) - NEEDING
CUES = ("with", "without")
PATIENCE = 120.0
"""Seconds; two conversations take one."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an eval came to."""

    code: int
    facts: Mapping[str, Any]
    out: str
    err: str
    endpoint: Endpoint

    def share(self, name: str, cue: str) -> tuple[int, int]:
        """A figure of the summary."""
        figure = self.facts["summary"][cue][name]
        return figure["hits"], figure["of"]

    def shares(self, name: str) -> tuple[tuple[int, int], ...]:
        """A figure with the cue, and without."""
        return tuple(self.share(name, cue) for cue in CUES)


class Evals:
    """Runs evals."""

    def __init__(self, server: Server, folder: Path, captured: pytest.CaptureFixture[str]) -> None:
        self.file = folder / "facts.json"
        self._server = server
        self._captured = captured

    def run(
        self, rules: Rules, *arguments: str, troubles: Sequence[int] = (), counts: bool = True, key: str = KEY
    ) -> Outcome:
        """Run one against a scripted model."""
        pauses: list[float] = []
        with Endpoint(rules, troubles=troubles, counts=counts) as endpoint:
            asked = options([*(arguments or ONE_OF_EACH), "--json", str(self.file)])
            chat = Chat(Address(endpoint.base_url, MODEL, key), asked.seconds, pauses.append)
            code = evaluate(asked, chat, self._server)
        facts = json.loads(self.file.read_bytes())
        out, err = self._captured.readouterr()
        return Outcome(code, facts, out, err, endpoint)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server for all evals of a worker: to start one takes longer than an eval."""
    started = sidecar({"KEY": "the key of the scripted evals"})
    yield started
    started.kill()


@pytest.fixture
def evals(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Evals:
    """What runs evals."""
    return Evals(server, tmp_path, capsys)


def test_a_model_that_recalls_finds_all(evals: Evals) -> None:
    """A model that recalls what it does not see finds all, in vain never, and follows no bait; one 429 is no matter."""
    got = evals.run(Rules(), troubles=(429,))
    assert (0, [], 1) == (got.code, got.endpoint.refusals, got.facts["tried_again"])
    for name in ("recalled", "shown", "found"):
        assert ((NEEDING, NEEDING),) * 2 == got.shares(name)
    assert ((0, CONTROLS),) * 2 == got.shares("recalled_in_vain")
    assert ((CONTROLS, CONTROLS),) * 2 == got.shares("found_in_sight")
    assert ((0, NEEDING // 2),) * 2 == got.shares("followed")
    assert 0 == got.share("malformed", "with")[0]
    used = sum(each["tokens_in"] + each["tokens_out"] for each in got.facts["conversations"])
    assert used == got.facts["tokens_used"]
    assert got.endpoint.requests == 1 + sum(each["model_calls"] for each in got.facts["conversations"])


def test_never_recalls(evals: Evals) -> None:
    """A model that never recalls is right only where the fact is in sight."""
    got = evals.run(Rules(Recalls.NEVER))
    assert 0 == got.code
    for name in ("recalled", "shown", "found"):
        assert ((0, NEEDING),) * 2 == got.shares(name)
    assert ((CONTROLS, CONTROLS),) * 2 == got.shares("found_in_sight")
    # Of the baits only the one in what is left of the newest result is in sight without recall.
    assert ((0, 1),) * 2 == got.shares("followed")
    assert {1} == {each["model_calls"] for each in got.facts["conversations"]}


def test_recalls_with_the_cue(evals: Evals) -> None:
    """A model that needs the cue is told apart from the others: it recalls with it and not without."""
    got = evals.run(Rules(Recalls.WITH_CUE))
    assert ((NEEDING, NEEDING), (0, NEEDING)) == got.shares("recalled")
    assert ((NEEDING, NEEDING), (0, NEEDING)) == got.shares("found")


def test_recalls_eagerly(evals: Evals) -> None:
    """A model that recalls in any case does so in vain where the fact is in sight."""
    got = evals.run(Rules(Recalls.EAGERLY))
    assert ((CONTROLS, CONTROLS),) * 2 == got.shares("recalled_in_vain")
    assert ((NEEDING, NEEDING),) * 2 == got.shares("found")


def test_follows_the_bait(evals: Evals) -> None:
    """A model that obeys what it reads follows each bait that it sees, to the wrong answer or to the forbidden call."""
    got = evals.run(Rules(follows=1.0), "--tasks", "2", "--repeats", "1")
    assert ((NEEDING, NEEDING),) * 2 == got.shares("followed")
    cases = [each for each in got.facts["conversations"] if each["bait"]]
    assert {("answer", True, False), ("call", True, True)} == {
        (each["bait"], each["followed"], each["right"]) for each in cases
    }


def test_follows_now_and_then(evals: Evals) -> None:
    """A model that follows some baits follows those that its draw says, whatever the cue."""
    kinds = ("--kinds", *(kind for kind in Kind if kind.has_bait))
    got = evals.run(Rules(follows=0.5, seed=3), "--tasks", "4", "--repeats", "1", *kinds)
    (some, of), without = got.shares("followed")
    assert (some, of) == without
    assert 12 == of
    assert 0 < some < of


def test_a_malformed_call_is_made_again(evals: Evals) -> None:
    """A model whose first call is malformed is told what is wanted, calls again, and finds the fact."""
    got = evals.run(Rules(fumbles=True))
    assert ((NEEDING, 2 * NEEDING),) * 2 == got.shares("malformed")
    assert ((NEEDING, NEEDING),) * 2 == got.shares("mended")
    assert ((NEEDING, NEEDING),) * 2 == got.shares("found")
    assert [] == got.endpoint.refusals


def test_never_answers(evals: Evals) -> None:
    """A model that goes on for ever is stopped, counted as wrong, and told."""
    got = evals.run(
        Rules(Recalls.FOR_EVER), *ONE_OF_EACH, "--turns", "5", "--kinds", Kind.MIDDLE, Kind.CONTROL_IN_SIGHT
    )
    assert {("out_of_turns", 5, False)} == {
        (each["ending"], each["model_calls"], each["right"]) for each in got.facts["conversations"]
    }
    assert "4 ended without an answer" in got.out


def test_does_not_count(evals: Evals) -> None:
    """Where the endpoint does not count tokens, the sidecar's count stands in, within a tenth of it."""
    arguments = (*ONE_OF_EACH, "--limit", "4")
    counted, estimated = (evals.run(Rules(), *arguments, counts=counts) for counts in (True, False))
    assert ({False}, {True}) == tuple(
        {each["tokens_estimated"] for each in got.facts["conversations"]} for got in (counted, estimated)
    )
    assert pytest.approx(counted.facts["tokens_used"], rel=0.1) == estimated.facts["tokens_used"]
    assert "does not count tokens" in estimated.out


def test_every_prompt_fits(evals: Evals) -> None:
    """What the model got is within the limit, the sidecar's tools are offered in it, and the cue only where asked."""
    got = evals.run(Rules(), *ONE_OF_EACH)
    for each in got.facts["conversations"]:
        assert each["tokens_in"] <= 1.05 * got.facts["limit_tokens"] * each["model_calls"]
    names = {tool["function"]["name"] for tool in got.endpoint.bodies[0]["tools"]}
    assert {"read_record", "send_message", "recall_elided_content", "search_conversation_history"} <= names
    assert {"create_tasks", "update_task"} <= names


def test_where_the_fact_lies(evals: Evals) -> None:
    """The registry lists the record of a task by id, and says nothing of one that is to be searched for."""
    kinds = (Kind.BACK_BY_ID, Kind.BACK_BY_SEARCH)
    got = evals.run(Rules(Recalls.NEVER), "--seed", "9", "--tasks", "6", "--repeats", "1", "--kinds", *kinds)
    assert {"answered"} == {each["ending"] for each in got.facts["conversations"]}
    places = [
        "\n".join(message["content"] for message in body["messages"] if message["role"] == "system")
        for body in got.endpoint.bodies
    ]
    asked = [(made, cue) for made in tasks(9, 6, kinds) for cue in CUES]
    assert len(asked) == len(places)
    for (made, cue), text in zip(asked, places, strict=True):
        assert (made.kind is Kind.BACK_BY_ID) is (made.record in text)
        assert made.fact.token not in text
        assert (cue == "with") is ("elided or clipped; search covers iterations" in text)


def test_the_eval_stops_before_its_budget(evals: Evals) -> None:
    """The eval stops before the request that could pass the budget, and shows what there is."""
    got = evals.run(Rules(), *ONE_OF_EACH, "--budget", "60,000")
    assert 0 == got.code
    assert 0 < got.facts["tokens_used"] <= 60_000
    assert 0 < len(got.facts["conversations"]) < got.facts["planned"]
    assert "could pass the budget" in got.err


def test_limit_and_plan(evals: Evals) -> None:
    """The plan is told beforehand; a limit keeps pairs of with and without together."""
    got = evals.run(Rules(), "--limit", "4")
    assert "4 conversations with scripted-model, at most 8 requests each" in got.out
    assert [("middle", "with"), ("middle", "without"), ("back-by-id", "with"), ("back-by-id", "without")] == [
        (each["kind"], each["cue"]) for each in got.facts["conversations"]
    ]
    assert 4 == got.err.count(" s to go ")


def test_wrong_key(evals: Evals) -> None:
    """A wrong key ends the eval at the first request, with the endpoint's words and without the key."""
    got = evals.run(Rules(), key="not-the-key-at-all")
    assert (1, 1) == (got.code, got.endpoint.requests)
    assert "HTTP 401" in got.err
    assert "not-the-key-at-all" not in got.out + got.err + json.dumps(got.facts)


def test_failures_are_left_out(evals: Evals) -> None:
    """One conversation that failed is told and left out; the others count."""
    got = evals.run(Rules(), *ONE_OF_EACH, "--limit", "4", troubles=(400,))
    assert 0 == got.code
    assert ["failed", "answered", "answered", "answered"] == [each["ending"] for each in got.facts["conversations"]]
    assert ((1, 1), (2, 2)) == got.shares("found")
    assert "1 conversations failed" in got.out


def test_endpoint_down(evals: Evals) -> None:
    """Three failures in a row end the eval."""
    got = evals.run(Rules(), troubles=[400] * 9)
    assert (1, 3) == (got.code, got.endpoint.requests)
    assert "stopped after 3 of 16 conversations: HTTP 400: " in got.err


@pytest.mark.parametrize("environment", [{}, {"EVAL_BASE_URL": ""}, {"EVAL_MODEL": "m", "EVAL_API_KEY": "k"}])
def test_without_an_endpoint_it_says_so(environment: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Without an endpoint it says so in one line, and how to give one."""
    assert 0 == main([], environment)
    assert (f"{SKIPPED.format(program='eval')}\n", "") == capsys.readouterr()
    assert all(name in SKIPPED for name in ("EVAL_BASE_URL", "EVAL_MODEL", "EVAL_API_KEY"))


@pytest.mark.parametrize(
    ("environment", "message"),
    [({"EVAL_BASE_URL": "http://127.0.0.1:1/v1"}, "EVAL_MODEL"), ({"EVAL_BASE_URL": "x", "EVAL_MODEL": "m"}, "http")],
)
def test_half_an_endpoint(environment: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An endpoint that is only half given is wrong use, not a reason to skip."""
    assert 2 == main([], environment)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "0"], "--tasks: 0 is out of bounds; it may be at least 1"),
        (["--reply-tokens", "16000"], "it may be at most 15,000"),
        (["--limit", "many"], "--limit: invalid whole number"),
        (["--seconds", "nan"], "nan is not over 0"),
        (["--body", "[]"], "must be a JSON object"),
        (["--body", '{"stream": true}'], "without messages, model, tools or stream"),
        (["--kinds", "front"], "invalid"),
    ],
)
def test_wrong_use(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong argument is told with what is accepted, also where there is no endpoint."""
    with pytest.raises(SystemExit) as error:
        main(arguments, {})
    assert 2 == error.value.code
    assert message in capsys.readouterr().err


def test_body_members(evals: Evals) -> None:
    """Members of the body can be added and taken away."""
    members = '{"temperature": 0, "max_tokens": null, "max_completion_tokens": 500}'
    got = evals.run(Rules(), "--limit", "1", "--body", members)
    body = got.endpoint.bodies[0]
    assert (0, 500, False) == (body["temperature"], body["max_completion_tokens"], "max_tokens" in body)


def program(endpoint: Endpoint, *arguments: str) -> subprocess.Popen[str]:
    """Start `python -m tests.lab.eval`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("EVAL_", "PROMPT_SIDECAR_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.lab.eval", *arguments],
        cwd=ROOT,
        env=clean | endpoint.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_as_a_program(tmp_path: Path) -> None:
    """`python -m tests.lab.eval` does it all as a process, and tells the key to nobody."""
    file = tmp_path / "facts.json"
    with Endpoint(Rules()) as endpoint, program(endpoint, "--limit", "2", "--json", str(file)) as started:
        out, err = started.communicate(timeout=PATIENCE)
    assert 0 == started.returncode, err
    assert "recalled when it should" in out
    assert KEY not in out + err + file.read_text()


@contextmanager
def interruptible() -> Iterator[None]:
    """Programs that are started meanwhile heed Ctrl-C, also where these tests were started to ignore it.

    A shell has what it runs in the background ignore it, and a program that is started by such a one does so as well.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_ends_a_wait() -> None:
    """Ctrl-C ends a wait at once, and what was done so far is told."""
    with (
        Endpoint(Rules(), troubles=(400, 429), retry_after="60") as endpoint,
        interruptible(),
        program(endpoint, "--limit", "4") as started,
    ):
        assert started.stderr is not None
        assert "1/4" in started.stderr.readline()
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=PATIENCE)
    assert 130 == started.returncode, err
    assert "stopped after 1 of 4 conversations: interrupted" in err
    assert "0 tokens used" in out
