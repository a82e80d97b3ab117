"""The agent: a plain loop that keeps its whole history and knows nothing about trimming.

Before each model call it sends all of its history to the sidecar and gives the model what comes back. Its own history
is never changed by that: the next call sends it whole again.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from sidecar.v1 import retrieve_pb2, service_pb2_grpc, trim_pb2
from tests.demo.investigation import QUESTION, Call, Turn
from tests.demo.prompt import Prompt
from tests.demo.tools import Tools, schemas, spelled

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

Recalled = tuple[str, retrieve_pb2.RetrieveContentResponse]
"""The id asked for, and the answer."""


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


@dataclass(slots=True)
class Agent:
    """An agent with its history, in the format of OpenAI's chat completions."""

    stub: service_pb2_grpc.SidecarServiceStub
    run_id: str
    tools: Tools
    history: list[dict[str, Any]] = field(
        default_factory=lambda: [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    )
    produced: dict[str, bytes] = field(default_factory=dict)
    """Call id → what the tool answered, as it came from the tool."""
    recalled: list[Recalled] = field(default_factory=list)
    """What the recall tool was asked for and got."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Retrievals by outcome, as GetRun names them."""

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
            yield Exchange(body, Prompt.of(body), returned, answer, seconds, turn)
            self._take(turn)
            if not turn.calls and not turn.user:
                return

    def body(self) -> bytes:
        """The request body as an HTTP client would send it to the model."""
        request = {"model": MODEL, "temperature": 0.0, "tools": schemas(), "messages": self.history}
        return json.dumps(request, ensure_ascii=False).encode()

    def trim(self, body: bytes) -> trim_pb2.TrimPromptResponse:
        """Send a whole prompt to the sidecar."""
        request = trim_pb2.TrimPromptRequest(
            run_id=self.run_id,
            json=trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=body),
            context_window=WINDOW,
            output_reserve=RESERVE,
        )
        return self.stub.TrimPrompt(request, timeout=CALL_SECONDS)

    def retrieve(self, stash_id: str, **more: Any) -> retrieve_pb2.RetrieveContentResponse:
        """Ask the sidecar for an original."""
        request = retrieve_pb2.RetrieveContentRequest(run_id=self.run_id, stash_id=stash_id, **more)
        page = self.stub.RetrieveContent(request, timeout=CALL_SECONDS)
        self.outcomes[retrieve_pb2.RetrieveOutcome.Name(page.outcome).removeprefix("RETRIEVE_OUTCOME_")] += 1
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

    def _take(self, turn: Turn) -> None:
        """Write the model's turn and its tools' answers into the history."""
        message: dict[str, Any] = {"role": "assistant", "content": turn.text}
        if turn.calls:
            start = len(self.produced) + 1
            calls = [(f"call_{number:04}", call) for number, call in enumerate(turn.calls, start)]
            message["tool_calls"] = [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": spelled(call.arguments)},
                }
                for call_id, call in calls
            ]
            self.history.append(message)
            for call_id, call in calls:
                content = self._recall(**call.arguments) if call.name == "recall" else self._use(call)
                self.produced[call_id] = content.encode()
                self.history.append({"role": "tool", "tool_call_id": call_id, "content": content})
            return
        self.history.append(message)
        if turn.user:
            self.history.append({"role": "user", "content": turn.user})

    def _use(self, call: Call) -> str:
        return self.tools.call(call.name, call.arguments)

    def _recall(self, id: str, pattern: str = "", offset: int = 0) -> str:
        """The recall tool: what the sidecar answers, in words for the model."""
        selection = (
            {"pattern": retrieve_pb2.PatternMatch(expression=pattern, context_lines=2)}
            if pattern
            else {"offset": offset}
        )
        page = self.retrieve(id, **selection)
        self.recalled.append((id, page))
        if page.outcome != retrieve_pb2.RETRIEVE_OUTCOME_HIT:
            return page.message
        if pattern:
            head = f"[{page.matching_lines} matching lines of {page.total_lines:,}]"
        else:
            rest = f"more at offset {page.next_offset}" if page.more else "the end"
            head = f"[{len(page.content):,} bytes from {offset:,} of {page.total_bytes:,}; {rest}]"
        return f"{head}\n{page.content.decode()}"
