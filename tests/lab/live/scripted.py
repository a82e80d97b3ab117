"""A scripted model for the trial: it solves the tasks by reading prompts, so that the trial's figures are known.

With `notes` it writes into each message what it has found, as good models do, and needs nothing that left the prompt.
Without, it knows only what the prompt still shows; with `recalls` it searches for what it lacks. The endpoint counts
cached tokens as a provider with a prompt cache does: what begins like an earlier prompt, by whole messages.
`python -m tests.lab.live.scripted` serves one to try `make live` with.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.lab.eval.endpoint import SEARCH, Endpoint, Rules
from tests.lab.harness.loopback import until_interrupted
from tests.lab.harness.tables import options
from tests.oracle.tokens import count_prompt

_NOTES: Final = "NOTES "
_RANGE: Final = re.compile(r"(\w+/[a-z]+)(\d\d)\.(\w+) to \w+/[a-z]+(\d\d)\.\w+")
_NEXT: Final = re.compile(r"(?m)^next: (\S+)$")
_AMOUNT: Final = re.compile(r"record (R\w+) amount (\d+)")
_FACTS: Final = re.compile(r"\b(salt|end): (\d+)")
_CACHED_FROM: Final = 1_024
"""Tokens below which a provider caches nothing (OpenAI's guide on prompt caching)."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What the model does."""

    notes: bool = True
    recalls: bool = True


@dataclass(frozen=True, slots=True)
class _Read:
    """A file that the model read, as the prompt shows it."""

    path: str
    text: str


class _Seen:
    """A prompt as the model takes it."""

    def __init__(self, body: Mapping[str, Any], habits: Habits) -> None:
        messages = body["messages"]
        self.tools = {tool["function"]["name"] for tool in body.get("tools", ())}
        self.prompt = next(str(each["content"]) for each in messages if each["role"] == "user")
        results = {each["tool_call_id"]: str(each.get("content") or "") for each in messages if each["role"] == "tool"}
        self.reads: list[_Read] = []
        self.last_call, self.last_result = "", ""
        self.calls = 0
        noted = -1
        self.notes: dict[str, Any] = {}
        for message in messages:
            text = str(message.get("content") or "")
            if message["role"] == "assistant" and habits.notes and text.startswith(_NOTES):
                self.notes, noted = json.loads(text.removeprefix(_NOTES)), len(self.reads)
            for call in message.get("tool_calls") or []:
                self.calls += 1
                function, result = call["function"], results.get(call["id"], "")
                self.last_call, self.last_result = function["name"], result
                if function["name"] == "read_file":
                    self.reads.append(_Read(json.loads(function["arguments"])["path"], result))
        # What notes hold already is not counted again.
        self.new = self.reads[noted:] if noted >= 0 else self.reads


def reply(body: Mapping[str, Any], habits: Habits) -> dict[str, Any]:
    """The assistant's message that follows a prompt."""
    seen = _Seen(body, habits)
    state = _folded(seen)
    if "differs from its description" in seen.prompt and (done := _fixing(seen, habits, state)):
        return done
    if path := _next_path(seen):
        return _calls(seen, habits, state, "read_file", {"path": path})
    if habits.recalls and SEARCH in seen.tools and seen.last_call != SEARCH and (lacks := _lacks(seen, state)):
        return _calls(seen, habits, state, SEARCH, {"query": lacks})
    return {"role": "assistant", "content": f"I have read all.\nANSWER: {_answer(seen, state)}"}


def _folded(seen: _Seen) -> dict[str, Any]:
    """What the notes and the results in sight say together."""
    state: dict[str, Any] = {"errors": 0, "best": [0, ""], **seen.notes}
    service = re.search(r"the service (\w+),", seen.prompt)
    for read in seen.new:
        state |= dict(_FACTS.findall(read.text))
        if service:
            state["errors"] += sum(f" ERROR {service[1]} " in line for line in read.text.splitlines())
        for name, amount in _AMOUNT.findall(read.text):
            state["best"] = max(state["best"], [int(amount), name])
    if seen.last_call == SEARCH:
        state |= dict(_FACTS.findall(seen.last_result))
    return state


def _next_path(seen: _Seen) -> str:
    """The file to read now; empty: all are read."""
    last = seen.reads[-1] if seen.reads else None
    if first := re.search(r"begins at (\S+)\. ", seen.prompt):
        found = _NEXT.search(last.text) if last else None
        return first[1] if last is None else found[1] if found else ""
    ranges = _RANGE.findall(seen.prompt)
    paths = [
        f"{folder}{place:02}.{ending}"
        for place in range(int(ranges[0][3]) + 1)
        for folder, _, ending, _ in sorted(ranges)
    ]
    at = paths.index(last.path) + 1 if last else 0
    return paths[at] if at < len(paths) else ""


def _fixing(seen: _Seen, habits: Habits, state: Mapping[str, Any]) -> dict[str, Any] | None:
    """The next step, once the function that differs is in sight next to its description."""
    if seen.last_call == "replace_text":
        return _calls(seen, habits, state, "run_tests", {})
    if seen.last_call == "run_tests":
        return {"role": "assistant", "content": f"The tests say: {seen.last_result[-20:]}\nANSWER: done"}
    if len(seen.reads) < 2 or seen.last_call != "read_file":
        return None
    spec, module = seen.reads[-2:]
    expected, stands = re.search(r"The result is (.+)\.", spec.text), re.search(r"return (.+)", module.text)
    if not expected or not stands or expected[1] == stands[1]:
        return None
    change = {"path": module.path, "old": stands[1], "new": expected[1]}
    return _calls(seen, habits, state, "replace_text", change)


def _lacks(seen: _Seen, state: Mapping[str, Any]) -> str:
    return "salt" if "as END-SALT" in seen.prompt and "salt" not in state else ""


def _answer(seen: _Seen, state: Mapping[str, Any]) -> str:
    if "as END-SALT" in seen.prompt:
        return f"{state.get('end', 'unknown')}-{state.get('salt', 'unknown')}"
    return str(state["best"][1] if "greatest amount" in seen.prompt else state["errors"])


def _calls(
    seen: _Seen, habits: Habits, state: Mapping[str, Any], name: str, arguments: Mapping[str, str]
) -> dict[str, Any]:
    newest = seen.reads[-1].path if seen.reads else "start"
    call_id = f"call_{re.sub(r'[^a-z0-9]', '_', newest)}_{name}_{seen.calls}"
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    notes = _NOTES + json.dumps(dict(state)) if habits.notes else None
    return {"role": "assistant", "content": notes, "tool_calls": [call]}


class Scripted(Endpoint):
    """A provider on loopback that this model answers behind."""

    def __init__(self, habits: Habits, *, troubles: Sequence[int] = (), counts: bool = True, port: int = 0) -> None:
        super().__init__(Rules(), troubles=troubles, counts=counts, port=port)
        self.habits = habits
        self._earlier: deque[Sequence[Any]] = deque(maxlen=200)
        self._prompts = threading.Lock()

    def message(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """What the model answers."""
        return reply(body, self.habits)

    def usage(self, body: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
        """Tokens, and how many of them an earlier prompt began with."""
        messages = body["messages"]
        with self._prompts:
            kept = max((_alike(messages, earlier) for earlier in self._earlier), default=0)
            self._earlier.append(messages)
        cached = count_prompt({**body, "messages": messages[:kept]}) if kept else 0
        details = {"cached_tokens": cached if cached >= _CACHED_FROM else 0}
        return {**super().usage(body, message), "prompt_tokens_details": details}


def _alike(one: Sequence[Any], other: Sequence[Any]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def main() -> int:
    """Serve until Ctrl-C."""
    parser = options("python -m tests.lab.live.scripted", __doc__)
    parser.add_argument("--no-notes", action="store_true", help="it writes nothing down")
    parser.add_argument("--no-recalls", action="store_true", help="it never searches for what it lacks")
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    asked = parser.parse_args()
    with Scripted(Habits(notes=not asked.no_notes, recalls=not asked.no_recalls), port=asked.port) as endpoint:
        environment = {**endpoint.environment, "LIVE": '"--quick --prices 1,0.1,4"'}
        print("make live", " ".join(f"{name}={value}" for name, value in environment.items()), flush=True)
        until_interrupted()
    return 0


if __name__ == "__main__":
    sys.exit(main())
