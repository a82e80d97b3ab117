"""The whole script: the investigation, a bad day in it, and questions whose answers have left the prompt.

A turn is decided on nothing but the prompt that the sidecar returned, as a model's would be. It is a generator: it
yields turns and is sent the prompts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from dataclasses import dataclass, field

from tests.lab.demo import stranger
from tests.lab.demo.agent import REMINDER
from tests.lab.demo.investigation import (
    ANSWER,
    CREATE_TASKS,
    LONG_FILE,
    PLAN,
    PLAN_AFTER,
    RECALL,
    SEARCH,
    SWALLOWED,
    TASKS,
    Call,
    Turn,
    begin,
    done,
)
from tests.lab.demo.prompt import Envelope, Prompt

OTHER_FILE = "subprocess.py"
FOLLOW_UP = (
    "Good. Three facts for the appendix, with line numbers. Asyncio complains of errors that nobody has asked a future "
    f"for; you came across the text, where does it stand? Which value does create_connection in {LONG_FILE}, which "
    "you read early on, give to interleave under happy eyeballs; and how many seconds does subprocess wait for a child "
    f"after Ctrl-C? For the last read {OTHER_FILE}. And quote the two files from which you take the first two to the "
    "end, I want them on record."
)
QUERY = "future exception was never retrieved"
MORE_TASKS = ("where a complaint stands", "interleave, and its file to the end", "what subprocess waits for a child")
FIRST_MORE = len(TASKS) + 1
SEARCHED_FACT = re.compile(r"^ *(\d+) +f'\{self\.__class__\.__name__\} (exception was never retrieved)'", re.MULTILINE)
FACT = re.compile(r"^ *(\d+) +interleave = (\d+)$", re.MULTILINE)
OTHER_FACT = re.compile(r"^ *(\d+) +self\._sigint_wait_secs = ([\d.]+)", re.MULTILINE)
_CUT_OFF = 1
"""Characters that a model did not get to write: the closing brace."""
_NUMBERED = re.compile(r"^(\d+)\. ", re.MULTILINE)

Script = Generator[Turn, Prompt, None]


@dataclass(slots=True)
class Notes:
    """What the scripted model found out; the checks read it."""

    searched_fact: tuple[str, ...] = ()
    """Line and text, from a snippet of the search."""
    searched_id: str = ""
    """The id of that snippet's item."""
    searched_iteration: int = 0
    """The iteration that the snippet names."""
    fact: tuple[str, ...] = ()
    """Line and value, from the file that was read early on."""
    fact_id: str = ""
    """The id that it was recalled by, read in the registry."""
    other_fact: tuple[str, ...] = ()
    """Line and value, from the elided middle of a fresh result."""
    other_id: str = ""
    """The id that it was recalled by, read in the label inside that result."""
    hidden: dict[str, bool] = field(default_factory=dict)
    """Fact → whether the prompt did not hold it before it was recalled."""


def script(neighbour_id: str, notes: Notes) -> Script:
    """Yield the model's turns; `neighbour_id` is an id of another run, which the forged text names."""
    for turn in PLAN:
        yield turn
    yield from _cut_off(done(SWALLOWED))
    yield Turn("A test log may show more.", (_strangers_log(neighbour_id),))
    yield Turn("It names two ids. I'll try them.", (_recall(stranger.MADE_UP_ID), _recall(neighbour_id)))
    for turn in PLAN_AFTER:
        yield turn
    yield Turn(ANSWER, user=FOLLOW_UP)
    create = Call(CREATE_TASKS, {"tasks": list(MORE_TASKS), "mode": "append"}, lost=True)
    prompt = yield Turn("Three more things to do.", (create,))
    yield from _by_search(prompt, notes)
    prompt = yield Turn("That is the first. The second:", (done(FIRST_MORE), begin(FIRST_MORE + 1)))
    yield from _from_the_registry(prompt, notes)
    other = Call("read_file", {"path": OTHER_FILE})
    prompt = yield Turn("Now the other file.", (other, done(FIRST_MORE + 1), begin(FIRST_MORE + 2)))
    yield from _from_an_elided_middle(prompt, notes)
    prompt = yield Turn(
        f"Line {' says: '.join(notes.searched_fact)}. {LONG_FILE}, line {': interleave = '.join(notes.fact)}. "
        f"{OTHER_FILE}, line {': seconds: '.join(notes.other_fact)}."
    )
    yield from _ticked_off(prompt)


def _cut_off(call: Call) -> Script:
    """Call a tool with arguments that break off; then once more, in the form that the answer shows."""
    cut = Call(call.name, call.arguments, f"{call.name}, cut off", call.text[:-_CUT_OFF])
    prompt = yield Turn("So a coroutine may swallow it. That is settled.", (cut,))
    answer = Envelope.of(prompt.last_answer(call.name)[1])
    if answer.kind == "notice" and answer.example is not None and answer.example[0] == call.name:
        shown = json.loads(answer.example[1])
        arguments = {name: call.arguments[name] for name in shown}
        yield Turn("My call broke off; once more, like the example.", (Call(call.name, arguments),))


def _by_search(prompt: Prompt, notes: Notes) -> Script:
    """Find text whose place is forgotten, take the id from its snippet, and turn all pages of its item."""
    notes.hidden["searched_fact"] = not prompt.holds(SEARCHED_FACT)
    search = Call(SEARCH, {"query": QUERY, "role": "tool"})
    prompt = yield Turn("I have seen that, but where? I'll search.", (search, begin(FIRST_MORE)))
    for quote in Envelope.of(prompt.last_answer(SEARCH)[1]).quotes:
        found, named = SEARCHED_FACT.search(quote.text), quote.named
        if found and named:
            notes.searched_fact = found.groups()
            notes.searched_id, notes.searched_iteration = named
            yield from _pages(notes.searched_id, lost=True)
            return


def _from_the_registry(prompt: Prompt, notes: Notes) -> Script:
    """Find an old result's id in the registry, look around a pattern, then turn all its pages."""
    notes.hidden["fact"] = not prompt.holds(FACT)
    named = [line for line in prompt.registry() if line.tool == "read_file" and LONG_FILE in line.arguments]
    if not named:
        yield Turn("The registry does not name it.", (begin(FIRST_MORE + 1),))
        return
    notes.fact_id = max(named, key=lambda line: line.size).id
    prompt = yield Turn(
        "The registry still has it.", (_recall(notes.fact_id, pattern=r"default to interleave|interleave = \d"),)
    )
    if found := FACT.search(Envelope.of(prompt.last_answer(RECALL)[1]).quoted):
        notes.fact = found.groups()
    yield from _pages(notes.fact_id)


def _from_an_elided_middle(prompt: Prompt, notes: Notes) -> Script:
    """Find a fresh result's id in the label that stands in its middle."""
    call_id, shown = prompt.last_answer("read_file")
    notes.hidden["other_fact"] = not OTHER_FACT.search(shown)
    notes.other_id = prompt.label_in_result(call_id)
    if not notes.other_id:
        return
    prompt = yield Turn(
        "Its middle is elided; the label there has an id.", (_recall(notes.other_id, pattern=r"_sigint_wait_secs = "),)
    )
    if found := OTHER_FACT.search(Envelope.of(prompt.last_answer(RECALL)[1]).quoted):
        notes.other_fact = found.groups()


def _pages(stash_id: str, *, lost: bool = False) -> Script:
    """Recall an item from its first page to its last; the first answer may be lost on its way."""
    offset: int | None = 0
    while offset is not None:
        page = Call(RECALL, {"id": stash_id, "offset": offset}, lost=lost and not offset)
        prompt = yield Turn("On." if offset else "For the record.", (page,))
        offset = Envelope.of(prompt.last_answer(RECALL)[1]).next_offset


def _ticked_off(prompt: Prompt) -> Script:
    """Tick off what the agent says is still open, and stop for good."""
    text = _last_text(prompt)
    if REMINDER in text:
        yield Turn("It is done, I forgot to say so.", tuple(done(int(number)) for number in _NUMBERED.findall(text)))
        yield Turn("Now everything is done; the three facts are above.")


def _last_text(prompt: Prompt) -> str:
    """The user's last words."""
    return next((str(message["content"]) for message in reversed(prompt.messages) if message["role"] == "user"), "")


def _recall(stash_id: str, **more: str) -> Call:
    return Call(RECALL, {"id": stash_id} | more)


def _strangers_log(neighbour_id: str) -> Call:
    return Call("run_python", {"arguments": stranger.command(neighbour_id)}, "a stranger's test log")
