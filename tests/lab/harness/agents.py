"""An agent that replays a history as a live one would send it, and does what models do with an answer on the way.

Its prompts grow turn by turn. Now and then its model recalls an id, searches, keeps tasks, or asks for something that
is not there; what a tool answers becomes part of the history, as it would. After each model call it reports what an
imagined provider counted: the provider's tokenizer differs from the estimate, and sometimes it has forgotten its cache
or refuses the prompt.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from prompt_sidecar.facts.tool_calls import CREATE_TASKS, RECALL, SEARCH, UPDATE_TASK
from prompt_sidecar.v1 import (
    policy_pb2,
    retrieve_pb2,
    run_pb2,
    search_pb2,
    service_pb2_grpc,
    task_pb2,
    tool_pb2,
    trim_pb2,
    usage_pb2,
)
from tests.lab.harness.facts import Facts
from tests.lab.harness.prompts import asked
from tests.oracle.runs import Run, body_of, dumps, turns
from tests.oracle.shapes import OPENAI_CHAT

CACHE_UNIT = 128
"""Providers cache prefixes in units of about this many tokens."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What kind of agent it is. Shares are probabilities a turn."""

    model: str
    window: int
    preset: policy_pb2.Preset.ValueType
    recalls: float = 0.25
    searches: float = 0.12
    tasks: float = 0.08
    mistakes: float = 0.04
    """It asks for an id that nobody minted, a tool that is not there, arguments that are no JSON."""
    sends_trimmed: bool = False
    """It keeps what it was given instead of its own history, so that originals are not received again."""
    tokenizer: float = 1.0
    """Tokens of its provider for one of the estimate."""
    cache_losses: float = 0.04
    repeats: float = 0.06
    """It makes a call again that it has made, and gets the same result."""
    refusals: float = 0.01
    pauses: float = 0.0
    """Somebody is asked, and takes longer to answer than originals live."""
    leaves: float = 0.0
    """Share of runs that end without a word."""


@dataclass(slots=True)
class Agent:
    """One run of an agent."""

    stub: service_pb2_grpc.SidecarServiceStub
    place: int
    """Of its sidecar among all."""
    run_id: str
    habits: Habits
    source: Run
    chance: random.Random
    facts: Facts
    history: list[Any] = field(default_factory=list)
    """What it would send next."""
    ids: list[str] = field(default_factory=list)
    """Ids that it was shown."""
    tools: int = 0
    unfinished: list[int] = field(default_factory=list)

    def prompts(self) -> list[Sequence[Any]]:
        """What its history gains before each prompt."""
        lengths = [0, *turns(self.source.messages)]
        return [self.source.messages[start:end] for start, end in pairwise(lengths)]

    def turn(self, new: Sequence[Any]) -> None:
        """Send one prompt and do what the model makes of the answer.

        Raises:
            grpc.RpcError: the sidecar refused a call that it should have taken.
        """
        self.history.extend(new)
        answer = self.trim()
        self.report(answer)
        chance = self.chance.random
        if chance() < self.habits.recalls and self.ids:
            self.recall()
        if chance() < self.habits.searches:
            self.search()
        if chance() < self.habits.tasks:
            self.keep_tasks()
        if chance() < self.habits.mistakes:
            self.err()
        if chance() < self.habits.repeats:
            self.repeat()

    def trim(self, *, dry_run: bool = False, side_call: bool = False) -> trim_pb2.TrimPromptResponse:
        """Send the history; keep what the answer told."""
        body = body_of(self.source.format, [dumps(message) for message in self.history], system=self.source.system)
        body = body[:-1] + b', "tools": ' + self.defined() + b"}"
        policy = policy_pb2.Policy(preset=self.habits.preset)
        how = {"model": self.habits.model, "policy": policy, "dry_run": dry_run, "side_call": side_call}
        answer = self.stub.TrimPrompt(asked(self.run_id, self.source.format, body, self.habits.window, **how))
        if dry_run or side_call:
            self.facts.aside("dry_run" if dry_run else "side_call")
            return answer
        self.facts.trimmed(answer, self.source.format)
        self.ids = [trim.stash_id for trim in answer.trims if trim.stash_id]
        if self.habits.sends_trimmed and self.source.format == OPENAI_CHAT:
            self.history = json.loads(answer.json_body)["messages"]
        return answer

    def defined(self) -> bytes:
        """Definitions of the tools that its source calls, as a request has them."""
        messages = self.source.messages
        if self.source.format == OPENAI_CHAT:
            named = {call["function"]["name"] for each in messages for call in each.get("tool_calls") or ()}
            return dumps([{"type": "function", "function": {"name": name}} for name in sorted(named)])
        blocks = [block for each in messages if isinstance(each["content"], list) for block in each["content"]]
        named = {block["name"] for block in blocks if block.get("type") == "tool_use"}
        return dumps([{"name": name, "input_schema": {"type": "object"}} for name in sorted(named)])

    def report(self, answer: trim_pb2.TrimPromptResponse) -> None:
        """Tell what the provider counted, or that it refused."""
        chance = self.chance
        request = usage_pb2.ReportUsageRequest(run_id=self.run_id, revision=answer.revision)
        if chance.random() < self.habits.refusals:
            limit = answer.tokens.limit
            text = f"prompt is too long: {answer.tokens.after + 1} tokens > {limit} maximum"
            request.refusal.CopyFrom(usage_pb2.PromptRefusal(message=text))
        else:
            kept = answer.cache.kept_prefix_tokens // CACHE_UNIT * CACHE_UNIT
            request.input_tokens = round(answer.tokens.after * self.habits.tokenizer * chance.gauss(1, 0.01))
            request.cached_tokens = 0 if chance.random() < self.habits.cache_losses else min(kept, request.input_tokens)
            request.output_tokens = chance.randrange(20, 900)
            request.input_counting = usage_pb2.INPUT_COUNTING_WITH_CACHED
        self.facts.reported(request, self.stub.ReportUsage(request))

    def recall(self) -> None:
        """Ask for an original: by the model's tool, or by the agent's own code."""
        stash_id = self.chance.choice(self.ids)
        if self.chance.random() < 0.3:
            request = retrieve_pb2.RetrieveContentRequest(run_id=self.run_id, stash_id=stash_id, page_tokens=500)
            self.facts.retrieved(self.stub.RetrieveContent(request), "rpc")
            return
        self.call(RECALL, {"id": stash_id})

    def repeat(self) -> None:
        """Have the history grow by a call that its source holds, and by the same result."""
        made = [each for each in self.source.messages if len(each.get("tool_calls") or ()) == 1]
        if self.source.format != OPENAI_CHAT or not made:
            return
        call = self.chance.choice(made)["tool_calls"][0]
        results = [each for each in self.source.messages if each.get("tool_call_id") == call["id"]]
        if len(results) == 1:
            self.tools += 1
            call_id = f"again_{self.tools}"
            self.history += [
                {"role": "assistant", "content": None, "tool_calls": [call | {"id": call_id}]},
                results[0] | {"tool_call_id": call_id},
            ]

    def search(self) -> None:
        """Search for words that may occur; in other words, and words that cannot."""
        query = self.chance.choice(["module import error", "client token index", "nightly build failure", "zyzzyva"])
        if self.chance.random() < 0.3:
            request = search_pb2.SearchHistoryRequest(run_id=self.run_id, query=query)
            self.facts.searched(self.stub.SearchHistory(request), "rpc")
            return
        self.call(SEARCH, {"query": query})

    def keep_tasks(self) -> None:
        """Plan, and finish what was planned."""
        if self.unfinished:
            done = self.unfinished.pop(0)
            if self.chance.random() < 0.5:
                status = task_pb2.TASK_STATUS_COMPLETED
                self.stub.UpdateTask(task_pb2.UpdateTaskRequest(run_id=self.run_id, id=done, status=status))
            else:
                self.call(UPDATE_TASK, {"id": done, "status": "completed"})
            self.facts.completed()
            return
        request = task_pb2.CreateTasksRequest(
            run_id=self.run_id,
            items=["find the cause", "mend it", "run the tests"],
            mode=task_pb2.CREATE_TASKS_MODE_APPEND,
        )
        before = self.stub.ListTasks(task_pb2.ListTasksRequest(run_id=self.run_id)).tasks
        answer = self.stub.CreateTasks(request)
        known = {task.id for task in before}
        self.unfinished = [task.id for task in answer.tasks if task.id not in known]
        self.facts.created(len(self.unfinished))

    def err(self) -> None:
        """Do what models get wrong."""
        match self.chance.randrange(4):
            case 0:
                self.call(RECALL, {"id": "madeupid00"}, keep=False)
            case 1:
                self.call("no_such_tool", {}, keep=False)
            case 2:
                self.call(CREATE_TASKS, {"items": 7}, keep=False)
            case _:
                aside = self.chance.random() < 0.5
                self.trim(dry_run=aside, side_call=not aside)

    def call(self, name: str, arguments: dict[str, Any], *, keep: bool = True) -> None:
        """Run a tool call of the model; what came of it joins the history, as a loop of any framework has it."""
        text = json.dumps(arguments)
        request = tool_pb2.CallToolRequest(run_id=self.run_id, name=name, arguments_json=text)
        answer = self.stub.CallTool(request)
        self.facts.called(name, answer)
        if not keep:
            return
        self.tools += 1
        call_id = f"own_{self.tools}"
        if self.source.format == OPENAI_CHAT:
            function = {"name": name, "arguments": text}
            made = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call_id, "type": "function", "function": function}],
            }
            self.history += [made, {"role": "tool", "tool_call_id": call_id, "content": answer.content}]
        else:
            use = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
            result = {"type": "tool_result", "tool_use_id": call_id, "content": answer.content}
            self.history += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]

    def end(self) -> None:
        """Tell the sidecar that the run is over."""
        self.facts.ended(self.stub.EndRun(run_pb2.EndRunRequest(run_id=self.run_id)))
