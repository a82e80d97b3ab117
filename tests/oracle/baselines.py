"""Two plain strategies to measure the sidecar against, and the ruler for all three.

`Control` is the plain way to keep a provider's cache warm: remember the cut, and when the prompt passes the limit drop
the oldest groups down to half of it. `trim_every_call` is the plain way to lose it: drop the oldest groups just to the
limit, afresh at each call. Both keep what the sidecar keeps: the system prompt, the opening user messages and the
newest call. What they drop is gone.

The ruler: a provider charges a token of a prefix that it has cached 0.1 of the price of a plain one, and a token that
it writes to the cache 1.25 (Anthropic's price list for the five-minute cache).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CACHE_READ = 0.1
CACHE_WRITE = 1.25
LOW_WATER = 0.5
"""Share of the limit that `Control` drops to."""

Entry = tuple[bytes, int]
"""A message as the ruler sees it: the digest of its bytes and its tokens."""


@dataclass(frozen=True, slots=True)
class Sized:
    """A message of a sent prompt: its entry, and whether an assistant message, which opens a group."""

    entry: Entry
    opens: bool


@dataclass(slots=True)
class Control:
    """Drops oldest groups from the limit to half of it, and remembers the cut from call to call."""

    limit: int
    dropped: int = 0
    """Groups dropped so far."""

    def prompt(self, sent: Sequence[Sized]) -> list[Entry]:
        """Return the entries that stay of a prompt."""
        head, groups = _grouped(sent)
        if _tokens(head) + sum(map(_tokens, groups[self.dropped :])) > self.limit:
            self.dropped = _cut(head, groups, int(self.limit * LOW_WATER), self.dropped)
        return head + [entry for group in groups[self.dropped :] for entry in group]


def trim_every_call(sent: Sequence[Sized], limit: int) -> list[Entry]:
    """Return the entries that stay when the oldest groups are dropped to the limit, with no memory of earlier calls."""
    head, groups = _grouped(sent)
    return head + [entry for group in groups[_cut(head, groups, limit, 0) :] for entry in group]


def kept_prefix(previous: Sequence[Entry], current: Sequence[Entry]) -> int:
    """Return how many entries `current` begins with that `previous` begins with as well."""
    kept = 0
    for old, new in zip(previous, current, strict=False):
        if old != new:
            break
        kept += 1
    return kept


def cost(prompts: Sequence[Sequence[Entry]]) -> float:
    """Return what the prompts of a run cost, in prices of one plain token."""
    total = 0.0
    previous: Sequence[Entry] = []
    for prompt in prompts:
        kept = kept_prefix(previous, prompt)
        total += CACHE_READ * _tokens(prompt[:kept]) + CACHE_WRITE * _tokens(prompt[kept:])
        previous = prompt
    return total


def cost_of(prompts: Sequence[Sequence[Entry]], own: Sequence[frozenset[int]]) -> float:
    """Return the part of `cost` that falls to some entries: for each prompt, the places of those."""
    total = 0.0
    previous: Sequence[Entry] = []
    for prompt, places in zip(prompts, own, strict=True):
        kept = kept_prefix(previous, prompt)
        total += sum((CACHE_READ if place < kept else CACHE_WRITE) * prompt[place][1] for place in places)
        previous = prompt
    return total


def _grouped(sent: Sequence[Sized]) -> tuple[list[Entry], list[list[Entry]]]:
    head: list[Entry] = []
    groups: list[list[Entry]] = []
    for message in sent:
        if message.opens:
            groups.append([])
        (groups[-1] if groups else head).append(message.entry)
    return head, groups


def _cut(head: Sequence[Entry], groups: Sequence[Sequence[Entry]], goal: int, dropped: int) -> int:
    """Return how many groups to drop to come to `goal`; the newest always stays."""
    total = _tokens(head) + sum(map(_tokens, groups[dropped:]))
    while total > goal and dropped < len(groups) - 1:
        total -= _tokens(groups[dropped])
        dropped += 1
    return dropped


def _tokens(entries: Sequence[Entry]) -> int:
    return sum(tokens for _, tokens in entries)
