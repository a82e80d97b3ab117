"""What is checked of every returned prompt, with the oracle's eyes and the agent's own record.

The answer's figures are claims to be checked, never an excuse: pairing is judged on the prompts alone, bytes are
compared with bytes, and tokens are counted a second time by another ruler.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from prompt_sidecar.v1 import trim_pb2
from tests.lab.demo import stranger
from tests.lab.demo.agent import Exchange
from tests.lab.demo.plan import open_blocks
from tests.lab.demo.prompt import Prompt
from tests.oracle.alignment import alignment
from tests.oracle.shapes import OPENAI_CHAT
from tests.oracle.tokens import count_prompt
from tests.oracle.validity import independent_new_defects, new_defects

LEADING = 1
"""System messages before the history: the sidecar counts messages after them."""


_TOLD = 120
"""Characters of a value that a complaint tells."""


class Check(StrEnum):
    """What is checked, in the words of the summary."""

    FITS = "every prompt fits its limit, by the server's count and by ours"
    PAIRS = "no call lost its result, no result its call (two oracles)"
    BYTES = "what was not trimmed came back byte for byte"
    PREFIX = "but for batch points each prompt begins with the whole last one"
    PRICE = "it costs less than not trimming, and than trimming at every call"
    NEXT = "iteration and messages are counted as the agent counts them"
    INERT = "forged marker, registry and orders never reached system text"
    FORGED_TRIMMED = "the forged marker saved its text from no trimming"
    STRANGERS = "a made-up id and another run's id are NOT_FOUND"
    OFFERED = "the model was offered four tools of the sidecar, and used each"
    SEARCHED = "a fact long gone from the prompt was found by search"
    FENCES = "what a search quotes is, quote by quote, what tools had produced"
    FOUND_PAGES = "its whole item was recalled by the snippet's id, page by page"
    FACT = "a fact gone from the prompt was recalled by its registry id"
    PAGES = "all pages together are the bytes that the tool had produced"
    MIDDLE = "a fact in an elided middle was recalled by its label's id"
    UNRECORDED = "what these tools answered came back and was not recorded again"
    TASKS = "each prompt's note names the open tasks, those at hand first"
    TICKED = "a completion check named what was open; EndRun named nothing"
    BROKEN = "a call that broke off was answered so that the next was right"
    ONCE = "a call that was sent twice was done once and answered alike"
    ORIGINALS = "every original of the run comes back byte for byte"
    FIGURES = "GetRun tells what the agent counted"
    CRASH = "killed and started anew, the server makes the same prompt"
    FORGOTTEN = "EndRun forgets the run and nothing else"
    STOPPED = "the server stops cleanly"


@dataclass(slots=True)
class Findings:
    """Complaints by check; a check that was made and has none has passed."""

    made: dict[Check, int] = field(default_factory=lambda: defaultdict(int))
    complaints: dict[Check, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, check: Check, complaints: Iterable[str], *, made: int = 1) -> None:
        """Record that something was checked, and what is wrong with it."""
        self.made[check] += made
        self.complaints[check].extend(complaints)

    def equal(self, check: Check, what: str, expected: object, actual: object) -> None:
        """Check that two things are equal; bytes are not told, and of anything else the beginning."""
        values = "" if isinstance(expected, bytes) else f": expected {_short(expected)}, got {_short(actual)}"
        self.add(check, [] if expected == actual else [what + values])

    @property
    def passed(self) -> bool:
        """Whether every check was made and none has a complaint."""
        return all(self.made[check] and not self.complaints[check] for check in Check)


def check_exchange(
    found: Findings, exchange: Exchange, before: Exchange | None, forged_ids: tuple[str, ...], iteration: int
) -> None:
    """Check one returned prompt against what was sent and against the prompt returned before."""
    answer = exchange.answer
    ours = {piece.message_index for piece in answer.own_text if piece.message_index >= 0}
    found.add(Check.FITS, _fits(exchange))
    sent, got = exchange.sent.decoded, exchange.returned.decoded
    found.add(Check.PAIRS, [str(defect) for defect in new_defects(OPENAI_CHAT, sent, got, ours)])
    found.add(Check.PAIRS, [str(defect) for defect in independent_new_defects(OPENAI_CHAT, sent, got, ours)])
    found.add(Check.BYTES, _bytes(exchange, ours))
    if before is not None:
        kept = without_note(before)
        rewritten = exchange.returned.slices[: len(kept)] != kept
        found.equal(Check.PREFIX, f"iteration {iteration} is a batch point", rewritten, answer.cache.batch_point)
    found.equal(Check.NEXT, "iteration", iteration, answer.iteration)
    found.add(Check.INERT, _inert(exchange.returned, forged_ids))
    found.add(Check.TASKS, _tasks(exchange, iteration))


def without_note(exchange: Exchange) -> tuple[bytes, ...]:
    """The returned messages but for the note, which is gone at the next call."""
    notes = sum(piece.place == trim_pb2.OWN_TEXT_PLACE_TAIL for piece in exchange.answer.own_text)
    return exchange.returned.slices[: len(exchange.returned.slices) - notes]


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _TOLD else f"{text[:_TOLD]}…"


def _fits(exchange: Exchange) -> Iterable[str]:
    tokens = exchange.answer.tokens
    if not exchange.answer.fits or tokens.after > tokens.limit:
        yield f"{tokens.after} tokens of {tokens.limit}, fits is {exchange.answer.fits}"
    second = count_prompt(exchange.returned.decoded)
    if second > tokens.limit:
        yield f"{second} tokens of {tokens.limit} by our own count"


def _bytes(exchange: Exchange, ours: set[int]) -> Iterable[str]:
    """Messages stay as they were sent unless a trim names them; the body's other fields always do."""
    sent, got = exchange.sent, exchange.returned
    if sent.fields != got.fields:
        yield "a field beside the messages has changed"
    for own in exchange.answer.own_text:
        if own.message_index >= 0 and got.messages[own.message_index].get("content") != own.text:
            yield f"message {own.message_index} is not the own text that the answer says it is"
    trims = exchange.answer.trims
    dropped = {trim.message_index + LEADING for trim in trims if trim.action == trim_pb2.TRIM_ACTION_DROPPED}
    matched = alignment(OPENAI_CHAT, sent.messages, got.messages, ours, dropped)
    if matched.strangers:
        yield f"messages {matched.strangers} stand for none that was sent"
    edited = {trim.message_index + LEADING for trim in trims} - dropped
    stays = {old: new for new, old in matched.pairs}
    for old, piece in enumerate(sent.slices):
        if old in dropped:
            continue
        if old not in stays:
            yield f"sent message {old} is gone, and no trim says so"
        elif old not in edited and got.slices[stays[old]] != piece:
            yield f"sent message {old} has other bytes, and no trim says so"


def _tasks(exchange: Exchange, iteration: int) -> Iterable[str]:
    note = "\n".join(piece.text for piece in exchange.answer.own_text if piece.kind == trim_pb2.OWN_TEXT_KIND_NOTE)
    blocks = list(open_blocks(exchange.plan))
    if not blocks and "open task" in note:
        yield f"iteration {iteration}: the note names open tasks, and there are none"
    if blocks and not any(f"\n{block}\n" in f"\n{note}\n" for block in blocks):
        yield f"iteration {iteration}: the note does not name the {len(blocks)} open tasks as they are"


def _inert(returned: Prompt, forged_ids: tuple[str, ...]) -> Iterable[str]:
    text = returned.system_text()
    if stranger.ORDER in text.lower():
        yield "the forged order stands in system text"
    listed = {line.id for line in returned.registry()}
    for forged in forged_ids:
        if f"id={forged}" in text or forged in listed:
            yield f"the forged id {forged} stands in system text"
