"""The strategies: each makes a run's prompts, one for each turn, within a limit.

The sidecar, the control and observation masking run in this process and in the run's own format. Peers run in
environments of their own (`tests.lab.peers`), on the run in chat completions' form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from tests.conformance.conversations import ANTHROPIC, GEMINI, RESPONSES
from tests.lab.evidence.core import PRIMING, Hit, Trimmer
from tests.lab.evidence.recordings import CHAT, MODELS
from tests.lab.evidence.ruler import Prompt, Ruler
from tests.lab.harness.environments import Unavailable, cache_folder, environment
from tests.lab.peers.peers import PEERS, run_peer
from tests.oracle.baselines import Control, Sized
from tests.oracle.runs import Run, dumps

Search = Callable[[str], Sequence[Hit]]
"""The first snippets that a search of the history finds, the best first."""

CONTROL = "control"
NEVER = "never-trimming"
MASKING = "observation-masking"
PLAIN = (CONTROL, MASKING, NEVER)
PEER_ROWS = {peer.key: peer for peer in reversed(PEERS)}
"""For each peer its first row."""
PEER_NAMES = ("langchain", "agent-framework", "headroom")

MASKED_AFTER = 10
"""Turns whose results stay whole: the window of "The Complexity Trap" (Lindenbauer and others, 2025)."""
MASK = "Previous {} lines omitted for brevity."


@dataclass(frozen=True, slots=True)
class Contender:
    """A strategy by name; a preset with overrides is the sidecar."""

    name: str
    preset: str = ""
    """Empty: not the sidecar."""
    policy: Mapping[str, object] = field(default_factory=dict)

    @property
    def ours(self) -> bool:
        """Whether it is the sidecar."""
        return bool(self.preset)

    @property
    def in_chat(self) -> bool:
        """Whether it reads chat completions only."""
        return self.name in PEER_NAMES


def prompts_of(contender: Contender, ruler: Ruler, limit: int) -> Iterator[tuple[Prompt, Search | None]]:
    """Yield for each turn the prompt, and the search that the model has besides, as of then.

    Raises:
        Unavailable: a peer cannot be measured here.
    """
    if contender.ours:
        return _ours(contender, ruler, limit)
    made = {CONTROL: _control, MASKING: _masking, NEVER: _never}.get(contender.name)
    prompts = made(ruler, limit) if made else _peer(contender.name, ruler, limit)
    return ((prompt, None) for prompt in prompts)


def _ours(contender: Contender, ruler: Ruler, limit: int) -> Iterator[tuple[Prompt, Search | None]]:
    run = ruler.run
    engine = Trimmer(run.format, MODELS[run.format], limit, contender.preset, contender.policy)
    for start in run.starts:
        system, messages = run.split(engine.trim(run.body(ruler.slices[:start])))
        head = [ruler.piece(raw, system=True) for raw in system]
        yield (*head, *map(ruler.piece, messages)), engine.search


def _never(ruler: Ruler, _: int) -> Iterator[Prompt]:
    return (ruler.prompt(turn) for turn in range(len(ruler.run.starts)))


def _control(ruler: Ruler, limit: int) -> Iterator[Prompt]:
    """Drop the oldest groups from the limit to half of it, and remember the cut."""
    control = Control(limit - PRIMING)
    starts = set(ruler.run.starts)
    sized = [
        Sized((str(number).encode(), ruler.pieces[number].tokens), opens=place - ruler.head in starts)
        for place, number in enumerate(ruler.sent)
    ]
    for start in ruler.run.starts:
        yield tuple(int(digest) for digest, _ in control.prompt(sized[: ruler.head + start]))


def _masking(ruler: Ruler, _: int) -> Iterator[Prompt]:
    """Replace the results of all but the newest turns by a line, at each call; the limit plays no part."""
    run = ruler.run
    masked = [ruler.piece(dumps(mask(run.format, message))) for message in run.messages]
    for turn in range(len(run.starts)):
        old = run.starts[max(turn - MASKED_AFTER, 0)]
        prompt = ruler.prompt(turn)
        yield (*prompt[: ruler.head], *masked[:old], *prompt[ruler.head + old :])


def mask(format: str, message: Any) -> Any:
    """Return a message with its tool results replaced by a line; itself where it has none."""
    if format == CHAT:
        return {**message, "content": _line(message["content"])} if message.get("role") == "tool" else message
    if format == RESPONSES:
        return {**message, "output": _line(message["output"])} if "output" in message else message
    member = "content" if format == ANTHROPIC else "parts"
    blocks = message.get(member)
    if not isinstance(blocks, list):
        return message
    return {**message, member: [_masked_block(format, block) for block in blocks]}


def _masked_block(format: str, block: Mapping[str, Any]) -> Mapping[str, Any]:
    if format == GEMINI and "functionResponse" in block:
        response = block["functionResponse"]
        return {**block, "functionResponse": {**response, "response": {"output": _line(response.get("response"))}}}
    if block.get("type") == "tool_result":
        return {**block, "content": _line(block.get("content"))}
    return block


def _line(content: object) -> str:
    text = content if isinstance(content, str) else json.dumps(content, indent=0)
    return MASK.format(text.count("\n") + 1)


@dataclass(slots=True)
class _Material:
    """A run as the peers' bench takes it."""

    ruler: Ruler
    run: Run = field(init=False)
    lengths: Sequence[int] = field(init=False)
    numbers: dict[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        own = self.ruler.run
        self.run = Run(own.name, own.format, own.messages)
        self.lengths = own.starts

    def piece(self, raw: bytes, *, system: bool = False) -> bytes:
        """Take in a piece of a prompt as JSON, and return its digest."""
        digest = sha256(raw).digest()
        self.numbers[digest] = self.ruler.piece(raw, system=system)
        return digest


def _peer(key: str, ruler: Ruler, limit: int) -> Iterator[Prompt]:
    material = _Material(ruler)
    outcome = run_peer(PEER_ROWS[key], environment(key, cache_folder()), material, limit)
    if outcome.failure:
        raise Unavailable(outcome.failure)
    return (tuple(map(material.numbers.__getitem__, turn)) for turn in outcome.turns)
