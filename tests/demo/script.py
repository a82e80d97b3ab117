"""The whole script: the investigation, a bad day in it, and questions whose answers have left the prompt.

A turn is decided on nothing but the prompt that the sidecar returned, as a model's would be. It is a generator: it
yields turns and is sent the prompts.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass, field

from tests.demo import stranger
from tests.demo.investigation import ANSWER, LONG_FILE, PLAN, PLAN_AFTER, Call, Turn
from tests.demo.prompt import Prompt

OTHER_FILE = "subprocess.py"
FOLLOW_UP = (
    f"Good. Two facts for the appendix, with line numbers: which value does create_connection in {LONG_FILE}, which "
    "you read early on, give to interleave under happy eyeballs; and how many seconds does subprocess wait for a child "
    f"after Ctrl-C? For the second read {OTHER_FILE}. And quote the first file to the end, I want it on record."
)
FACT = re.compile(r"^ *(\d+) +interleave = (\d+)$", re.MULTILINE)
OTHER_FACT = re.compile(r"^ *(\d+) +self\._sigint_wait_secs = ([\d.]+)", re.MULTILINE)
_OFFSET = re.compile(r"^\[.* more at offset (\d+)\]")


@dataclass(slots=True)
class Notes:
    """What the scripted model found out; the checks read it."""

    fact: tuple[str, str] = ("", "")
    """Line and value, from the file that was read early on."""
    fact_id: str = ""
    """The id that it was recalled by, read in the registry."""
    other_fact: tuple[str, str] = ("", "")
    """Line and value, from the elided middle of a fresh result."""
    other_id: str = ""
    """The id that it was recalled by, read in the label inside that result."""
    hidden: dict[str, bool] = field(default_factory=dict)
    """Fact → whether the prompt did not hold it before it was recalled."""


def script(neighbour_id: str, notes: Notes) -> Generator[Turn, Prompt, None]:
    """Yield the model's turns; `neighbour_id` is an id of another run, which the forged text names."""
    for turn in PLAN:
        yield turn
    yield Turn("A test log may show more.", (_strangers_log(neighbour_id),))
    yield Turn(
        "It names two ids. I'll try them.",
        (Call("recall", {"id": stranger.MADE_UP_ID}), Call("recall", {"id": neighbour_id})),
    )
    for turn in PLAN_AFTER:
        yield turn
    prompt = yield Turn(ANSWER, user=FOLLOW_UP)
    yield from _from_the_registry(prompt, notes)
    prompt = yield Turn("Now the other file.", (Call("read_file", {"path": OTHER_FILE}),))
    yield from _from_an_elided_middle(prompt, notes)
    yield Turn(
        f"{LONG_FILE}, line {notes.fact[0]}: interleave = {notes.fact[1]}. "
        f"{OTHER_FILE}, line {notes.other_fact[0]}: {notes.other_fact[1]} seconds."
    )


def _from_the_registry(prompt: Prompt, notes: Notes) -> Generator[Turn, Prompt, None]:
    """Find an old result's id in the registry, look around a pattern, then turn all its pages."""
    notes.hidden["fact"] = not any(FACT.search(str(message.get("content"))) for message in prompt.messages)
    named = [line for line in prompt.registry() if line.tool == "read_file" and LONG_FILE in line.arguments]
    if not named:
        yield Turn("The registry does not name it.")
        return
    notes.fact_id = max(named, key=lambda line: line.size).id
    prompt = yield Turn(
        "The registry still has it.",
        (Call("recall", {"id": notes.fact_id, "pattern": r"default to interleave|interleave = \d"}),),
    )
    if found := FACT.search(_last_result(prompt)):
        notes.fact = (found[1], found[2])
    offset: str | None = "0"
    while offset is not None:
        prompt = yield Turn("For the record." if offset == "0" else "On.", (_page(notes.fact_id, offset),))
        more = _OFFSET.match(_last_result(prompt))
        offset = more[1] if more else None


def _from_an_elided_middle(prompt: Prompt, notes: Notes) -> Generator[Turn, Prompt, None]:
    """Find a fresh result's id in the label that stands in its middle."""
    notes.hidden["other_fact"] = not OTHER_FACT.search(_last_result(prompt))
    notes.other_id = prompt.label_in_result(_last_call(prompt))
    if not notes.other_id:
        return
    prompt = yield Turn(
        "Its middle is elided; the label there has an id.",
        (Call("recall", {"id": notes.other_id, "pattern": r"_sigint_wait_secs = "}),),
    )
    if found := OTHER_FACT.search(_last_result(prompt)):
        notes.other_fact = (found[1], found[2])


def _strangers_log(neighbour_id: str) -> Call:
    return Call("run_python", {"arguments": stranger.command(neighbour_id)}, "a stranger's test log")


def _page(stash_id: str, offset: str) -> Call:
    return Call("recall", {"id": stash_id, "offset": int(offset)})


def _last_call(prompt: Prompt) -> str:
    return next(
        (str(message["tool_call_id"]) for message in reversed(prompt.messages) if "tool_call_id" in message), ""
    )


def _last_result(prompt: Prompt) -> str:
    return prompt.result(_last_call(prompt))
