"""A sidecar that is killed in the middle of a long run, under a provider that refuses what is above its window.

The server is a process of its own that gets a SIGKILL, or a SIGSTOP; SDKs and provider are as in `test_sdks.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.client import AsyncClient, Client, Refused, Run
from prompt_sidecar.client.breaker import FIRST_PAUSE, LONGEST_PAUSE
from prompt_sidecar.client.model_calls import model_calls
from tests.cli.running import Program, program
from tests.client.histories import STEPS, WINDOW, result
from tests.client.provider import Provider, always
from tests.client.serving import PATIENT
from tests.client.test_sdks import FORMATS, OPTIONS, PROMPT, Api, api
from tests.client.window import Thinking, Windowed, size

READY = r"ready: listening on ([^\s,]+)"
TURNS = 60
KILLED_AT = 30
TAKES = 6_000
"""Tokens of the provider's: the sidecar's limit is some 4,500 of them, the run 36,000."""
QUESTION = "Which build failed?"
KEY = "a key that both sidecars have"
BINDS = "claude-opus-5-5"
TAKES_ALL = 10**9


@pytest.fixture(params=FORMATS)
def spoken(request: pytest.FixtureRequest) -> Api:
    """Each of the APIs."""
    return api(request.param)


def kill(sidecar: Program, turn: int) -> Callable[[int], None]:
    """Kill the sidecar at a turn."""

    def at(number: int) -> None:
        if number == turn:
            sidecar.process.kill()
            sidecar.end()

    return at


def question() -> list[Any]:
    """What the user wants."""
    return [{"role": "user", "content": QUESTION}]


def work(run: Run, spoken: Api, there: Provider, **more: Any) -> Any:
    """An agent that lets the loop do it; returns the last completion."""
    create, messages = spoken.blocking(there.url), question()
    while True:
        done = run.complete(spoken.format, create, **spoken.keywords(messages, **more))
        if not done.calls:
            return done
        messages = done.history([call.result(result(json.loads(call.arguments)["day"])) for call in done.calls])


def test_the_run_ends_normally(spoken: Api) -> None:
    """Killed at turn 30 of 60: no prompt is refused, each is a valid one, and what was sent instead is told."""
    with program("--listen", "127.0.0.1:0") as sidecar:
        model = Windowed(spoken.format, TURNS, TAKES, at=kill(sidecar, KILLED_AT))
        with (
            always(model) as there,
            Client(sidecar.wait_for(READY)[1], deadline=PATIENT) as client,
            client.run("r", **OPTIONS) as run,
        ):
            done = work(run, spoken, there)
            assert run.last is not None
            assert (False, "left_out") == (run.last.trimmed, run.last.fallback)
            assert 0 < run.last.left_out < TURNS
            assert (KILLED_AT, TURNS + 1 - KILLED_AT) == (client.trimmed, client.untrimmed)
            assert {"left_out", "last_prompt"} >= set(client.fallbacks)
            assert TURNS + 1 - KILLED_AT == sum(client.fallbacks.values())
            assert client.untrimmed_by_reason["CIRCUIT_OPEN"] >= 20
    assert "I have read it all." in json.dumps(done.history(), default=vars)
    assert (TURNS + 1, 0) == (len(model.sizes), model.refusals)
    sent = [body[PROMPT[spoken.format]] for body in there.bodies]
    assert all(QUESTION in json.dumps(messages[:2]) for messages in sent)
    # Each prompt begins with the one before, but where the oldest iterations go: once in several turns.
    without = sent[KILLED_AT:]
    changed = [one for one, two in itertools.pairwise(without) if two[: len(one)] != one]
    assert 1 <= len(changed) <= len(without) / 2


def test_a_window_that_the_sidecar_did_not_know(spoken: Api) -> None:
    """The provider refuses the last prompt and what came since: the oldest go, the run ends, and both are counted."""
    wide: Any = {"context_window": 20 * WINDOW}
    with program("--listen", "127.0.0.1:0") as sidecar:
        model = Windowed(spoken.format, TURNS, TAKES_ALL, at=kill(sidecar, KILLED_AT))

        def narrow(body: Any) -> Any:
            model.window = TAKES if sidecar.process.poll() is not None else TAKES_ALL
            return model(body)

        with always(narrow) as there, Client(sidecar.wait_for(READY)[1], deadline=PATIENT) as client:
            run = client.run("r", **wide)
            work(run, spoken, there)
            assert run.last is not None
            assert ("left_out", False) == (run.last.fallback, run.last.refused)
            assert TURNS + 1 - KILLED_AT + model.refusals == client.untrimmed
            assert client.fallbacks["left_out"] >= TURNS - KILLED_AT
    # The first prompt without the sidecar is three times the window; what was learned from it holds for the others.
    assert (TURNS + 1, True) == (len(model.sizes), 1 <= model.refusals <= 5)


def test_never_there(spoken: Api) -> None:
    """Without a sidecar from the beginning nothing is known, and each refusal teaches as much."""
    model = Windowed(spoken.format, TURNS, TAKES, words="maximum context length exceeded: {} of {}")
    with always(model) as there, Client("127.0.0.1:1", deadline=PATIENT) as client:
        run = client.run("r")
        work(run, spoken, there)
        assert {"as_given", "left_out"} == set(client.fallbacks)
    assert (TURNS + 1, 1) == (len(model.sizes), model.refusals)


def test_what_cannot_be_made_to_fit_is_the_agents(spoken: Api) -> None:
    """Where the newest iteration alone is refused, the provider's own error comes out, and `last` tells the truth."""
    model = Windowed(spoken.format, TURNS, 100)
    with always(model) as there, Client("127.0.0.1:1", deadline=PATIENT) as client:
        run = client.run("r")
        with pytest.raises(Exception, match="prompt is too long") as caught:
            work(run, spoken, there)
        assert "BadRequestError" == type(caught.value).__name__
        assert run.last is not None
        assert (False, True) == (run.last.trimmed, run.last.refused)


def adapted(run: Run, spoken: Api, there: Provider, *, adopts: bool) -> None:
    """An agent with a loop of its own: it calls the SDK by itself, and reports what came of it."""
    create, messages = spoken.blocking(there.url), question()
    while True:
        keywords = spoken.adapted(run, **spoken.keywords(messages))
        try:
            response = create(**keywords)
        except Exception as error:  # noqa: BLE001  # any of the SDKs
            learned = run.report(error)
            refused = run.last is not None and run.last.refused
        else:
            learned, refused = None, False
        assert learned is None
        if refused:
            continue
        run.report(response)
        api = run._api  # noqa: SLF001  # an agent has its own way to read a response
        assert api is not None
        calls = model_calls(api, response)
        if adopts:
            messages = list(keywords[PROMPT[spoken.format]])
        messages += api.turn(response)
        if not calls:
            return
        messages += api.joined([call.result(result(json.loads(call.arguments)["day"])) for call in calls])


@pytest.mark.parametrize("adopts", [False, True], ids=["whole history", "goes on from trimmed prompts"])
def test_agents_with_a_loop_of_their_own(spoken: Api, *, adopts: bool) -> None:
    """The adapters fall back as the loop does; a refusal that is reported makes the next prompt shorter."""
    with program("--listen", "127.0.0.1:0") as sidecar:
        model = Windowed(spoken.format, TURNS, TAKES, at=kill(sidecar, KILLED_AT))

        def narrow(body: Any) -> Any:
            model.window = TAKES - 2_500 * (sidecar.process.poll() is not None)
            return model(body)

        with always(narrow) as there, Client(sidecar.wait_for(READY)[1], deadline=PATIENT) as client:
            adapted(client.run("r", **OPTIONS), spoken, there, adopts=adopts)
            assert KILLED_AT == client.trimmed
    assert (TURNS + 1, True) == (len(model.sizes), model.refusals <= 3)


def test_in_asyncio() -> None:
    """The same."""
    spoken = api("anthropic_messages")

    async def agent(sidecar: Program, there: Provider) -> None:
        sdk_client, create = spoken.asynchronous(there.url)
        async with sdk_client, AsyncClient(sidecar.wait_for(READY)[1], deadline=PATIENT) as client:
            run, messages = client.run("r", **OPTIONS), question()
            while True:
                done = await run.complete(spoken.format, create, **spoken.keywords(messages))
                if not done.calls:
                    break
                messages = done.history([call.result(result(1)) for call in done.calls])
            assert (KILLED_AT, "left_out") == (client.trimmed, run.last.fallback if run.last else "")

    with program("--listen", "127.0.0.1:0") as sidecar:
        model = Windowed(spoken.format, TURNS, TAKES, at=kill(sidecar, KILLED_AT))
        with always(model) as there:
            asyncio.run(agent(sidecar, there))
    assert (TURNS + 1, 0) == (len(model.sizes), model.refusals)


@pytest.mark.parametrize("format", ["openai_chat", "anthropic_messages"])
def test_agents_that_send_what_is_new(format: Any) -> None:
    """With `base_revision` only the newest messages are sent: the client knows what they follow."""
    messages = question()
    with program("--listen", "127.0.0.1:0") as sidecar, Client(sidecar.wait_for(READY)[1], deadline=PATIENT) as client:
        run = client.run("r", **OPTIONS)
        base = run.trim(messages, format=format).revision
        for number in range(1, KILLED_AT):
            messages += STEPS[format](number)
            made = run.trim(messages[-2:], format=format, base_revision=base)
            assert made.trimmed
            base = made.revision
        seen = len(messages)
        sidecar.process.kill()
        sidecar.end()
        for number in range(KILLED_AT, TURNS):
            messages += STEPS[format](number)
            made = run.trim(messages[seen:], format=format, base_revision=base)
            assert not made.trimmed
            assert size({"messages": made.prompt}) <= TAKES
            assert messages[-1] == made.prompt[-1]
            assert QUESTION in json.dumps(made.prompt[:2])
        with pytest.raises(Exception, match="not answer"):  # of another revision nothing is known
            run.trim(messages[-2:], format=format, base_revision=b"another")


def test_a_revision_that_the_sidecar_has_forgotten() -> None:
    """A sidecar that was started anew does not know it: the client sends the whole history, and it is trimmed."""
    messages = [{"role": "user", "content": QUESTION}]
    with program("--listen", "127.0.0.1:0", KEY=KEY) as sidecar:
        address = sidecar.wait_for(READY)[1]
        client = Client(address, deadline=PATIENT)
        base = client.trim("r", messages, **OPTIONS).revision
        new = [{"role": "assistant", "content": "I look."}, {"role": "user", "content": "Do."}]
        sidecar.process.kill()
        sidecar.end()
    with client, program("--listen", address, KEY=KEY) as sidecar:
        sidecar.wait_for(READY)
        made = client.trim("r", new, base_revision=base, **OPTIONS)
        assert made.trimmed
        assert [*messages, *new] == [each for each in made.prompt if each["role"] != "system"]
        again = client.trim("r", json.dumps(new).encode(), base_revision=base, **OPTIONS)
        assert [*messages, *new] == [each for each in json.loads(again.prompt) if each["role"] != "system"]
        stranger = Client(address, deadline=PATIENT)
        with stranger, pytest.raises(Refused) as caught:
            stranger.trim("r", new, base_revision=b"nonesuch", **OPTIONS)
        assert "REVISION_UNKNOWN" == caught.value.reason


def test_bound_thinking_stays_valid(tmp_path: Path) -> None:
    """A provider that binds thinking to its prefix refuses nothing.

    Not before the kill, nor after it, nor where the oldest iterations are left out, nor when another sidecar answers,
    which has another key and knows nothing of what was sent meanwhile.
    """
    spoken = api("anthropic_messages")
    seconds, thinking = itertools.count(0, LONGEST_PAUSE), Thinking()
    listen = ("--listen", "", "--socket", str(tmp_path / "s"))
    with ExitStack() as stack:
        sidecar = stack.enter_context(program(*listen, KEY=KEY))
        sidecar.wait_for(READY)
        client = Client(f"unix:{tmp_path}/s", deadline=PATIENT, clock=lambda: float(next(seconds)))
        stack.enter_context(client)
        model = Windowed("anthropic_messages", TAKES_ALL, TAKES_ALL, thinking=thinking, at=kill(sidecar, 10))

        def provider(body: Any) -> Any:
            model.window = TAKES if len(model.sizes) >= 10 and client.trimmed == 10 else TAKES_ALL
            if len(model.sizes) == 30:
                stack.enter_context(program(*listen, KEY="another key than the first one had")).wait_for(READY)
            if client.trimmed == 15:
                model.turns = len(model.sizes)
            return model(body)

        there = stack.enter_context(always(provider))
        run, create, messages = client.run("r", context_window=1_000_000), spoken.blocking(there.url), question()
        removed: list[int] = []
        while True:
            done = run.complete("anthropic_messages", create, **spoken.keywords(messages, model=BINDS))
            assert run.last is not None
            removed.append(run.last.thinking_removed)
            if not done.calls:
                break
            messages = done.history([call.result(result(len(removed))) for call in done.calls])
    # At first all of it goes along; some goes with each cut, and what was made since is sent again.
    assert list(range(10)) == thinking.sent_back[:10]
    assert 0 == sum(removed[:10]) < sum(removed[10:30])
    assert 0 < thinking.sent_back[29]
    assert 1 <= model.refusals < 10


@pytest.mark.parametrize("model", ["claude-opus-4-6", "claude-sonnet-5"])
def test_thinking_that_is_not_bound_stays(model: str) -> None:
    """Models that take their thinking after any change, and may want the newest turn's, get all that is left."""
    thought = Thinking().block({"messages": []})
    messages = question()
    for number in range(1, 13):
        call, answer = STEPS["anthropic_messages"](number)
        messages += [{**call, "content": [thought, *call["content"]]}, answer]
    with Client("127.0.0.1:1", deadline=PATIENT) as client:
        run = client.run("r", model=model)
        run.anthropic_messages(model=model, messages=messages)
        run.report("prompt is too long")
        sent = run.anthropic_messages(model=model, messages=messages)["messages"]
        assert run.last is not None
        assert (0, True) == (run.last.thinking_removed, run.last.left_out > 0)
    assert all(thought in message["content"] for message in sent if message["role"] == "assistant")
    assert all(any(message is each for each in messages) for message in sent)


def test_a_stopped_process_is_waited_for_twice() -> None:
    """SIGSTOP: it takes calls and never answers. Two wait for their deadline, the others go through at once."""
    now = [0.0]
    messages = question()
    with program("--listen", "127.0.0.1:0") as sidecar:
        address = sidecar.wait_for(READY)[1]
        with Client(address, deadline=0.2, clock=lambda: now[0]) as client:
            sidecar.process.send_signal(signal.SIGSTOP)
            for _ in range(20):
                assert not client.trim("r", messages).trimmed
            assert {"DEADLINE_EXCEEDED": 2, "CIRCUIT_OPEN": 18} == client.untrimmed_by_reason
            assert "open" == client.circuit
            now[0] += FIRST_PAUSE
            assert "half_open" == client.circuit
            for _ in range(20):  # one tries, and the pause is longer now
                client.trim("r", messages)
            now[0] += FIRST_PAUSE
            client.trim("r", messages)
            assert {"DEADLINE_EXCEEDED": 3, "CIRCUIT_OPEN": 38} == client.untrimmed_by_reason
            sidecar.process.send_signal(signal.SIGCONT)
            with Client(address, deadline=PATIENT) as patient:
                assert patient.trim("r", messages).trimmed  # it is awake


def test_an_agent_that_was_started_anew() -> None:
    """It knows nothing of the prompts under which its thinking was produced: what is refused is removed, once."""
    spoken, thinking = api("anthropic_messages"), Thinking()
    model = Windowed("anthropic_messages", 12, TAKES_ALL, thinking=thinking)
    messages = question()
    with always(model) as there, program("--listen", "127.0.0.1:0") as sidecar:
        address, create = sidecar.wait_for(READY)[1], spoken.blocking(there.url)
        for number in range(2):
            with Client(address if number == 0 else "127.0.0.1:1", deadline=PATIENT) as client:
                run = client.run("r")
                for _ in range(5):
                    keywords = spoken.keywords(messages, model=BINDS)
                    done = run.complete("anthropic_messages", create, **keywords)
                    messages = done.history([call.result(result(1)) for call in done.calls])
    assert 11 == len(there.bodies)  # one of them was refused: without the sidecar its directives are gone
    assert [0, 1, 2, 3, 4, 0, 1, 2, 3, 4] == thinking.sent_back


def test_a_sidecar_that_comes_later(tmp_path: Path) -> None:
    """Where a run begins without it, it is told that no prompt before was its own: no bound thinking is refused."""
    spoken, thinking = api("anthropic_messages"), Thinking()
    seconds = itertools.count(0, LONGEST_PAUSE)
    with ExitStack() as stack:
        client = Client(f"unix:{tmp_path}/s", deadline=PATIENT, clock=lambda: float(next(seconds)))
        stack.enter_context(client)
        model = Windowed("anthropic_messages", TAKES_ALL, TAKES_ALL, thinking=thinking)

        def provider(body: Any) -> Any:
            if len(model.sizes) == 5:
                stack.enter_context(program("--listen", "", "--socket", str(tmp_path / "s"))).wait_for(READY)
            if client.trimmed == 5:
                model.turns = len(model.sizes)
            return model(body)

        there = stack.enter_context(always(provider))
        run = client.run("r", context_window=2 * WINDOW, output_reserve=500)
        work(run, spoken, there, model=BINDS)
        assert run.last is not None
        assert run.last.trimmed
    assert len(there.bodies) == len(model.sizes)
    assert [0, 1, 2, 3, 4] == thinking.sent_back[:5]
    assert 0 < thinking.sent_back[-1] < len(model.sizes)


@pytest.mark.parametrize("key", [KEY, "another key than the first one had"], ids=["same key", "another key"])
def test_bound_thinking_where_sidecar_and_client_cut(key: str, tmp_path: Path) -> None:
    """Cuts by the sidecar, its end, cuts by the client, a sidecar that is back and cuts again: nothing is refused."""
    spoken, thinking = api("anthropic_messages"), Thinking()
    seconds = itertools.count(0, LONGEST_PAUSE)
    listen = ("--listen", "", "--socket", str(tmp_path / "s"))
    with ExitStack() as stack:
        sidecar = stack.enter_context(program(*listen, KEY=KEY))
        sidecar.wait_for(READY)
        client = Client(f"unix:{tmp_path}/s", deadline=PATIENT, clock=lambda: float(next(seconds)))
        stack.enter_context(client)
        model = Windowed("anthropic_messages", TAKES_ALL, TAKES_ALL, thinking=thinking, at=kill(sidecar, KILLED_AT))

        def provider(body: Any) -> Any:
            if len(model.sizes) == KILLED_AT + 20:
                stack.enter_context(program(*listen, KEY=key)).wait_for(READY)
            if client.trimmed == KILLED_AT + 20:
                model.turns = len(model.sizes)
            return model(body)

        there = stack.enter_context(always(provider))
        work(client.run("r", **OPTIONS), spoken, there, model=BINDS)
        assert client.fallbacks["left_out"]
    assert len(there.bodies) == len(model.sizes)
    assert max(model.sizes) <= TAKES
    for stretch in (slice(0, KILLED_AT), slice(KILLED_AT, KILLED_AT + 20), slice(-15, None)):
        assert 0 < max(thinking.sent_back[stretch]) < KILLED_AT
