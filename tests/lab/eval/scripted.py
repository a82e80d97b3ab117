"""A scripted model: it reads a prompt as a model does and acts by rules, so that the eval's figures are known.

It is told nothing but the prompt. What it asks for it finds there: the question, the line that answers it, the label of
an elided middle, the registry in system messages, the cue at the tail, the tools that it may call.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

_QUESTION: Final = re.compile(
    r"(?:In the record (?P<record>\S+), w|W)hat is the (?P<attribute>.+) of (?P<subject>\S+)\?"
)
_LABEL: Final = re.compile(r"\[content elided to fit context window — id=(\w+), [\d,]+ bytes\]")
_LINE: Final = re.compile(r'^id=(\w+) tool=\S+ args="(.*)" iteration=', re.MULTILINE)
_CUE: Final = re.compile(r"^\d+ items? (?:is|are) elided or clipped; search covers iterations ", re.MULTILINE)
_ORDERED_ANSWER: Final = re.compile(r"end your reply with ANSWER: (\S+)")
_ORDERED_CALL: Final = re.compile(r'call (\w+) with recipient "(\w+)" and text "(.+?)"')
_ARGUMENT: Final = re.compile(r"\b(?:id|query)\b")
RECALL: Final = "recall_elided_content"
SEARCH: Final = "search_conversation_history"
UNKNOWN: Final = "UNKNOWN"
_BROKEN: Final = '{"id": '
"""Arguments that a model stopped writing."""


class Recalls(StrEnum):
    """When the model asks for what it does not see."""

    NEVER = "never"
    WITH_CUE = "with-cue"
    """Only if a note says that something is out of sight."""
    OUT_OF_SIGHT = "out-of-sight"
    """Whenever the answer is not in sight."""
    EAGERLY = "eagerly"
    """Once in any case, and then whenever the answer is not in sight."""
    FOR_EVER = "for-ever"
    """It goes on and never answers."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the model does."""

    recalls: Recalls = Recalls.OUT_OF_SIGHT
    follows: float = 0.0
    """How likely it is to do what a bait that it sees asks for; drawn once for a question."""
    fumbles: bool = False
    """Whether its first call of a recall tool has broken arguments. It mends them if the answer says which it wants."""
    searches: bool = True
    """Whether it searches where no id is to be had."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Seen:
    """A prompt as the model takes it."""

    system: str
    results: str
    """All that tools answered."""
    last: str
    """What the last tool answered."""
    calls: Sequence[Mapping[str, Any]]
    """The functions of the calls that it made of tools other than the archive's."""
    tools: frozenset[str]
    question: re.Match[str]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> _Seen | None:
        """Read a body; None if nothing is asked in it."""
        texts: dict[str, list[str]] = {"system": [], "user": [], "tool": []}
        for message in body["messages"]:
            texts.setdefault(message["role"], []).append(message.get("content") or "")
        asked = [found for text in texts["user"] if (found := _QUESTION.search(text))]
        calls = [call["function"] for message in body["messages"] for call in message.get("tool_calls") or []]
        made = [function for function in calls if function["name"] != "read_record"]
        tools = frozenset(tool["function"]["name"] for tool in body.get("tools", ()))
        results = "\n".join(texts["tool"])
        last = texts["tool"][-1] if texts["tool"] else ""
        return cls("\n".join(texts["system"]), results, last, made, tools, asked[-1]) if asked else None

    def called(self, name: str) -> bool:
        """Whether it has called a tool."""
        return any(function["name"] == name for function in self.calls)

    @property
    def value(self) -> str:
        """The answer, if it is in sight; else empty."""
        line = f"the {self.question['attribute']} of {self.question['subject']} is "
        found = re.search(re.escape(line) + r"(\S+)", self.results)
        return found[1] if found else ""

    @property
    def known_id(self) -> str:
        """The id of the record that is asked for: from the registry, else from the last answer's label."""
        for stash_id, arguments in _LINE.findall(self.system):
            if self.question["record"] and self.question["record"] in arguments:
                return str(stash_id)
        found = _LABEL.search(self.last)
        return found[1] if found else ""


def reply(body: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    """The assistant's message that follows a prompt."""
    seen = _Seen.of(body)
    if seen is None:
        return _says("What would you like to know?")
    draw = random.Random(f"{rules.seed} {seen.question[0]}").random()
    if draw < rules.follows and (obeyed := _obey(seen)):
        return obeyed
    recalls = rules.recalls
    eager = recalls is Recalls.FOR_EVER or (recalls is Recalls.EAGERLY and not seen.calls)
    wanted = eager or (not seen.value and _may(seen, recalls))
    if wanted and (call := _next_call(seen, rules)):
        return call
    return _says(f"I looked it up.\nANSWER: {seen.value or UNKNOWN}")


def _may(seen: _Seen, recalls: Recalls) -> bool:
    return recalls is not Recalls.NEVER and (recalls is not Recalls.WITH_CUE or bool(_CUE.search(seen.system)))


def _obey(seen: _Seen) -> dict[str, Any] | None:
    """Do what the first order in sight asks for, unless that is done."""
    if ordered := _ORDERED_CALL.search(seen.results):
        name, recipient, text = ordered.groups()
        if name in seen.tools and not seen.called(name):
            return _calls(seen, name, json.dumps({"recipient": recipient, "text": text}))
    ordered = _ORDERED_ANSWER.search(seen.results)
    return _says(f"As the notice says.\nANSWER: {ordered[1]}") if ordered else None


def _next_call(seen: _Seen, rules: Rules) -> dict[str, Any] | None:
    """By id first, then by search, each once; None when nothing is left to try."""
    by_id = json.dumps({"id": seen.known_id, "pattern": seen.question["subject"]})
    by_words = json.dumps({"query": f"{seen.question['attribute']} {seen.question['subject']}"})
    if rules.fumbles:
        if not seen.calls:
            return _calls(seen, RECALL if seen.known_id else SEARCH, _BROKEN)
        if len(seen.calls) == 1:
            if not _ARGUMENT.search(seen.last):
                return None
            # What it could not read told it what is wanted; the broken call's id is the label that stands before it.
            stash_id = seen.known_id or (_LABEL.findall(seen.results) or [""])[-1]
            again = json.dumps({"id": stash_id, "pattern": seen.question["subject"]})
            return _calls(seen, RECALL, again) if seen.called(RECALL) else _calls(seen, SEARCH, by_words)
    if seen.known_id and RECALL in seen.tools and not seen.called(RECALL):
        return _calls(seen, RECALL, by_id)
    if rules.searches and SEARCH in seen.tools and (rules.recalls is Recalls.FOR_EVER or not seen.called(SEARCH)):
        return _calls(seen, SEARCH, by_words)
    return None


def _says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _calls(seen: _Seen, name: str, arguments: str) -> dict[str, Any]:
    call_id = f"scripted_{len(seen.calls) + 1}"
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}
