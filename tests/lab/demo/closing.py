"""What is checked once the run is over: recall, search and tasks, originals, figures, being forgotten, and a crash.

What the model was given is compared with what its tools had really produced, twice: as the facts that the sidecar
states to programs, and as the text that the model read.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from prompt_sidecar.v1 import conversation_pb2, retrieve_pb2, run_pb2, search_pb2, task_pb2, tool_pb2, trim_pb2
from tests.lab.demo import stranger
from tests.lab.demo.agent import CALL_SECONDS, REMINDER, Agent, Answered, Exchange
from tests.lab.demo.checks import LEADING, Check, Findings
from tests.lab.demo.investigation import (
    CREATE_TASKS,
    EARLY_FILE,
    LONG_FILE,
    RECALL,
    SEARCH,
    SIDECAR_TOOLS,
    SWALLOWED,
    Call,
)
from tests.lab.demo.plan import Task, unfinished
from tests.lab.demo.prompt import Envelope, Prompt, Quote, quotes
from tests.lab.demo.script import FACT, FIRST_MORE, MORE_TASKS, OTHER_FACT, OTHER_FILE, QUERY, SEARCHED_FACT, Notes
from tests.lab.harness.servers import Server
from tests.oracle.shapes import item_bytes

LONG_BEFORE = 40
"""Iterations between reading a fact and asking for it again; the run has about eighty."""
_EACH = 3
"""Snippets asked for by a call's id: its arguments, its answer, and one that would be too many."""
_OK = tool_pb2.TOOL_OUTCOME_OK


def check_offered(found: Findings, agent: Agent, exchanges: Sequence[Exchange]) -> None:
    """Check that the sidecar's tools stood in the body beside the agent's, and that the model used them all."""
    offered = [tool["function"]["name"] for tool in json.loads(exchanges[0].sent.fields["tools"])]
    found.equal(Check.OFFERED, "names differ", len(offered), len(set(offered)))
    found.equal(Check.OFFERED, "offered", list(SIDECAR_TOOLS), offered[-len(SIDECAR_TOOLS) :])
    used = {each.call.name for each in agent.answered if each.answer.outcome == _OK}
    found.equal(Check.OFFERED, "used", set(SIDECAR_TOOLS), used)
    for each in agent.answered:
        given = [message["content"] for message in agent.history if message.get("tool_call_id") == each.call_id]
        found.equal(Check.OFFERED, f"{each.call_id} in the history", [each.answer.content], given)


def check_recall(found: Findings, agent: Agent, notes: Notes, neighbour_id: str) -> None:
    """Check what the model recalled while it ran, by ids that it had read in its prompts."""
    early, other = produced_by_reading(agent, LONG_FILE)[1], produced_by_reading(agent, OTHER_FILE)[1]
    found.equal(Check.FACT, "the prompt had not lost the fact", True, notes.hidden.get("fact"))
    found.equal(Check.FACT, "the fact", _groups(FACT, early), notes.fact)
    _check_pages(found, Check.PAGES, agent, notes.fact_id, early)
    found.equal(Check.MIDDLE, "the middle was not elided", True, notes.hidden.get("other_fact"))
    found.equal(Check.MIDDLE, "the fact", _groups(OTHER_FACT, other), notes.other_fact)
    found.equal(Check.MIDDLE, "bytes", other, agent.whole(notes.other_id)[0])
    for stash_id, each in agent.recalled:
        found.add(Check.PAGES, unlike(each, _whole(agent, notes, stash_id)))
    for forged in (stranger.MADE_UP_ID, neighbour_id):
        got = [(each.answer.recalled.outcome, each.answer.content) for id, each in agent.recalled if id == forged]
        outcomes = [outcome for outcome, _ in got]
        found.equal(Check.STRANGERS, forged, [retrieve_pb2.RETRIEVE_OUTCOME_NOT_FOUND], outcomes)
        found.equal(Check.STRANGERS, f"{forged}, as told", ["notice"], [Envelope.of(text).kind for _, text in got])


def check_search(found: Findings, agent: Agent, notes: Notes) -> None:
    """Check what the model found by search: that it was gone, was what the tool had said, and led to the whole."""
    call_id, early = produced_by_reading(agent, EARLY_FILE)
    made = [each for each in agent.answered if each.call.name == SEARCH]
    found.equal(Check.SEARCHED, "searches", 1, len(made))
    found.equal(Check.SEARCHED, "the prompt had not lost the fact", True, notes.hidden.get("searched_fact"))
    found.equal(Check.SEARCHED, "the fact", _groups(SEARCHED_FACT, early), notes.searched_fact)
    found.equal(Check.SEARCHED, "its iteration", agent.read_at[call_id], notes.searched_iteration)
    for each in made:
        passed = each.iteration - notes.searched_iteration
        found.equal(Check.SEARCHED, f"{passed} iterations passed, enough", True, passed >= LONG_BEFORE)
        ids = [snippet.stash_id for snippet in each.answer.found.snippets if snippet.call_id == call_id]
        found.equal(Check.SEARCHED, "the call's item", [notes.searched_id], ids)
        found.add(Check.FENCES, misquoted(agent, each.answer.found, quotes(each.answer.content)))
    _check_pages(found, Check.FOUND_PAGES, agent, notes.searched_id, early)
    forged = agent.search(stranger.ORDER, roles=[conversation_pb2.ROLE_TOOL])
    found.equal(Check.FENCES, "the forgery is found", True, any(stranger.ORDER in s.text for s in forged.snippets))
    found.add(Check.FENCES, misquoted(agent, forged, quotes(forged.rendered)))


def check_unrecorded(found: Findings, agent: Agent, exchanges: Sequence[Exchange]) -> None:
    """Check that answers of the sidecar's tools were recognised: neither recorded, nor found, nor under a new id."""
    own = {each.call_id: each for each in agent.answered}
    found.equal(Check.UNRECORDED, "items of the history", len(recorded(agent)), agent.figures().history.items)
    tool = [conversation_pb2.ROLE_TOOL]
    for each in own.values():
        tag = Envelope.of(each.answer.content).tag
        found.equal(Check.UNRECORDED, f"{each.call_id} has a tag", True, bool(tag))
        texts = [snippet.text for snippet in agent.search(tag, roles=tool).snippets if tag in snippet.text]
        found.equal(Check.UNRECORDED, f"found by the tag of {each.call_id}", 0, len(texts))
    for call_id, produced in agent.produced.items():
        snippets = agent.search(call_id, max_snippets=_EACH).snippets
        kinds = Counter(trim_pb2.ItemKind.Name(each.kind)[10:] for each in snippets if each.call_id == call_id)
        expected = Counter(["ARGUMENTS"] if call_id in own or not produced else ["ARGUMENTS", "RESULT"])
        found.equal(Check.UNRECORDED, f"found by {call_id}", expected, kinds)
    pages = [(stash_id, each) for _, stash_id, each in answers_trimmed(agent, exchanges) if each.is_page]
    found.equal(Check.UNRECORDED, "recalled pages were trimmed in their turn", True, len(pages) > 1)
    for stash_id, each in pages:
        found.equal(Check.UNRECORDED, f"the id of {each.call_id} trimmed", each.call.arguments["id"], stash_id)


def check_tasks(found: Findings, agent: Agent) -> None:
    """Check the tasks: in every answer, when a call broke off, when one came twice, and when the model stopped."""
    for each in agent.answered:
        if each.answer.HasField("tasks"):
            found.equal(Check.TASKS, f"after {each.call_id}", _facts(each.plan), _shown(each.answer.tasks.tasks))
            lines = "\n".join(task.line for task in each.plan)
            found.equal(Check.TASKS, f"as told by {each.call_id}", lines, Envelope.of(each.answer.content).rest)
    listed = agent.stub.ListTasks(task_pb2.ListTasksRequest(run_id=agent.run_id), timeout=CALL_SECONDS).tasks
    found.equal(Check.TASKS, "in the end", _facts(agent.plan), _shown(listed))
    found.equal(Check.TICKED, "left open", [], unfinished(agent.plan))
    found.equal(Check.TICKED, "GetRun", [], list(agent.figures().unfinished_tasks))
    forgotten = FIRST_MORE + len(MORE_TASKS) - 1
    found.equal(Check.TICKED, "completion checks", [[], [forgotten], []], agent.completion)
    reminders = [message["content"] for message in agent.history if REMINDER in str(message["content"])]
    found.equal(Check.TICKED, "told", [f"{REMINDER}\n{forgotten}. {MORE_TASKS[-1]}"], reminders)
    _check_broken(found, agent)
    twice = [each for each in agent.answered if each.lost is not None]
    found.equal(Check.ONCE, "calls sent twice", [CREATE_TASKS, RECALL], [each.call.name for each in twice])
    for each in twice:
        found.equal(Check.ONCE, "the answers", each.lost, each.answer)
    created = [each for each in twice if each.call.name == CREATE_TASKS]
    for each in created:
        found.equal(Check.ONCE, "tasks", _facts(each.plan), _shown(each.answer.tasks.tasks))


def _check_broken(found: Findings, agent: Agent) -> None:
    broken = [place for place, each in enumerate(agent.answered) if each.call.written]
    found.equal(Check.BROKEN, "calls", 1, len(broken))
    for place in broken:
        first, second = agent.answered[place : place + 2]
        outcome = (tool_pb2.TOOL_OUTCOME_INVALID_ARGUMENTS, True)
        found.equal(Check.BROKEN, "the first", outcome, (first.answer.outcome, first.answer.is_error))
        found.equal(Check.BROKEN, "changed no task", _facts(agent.answered[place - 1].plan), _facts(first.plan))
        found.equal(Check.BROKEN, "the second", (_OK, False), (second.answer.outcome, second.answer.is_error))
        status = [task.status for task in second.answer.tasks.tasks if task.id == SWALLOWED]
        found.equal(Check.BROKEN, "the task", [task_pb2.TASK_STATUS_COMPLETED], status)


def _check_pages(found: Findings, check: Check, agent: Agent, stash_id: str, whole: bytes) -> None:
    """Check that all pages of an item, as facts and as read by the model, are what the tool had produced."""
    pages = [each for id, each in agent.recalled if id == stash_id and "pattern" not in each.call.arguments]
    found.equal(check, "more than one page", True, len(pages) > 1)
    found.equal(check, "bytes", whole, b"".join(each.answer.recalled.content for each in pages))
    read = "".join(Envelope.of(each.answer.content).quoted for each in pages)
    found.equal(check, "what the model read", whole, read.encode())


def unlike(each: Answered, whole: bytes) -> Iterable[str]:
    """Each stretch of a recalled page is compared with its place in the whole, as facts and as quoted."""
    page = each.answer.recalled
    if not each.is_page:
        return
    stretches = [whole[part.start_byte : part.end_byte] for part in page.stretches]
    envelope = Envelope.of(each.answer.content)
    if stretches != [quote.text.encode() for quote in envelope.quotes] or b"".join(stretches) != page.content:
        yield f"{each.call_id} shows other bytes than the tool had produced"
    if (envelope.kind, envelope.stash_id) != ("recalled", each.call.arguments["id"]):
        yield f"{each.call_id} names another id than was asked for"
    if (envelope.next_offset or 0) != (page.next_offset if page.more else 0):
        yield f"{each.call_id} tells the model another offset than programs"


def misquoted(agent: Agent, found: search_pb2.SearchHistoryResponse, read: Sequence[Quote]) -> Iterable[str]:
    """Each snippet of tools' results is compared with what the tool produced there, as facts and as quoted."""
    shown = [(snippet.stash_id, snippet.iteration) for snippet in found.snippets]
    texts = [snippet.text for snippet in found.snippets]
    if [quote.named for quote in read] != shown:
        yield "the lines above the quotes name other items than the snippets"
    if [quote.text for quote in read] != texts:
        yield "the quotes do not parse back to the snippets"
    for snippet in found.snippets:
        produced = agent.produced.get(snippet.call_id, b"")
        lines = produced[: snippet.end_byte].count(b"\n", 0, snippet.start_byte) + 1
        if (
            produced[snippet.start_byte : snippet.end_byte] != snippet.text.encode()
            or lines != snippet.first_line
            or len(produced) != snippet.total_bytes
            or agent.read_at.get(snippet.call_id) != snippet.iteration
        ):
            yield f"a snippet of {snippet.call_id} is not what the tool produced there"


def trims_of(exchanges: Sequence[Exchange]) -> set[tuple[int, str]]:
    """All that was ever trimmed: the message's index and the id."""
    return {(trim.message_index, trim.stash_id) for each in exchanges for trim in each.answer.trims}


def answers_trimmed(agent: Agent, exchanges: Sequence[Exchange]) -> list[tuple[int, str, Answered]]:
    """Answers of the sidecar's tools that were ever trimmed: the message's index, the id, and the call."""
    own = {each.call_id: each for each in agent.answered}
    history = exchanges[-1].sent.messages
    found = [(index, stash_id, history[index + LEADING]) for index, stash_id in sorted(trims_of(exchanges))]
    return [
        (index, stash_id, own[message["tool_call_id"]])
        for index, stash_id, message in found
        if message.get("tool_call_id") in own
    ]


def recorded(agent: Agent) -> list[str]:
    """What the run's history is to hold: each text, each call's arguments, each result but those of the sidecar.

    Empty answers are nothing to record. The model's last words, after which no prompt was sent, are not among them.
    """
    own = {each.call_id for each in agent.answered}
    items: list[str] = []
    for message in agent.history[LEADING:-1]:
        if message["content"] and message.get("tool_call_id") not in own:
            items.append(message["content"])
        items += [call["function"]["arguments"] for call in message.get("tool_calls", ())]
    return items


def produced_by_reading(agent: Agent, path: str) -> tuple[str, bytes]:
    """The call in which the agent read a whole file, and what the tool answered."""
    for message in agent.history:
        for call in message.get("tool_calls", ()):
            if call["function"]["name"] == "read_file" and call["function"]["arguments"] == f'{{"path": "{path}"}}':
                return call["id"], agent.produced[call["id"]]
    return "", b""


def _whole(agent: Agent, notes: Notes, stash_id: str) -> bytes:
    files = {notes.searched_id: EARLY_FILE, notes.fact_id: LONG_FILE, notes.other_id: OTHER_FILE}
    return produced_by_reading(agent, files[stash_id])[1] if stash_id in files else b""


def _facts(plan: Sequence[Task]) -> list[tuple[int, str, str]]:
    return [(task.number, task.text, task.status) for task in plan]


def _shown(tasks: Iterable[task_pb2.TaskItem]) -> list[tuple[int, str, str]]:
    names = task_pb2.TaskStatus.Name
    return [(task.id, task.text, names(task.status).removeprefix("TASK_STATUS_").lower()) for task in tasks]


def _groups(pattern: re.Pattern[str], text: bytes) -> tuple[str, ...]:
    match = pattern.search(text.decode())
    return match.groups() if match else ()


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
    condensed = sum(trim.action == trim_pb2.TRIM_ACTION_CONDENSED for trim in last.trims)
    empty = {trim.stash_id for trim in trims if trim.kind == trim_pb2.ITEM_KIND_OPAQUE}
    figures: tuple[tuple[str, object, object], ...] = (
        ("calls", len(exchanges), run.calls),
        ("iteration", len(exchanges), run.iteration),
        ("messages", len(exchanges[-1].sent.messages) - LEADING, run.messages),
        ("tokens", last.tokens, run.tokens),
        ("cache", last.cache, run.cache),
        ("tokens sent", sum(each.answer.tokens.before for each in exchanges), run.tokens_sent_total),
        ("tokens returned", sum(each.answer.tokens.after for each in exchanges), run.tokens_returned_total),
        ("trimmed items", len(last.trims) - condensed, run.trimmed_items),
        ("condensed items", condensed, run.condensed_items),
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
    found: Findings, agent: Agent, notes: Notes, last: Exchange, old: Server, start: Callable[[], Server]
) -> Server:
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
