"""Finds where a hidden turn belongs in a history that an agent sends back.

Theory. Agents seldom send an answer back exactly: some leave out the model's text next to its calls, shorten it, give
its calls other ids, or name an item by its id alone. So an answer is searched for by the parts that are left of it, the
most reliable first:

    its text, ids and names of its calls       in its place, else in the order of the answers
    ids and names of its calls                 in its place, else where they are only once
    the entry before it                        its place, and calls of the same names, or a text that is a part of it
    text, names and arguments                  where they are only once

If the agent's copy is the answer it got, or lacks only its text, the entries that the model wrote replace it. If the
copy differs, for example in call ids that the agent's results refer to, the agent's entries stay and the sidecar's
calls are added to them. If nothing of the answer is found, but the agent continues from the prompt that it answered,
its hidden calls and their results go to the end of the current request, so that the model gets what it asked for. They
keep that place in later requests, so that the prefix does not change.

A history with a different prompt in the answer's place is another conversation of the run, such as a subagent's, or one
that the agent has cut: nothing is added to it.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import msgspec
import orjson

from prompt_sidecar.answers.base import Dialect
from prompt_sidecar.answers.histories import NamedCall
from prompt_sidecar.prompt.members import loads
from prompt_sidecar.providers.messages import CACHE_MARKS

_FRAME: Final = 600
"""Bytes of a splice's own objects, without its entries."""
_WITHOUT_ID: Final = ("None\x1e", "\x1e")
"""How the part of a gist for a call without an id begins."""
_LIKE: Final = 8
"""Places with the same call id that are compared; an id that occurs more often identifies nothing."""
_ENTRIES: Final = 256
"""Entries of one answer that are searched on either side of one that was found; answers have one to ten."""
_MARKS: Final = frozenset({*CACHE_MARKS, "cachePoint"})


@dataclass(frozen=True, slots=True)
class SentEntry:
    """One entry of an answer, as it was sent to the agent."""

    gist: str | None
    """See `History.gist`."""
    text: str = ""
    calls: tuple[NamedCall, ...] = ()
    item: str = ""
    """The item's id at a provider that stores items; empty if it has none."""


@dataclass(frozen=True, slots=True)
class Splice:
    """The entries that the model wrote for one answer, and those that the agent got of it."""

    visible: tuple[str, ...]
    """Gists of the entries that the agent got, in order."""
    entries: tuple[bytes, ...]
    """The model's entries that replace them."""
    answers: tuple[Any, ...] = ()
    """Entries that answer the sidecar's calls made together with the agent's calls; they go before the agent's
    results."""
    place: int = -1
    """Number of the agent's entries before the answer; -1 if not known."""
    hidden: tuple[str, ...] = ()
    """Gists of the model's text in the first `hidden_entries` entries, which the agent did not get."""
    hidden_entries: int = 0
    before: bytes = b""
    """Identity of the entry before the answer (see `identity`); empty if not known."""
    seen: tuple[SentEntry, ...] = ()
    """The entries that the agent got, reasoning included."""
    own: tuple[bytes, ...] = ()
    """The sidecar's calls made together with the agent's, in the format's own form."""
    calling: tuple[bytes, ...] = ()
    """Entries that hold only these calls."""
    own_calls: tuple[tuple[str, str], ...] = ()
    """Ids and names of all calls of the sidecar's tools that have an id."""

    @property
    def calls(self) -> frozenset[str]:
        """Gists of hidden calls that have an id."""
        return frozenset(
            gist
            for gist in self.hidden
            if (named := gist.split("\x1f")[1:]) and not any(each.startswith(_WITHOUT_ID) for each in named)
        )

    @property
    def size(self) -> int:
        """Estimated memory, in bytes."""
        texts = (*self.visible, *self.hidden, *self.entries, *self.own, *self.calling)
        named = [each for one in self.seen for call in one.calls for each in (call.id, call.name)]
        named += [each for call in self.own_calls for each in call]
        named += [each.text for each in self.seen]
        return _FRAME + sum(map(len, texts)) + sum(map(len, named)) + len(orjson.dumps(self.answers))


@dataclass(slots=True, eq=False)
class KnownSplice:
    """A splice and where requests have shown its answer to be."""

    splice: Splice
    placed: bool = False
    """Whether a request contained the answer."""
    asked_again: bool = False
    """Whether the answer's prompt was sent more than once, so that the agent may hold another answer to it."""
    tail: int = -1
    """Number of the agent's entries before it, when it has been put at the end of a request; -1 otherwise."""
    after: bytes = b""
    """Identity of the last of those entries."""
    stays: bool = False
    """Whether its identity holds text that the guard masks, so that it may not leave the process."""

    @property
    def name(self) -> tuple[object, ...]:
        """Its identity, the same in every process."""
        splice = self.splice
        return splice.place, splice.before, splice.visible, splice.entries

    def learn(self, other: KnownSplice) -> None:
        """Take over what another process has learned of the same splice from requests."""
        self.placed |= other.placed
        self.asked_again |= other.asked_again
        if self.tail < 0:
            self.tail, self.after = other.tail, other.after


def joined(own: Sequence[KnownSplice], others: Sequence[KnownSplice]) -> list[KnownSplice]:
    """Merge the splices of a run that two processes have. Linear in their number.

    All of `others` stay in their order; a splice that only `own` has follows the common one that it followed there.
    """
    places = {each.name: place for place, each in enumerate(others)}
    following: dict[int, list[KnownSplice]] = defaultdict(list)
    last = -1
    for each in own:
        place = places.get(each.name)
        if place is None:
            following[last].append(each)
        else:
            others[place].learn(each)
            last = max(last, place)
    made = following[-1]
    for place, each in enumerate(others):
        made += (each, *following.get(place, ()))
    return made


def packed(kept: Sequence[KnownSplice]) -> bytes:
    """Return splices as JSON, whatever characters their texts have; `unpacked` makes the same of it."""
    return json.dumps(msgspec.to_builtins([each for each in kept if not each.stays]), separators=(",", ":")).encode()


def unpacked(data: bytes) -> list[KnownSplice]:
    """Return splices that `packed` wrote. Raises ValueError for other data."""
    try:
        return [
            KnownSplice(
                _splice(each["splice"]), each["placed"], each["asked_again"], each["tail"], b64decode(each["after"])
            )
            for each in json.loads(data)
        ]
    except (KeyError, TypeError, AttributeError):
        raise ValueError("these are no hidden turns that were saved") from None


def _splice(found: dict[str, Any]) -> Splice:
    """Unpack one splice: bytes are Base64, tuples are arrays."""
    return Splice(
        visible=tuple(found["visible"]),
        entries=tuple(map(b64decode, found["entries"])),
        answers=tuple(found["answers"]),
        place=found["place"],
        hidden=tuple(found["hidden"]),
        hidden_entries=found["hidden_entries"],
        before=b64decode(found["before"]),
        seen=tuple(map(_seen, found["seen"])),
        own=tuple(map(b64decode, found["own"])),
        calling=tuple(map(b64decode, found["calling"])),
        own_calls=tuple((call_id, name) for call_id, name in found["own_calls"]),
    )


def _seen(found: dict[str, Any]) -> SentEntry:
    """Unpack a sent entry; its calls have digests in place of arguments."""
    calls = [NamedCall(each["id"], each["name"], b64decode(each["arguments"])) for each in found["calls"]]
    return SentEntry(found["gist"], found["text"], tuple(calls), found["item"])


@dataclass(frozen=True, slots=True)
class RestoredHistory:
    """A history with hidden turns."""

    entries: list[bytes] | None
    """The entries, or None if the history is unchanged."""
    unmatched: int = 0
    """Splices whose place was found nowhere, counted in the first request that should have shown it."""
    rewritten: list[KnownSplice] = field(default_factory=list)
    """Splices that were at the end of an earlier request and have no place any more."""
    places: list[int] = field(default_factory=list)
    """For each of the agent's entries its index in `entries`; approximate for entries of an answer."""


@dataclass(frozen=True, slots=True)
class _PlacedEntries:
    kept: KnownSplice
    end: int
    """Index behind the answer's last entry."""
    held: bool = False
    """Whether the agent's history contains the preceding hidden turns itself."""
    joins: bool = False
    """Whether the agent's own entries are kept."""


def identity(raw: bytes) -> bytes:
    """Return a digest that identifies an entry and does not change with cache marks."""
    value = loads(raw)
    try:
        text = raw if value is None else orjson.dumps(_unmarked(value), option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONEncodeError, RecursionError):  # nested too deeply, or a number beyond 64 bits
        text = raw
    return blake2b(text, digest_size=16).digest()


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unmarked(each) for name, each in value.items() if name not in _MARKS}
    if isinstance(value, list):
        return [made for each in value if (made := _unmarked(each)) != {} or each == {}]
    return value


def restored(splices: Sequence[KnownSplice], dialect: Dialect, entries: list[bytes]) -> RestoredHistory:
    """Insert splices into a history. See the module.

    An agent's history may already contain hidden turns, for example when it reads the history from the provider; these
    are not added again, wherever their calls are now. Hidden turns of an answer at the beginning of the history are
    left out if the provider accepts no calls there. The places found are noted in `splices`.
    """
    if not splices:
        return RestoredHistory(None)
    return _Placing(splices, dialect, entries).restored()


class _Placing:
    """One history, and the splices to place in it."""

    def __init__(self, splices: Sequence[KnownSplice], dialect: Dialect, entries: list[bytes]) -> None:
        self._splices, self._dialect, self._entries = splices, dialect, entries
        self._values = [loads(entry) for entry in entries]
        self._speakers = [dialect.speaker(value) for value in self._values]
        known = {seen.item: seen for each in splices for seen in each.splice.seen if seen.item}
        gists = dialect.gists(self._values)
        self._references = {
            at: known[item]
            for at, value in enumerate(self._values)
            if known and (item := dialect.referred(value)) in known
        }
        self._gists = [self._references[at].gist if at in self._references else gist for at, gist in enumerate(gists)]
        self._first = 0
        if not dialect.calls_may_come_first:
            self._first = next((at for at, who in enumerate(self._speakers) if who != "model"), len(entries))
        self._placed: dict[int, _PlacedEntries] = {}
        """Placed answers by the index of their first entry."""
        self._taken: set[int] = set()
        """Indices of entries that belong to found answers."""
        self._left = {id(each): each for each in splices if each.tail < 0}
        """Splices whose answers are not found yet."""
        self._identities: dict[int, bytes] = {}

    def restored(self) -> RestoredHistory:
        self._exactly()
        if self._left:
            self._by_calls()
        if self._left:
            self._by_place()
        if self._left:
            self._by_words()
        unmatched = self._to_the_end()
        tails, rewritten = self._tails()
        if not self._placed and not tails:
            return RestoredHistory(None, rewritten=rewritten)
        made, places = self._made(tails)
        return RestoredHistory(made, unmatched, rewritten, places)

    # -- answers sent back exactly -------------------------------------------------------------------------------------

    def _exactly(self) -> None:
        """Find answers that the agent sends back exactly as it got them.

        An answer that matches at its original place belongs there. If the agent has changed its history, answers are
        searched for in order, so that two answers with the same words are not exchanged.
        """
        gists, length = self._gists, len(self._entries)
        in_place = {
            each.splice.place: each
            for each in self._left.values()
            if 0 <= each.splice.place < length and _matches(each.splice.visible, gists, each.splice.place)
        }
        settled = {id(each) for each in in_place.values()}
        waiting: dict[str, list[KnownSplice]] = {}
        """Splices by the first gist that the agent got."""
        for each in self._left.values():
            if each.splice.visible and id(each) not in settled:
                waiting.setdefault(each.splice.visible[0], []).append(each)
        there = set(gists)
        calls = Counter(gist for each in self._left.values() for gist in each.splice.calls)
        at, known = self._first, 0
        while at < length:
            known = max(known, at)
            while known < length and gists[known] is None:
                known += 1
            candidates = waiting.get(gists[known] or "", []) if known < length else []
            if at in in_place:
                candidates = [in_place[at]]
            for each in candidates:
                splice = each.splice
                end, held = _matches(splice.visible, gists, known), _held(splice.hidden, gists, at)
                # A call that occurs in several answers may belong to another one.
                if end and (held or not any(gist in there and calls[gist] == 1 for gist in splice.calls)):
                    candidates.remove(each)
                    self._place(at, _PlacedEntries(each, end, held=held, joins=self._has_other_ids(splice, at, end)))
                    at = end
                    break
            else:
                at += 1

    def _has_other_ids(self, splice: Splice, at: int, end: int) -> bool:
        """Whether the agent has given own ids to calls that had none, to which its results refer."""
        given = [call.id for seen in splice.seen for call in seen.calls]
        has = [call.id for entry in range(at, end) for call in self._calls(entry, self._values[entry])]
        return bool(splice.seen) and has != given

    # -- answers sent back in part -------------------------------------------------------------------------------------

    def _by_calls(self) -> None:
        """Find answers by ids and names of their calls."""
        there: dict[tuple[str, str], list[int]] = {}
        for at, value in enumerate(self._values):
            if self._speakers[at] == "model":
                for call in self._calls(at, value):
                    if call.id:
                        there.setdefault((call.id, call.name), []).append(at)
        for each in list(self._left.values()):
            if any(call in there for call in each.splice.own_calls):  # the agent's history contains it already
                del self._left[id(each)]
                continue
            wanted = [call for seen in each.splice.seen for call in seen.calls]
            begins: dict[int, None] = {}
            for call in wanted:
                found = there.get((call.id, call.name), ()) if call.id else ()
                begins.update((self._begin(at), None) for at in found[: _LIKE + 1])
            free = [begin for begin in begins if self._is_free(begin)]
            if each.splice.place in free:
                free = [each.splice.place]
            elif len(free) > 1:
                free = [begin for begin in free if _unnamed(self._calls_of(begin)) == _unnamed(wanted)]
            if len(free) == 1 and len(begins) <= _LIKE:
                self._join(free[0], each)

    def _by_place(self) -> None:
        """Find answers by the prompt that they answered."""
        for each in list(self._left.values()):
            splice = each.splice
            if each.asked_again or not self._goes_on(splice) or not self._is_free(splice.place):
                continue
            names = [call.name for seen in splice.seen for call in seen.calls]
            has = [call.name for call in self._calls_of(splice.place)]
            if has == names or (not has and _are_alike(self._text_of(splice.place), _answer_text(splice))):
                self._join(splice.place, each)

    def _by_words(self) -> None:
        """Find answers by text and calls without ids, if the history has them only once."""
        there: dict[Any, list[int]] = {}
        at = self._first
        while at < len(self._entries):
            if self._is_free(at):
                if text := self._text_of(at):
                    there.setdefault((text, _unnamed(self._calls_of(at))), []).append(at)
                at = self._end(at)
            else:
                at += 1
        for each in list(self._left.values()):
            calls = [call for seen in each.splice.seen for call in seen.calls]
            found = there.get((_answer_text(each.splice), _unnamed(calls)), []) if calls else []
            if len(found) == 1 and self._is_free(found[0]):
                self._join(found[0], each)

    def _join(self, begin: int, kept: KnownSplice) -> None:
        """Place an answer that the agent sends back in a changed form, from an entry on."""
        splice, end = kept.splice, self._end(begin)
        given = [call for seen in splice.seen for call in seen.calls]
        theirs = self._calls_of(begin)
        if {call_id for call_id, _ in splice.own_calls} & {call.id for call in theirs}:
            return  # the agent has given such an id to a call of its own
        same = [(call.id, call.name) for call in theirs] == [(call.id, call.name) for call in given] and bool(given)
        text = self._text_of(begin)
        self._place(begin, _PlacedEntries(kept, end, joins=not same or bool(text and text != _answer_text(splice))))

    def _place(self, at: int, placed: _PlacedEntries) -> None:
        self._placed[at] = placed
        self._taken.update(range(at, placed.end))
        del self._left[id(placed.kept)]

    # -- answers that were not found -----------------------------------------------------------------------------------

    def _to_the_end(self) -> int:
        """Put the remaining splices at the end, if the agent continues from the answered prompt; return how many."""
        length, unmatched = len(self._entries), 0
        for each in self._left.values():
            splice = each.splice
            if splice.place == length and length and splice.before and self._identity(length - 1) == splice.before:
                each.asked_again = True
            elif not (each.placed or each.asked_again or splice.place in self._taken) and self._goes_on(splice):
                tail = length
                while tail and self._speakers[tail - 1] == "model":  # for example the beginning of the next answer
                    tail -= 1
                if tail > self._first:
                    each.tail, each.after = tail, self._identity(tail - 1)
                    unmatched += 1
        return unmatched

    def _goes_on(self, splice: Splice) -> bool:
        """Whether the agent continues from the prompt that an answer belongs to."""
        at = splice.place
        return bool(splice.before) and 0 < at < len(self._entries) and self._identity(at - 1) == splice.before

    def _tails(self) -> tuple[dict[int, list[KnownSplice]], list[KnownSplice]]:
        """Return splices to insert, by the number of the agent's entries before them, and those without a place now."""
        tails: dict[int, list[KnownSplice]] = {}
        rewritten: list[KnownSplice] = []
        for each in self._splices:
            if each.tail < 0:
                continue
            if self._may_stand(each):
                tails.setdefault(each.tail, []).append(each)
            elif self._goes_on(each.splice):  # otherwise it belongs to another conversation
                rewritten.append(each)
        return tails, rewritten

    def _may_stand(self, kept: KnownSplice) -> bool:
        at = kept.tail
        if at > len(self._entries) or self._identity(at - 1) != kept.after:
            return False
        return at == len(self._entries) or self._speakers[at] in ("model", "user")

    # -- the resulting history -----------------------------------------------------------------------------------------

    def _made(self, tails: dict[int, list[KnownSplice]]) -> tuple[list[bytes], list[int]]:
        """Return the entries, and the index in them of each of the agent's entries."""
        made: list[bytes] = []
        places: list[int] = []
        length = len(self._entries)
        while (at := len(places)) <= length:
            for each in tails.get(at, ()):
                made += self._alone(each.splice)
            if at == length:
                break
            placed = self._placed.get(at)
            if placed is None:
                places.append(len(made))
                made.append(self._entries[at])
                continue
            placed.kept.placed = True
            splice = placed.kept.splice
            hidden = splice.entries[: splice.hidden_entries]
            made += [] if placed.held and not placed.joins else hidden
            first = len(made)
            if placed.joins:
                shown = {item for entry in hidden if (item := self._dialect.item(loads(entry)))}
                theirs = [self._entries[each] for each in range(at, placed.end) if self._item(each) not in shown]
                made += self._dialect.called_too(theirs, splice.own)
            else:
                made += splice.entries[splice.hidden_entries :]
            places += [min(first + each, len(made) - 1) for each in range(placed.end - at)]
            if splice.answers:
                following = self._entries[placed.end : placed.end + 1]
                made += self._dialect.joined(splice.answers, following)
                places += [len(made) - 1] * len(following)
                if not following:
                    break
        return made, places

    def _alone(self, splice: Splice) -> Iterator[bytes]:
        """Yield the hidden turns, and the last one's calls of the sidecar without the agent's calls.

        Stored items that the agent sends itself are left out: the provider rejects an item that is named twice.
        """
        theirs = {item for at in range(len(self._entries)) if (item := self._item(at))}
        for entry in splice.entries[: splice.hidden_entries]:
            if self._dialect.item(loads(entry)) not in theirs:
                yield entry
        yield from splice.calling
        yield from map(orjson.dumps, splice.answers)

    # -- the agent's entries -------------------------------------------------------------------------------------------

    def _identity(self, at: int) -> bytes:
        if at not in self._identities:
            self._identities[at] = identity(self._entries[at])
        return self._identities[at]

    def _item(self, at: int) -> str:
        """Return the id of the stored item that an entry is or refers to, or an empty string."""
        return self._dialect.item(self._values[at])

    def _is_free(self, at: int) -> bool:
        """Whether an entry is the model's and belongs to no found answer."""
        return self._first <= at < len(self._entries) and self._speakers[at] == "model" and at not in self._taken

    def _begin(self, at: int) -> int:
        """Return where the answer that contains an entry begins."""
        first = max(at - _ENTRIES, 0)
        while self._dialect.answers_have_entries and at > first and self._is_free(at - 1):
            at -= 1
        return at

    def _end(self, at: int) -> int:
        """Return where an answer that begins at an index ends."""
        last = at + _ENTRIES
        at += 1
        while self._dialect.answers_have_entries and at < last and self._is_free(at):
            at += 1
        return at

    def _calls(self, at: int, value: Any) -> Sequence[NamedCall]:
        seen = self._references.get(at)
        return self._dialect.calls(value) if seen is None else seen.calls

    def _calls_of(self, begin: int) -> list[NamedCall]:
        """Return the calls of the answer that begins at an index."""
        return [call for at in range(begin, self._end(begin)) for call in self._calls(at, self._values[at])]

    def _text_of(self, begin: int) -> str:
        """Return the model's text in the answer that begins at an index."""
        texts = []
        for at in range(begin, self._end(begin)):
            seen = self._references.get(at)
            texts.append((self._dialect.text(self._values[at]) or "") if seen is None else seen.text)
        return "".join(texts).strip()


def _answer_text(splice: Splice) -> str:
    return "".join(seen.text for seen in splice.seen).strip()


def _unnamed(calls: Iterable[NamedCall]) -> tuple[tuple[str, bytes], ...]:
    """Return calls without their ids."""
    return tuple((call.name, call.digest) for call in calls)


def _are_alike(text: str, other: str) -> bool:
    """Whether one of two texts contains the other."""
    return bool(text and other) and (text in other or other in text)


def _held(hidden: Sequence[str], gists: Sequence[str | None], at: int) -> bool:
    """Whether the model's last text before an answer at `at` is the text that was hidden from the agent."""
    left = len(hidden)
    while left and at and (not gists[at - 1] or gists[at - 1] == hidden[left - 1]):
        at -= 1
        left -= bool(gists[at])
    return bool(hidden) and not left


def _matches(visible: Sequence[str], gists: Sequence[str | None], at: int) -> int:
    """Return where an answer that begins at `at` ends, including its reasoning; 0 if it is a different answer."""
    wanted = 0
    while at < len(gists) and wanted < len(visible):
        gist = gists[at]
        if gist is None:
            at += 1
        elif gist == visible[wanted] and gist:
            at, wanted = at + 1, wanted + 1
        else:
            return 0
    return at if wanted == len(visible) else 0
