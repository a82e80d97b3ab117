"""The sidecar's own text in one run: what its prompts hold now, and what is recognised when sent back.

Directives are chosen at the first call and never change. Registry and placeholder are written again when the prefix
changes anyway; the note at every call. All of them are functions of the ledger (and of the open tasks, which are lost
with their process), so a process that has replayed the fold writes the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

from prompt_sidecar.engine.steps.frame import OwnTexts
from prompt_sidecar.facts.trim_calls import OwnText, StashEntry
from prompt_sidecar.prompt.format import Format, Stands
from prompt_sidecar.prompt.jsontext import digest
from prompt_sidecar.trim import own_text
from prompt_sidecar.trim.ids import sealed
from prompt_sidecar.trim.ledger import Ledger

OWN_TEXTS_REMEMBERED: Final = 4_096
"""Our texts that a run recognises when they are sent back; beyond that the oldest are treated as ordinary text."""

_DIRECTIVES: Final = (*filter(None, own_text.ALL_DIRECTIVES), own_text.MASKS)
"""All possible directives."""
_CONSTANT: Final = (*_DIRECTIVES, own_text.DROPPED_UNCOUNTED)
"""Texts that are the same in every run, so that each process recognises them."""
_KNOWN_BYTES: Final = 150
"""Bytes of a digest in a dict or a set, with its own bytes."""


@dataclass(frozen=True, slots=True)
class Lists:
    """How registry and placeholder are written, if the prefix changes anyway."""

    registry_room: int
    """Tokens that the registry may take."""
    closing_room: int
    """Tokens that the registry's end may take."""
    closing: tuple[str, str]
    """The registry's end if there is no note; see `own_text.closing`."""
    until: int | None
    """The last iteration whose trims it lists; None: all."""
    dead: Callable[[], Collection[str]]
    """Ids that can no longer be retrieved."""


@dataclass(slots=True)
class OwnState:
    """See the module's docstring."""

    texts: OwnTexts = field(default_factory=OwnTexts)
    entries: Sequence[StashEntry] = ()
    """The registry as facts."""
    note_tokens: int = 0
    """Tokens of the note, with its framing."""
    _standing_tokens: int = 0
    _lines: dict[str, tuple[own_text.RegistryLine, StashEntry]] = field(default_factory=dict)
    """The registry's lines, by id, each with its entry."""
    registry_room: int = 0
    """Token budget of the registry when it was last written."""
    closing_room: int = 0
    """Token budget of the registry's end when it was last written."""
    chosen: bool = False
    """Whether the directives have been chosen, at the first call."""
    directives: str = ""
    """The chosen directives; not written for a model that cannot recall."""
    note_waits: bool = False
    """Whether a note's content waits for the registry, as the model of the run's first call may cache no prompt that
    ends in a note; chosen with the directives."""
    _known: dict[bytes, bytes] = field(default_factory=dict)
    """Digests of texts that we wrote, oldest first, with the identity of the message if the text is one."""
    _identities: set[bytes] = field(default_factory=set)
    _sealed: frozenset[bytes] = frozenset()
    """Keyed digests of our texts and messages that another process wrote, from a revision."""
    _key: bytes = b""

    def __post_init__(self) -> None:
        for text in _CONSTANT:
            self._known[digest(text.encode())] = b""

    def choose(self, directives: str, *, note_waits: bool) -> None:
        """Choose the directives, and whether notes wait for the registry."""
        self.directives, self.note_waits, self.chosen = directives, note_waits, True

    @property
    def tokens(self) -> int:
        """Return the tokens of all texts, with their framing."""
        return self._standing_tokens + self.note_tokens

    @property
    def kept_bytes(self) -> int:
        """Bytes kept to recognise our texts, estimated."""
        return _KNOWN_BYTES * (len(self._known) + len(self._identities))

    def write(
        self, ledger: Ledger, directives: str, count: Callable[[str], int], *, recall: bool, lists: Lists | None
    ) -> None:
        """Write the texts that depend on decisions: all but the note.

        Args:
            ledger: the decisions.
            directives: what to choose, if this is the first call.
            count: counts tokens.
            recall: whether the model can recall; if not, nothing is written.
            lists: how registry and placeholder are written again; None: they stay unchanged.
        """
        dropped, registry = self.texts.dropped, self.texts.registry
        if not self.chosen:
            self.choose(directives, note_waits=self.note_waits)
        if lists is not None:
            self.registry_room, self.closing_room = lists.registry_room, lists.closing_room
            dropped, registry, lines = "", "", list[own_text.RegistryLine]()
            if recall:
                dropped = own_text.dropped(ledger)
                registry, lines = own_text.registry(
                    ledger,
                    lists.registry_room,
                    lists.dead(),
                    count,
                    written={stash_id: line for stash_id, (line, _) in self._lines.items()},
                    closing=lists.closing,
                    until=lists.until,
                )
            self._lines = {
                line.entry.stash_id: self._lines.get(line.entry.stash_id) or (line, _entry(line)) for line in lines
            }
            self.entries = [entry for _, entry in self._lines.values()]
        directives = self.directives if recall else own_text.without_recall(self.directives)
        self.texts = OwnTexts(directives, dropped, registry)
        self._standing_tokens = self.texts.tokens(count)

    def tail(self, note: str, count: Callable[[str], int]) -> None:
        """Replace the last note; empty: no note."""
        self.texts = replace(self.texts, note=note)
        self.note_tokens = OwnTexts(note=note).tokens(count)

    # -- recognising -------------------------------------------------------------------------------------------------

    def is_own(self, identity: bytes) -> bool:
        """Whether a message is one of ours."""
        return identity in self._identities or self._is_sealed(identity)

    def is_own_text(self, text: str) -> bool:
        """Whether a text is one of ours."""
        of_text = digest(text.encode())
        return of_text in self._known or self._is_sealed(of_text)

    def _is_sealed(self, identity: bytes) -> bool:
        return bool(self._sealed) and sealed(self._key, identity) in self._sealed

    def recognise_sealed(self, of_run: bytes, digests: Iterable[bytes]) -> None:
        """Recognise our messages or texts by digests from `identities` elsewhere; `of_run`: the run's key."""
        self._key, self._sealed = of_run, frozenset(digests)

    def take_over(self, other: OwnState) -> None:
        """Recognise everything that another state recognises."""
        self.recognise([*other._known, *other._identities])
        self._key, self._sealed = other._key, other._sealed

    def recognise(self, identities: Iterable[bytes]) -> None:
        """Recognise these identities of messages or digests of texts as ours."""
        for identity in identities:
            self._identities.add(identity)
            self._known.setdefault(identity, b"")

    def remember(self, format_: Format, written: Sequence[OwnText]) -> int:
        """Recognise new texts when the agent sends them back. Returns how many older texts are no longer recognised."""
        forgotten = 0
        for piece in written:
            of_text = digest(piece.text.encode())
            if self._known.get(of_text):
                continue
            if format_.placement.message is None or piece.message_index < 0:
                self._known[of_text] = of_text
                continue
            identity = format_.read(format_.placement.message(piece.text), "own").identity
            self._known[of_text] = identity
            self._identities.add(identity)
        while len(self._known) > OWN_TEXTS_REMEMBERED:
            self._identities.discard(self._known.pop(next(iter(self._known))))
            forgotten += 1
        return forgotten

    def identities(self, of_run: bytes) -> list[bytes]:
        """Return digests, with the run's key, of the present texts that a later process should recognise.

        Lists quote calls and results, so without a key a short text in them could be guessed.
        """
        texts = (self.texts.dropped, self.texts.registry, self.texts.joined, self.texts.note)
        return [sealed(of_run, known) for text in texts if text and (known := self._known.get(digest(text.encode())))]


def _entry(line: own_text.RegistryLine) -> StashEntry:
    return StashEntry(line.entry.stash_id, line.entry.kind, line.tool, line.arguments, line.iteration, line.entry.size)


@cache
def constant_identities(format_: Format) -> list[bytes]:
    """Return identities of the messages that contain our constant texts in a format."""
    message = format_.placement.message
    if message is None or format_.placement.directives is Stands.OUTSIDE:
        return []
    return [format_.read(message(text), "own").identity for text in _CONSTANT]
