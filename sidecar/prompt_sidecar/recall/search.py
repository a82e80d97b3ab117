"""Search of a run's history: a query in, snippets out, best first, within limits that hold for any history.

Theory. A search has four steps. Waiting items are indexed, as far as its time allows; if some are left, the answer says
how many, and where, and never claims that something does not exist. Items whose stash id or call id the query names
come first; after them items by their best passage (BM25), of equals the newest. One item after another is then read and
cut to a snippet, until there are as many as requested, or their tokens are used up. Last, all is rendered and counted
as a whole; an excess is cut from the last snippet.

Items that are whole in the prompt come last, except those that the query names. Items that only this rule has moved out
of the answer are listed at its end, a line with the place of each.

So the cost depends on what is shown, not on how much matches. Only the same text in many items is read beyond that, to
be shown once; that has bounds of its own. An original that expired or was evicted cannot be shown: it is skipped and
counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.recall.analysis import query_terms
from prompt_sidecar.recall.envelope import HEAD_TOKENS, IN_PROMPT_TOKENS, QUOTE_TOKENS, render_found
from prompt_sidecar.recall.found import (
    MOST_SNIPPET_TOKENS,
    MOST_SNIPPETS,
    MOST_TOTAL_TOKENS,
    InPrompt,
    SearchLimits,
    SearchOutcome,
    SearchQuery,
    SearchResult,
    Snippet,
)
from prompt_sidecar.recall.history import History, Unindexed
from prompt_sidecar.recall.index import Hit
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.recall.ranking import RankedItem, Ranking, ranked, weigh
from prompt_sidecar.recall.snippets import WINDOW_BYTES_PER_TOKEN, Range, SnippetRange, anchor, cut, neighbourhood

LEAST_SNIPPET_TOKENS: Final = 16
"""Least tokens of a requested snippet: any character fits, as in a page of a retrieval."""
LEAST_TOTAL_TOKENS: Final = 256
"""Least tokens of a requested answer: the sentence, one header and a line or two."""
LEAST_SHOWN_TOKENS: Final = 24
"""Least tokens that a snippet is shortened to: a line of code."""
FAIR_TOKENS: Final = 64
"""Least tokens of each snippet, a few lines of code: rather than less, fewer snippets are shown."""
MESSAGE_TOKENS: Final = 48
"""Estimated tokens of the sentence."""
UNINDEXED_TOKENS: Final = 32
"""Estimated tokens of a sentence on what is not indexed."""
IN_PROMPT_SHARE: Final = 5
"""Divisor of an answer's tokens that bounds the lines about items in the prompt; the rest is for snippets."""
ELSEWHERE: Final = 3
"""Most other places of an item that the line above its snippet names."""
LINE_TOKENS: Final = 4
"""Estimated tokens of one of these numbers, and its part of the words before."""
REPEATS: Final = 1_000
"""Items with an already shown text that one search looks at; the rest is not counted."""
REPEAT_BYTES: Final = 16_777_216
"""Bytes of originals read for them: some 30 ms."""


Held = Sequence[tuple[Range, AbstractSet[str]]]
"""An item's passages, each with its terms of the query."""


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Limits of one answer."""

    snippets: int
    snippet_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class _Facts:
    """Facts for the sentence of an answer, in addition to the result."""

    exact: bool
    filtered: bool
    """Whether there is a filter other than by iterations, which the sentence then mentions."""
    searchable: bool
    indexed_from: int
    last_iteration: int


@dataclass(slots=True)
class _SnippetsSoFar:
    """The snippets so far, and the state for cutting more."""

    history: History
    weights: Mapping[str, float]
    bounds: _Bounds
    count: Callable[[str], int]
    snippets: list[Snippet] = field(default_factory=list)
    passages: set[bytes] = field(default_factory=set)
    """The best passage of each snippet."""
    windows: dict[bytes, int] = field(default_factory=dict)
    """Index of the snippet that was cut from these bytes."""
    texts: dict[str, int] = field(default_factory=dict)
    used: int = MESSAGE_TOKENS + HEAD_TOKENS
    gone: int = 0
    again: int = 0
    """Items that were read without a new snippet, and their bytes."""
    again_bytes: int = 0

    @property
    def full(self) -> bool:
        """Whether there are as many snippets as requested."""
        return len(self.snippets) == self.bounds.snippets

    @property
    def exhausted(self) -> bool:
        """Whether the limits for items without a new snippet are reached."""
        return self.again >= REPEATS or self.again_bytes >= REPEAT_BYTES

    def room(self, matching: int) -> int:
        """Return the tokens of the next snippet, so that the remaining ones have room too."""
        left = self.bounds.total_tokens - self.used
        coming = min(self.bounds.snippets, matching) - len(self.snippets)
        coming = max(1, min(coming, left // (FAIR_TOKENS + QUOTE_TOKENS)))
        return min(self.bounds.snippet_tokens, left // coming - QUOTE_TOKENS)

    def show(self, candidate: RankedItem, room: int) -> bool | None:
        """Cut and keep a snippet.

        Returns True if done, False if there is nothing new to show, None if there is no room.
        """
        item = candidate.item
        original = self.history.read([item.stash_id]).get(item.stash_id) if candidate.alive else None
        if original is None:
            self.gone += not self.full
            return False
        if len(original) != item.size:
            item = item._replace(size=len(original))
        hit = candidate.hit
        passage = original[hit.start : hit.end] if hit else b""
        known = None
        if not self.full or passage in self.passages:
            held = self.history.holding(candidate.number, self.weights) if hit else []
            best = self._best(hit, original, held)
            within = self._within(candidate, original, best)
            window = original[slice(*within)]
            known = self.windows.get(window)
            if known is None and not self.full:
                if room < min(LEAST_SHOWN_TOKENS, self.bounds.snippet_tokens):
                    return None
                around = anchor(original, item.content_type, best, self.weights, room) if hit else best
                made = cut(original, within, around, room, self.count)
                known = self.texts.get(made.text)
                if known is None:
                    self.windows[window] = self.texts[made.text] = len(self.snippets)
                    self.passages.add(passage)
                    elsewhere = self._elsewhere(original, held, made)
                    self.used += made.tokens + QUOTE_TOKENS + LINE_TOKENS * len(elsewhere)
                    self.snippets.append(_snippet(item, made, candidate.score, elsewhere))
                    return True
        self.again += 1
        self.again_bytes += len(original)
        if known is not None:
            self.snippets[known] = replace(self.snippets[known], repeats=self.snippets[known].repeats + 1)
        return False

    def _best(self, hit: Hit | None, original: bytes, held: Held) -> Range:
        """Return the passage with the most of the query's words by weight; of equal ones the best by its score."""
        if hit is None:
            return 0, 0
        own = (hit.start, hit.end)
        weights = {passage: self._weight(terms) for passage, terms in held}
        start, end = max(weights, key=lambda passage: (weights[passage], passage == own), default=own)
        return min(start, len(original)), min(end, len(original))

    def _weight(self, terms: AbstractSet[str]) -> float:
        return math.fsum(self.weights[term] for term in terms)

    def _elsewhere(self, original: bytes, held: Held, made: SnippetRange) -> tuple[int, ...]:
        """Return first lines of the other passages with the most of the query's words, at most a few, in order.

        Those with words that the shown passages lack come first.
        """
        shown: set[str] = set()
        others: list[tuple[Range, AbstractSet[str]]] = []
        for passage, terms in held:
            if passage[0] < made.end and made.start < passage[1]:
                shown |= terms
            elif terms:
                others.append((passage, terms))
        others.sort(key=lambda other: (-self._weight(other[1] - shown), -self._weight(other[1]), other[0]))
        starts = sorted(passage[0] for passage, _ in others[:ELSEWHERE])
        return tuple(dict.fromkeys(1 + original.count(b"\n", 0, start) for start in starts))

    def _within(self, candidate: RankedItem, original: bytes, best: Range) -> Range:
        """Return the bytes that a snippet is cut from."""
        tokens = self.bounds.snippet_tokens
        if candidate.hit is None:
            return 0, min(len(original), tokens * WINDOW_BYTES_PER_TOKEN)
        passages = self.history.passages_of(candidate.number)
        return neighbourhood(original, candidate.item.content_type, passages, best, self.weights, tokens)


def search(
    history: History,
    query: SearchQuery,
    limits: SearchLimits,
    *,
    last_iteration: int,
    count: Callable[[str], int],
    nonce: Callable[[], str],
    check: Callable[[], None],
    enough: Callable[[], bool] = lambda: False,
    visible: AbstractSet[str] = frozenset(),
) -> SearchResult:
    """Search a run's history.

    `visible` has the ids of the items that are whole in the last returned prompt. They come after all others; those
    that would otherwise have been shown are listed with their place, in addition. `last_iteration` is the run's newest;
    `count` gives the tokens of a text, `nonce` a few random letters or digits for the fences. `check` is called between
    steps and may raise, for a deadline: what was indexed stays indexed. When `enough` returns true, indexing stops and
    the indexed part is searched; the next search continues from there.

    Raises InvalidRequest, naming the field, for an empty or too long query or a number out of its bounds.
    """
    bounds = _bounds(query, limits)
    end = history.finish(check, enough)
    rebuilds = history.rebuilds
    left = history.unindexed(query, end, rebuilds)  # before anything is looked up: items indexed meanwhile are missed
    terms = query_terms(query.query)
    weights, left_out = weigh(history, terms, limits.query_terms)
    ranking = Ranking()
    shown = _SnippetsSoFar(history, weights, bounds, count)
    shown.used += UNINDEXED_TOKENS * bool(left.items)
    least = (False, -math.inf)
    shortened = started = False
    in_prompt: Sequence[InPrompt] = ()
    for candidate in ranked(history, query, weights, ranking, check, visible):
        check()
        if not started:
            lines = bounds.total_tokens // (IN_PROMPT_SHARE * IN_PROMPT_TOKENS)
            every, started = _in_prompt(history, ranking.regardless, bounds.snippets), True
            in_prompt, shortened = every[:lines], len(every) > lines
            shown.used += IN_PROMPT_TOKENS * max(0, len(in_prompt) - max(0, bounds.snippets - ranking.hidden))
        if shown.exhausted or (shown.full and candidate.rank < least):
            break
        added = shown.show(candidate, shown.room(ranking.matching))
        if added is None:
            shortened = True
            break
        if added:
            least = candidate.rank
    # Another thread may have dropped the index, for lack of memory, during this search.
    dropped = history.unindexed(query, end, rebuilds)
    left = dropped if dropped.items > left.items else left
    begins, ends = _searched(
        max(history.first_iteration, query.first_iteration),
        min(query.last_iteration or last_iteration, last_iteration),
        left,
    )
    found = SearchResult(
        outcome=SearchOutcome.FOUND if ranking.matching else SearchOutcome.NOTHING_FOUND,
        message="",
        snippets=shown.snippets,
        in_prompt=_not_shown(in_prompt, shown.snippets),
        matching_items=ranking.matching,
        first_iteration=begins,
        last_iteration=ends,
        gone_items=shown.gone,
        terms_left_out=left_out,
        not_indexed_items=left.items,
        first_not_indexed_iteration=left.first_iteration,
        last_not_indexed_iteration=left.last_iteration,
    )
    facts = _Facts(
        exact=ranking.exact,
        filtered=bool(query.roles or query.tools or query.stash_ids),
        searchable=bool(terms or ranking.seen),
        indexed_from=history.first_iteration,
        last_iteration=last_iteration,
    )
    while True:
        message = _message(found, facts)
        rendered = render_found(
            found.snippets, found.in_prompt, total=found.matching_items, message=message, nonce=nonce
        )
        tokens = count(rendered)
        if tokens <= bounds.total_tokens or not (found.snippets or found.in_prompt):
            return replace(found, message=message, rendered=rendered, rendered_tokens=tokens, shortened=shortened)
        shortened = True
        if not found.snippets:
            found = replace(found, in_prompt=found.in_prompt[:-1])
            continue
        *kept, last = found.snippets
        room = last.tokens - (tokens - bounds.total_tokens)
        shorter = [_shortened(last, weights, room, count)] if room >= LEAST_SHOWN_TOKENS else []
        found = replace(found, snippets=kept + shorter)


def _searched(first: int, last: int, left: Unindexed) -> tuple[int, int]:
    """Return the longer stretch of completely searched iterations, before or after the unindexed ones.

    If there is none, the first is greater than the last.
    """
    if not left.items or first > last:
        return first, last
    before = min(last, left.first_iteration - 1)
    after = last + 1 if left.newest else max(first, left.last_iteration + 1)
    return (first, before) if before - first >= last - after else (after, last)


def _in_prompt(history: History, candidates: Sequence[RankedItem], most: int) -> list[InPrompt]:
    """Return those of the first `most` candidates that are visible, with the lines of their best passages."""
    visible = [one for one in [one for one in candidates if one.alive][:most] if one.visible and one.hit]
    originals = history.read([one.item.stash_id for one in visible])
    found = []
    for candidate in visible:
        original, hit = originals.get(candidate.item.stash_id), candidate.hit
        if original is not None and hit is not None:
            first = 1 + original.count(b"\n", 0, hit.start)
            last = first + original.count(b"\n", hit.start, max(hit.start, hit.end - 1))
            found.append(InPrompt(candidate.item, first, last))
    return found


def _not_shown(in_prompt: Sequence[InPrompt], snippets: Sequence[Snippet]) -> list[InPrompt]:
    """Return the items in the prompt that are not among the snippets, which may show some for want of others."""
    shown = {snippet.item.stash_id for snippet in snippets}
    return [one for one in in_prompt if one.item.stash_id not in shown]


def _bounds(query: SearchQuery, limits: SearchLimits) -> _Bounds:
    size = len(query.query.encode("utf-8", "surrogatepass"))
    if not query.query.strip() or size > limits.query_bytes:
        what = "has no characters but blanks" if size <= limits.query_bytes else f"has {size:,} bytes"
        raise InvalidRequest(
            f"query {what}; accepted: words of 1 to {limits.query_bytes:,} bytes",
            field="query",
            bound="search.query_bytes" if size > limits.query_bytes else "",
        )
    _within("max_snippets", query.max_snippets, 1, MOST_SNIPPETS)
    _within("snippet_tokens", query.snippet_tokens, LEAST_SNIPPET_TOKENS, MOST_SNIPPET_TOKENS)
    _within("total_tokens", query.total_tokens, LEAST_TOTAL_TOKENS, MOST_TOTAL_TOKENS)
    for name, value in (("first_iteration", query.first_iteration), ("last_iteration", query.last_iteration)):
        if value < 0:
            raise InvalidRequest(f"{name} is {value}; accepted: 1 or more, 0 for no bound", field=name)
    if 0 < query.last_iteration < query.first_iteration:
        raise InvalidRequest(
            f"last_iteration is {query.last_iteration}; accepted: {query.first_iteration} (first_iteration) or more, "
            "0 for the newest",
            field="last_iteration",
        )
    snippets = query.max_snippets or limits.max_snippets
    snippet_tokens = query.snippet_tokens or limits.snippet_tokens
    total = limits.total_tokens
    if snippets > limits.max_snippets or snippet_tokens > limits.snippet_tokens:
        total = max(total, min(snippets * snippet_tokens, MOST_TOTAL_TOKENS))
    return _Bounds(snippets, snippet_tokens, query.total_tokens or total)


def _within(name: str, value: int, least: int, most: int) -> None:
    if value != 0 and not least <= value <= most:
        raise InvalidRequest(
            f"{name} is {value}; accepted: {least} to {most:,}, 0 for the configured number", field=name
        )


def _snippet(item: HistoryItem, made: SnippetRange, score: float, elsewhere: tuple[int, ...]) -> Snippet:
    return Snippet(
        item=item,
        start_byte=made.start,
        end_byte=made.end,
        first_line=made.first_line,
        last_line=made.last_line,
        total_lines=made.total_lines,
        text=made.text,
        score=score,
        tokens=made.tokens,
        elsewhere=elsewhere,
    )


def _shortened(
    snippet: Snippet, weights: Mapping[str, float], most_tokens: int, count: Callable[[str], int]
) -> Snippet:
    """Return the snippet's part of at most this many tokens."""
    raw = snippet.text.encode()
    around = anchor(raw, snippet.item.content_type, (0, len(raw)), weights, most_tokens) if snippet.score else (0, 0)
    made = cut(raw, (0, len(raw)), around, most_tokens, count)
    return replace(
        snippet,
        start_byte=snippet.start_byte + made.start,
        end_byte=snippet.start_byte + made.end,
        first_line=snippet.first_line + made.first_line - 1,
        last_line=snippet.first_line + made.last_line - 1,
        text=made.text,
        tokens=made.tokens,
    )


def _message(found: SearchResult, facts: _Facts) -> str:
    """Return a few short sentences without text of the history."""
    first, last = found.first_iteration, found.last_iteration
    if first > last and found.not_indexed_items:
        searched = "no iteration was searched as a whole"
    elif first > last:
        searched = f"no such iteration is indexed, only {facts.indexed_from}-{facts.last_iteration}"
    else:
        searched = f"iterations {first}-{last}" if first < last else f"iteration {last}"
        searched += " within the filters" if facts.filtered else ""
        searched += " were searched" if first < last else " was searched"
    gone = ""
    if found.gone_items:
        which = "item that matches has" if found.gone_items == 1 else "items that match have"
        gone = f" {found.gone_items:,} {which} expired or been evicted, for good."
    left = _not_indexed(found)
    if found.outcome is SearchOutcome.NOTHING_FOUND:
        if not facts.searchable:
            return "Nothing found: the query has no word that is not too common to search for."
        if left:
            return f"Nothing found so far; {searched}.{gone}{left}"
        narrowed = facts.filtered or first > facts.indexed_from or last < facts.last_iteration
        wider = " or wider filters" if narrowed else ""
        return f"Nothing found; {searched}.{gone} The same query will find nothing again; other words{wider} might."
    about = "" if facts.exact else "about "
    shown = len(found.snippets)
    matching = f"{about}{found.matching_items:,} matching item{'' if found.matching_items == 1 else 's'}"
    room = "" if shown else ", for want of room"
    left_out = ""
    if found.terms_left_out:
        left_out = f" The rarest terms of the query counted; {found.terms_left_out:,} more did not."
    so_far = " so far" if left else ""
    return f"{shown} of {matching} shown{room}{so_far}; {searched}.{gone}{left_out}{left}"


def _not_indexed(found: SearchResult) -> str:
    """Return a sentence on what was not searched; empty if everything was."""
    if not found.not_indexed_items:
        return ""
    first, last = found.first_not_indexed_iteration, found.last_not_indexed_iteration
    items = "1 item" if found.not_indexed_items == 1 else f"{found.not_indexed_items:,} items"
    where = f"iterations {first}-{last}" if first < last else f"iteration {last}"
    verb, them = ("is", "it") if found.not_indexed_items == 1 else ("are", "them")
    return f" {items} of {where} {verb} not indexed yet: search again to search {them} too."
