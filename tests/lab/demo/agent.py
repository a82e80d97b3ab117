"""The agent: a plain loop that keeps its whole history and knows nothing about trimming.

Before each model call it sends all of its history to the sidecar and gives the model what comes back. Its own history
is never changed by that: the next call sends it whole again. Beside its own tools it offers the model those that
ListTools defines; it knows them by name only, passes the model's arguments on as they were written, and hands back what
CallTool answers, unchanged.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prompt_sidecar.v1 import retrieve_pb2, run_pb2, search_pb2, service_pb2_grpc, tool_pb2, trim_pb2
from tests.lab.demo import plan
from tests.lab.demo.investigation import QUESTION, Call, Turn
from tests.lab.demo.plan import Plan
from tests.lab.demo.prompt import Prompt
from tests.lab.demo.tools import Tools, schemas
from tests.lab.harness.prompts import asked
from tests.oracle.shapes import OPENAI_CHAT

WINDOW = 32_000
"""Tokens. Small, so that a run of half a minute shows what a real one shows in hours."""
RESERVE = 1_000
CALL_SECONDS = 60.0
"""A call takes milliseconds; a starved machine must not turn that into a failure."""
MODEL = "gpt-4o"

SYSTEM = (
    "You are a careful engineer who answers questions about source code. You have tools to list, search and read files "
    "and to run Python; the tree is the standard library of the interpreter that runs them. Cite file and line."
)
REMINDER = "You have not finished these tasks yet; finish them, or tick them off if they are done:"

Definition = Mapping[str, Any]
"""A tool as a request body offers it."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One TrimPrompt: what was sent, what came back, and how long it took."""

    body: bytes
    sent: Prompt
    returned: Prompt
    answer: trim_pb2.TrimPromptResponse
    seconds: float
    turn: Turn
    """What the model answered to the returned prompt."""
    plan: Plan = ()
    """The tasks as they stood when the prompt was sent."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A call of one of the sidecar's tools, and what came of it."""

    call_id: str
    iteration: int
    call: Call
    answer: tool_pb2.CallToolResponse
    """What the model was given."""
    lost: tool_pb2.CallToolResponse | None
    """The answer before it, where that was lost on its way."""
    plan: Plan
    """The tasks after the call."""

    @property
    def is_page(self) -> bool:
        """Whether it shows content that was recalled."""
        return self.answer.recalled.outcome == retrieve_pb2.RETRIEVE_OUTCOME_HIT


def offered(stub: service_pb2_grpc.SidecarServiceStub) -> Sequence[Definition]:
    """Ask the sidecar for its tools, as the body of a request offers them to a model."""
    request = tool_pb2.ListToolsRequest(format=trim_pb2.FORMAT_OPENAI_CHAT)
    definitions: list[Definition] = json.loads(stub.ListTools(request, timeout=CALL_SECONDS).tools_json)
    return definitions


@dataclass(slots=True)
class Agent:
    """An agent with its history, in the format of OpenAI's chat completions."""

    stub: service_pb2_grpc.SidecarServiceStub
    run_id: str
    tools: Tools
    offered: Sequence[Definition]
    """The sidecar's tools."""
    history: list[dict[str, Any]] = field(
        default_factory=lambda: [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    )
    iteration: int = 0
    """Turns that the model has taken."""
    produced: dict[str, bytes] = field(default_factory=dict)
    """Call id → what the tool answered, as it came from the tool."""
    read_at: dict[str, int] = field(default_factory=dict)
    """Call id → the iteration in which it was made."""
    answered: list[Answered] = field(default_factory=list)
    """The calls of the sidecar's tools, in their order."""
    plan: Plan = ()
    """The tasks, as far as the model has created and updated them."""
    completion: list[list[int]] = field(default_factory=list)
    """What each completion check found unfinished."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Retrievals by outcome, as GetRun names them."""
    searches: Counter[str] = field(default_factory=Counter)
    """Searches by outcome."""
    tool_calls: int = 0
    """CallTool, retries included."""

    @property
    def own_tools(self) -> set[str]:
        """Names of the sidecar's tools."""
        return {definition["function"]["name"] for definition in self.offered}

    @property
    def recalled(self) -> list[tuple[str, Answered]]:
        """Ids that the model has asked for, and what it got."""
        return [(each.call.arguments["id"], each) for each in self.answered if each.answer.HasField("recalled")]

    def run(self, script: Generator[Turn, Prompt, None]) -> Iterator[Exchange]:
        """Play the script to its end, one exchange for each iteration."""
        choose: Callable[[Prompt], Turn] = lambda _: next(script)  # noqa: E731  # a generator's first turn is not sent for
        while True:
            body = self.body()
            started = time.perf_counter()
            answer = self.trim(body)
            seconds = time.perf_counter() - started
            returned = Prompt.of(answer.json_body)
            try:
                turn = choose(returned)
            except StopIteration:
                return
            choose = script.send
            yield Exchange(body, Prompt.of(body), returned, answer, seconds, turn, self.plan)
            if not self._take(turn):
                return

    def body(self) -> bytes:
        """The request body as an HTTP client would send it to the model."""
        request = {"model": MODEL, "temperature": 0.0, "tools": [*schemas(), *self.offered], "messages": self.history}
        return json.dumps(request, ensure_ascii=False).encode()

    def trim(self, body: bytes) -> trim_pb2.TrimPromptResponse:
        """Send a whole prompt to the sidecar."""
        request = asked(self.run_id, OPENAI_CHAT, body, WINDOW, output_reserve=RESERVE)
        return self.stub.TrimPrompt(request, timeout=CALL_SECONDS)

    def retrieve(self, stash_id: str, **more: Any) -> retrieve_pb2.RetrieveContentResponse:
        """Ask the sidecar for an original."""
        request = retrieve_pb2.RetrieveContentRequest(run_id=self.run_id, stash_id=stash_id, **more)
        page = self.stub.RetrieveContent(request, timeout=CALL_SECONDS)
        self._count(page)
        return page

    def whole(self, stash_id: str, page_tokens: int = 0) -> tuple[bytes, int]:
        """Turn the pages of an original until there is no more; return its bytes and the number of pages."""
        pages: list[bytes] = []
        offset, more = 0, True
        while more:
            page = self.retrieve(stash_id, offset=offset, page_tokens=page_tokens)
            if page.outcome != retrieve_pb2.RETRIEVE_OUTCOME_HIT:
                break
            pages.append(page.content)
            offset, more = page.next_offset, page.more
        return b"".join(pages), len(pages)

    def search(self, query: str, **more: Any) -> search_pb2.SearchHistoryResponse:
        """Search the run's history as a program does."""
        request = search_pb2.SearchHistoryRequest(run_id=self.run_id, query=query, **more)
        found = self.stub.SearchHistory(request, timeout=CALL_SECONDS)
        self._count(found)
        return found

    def figures(self) -> run_pb2.RunFigures:
        """What GetRun tells of the run."""
        return self.stub.GetRun(run_pb2.GetRunRequest(run_id=self.run_id), timeout=CALL_SECONDS).run

    def ask(self, call: Call, request_id: str) -> tool_pb2.CallToolResponse:
        """Have the sidecar run one of its tools."""
        request = tool_pb2.CallToolRequest(
            run_id=self.run_id, name=call.name, arguments_json=call.text, request_id=request_id
        )
        answer = self.stub.CallTool(request, timeout=CALL_SECONDS)
        self.tool_calls += 1
        return answer

    def _take(self, turn: Turn) -> bool:
        """Write the model's turn, and what follows from it, into the history; False if that ends the run."""
        self.iteration += 1
        message: dict[str, Any] = {"role": "assistant", "content": turn.text}
        self.history.append(message)
        if not turn.calls:
            return self._follow(turn)
        start = len(self.produced) + 1
        calls = [(f"call_{number:04}", call) for number, call in enumerate(turn.calls, start)]
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
            for call_id, call in calls
        ]
        for call_id, call in calls:
            content = self._recall(call_id, call) if call.name in self.own_tools else self._use(call)
            self.produced[call_id] = content.encode()
            self.read_at[call_id] = self.iteration
            self.history.append({"role": "tool", "tool_call_id": call_id, "content": content})
        return True

    def _follow(self, turn: Turn) -> bool:
        """The completion check: a model that stops is told of its unfinished tasks; else the user has the word."""
        unfinished = self.figures().unfinished_tasks
        self.completion.append([task.id for task in unfinished])
        listed = "\n".join(f"{task.id}. {task.text}" for task in unfinished)
        text = "\n\n".join(filter(None, (f"{REMINDER}\n{listed}" if listed else "", turn.user)))
        if text:
            self.history.append({"role": "user", "content": text})
        return bool(text)

    def _use(self, call: Call) -> str:
        return self.tools.call(call.name, call.arguments)

    def _recall(self, call_id: str, call: Call) -> str:
        """One of the sidecar's tools; what it answers goes to the model as it is."""
        request_id = secrets.token_hex(8)  # the call id will not do: providers repeat such ids
        lost = self.ask(call, request_id) if call.lost else None
        answer = self.ask(call, request_id)
        if answer.outcome == tool_pb2.TOOL_OUTCOME_OK:
            self.plan = plan.after(self.plan, call, self.iteration)
        if answer.HasField("recalled"):
            self._count(answer.recalled)
        if answer.HasField("found"):
            self._count(answer.found)
        self.answered.append(Answered(call_id, self.iteration, call, answer, lost, self.plan))
        return answer.content

    def _count(self, answer: retrieve_pb2.RetrieveContentResponse | search_pb2.SearchHistoryResponse) -> None:
        """Count it as GetRun does."""
        if isinstance(answer, retrieve_pb2.RetrieveContentResponse):
            self.outcomes[retrieve_pb2.RetrieveOutcome.Name(answer.outcome).removeprefix("RETRIEVE_OUTCOME_")] += 1
        else:
            self.searches[search_pb2.SearchOutcome.Name(answer.outcome).removeprefix("SEARCH_OUTCOME_")] += 1
