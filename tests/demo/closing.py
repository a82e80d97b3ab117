"""What is checked once the run is over: recall, figures, a crash, and being forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from sidecar.v1 import retrieve_pb2, run_pb2, trim_pb2
from tests.demo import stranger
from tests.demo.agent import CALL_SECONDS, Agent, Exchange
from tests.demo.checks import LEADING, Check, Findings
from tests.demo.investigation import LONG_FILE
from tests.demo.process import Sidecar
from tests.demo.prompt import Prompt
from tests.demo.script import FACT, OTHER_FACT, OTHER_FILE, Notes
from tests.oracle.shapes import item_bytes

WHOLE_PAGE_TOKENS = 100_000
"""One page for each original: the paging itself is shown by the agent."""


def check_recall(found: Findings, agent: Agent, notes: Notes, neighbour_id: str) -> None:
    """Check what the agent recalled while it ran, by ids that it had read in its prompts."""
    early, other = produced_by_reading(agent, LONG_FILE), produced_by_reading(agent, OTHER_FILE)
    found.equal(Check.FACT, "the prompt had not lost the fact", True, notes.hidden.get("fact"))
    found.equal(Check.FACT, "the fact", _groups(FACT, early), notes.fact)
    pages = [page for asked, page in agent.recalled if asked == notes.fact_id and not page.matching_lines]
    found.equal(Check.PAGES, "pages", True, len(pages) > 1)
    found.equal(Check.PAGES, "bytes", early, b"".join(page.content for page in pages))
    found.equal(Check.MIDDLE, "the middle was not elided", True, notes.hidden.get("other_fact"))
    found.equal(Check.MIDDLE, "the fact", _groups(OTHER_FACT, other), notes.other_fact)
    found.equal(Check.MIDDLE, "bytes", other, agent.whole(notes.other_id)[0])
    for forged in (stranger.MADE_UP_ID, neighbour_id):
        outcomes = [page.outcome for asked, page in agent.recalled if asked == forged]
        found.equal(Check.STRANGERS, forged, [retrieve_pb2.RETRIEVE_OUTCOME_NOT_FOUND], outcomes)


def check_forged_was_trimmed(found: Findings, last: Exchange) -> None:
    """Check that the result with the forged marker was trimmed in its turn like any other."""
    places = [
        place
        for place, message in enumerate(last.sent.messages)
        if message["role"] == "tool" and stranger.ORDER in message["content"]
    ]
    trimmed = {trim.message_index + LEADING for trim in last.answer.trims}
    found.equal(Check.FORGED_TRIMMED, "trimmed", [True], [place in trimmed for place in places])


def check_originals(found: Findings, agent: Agent, exchanges: Sequence[Exchange]) -> int:
    """Fetch every original of the run once and compare it with what the agent has; return how many there were."""
    history = exchanges[-1].sent.messages
    trims = {trim.stash_id: trim for exchange in exchanges for trim in exchange.answer.trims}
    for stash_id, trim in trims.items():
        original, _ = agent.whole(stash_id, WHOLE_PAGE_TOKENS)
        there = original in item_bytes("openai_chat", history[trim.message_index + LEADING])
        found.add(Check.ORIGINALS, [] if there else [f"{stash_id} is not an item of message {trim.message_index}"])
    return len(trims)


def check_figures(found: Findings, agent: Agent, exchanges: Sequence[Exchange]) -> None:
    """Compare GetRun with the agent's own sums."""
    run = agent.stub.GetRun(run_pb2.GetRunRequest(run_id=agent.run_id), timeout=CALL_SECONDS).run
    last = exchanges[-1].answer
    figures: tuple[tuple[str, object, object], ...] = (
        ("calls", len(exchanges), run.calls),
        ("iteration", len(exchanges), run.iteration),
        ("messages", len(exchanges[-1].sent.messages) - LEADING, run.messages),
        ("tokens", last.tokens, run.tokens),
        ("cache", last.cache, run.cache),
        ("tokens sent", sum(each.answer.tokens.before for each in exchanges), run.tokens_sent_total),
        ("tokens returned", sum(each.answer.tokens.after for each in exchanges), run.tokens_returned_total),
        ("trimmed items", len(last.trims), run.trimmed_items),
        (
            "retrievals",
            agent.outcomes,
            Counter({each.outcome: each.count for each in run.stash.retrievals if each.count}),
        ),
        ("stash", len({trim.stash_id for each in exchanges for trim in each.answer.trims}), run.stash.entries),
        ("expired and evicted", 0, run.stash.expired + run.stash.evicted),
    )
    for what, expected, actual in figures:
        found.equal(Check.FIGURES, what, expected, actual)


def check_crash(found: Findings, agent: Agent, last: Exchange, old: Sidecar, start: Callable[[], Sidecar]) -> Sidecar:
    """Kill the server, start another with the same key, and compare what it makes of the same history."""
    old.kill()
    new = start()
    agent.stub = new.stub
    lost = agent.retrieve(last.answer.trims[0].stash_id)
    found.equal(Check.CRASH, "before it has seen the run", retrieve_pb2.RETRIEVE_OUTCOME_RUN_UNKNOWN, lost.outcome)
    answer = agent.trim(last.body)
    found.equal(Check.CRASH, "the prompt's bytes", last.answer.json_body, answer.json_body)
    found.equal(Check.CRASH, "ids", _ids(last.answer), _ids(answer))
    for trim in answer.trims:
        original, _ = agent.whole(trim.stash_id, WHOLE_PAGE_TOKENS)
        there = original in item_bytes("openai_chat", last.sent.messages[trim.message_index + LEADING])
        found.add(Check.CRASH, [] if there else [f"{trim.stash_id} came back otherwise"])
    return new


def check_forgotten(found: Findings, agent: Agent, neighbour: Agent) -> None:
    """End the run; it is forgotten, and the other run is not."""
    neighbour.stub = agent.stub
    neighbour_id = labelled(neighbour)
    ended = agent.stub.EndRun(run_pb2.EndRunRequest(run_id=agent.run_id), timeout=CALL_SECONDS)
    found.equal(Check.FORGOTTEN, "ended", (True, agent.run_id), (ended.ended, ended.run.run_id))
    found.equal(Check.FORGOTTEN, "GetRun", ("NOT_FOUND", "RUN_UNKNOWN"), _refusal(agent))
    unknown = retrieve_pb2.RETRIEVE_OUTCOME_RUN_UNKNOWN
    found.equal(Check.FORGOTTEN, "retrieval", unknown, agent.retrieve(neighbour_id).outcome)
    again = agent.stub.EndRun(run_pb2.EndRunRequest(run_id=agent.run_id), timeout=CALL_SECONDS)
    found.equal(Check.FORGOTTEN, "ended again", False, again.ended)
    whole = neighbour.whole(neighbour_id, WHOLE_PAGE_TOKENS)[0]
    found.equal(Check.FORGOTTEN, "the other run's original", neighbour.history[-1]["content"].encode(), whole)


def labelled(neighbour: Agent) -> str:
    """Send a run whose last result is over the cap; return the id in its label."""
    prompt = Prompt.of(neighbour.trim(neighbour.body()).json_body)
    return prompt.label_in_result(str(neighbour.history[-1]["tool_call_id"]))


def produced_by_reading(agent: Agent, path: str) -> bytes:
    """What the tool answered when the agent read a whole file."""
    for message in agent.history:
        for call in message.get("tool_calls", ()):
            if call["function"]["name"] == "read_file" and call["function"]["arguments"] == f'{{"path": "{path}"}}':
                return agent.produced[call["id"]]
    return b""


def _groups(pattern: Any, text: bytes) -> tuple[str, ...]:
    match = pattern.search(text.decode())
    return match.groups() if match else ()


def _ids(answer: trim_pb2.TrimPromptResponse) -> list[tuple[int, int, str]]:
    return [(trim.message_index, trim.item_index, trim.stash_id) for trim in answer.trims]


def _refusal(agent: Agent) -> tuple[str, str]:
    """Code and reason of the error that GetRun answers with; empty if it answers."""
    try:
        agent.stub.GetRun(run_pb2.GetRunRequest(run_id=agent.run_id), timeout=CALL_SECONDS)
    except grpc.RpcError as error:
        call: Any = error  # what a stub raises is a Call as well, which the types do not say
        details = rpc_status.from_call(call)
        reasons = [error_details_pb2.ErrorInfo.FromString(detail.value).reason for detail in details.details]
        return call.code().name, "".join(reasons)
    return "", ""
