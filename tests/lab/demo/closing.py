"""What is checked once the run is over: originals, figures, being forgotten, and a crash."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from prompt_sidecar.v1 import retrieve_pb2, run_pb2, search_pb2, task_pb2, tool_pb2, trim_pb2
from tests.lab.demo import stranger
from tests.lab.demo.agent import CALL_SECONDS, Agent, Exchange
from tests.lab.demo.checks import LEADING, Check, Findings
from tests.lab.demo.investigation import SEARCH, Call
from tests.lab.demo.process import Sidecar
from tests.lab.demo.prompt import Prompt
from tests.lab.demo.recall_checks import answers_trimmed, recorded, trims_of
from tests.lab.demo.script import QUERY, Notes
from tests.oracle.shapes import item_bytes

WHOLE_PAGE_TOKENS = 100_000
"""One page for each original: the paging itself is shown by the agent."""
NEIGHBOUR_TASKS = ("read inspect.py", "say what it is for")
"""Tasks of the other run; the second is never done."""


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
    # A recalled page leads back to what it is a page of, which is compared where it stands whole.
    pages = {(index, stash_id) for index, stash_id, each in answers_trimmed(agent, exchanges) if each.is_page}
    originals = sorted(trims_of(exchanges) - pages)
    for index, stash_id in originals:
        original, _ = agent.whole(stash_id, WHOLE_PAGE_TOKENS)
        there = _is_of(original, history[index + LEADING])
        found.add(Check.ORIGINALS, [] if there else [f"{stash_id} is not an item of message {index}"])
    return len(originals)


def _is_of(original: bytes, message: Mapping[str, Any]) -> bool:
    """Whether an original is an item of a message; what holds no text, an empty result, is kept as a whole message."""
    if not message.get("content") and not message.get("tool_calls"):
        return bool(json.loads(original) == message)
    return original in item_bytes("openai_chat", message)


def check_figures(found: Findings, agent: Agent, exchanges: Sequence[Exchange]) -> None:
    """Compare GetRun with the agent's own sums."""
    run = agent.figures()
    last = exchanges[-1].answer
    answers = {stash_id for _, stash_id, each in answers_trimmed(agent, exchanges) if not each.is_page}
    trims = [trim for each in exchanges for trim in each.answer.trims]
    empty = {trim.stash_id for trim in trims if trim.kind == trim_pb2.ITEM_KIND_OPAQUE}
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
        # Everything recorded is in the stash; of the sidecar's own answers, and of empty ones, only what was taken out.
        ("stash", len(recorded(agent)) + len(answers) + len(empty), run.stash.entries),
        ("expired and evicted", 0, run.stash.expired + run.stash.evicted),
        ("indexed from", 1, run.history.first_iteration),
        ("searches", agent.searches.total(), run.history.searches),
        ("searches that found", agent.searches["FOUND"], run.history.searches_found),
        ("tool calls", agent.tool_calls, run.history.tool_calls),
    )
    for what, expected, actual in figures:
        found.equal(Check.FIGURES, what, expected, actual)


def check_forgotten(found: Findings, agent: Agent, last: Exchange, neighbour: Agent, neighbour_id: str) -> None:
    """End the run; it is forgotten, and the other run is not. Sent once more, it begins anew with the same prompt."""
    ended = _end(agent)
    found.equal(Check.FORGOTTEN, "ended", (True, agent.run_id), (ended.ended, ended.run.run_id))
    found.equal(Check.TICKED, "EndRun", [], list(ended.run.unfinished_tasks))
    found.equal(Check.FORGOTTEN, "GetRun", ("NOT_FOUND", "RUN_UNKNOWN"), _refusal(agent))
    unknown = retrieve_pb2.RETRIEVE_OUTCOME_RUN_UNKNOWN
    found.equal(Check.FORGOTTEN, "retrieval", unknown, agent.retrieve(last.answer.trims[0].stash_id).outcome)
    found.equal(Check.FORGOTTEN, "search", search_pb2.SEARCH_OUTCOME_RUN_UNKNOWN, agent.search(QUERY).outcome)
    found.equal(Check.FORGOTTEN, "ended again", False, _end(agent).ended)
    whole = neighbour.whole(neighbour_id, WHOLE_PAGE_TOKENS)[0]
    found.equal(Check.FORGOTTEN, "the other run's original", neighbour.history[-1]["content"].encode(), whole)
    left = [task.text for task in _end(neighbour).run.unfinished_tasks]
    found.equal(Check.TICKED, "EndRun of the other run", [NEIGHBOUR_TASKS[1]], left)
    found.equal(Check.CRASH, "the prompt's bytes, begun anew", last.answer.json_body, agent.trim(last.body).json_body)


def check_crash(  # noqa: PLR0917 - who crashes, in front of whom, and what came before
    found: Findings, agent: Agent, notes: Notes, last: Exchange, old: Sidecar, start: Callable[[], Sidecar]
) -> Sidecar:
    """Kill the server, start another with the same key, and compare what it makes of the same history."""
    old.kill()
    new = start()
    agent.stub = new.stub
    lost = agent.retrieve(last.answer.trims[0].stash_id)
    found.equal(Check.CRASH, "before it has seen the run", retrieve_pb2.RETRIEVE_OUTCOME_RUN_UNKNOWN, lost.outcome)
    search = Call(SEARCH, {"query": QUERY, "role": "tool"})
    found.equal(Check.CRASH, "a search before", tool_pb2.TOOL_OUTCOME_RUN_UNKNOWN, agent.ask(search, "").outcome)
    answer = agent.trim(last.body)
    found.equal(Check.CRASH, "the prompt's bytes", last.answer.json_body, answer.json_body)
    found.equal(Check.CRASH, "ids", _ids(last.answer), _ids(answer))
    pages = {each.call_id: each.answer.recalled.content for each in agent.answered if each.is_page}
    for trim in answer.trims:
        original, _ = agent.whole(trim.stash_id, WHOLE_PAGE_TOKENS)
        item = last.sent.messages[trim.message_index + LEADING]
        page = pages.get(str(item.get("tool_call_id")))
        there = _is_of(original, item) if page is None else page in original
        found.add(Check.CRASH, [] if there else [f"{trim.stash_id} came back otherwise"])
    again = [snippet.stash_id for snippet in agent.ask(search, "").found.snippets]
    found.equal(Check.CRASH, "the search finds the item again", True, notes.searched_id in again)
    found.equal(Check.CRASH, "items of the history", len(recorded(agent)), agent.figures().history.items)
    return new


def begin_neighbour(neighbour: Agent) -> None:
    """Give the other run two tasks, one of which is done, before it has sent any prompt."""
    create = task_pb2.CreateTasksRequest(run_id=neighbour.run_id, items=NEIGHBOUR_TASKS)
    neighbour.stub.CreateTasks(create, timeout=CALL_SECONDS)
    update = task_pb2.UpdateTaskRequest(run_id=neighbour.run_id, id=1, status=task_pb2.TASK_STATUS_COMPLETED)
    neighbour.stub.UpdateTask(update, timeout=CALL_SECONDS)


def labelled(neighbour: Agent) -> str:
    """Send a run whose last result is over the cap; return the id in its label."""
    prompt = Prompt.of(neighbour.trim(neighbour.body()).json_body)
    return prompt.label_in_result(str(neighbour.history[-1]["tool_call_id"]))


def _end(agent: Agent) -> run_pb2.EndRunResponse:
    return agent.stub.EndRun(run_pb2.EndRunRequest(run_id=agent.run_id), timeout=CALL_SECONDS)


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
