"""One conversation: trim, ask the model, run the tools that it called, until it answers.

What a user of the sidecar writes around it is all here: TrimPrompt before each request, the four tools in the body,
CallTool for a call of one of them. Every loop has an end: requests a conversation, calls a turn, tokens in all.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import grpc

from prompt_sidecar.v1 import policy_pb2, run_pb2, service_pb2_grpc, tool_pb2, trim_pb2
from tests.lab.eval import tasks
from tests.lab.eval.chat import Chat, Reply
from tests.lab.eval.tasks import CAP_BYTES, LIMIT, SEND, Task, tools, use
from tests.lab.harness.prompts import asked
from tests.oracle.shapes import OPENAI_CHAT

CALL_SECONDS: Final = 60.0
"""A call of the sidecar takes milliseconds; a starved machine must not turn that into a failure."""
CALLS_A_TURN: Final = 8
"""Tool calls of one turn that are run; the rest is answered with an error."""
_BYTES_PER_TOKEN: Final = 3
"""Of a reply whose endpoint does not count."""
_RECALL: Final = "recall_elided_content"
_SEARCH: Final = "search_conversation_history"


class Cue(StrEnum):
    """Whether each prompt ends with the note that tells what search covers."""

    WITH = "with"
    WITHOUT = "without"

    @property
    def place(self) -> policy_pb2.NotePlace.ValueType:
        """The policy's value."""
        return policy_pb2.NOTE_PLACE_TAIL if self is Cue.WITH else policy_pb2.NOTE_PLACE_OFF


class Ending(StrEnum):
    """How a conversation ended."""

    ANSWERED = "answered"
    CUT = "cut"
    """The reply had no room; it is graded as it is."""
    OUT_OF_TURNS = "out_of_turns"
    """The model went on calling tools; it is graded as having answered nothing."""
    FAILED = "failed"
    """It got no answer of the endpoint, or of the sidecar; it is not graded."""
    MISLAID = "mislaid"
    """The fact was in sight where it was to be hidden, or the other way round; it is not graded."""

    @property
    def graded(self) -> bool:
        """Whether the conversation counts."""
        return self not in (Ending.FAILED, Ending.MISLAID)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a conversation may take."""

    turns: int
    """Requests to the model."""
    reply_tokens: int
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Members that the body gets beside ours; null takes one away."""


@dataclass(slots=True)
class Budget:
    """Tokens that the whole eval may take."""

    total: int
    spent: int = 0

    def allows(self, tokens: int) -> bool:
        """Whether there are so many left."""
        return self.spent + tokens <= self.total


class BudgetSpent(Exception):
    """The next request could take more tokens than are left."""


@dataclass(slots=True)
class Record:
    """What a conversation came to."""

    ending: Ending = Ending.FAILED
    error: str = ""
    hopeless: bool = False
    """Whether the next conversation would fail as well."""
    reply: str = ""
    right: bool = False
    followed: bool = False
    """Whether the model did what the bait asked for."""
    shown: bool = False
    """Whether the fact stood in a prompt that the model got."""
    bait_shown: bool = False
    recalls: int = 0
    """Calls of the recall tool."""
    searches: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    """Calls of the sidecar's tools by outcome."""
    other_calls: int = 0
    malformed: int = 0
    """Calls that named no tool or had wrong arguments."""
    mended: bool = False
    """Whether a good call of a tool followed a malformed one."""
    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    estimated: bool = False
    """Whether the endpoint did not count the tokens."""
    seconds: float = 0.0

    @property
    def recalled(self) -> bool:
        """Whether the model asked for what it did not see."""
        return self.recalls + self.searches > 0

    @property
    def calls(self) -> int:
        """Tool calls."""
        return self.outcomes.total() + self.other_calls


class Agent:
    """Holds conversations with a model, through a sidecar."""

    def __init__(self, stub: service_pb2_grpc.SidecarServiceStub, chat: Chat, bounds: Bounds, budget: Budget) -> None:
        self._stub = stub
        self._chat = chat
        self._bounds = bounds
        self._budget = budget
        request = tool_pb2.ListToolsRequest(format=trim_pb2.FORMAT_OPENAI_CHAT)
        listed = stub.ListTools(request, timeout=CALL_SECONDS)
        self._names = frozenset(each.name for each in listed.tools)
        self._tools = [*tools(), *json.loads(listed.tools_json)]

    def converse(self, task: Task, cue: Cue, run_id: str, record: Record) -> None:
        """Hold one conversation; `record` is filled as it goes, so that it tells about one that failed, too.

        Raises:
            ChatError: the endpoint gave no answer of use.
            grpc.RpcError: the sidecar refused a call.
            BudgetSpent: the tokens are used up.
        """
        started = time.perf_counter()
        try:
            self._converse(task, cue, run_id, record)
        finally:
            record.seconds = time.perf_counter() - started
            with suppress(grpc.RpcError):  # it is only tidier; after Ctrl-C the server may be gone already
                self._stub.EndRun(run_pb2.EndRunRequest(run_id=run_id), timeout=CALL_SECONDS)

    def _converse(self, task: Task, cue: Cue, run_id: str, record: Record) -> None:
        history: list[Mapping[str, Any]] = list(task.messages)
        for turn in range(self._bounds.turns):
            answer = self._trim(history, cue, run_id)
            prompt = answer.json_body.decode()
            in_sight = task.fact.token in prompt
            if turn == 0 and in_sight is task.kind.needs_recall:
                record.ending = Ending.MISLAID
                return
            record.shown |= in_sight
            record.bait_shown |= task.bait is not None and task.bait.token in prompt
            reply = self._ask(answer, record)
            history.append(reply.message)
            calls = reply.message.get("tool_calls") or []
            if not calls:
                record.reply = reply.text
                record.ending = Ending.CUT if reply.cut else Ending.ANSWERED
                record.right = tasks.is_right(task, reply.text)
                record.followed |= tasks.obeys(task, reply.text)
                return
            for number, call in enumerate(calls):
                content = self._run(task, run_id, call, number, record)
                history.append({"role": "tool", "tool_call_id": call.get("id") or "", "content": content})
        record.ending = Ending.OUT_OF_TURNS

    def _trim(self, history: list[Mapping[str, Any]], cue: Cue, run_id: str) -> trim_pb2.TrimPromptResponse:
        reply_tokens = self._bounds.reply_tokens
        body: dict[str, Any] = {
            "model": self._chat.address.model,
            "messages": history,
            "tools": self._tools,
            "max_tokens": reply_tokens,
        }
        body = {name: value for name, value in (body | dict(self._bounds.extra)).items() if value is not None}
        preset = policy_pb2.PRESET_CACHE_FIRST
        policy = policy_pb2.Policy(preset=preset, cap_text_bytes=CAP_BYTES, note_place=cue.place)
        raw, window = json.dumps(body, ensure_ascii=False).encode(), LIMIT + reply_tokens
        request = asked(run_id, OPENAI_CHAT, raw, window, output_reserve=reply_tokens, policy=policy)
        return self._stub.TrimPrompt(request, timeout=CALL_SECONDS)

    def _ask(self, answer: trim_pb2.TrimPromptResponse, record: Record) -> Reply:
        if not self._budget.allows(answer.tokens.after + self._bounds.reply_tokens):
            raise BudgetSpent
        reply = self._chat.ask(answer.json_body)
        message = json.dumps(dict(reply.message), ensure_ascii=False).encode()
        tokens_in = answer.tokens.after if reply.tokens_in is None else reply.tokens_in
        tokens_out = len(message) // _BYTES_PER_TOKEN if reply.tokens_out is None else reply.tokens_out
        record.estimated |= reply.tokens_in is None or reply.tokens_out is None
        record.requests += 1
        record.tokens_in += tokens_in
        record.tokens_out += tokens_out
        self._budget.spent += tokens_in + tokens_out
        return reply

    def _run(self, task: Task, run_id: str, call: Mapping[str, Any], number: int, record: Record) -> str:
        """Run one tool call; return what the model is told."""
        name = call["function"]["name"]
        written = call["function"].get("arguments")
        arguments = written if isinstance(written, str) else json.dumps(written or {}, ensure_ascii=False)
        if number >= CALLS_A_TURN:
            record.other_calls += 1
            return f"error: at most {CALLS_A_TURN} calls are run at once"
        if name not in self._names:
            record.other_calls += 1
            record.followed |= tasks.call_obeys(task, name, arguments, SEND)
            content = use(name, arguments)
            record.malformed += content.startswith(("error: there is no tool", "error: call "))
            return content
        record.recalls += name == _RECALL
        record.searches += name == _SEARCH
        request = tool_pb2.CallToolRequest(run_id=run_id, name=name, arguments_json=arguments)
        answer = self._stub.CallTool(request, timeout=CALL_SECONDS)
        record.outcomes[tool_pb2.ToolOutcome.Name(answer.outcome).removeprefix("TOOL_OUTCOME_").lower()] += 1
        wrong = answer.outcome == tool_pb2.TOOL_OUTCOME_INVALID_ARGUMENTS
        record.malformed += wrong
        record.mended |= record.malformed > 0 and not wrong
        return answer.content
