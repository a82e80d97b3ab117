"""What the models behind the agents say: sixty shell commands, with reasoning, and calls of the sidecar's tools."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.agents.lines import LINES, RAN, line
from tests.agents.programs import CODE_MODE, READ_LOG, Agent, Call
from tests.client.provider import TOKENS, Says

CALLS: Final = 60
TOKENS_OF_TEN: Final = 4
"""Tokens of ten characters of a loop's prompts, which are mostly numbers."""
RECALL_AT, SEARCH_AT = 40, 50
"""The command after which the model recalls by id, and the one beside which it searches."""
SECRET_AT, THOUGHT_AT = 7, 12
"""The command that prints a secret, and the one before which the model thinks of another."""
RECALL, SEARCH = "recall_elided_content", "search_conversation_history"
LOOKED_UP: Final = "I look that up."
DONE: Final = "All steps are done."
FINAL_ANSWER: Final = "final_answer"
"""A tool by which some agents want to hear the last answer."""
TITLE: Final = "A title"
SUBTASK: Final = "Count the lines of the notes."
"""What a subagent is asked."""
PRINTS: Final = "step.sh"
"""In the agent's folder: the program that prints the lines of a step."""
PROGRAM: Final = f"""i=1
while [ $i -le {LINES} ]; do echo step $1 line $i value $(($1 * 7919 + i * 104729)); i=$((i + 1)); done
"""
SETTINGS: Final = "settings.env"
"""In the agent's folder: a file that holds `PRINTED`."""
PRINTED: Final = "ghp_" + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEa"
"""A made-up key that a tool prints."""
THOUGHT: Final = "ghp_" + "NoTrEaL2eItHeR9bUtInAtHoUgHtOfAmOdEl"
"""A made-up key that the model has in its reasoning alone."""
ID: Final = re.compile(r"\bid=([a-z2-9]{10})\b")
Turn = Callable[[Any], Says | None]
"""Answers a body; None: it is a step of the run."""


def command(step: int) -> str:
    """Return the shell command of a step: without substitutions, which some agents take for an attack."""
    secret = f"cat {SETTINGS}; " if step == SECRET_AT else ""
    return f"echo {step} >> {RAN}; {secret}sh {PRINTS} {step}"


def entries(body: Any) -> list[Any]:
    """Return the messages, items or contents of a body."""
    found: Any = body.get("messages") or body.get("contents") or body["input"]
    return [{"role": "user", "content": found}] if isinstance(found, str) else list(found)


def tools(body: Any) -> set[str]:
    """Return the names of the tools that a body offers, wherever they stand."""
    groups = [body.get("tools") or [], (body.get("toolConfig") or {}).get("tools") or []]
    groups += [entry["tools"] for entry in entries(body) if entry.get("type") == "additional_tools"]
    return {name for group in groups for name in _names(group)}


def _names(group: Sequence[Any]) -> Iterator[str]:
    for tool in group:
        yield str(tool.get("name") or (tool.get("function") or tool.get("toolSpec") or {}).get("name"))
        yield from _names(tool.get("tools") or tool.get("functionDeclarations") or [])


def _outputs(body: Any) -> list[Any]:
    """The results among a body's items: JavaScript has labels, too, as it is long enough to be clipped."""
    return [entry for entry in entries(body) if str(entry.get("type")).endswith("_output")]


def _nothing_else(_: Any) -> Says | None:
    return None


@dataclass(slots=True)
class Script:
    """An agent's model. A request that does not offer the agent's shell asks for a title."""

    agent: Agent
    last: int = CALLS
    """The command after which it is done."""
    other: Turn = _nothing_else
    """Answers what is no step of the run."""
    full_after: int = 0
    """The command with which its provider counts more tokens than any window has; 0: never."""
    step: int = 0
    turns: int = 0
    requests: int = 0
    looked_up: dict[int, str] = field(default_factory=dict)
    """What it asked the sidecar for, by the number of requests until then: an id, or the words of a search."""

    def __call__(self, body: Any) -> Says:
        """Take a turn. What a loop is told that it took is near to what its prompt holds."""
        says = self._turn(body)
        if self.agent.tool != READ_LOG:
            return says
        return replace(says, tokens={**TOKENS, "input": len(json.dumps(body)) * TOKENS_OF_TEN // 10})

    def _turn(self, body: Any) -> Says:
        self.requests += 1
        offered = tools(body)
        if (answer := self.other(body)) is not None:
            return answer
        if not self.is_step(body):
            wanted = (body.get("generationConfig") or {}).get("responseJsonSchema")
            return Says(json.dumps(_instance(wanted)) if wanted else TITLE)
        self.turns += 1
        history = json.dumps(entries(body), ensure_ascii=False)
        labels = ID.findall(history if self.agent.tool != CODE_MODE else json.dumps(_outputs(body)))
        if self.step >= RECALL_AT and not self.looked_up and labels and RECALL in offered:
            self.looked_up[self.requests] = labels[0]
            return self.says(LOOKED_UP, own=("own-1", RECALL, {"id": labels[0]}))
        if self.step >= self.last and FINAL_ANSWER in offered:
            return self.says("", own=("end", FINAL_ANSWER, {"answer": DONE}))
        if self.step >= self.last:
            return self.says(DONE)
        self.step += 1
        own: Call | None = None
        if self.step >= SEARCH_AT and len(self.looked_up) == 1:
            gone = next(step for step in range(3, self.step) if line(step, LINES // 2) not in history)
            self.looked_up[self.requests] = line(gone, LINES // 2)
            own = ("own-2", SEARCH, {"query": line(gone, LINES // 2)})
        return self.says(f"Step {self.step}.", step=self.step, own=own)

    def is_step(self, body: Any) -> bool:
        """Whether a request is one of the run itself."""
        return self.agent.tool in tools(body) and SUBTASK not in json.dumps(entries(body)[:1])

    def says(self, text: str, *, step: int = 0, own: Call | None = None) -> Says:
        """Return a turn in the agent's own way: reasoning, a text, a step's command (0: none), a call of ours."""
        blocks = self._thought(step) if self.agent.thinks else []
        calls = [own] if own else []
        if step and self.agent.tool == CODE_MODE:
            return self._counted(step, Says("", calls, blocks=[*blocks, *_code(text, step)]))
        if step:
            calls.append(self.agent.call(f"call-{step}", command(step)))
        return self._counted(step, Says("" if calls and self.agent.says_nothing else text, calls, blocks=blocks))

    def _counted(self, step: int, says: Says) -> Says:
        full: Mapping[str, int] = {**TOKENS, "input": 10_000_000}
        return replace(says, tokens=full) if step and step == self.full_after else says

    def _thought(self, step: int) -> list[Any]:
        text = f"Export TOKEN={THOUGHT} first." if step == THOUGHT_AT else f"Thought {self.turns}."
        if self.agent.path == "messages":
            return [{"type": "thinking", "thinking": text, "signature": "c2lnbmVk" * 40}]
        summary = [{"type": "summary_text", "text": text}]
        sealed = "gAAAAA" * 40
        return [{"type": "reasoning", "id": f"rs_{self.turns}", "summary": summary, "encrypted_content": sealed}]


def _instance(schema: Mapping[str, Any]) -> Any:
    """Return a value of a schema, such as agents want of a model that is to decide something for them."""
    if schema.get("type") == "object":
        return {name: _instance(each) for name, each in schema.get("properties", {}).items()}
    return schema.get("enum", [{"string": "none", "boolean": False, "array": []}.get(str(schema.get("type")), 0)])[0]


def _code(text: str, step: int) -> list[Any]:
    """Return what Codex's default model says: a message, and JavaScript that runs the command."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"type": "message", "id": f"msg_{step}", "role": "assistant", "status": "completed", "content": content}
    source = f"const ran = await tools.exec_command({{cmd: {json.dumps(command(step))}}});\ntext(ran.output);\n"
    call = {"type": "custom_tool_call", "id": f"ctc_{step}", "call_id": f"call-{step}", "name": CODE_MODE}
    return [message, {**call, "input": source, "status": "completed"}]
