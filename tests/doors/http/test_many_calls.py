"""A hostile model, or its provider: more calls of the sidecar's tools than any needs, and ids of any length."""

from __future__ import annotations

from prompt_sidecar.calls.conversations import Conversation, Opening
from prompt_sidecar.doors.http.prompting import MOST_CALLS, TOO_MANY
from prompt_sidecar.doors.http.stored_responses import StoredResponse, StoredResponses
from tests.client.calls_in_pieces import OURS
from tests.client.provider import Says
from tests.doors.http.serving import proxied
from tests.doors.http.test_odd_upstreams import ask
from tests.doors.http.test_silent_agents import Watched
from tests.doors.http.upstream import scripted


def test_more_calls_than_any_model_makes() -> None:
    """Of one turn only so many are answered; of the others the model is told so, and the bound is counted."""
    observer, more = Watched(), 5
    calls = [(f"call-{at}", OURS, {"query": f"word {at}"}) for at in range(MOST_CALLS + more)]
    with proxied(scripted(Says("", calls), Says("Done.")), observer=observer) as here:
        status, answer, _ = ask(here, stream=False, path="/v1/chat/completions")

    assert 200 == status
    assert b"Done." in answer
    results = [each["content"] for each in here.upstream.bodies[1]["messages"] if each["role"] == "tool"]
    assert len(calls) == len(results)
    assert [TOO_MANY in each for each in results] == [False] * MOST_CALLS + [True] * more
    assert {"http.tool_calls"} == observer.bounds
    assert [] == here.upstream.defects


def test_stored_responses_have_a_budget() -> None:
    """Of their ids, which a provider chooses, and of the answers to calls in them; the oldest go."""
    reached: list[str] = []
    conversation = Conversation("run", Opening("caller", "", b"", tools=True, user=b"", answer=b""))
    stored = StoredResponses(100, 10_000, reached.append)
    for at in range(4):
        stored.keep("caller", f"{at}", StoredResponse("r" * 1_000, conversation, ({"output": "x" * 3_000},)))

    assert [False, False, True, True] == [stored.find("caller", f"{at}") is not None for at in range(4)]
    assert ["http.hidden_bytes"] * 2 == reached
    stored.keep("caller", "3", StoredResponse("r", conversation))  # again: it takes its place
    stored.keep("caller", "4", StoredResponse("r", conversation))
    assert stored.find("caller", "2") is not None
    stored.keep("caller", "s" * 20_000, StoredResponse("s" * 20_000, conversation))
    assert stored.find("caller", "4") is None
    assert not stored._known  # noqa: SLF001
