"""Masking: turns the prompt that was sent into the one that everything behind the guard sees.

    sent ──► what is new ──► its strings ──► rules, known values ──► masks ──► the same prompt, masked
             (by bytes)      (prompt/strings.py)   (vault.py)

Everything that is recorded, decided, returned or reported is derived from the masked prompt, so no value can be in any
of it. The prompt is compared byte for byte with the previous one: only new parts are examined, so a call without
anything new costs nothing, and a prompt in which nothing is found is passed on as the same bytes.

Messages are masked in their order. A value that was found once is masked everywhere in the later texts of its run; not
in earlier ones, which a provider has seen, so that a process that sees the whole history at once makes the same prompt
as one that saw it grow. Masking is idempotent: nothing is found in a mask, and the rest of a text is searched again
until nothing more is found.

Nothing is refused for a value that cannot be masked, as the next prompt would hold it again, and the run would end
there for good: text that a signature covers is forwarded unchanged, and the find is reported. Only a rule that a user
has set to `refuse`, and `guard.fail_closed`, refuse a prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import Final, NamedTuple

from prompt_sidecar.errors import AmbiguousJson, GuardRefused, InvalidRequest
from prompt_sidecar.guard.bodies import BodyPiece, pieces
from prompt_sidecar.guard.lookalikes import defang
from prompt_sidecar.guard.masked_body import Before, are_same, masked_body, same_at_start
from prompt_sidecar.guard.masks import mint, places, written
from prompt_sidecar.guard.parts import Names, NewPart, Text, name_of, refusal
from prompt_sidecar.guard.rule import Find, Rule, RuleAction, RuleGroup
from prompt_sidecar.guard.rules import RuleSet
from prompt_sidecar.guard.scanner import Watch, resolved
from prompt_sidecar.guard.vault import OUTSIDE, KnownValues, Value, Vault
from prompt_sidecar.prompt.body import FIELD, Split, equal_slice
from prompt_sidecar.prompt.format import Format
from prompt_sidecar.prompt.items import ItemKind, Path
from prompt_sidecar.prompt.jsontext import WRITTEN_BYTES
from prompt_sidecar.prompt.literals import TextEdit, applied, nested_edits
from prompt_sidecar.prompt.strings import (
    JSON,
    MAX_NESTED,
    Leaf,
    StringUse,
    ambiguous_leaves,
    in_string,
    is_setting,
    leaves_of,
    leaves_of_member,
    nested,
)
from prompt_sidecar.recall.tag import recognise
from prompt_sidecar.trim.ids import ID_CHARACTERS

TOGETHER_BYTES: Final = 1_048_576
"""Characters of texts that are scanned at once: some milliseconds, after which a call may end."""
PASSED_BY: Final = 4_096
"""Parts that an earlier call has looked at and that this one passes by between two checks: some ten milliseconds."""
TOGETHER: Final = 256
"""Messages that are scanned at once, likewise: in short ones most time is spent on finding their strings."""
TOGETHER_TEXTS: Final = 1_000
"""Texts that are scanned at once, likewise: a message may have tens of thousands of short ones."""
ROUNDS: Final = 6
"""How often the rest of a text is searched again; except in made-up texts, two rounds find nothing more."""
_HOLDS_TEXT: Final = frozenset({b'"', b"[", b"{"})
"""First bytes of members that may hold text."""
SCAN_BOUND: Final = "guard.scan_seconds"
_UNCHANGED: Final = frozenset({StringUse.OBSERVED, StringUse.SIGNED})
"""Uses of strings in which a value that a later message shows stays unmasked."""


class ActionTaken(StrEnum):
    """The action that was taken on a find of a rule."""

    OBSERVED = "observed"
    MASKED = "masked"
    DEFANGED = "defanged"


@dataclass(frozen=True, slots=True)
class NotedFinding:
    """A find of a rule in one string; never the text."""

    message: int
    """Index among the messages sent; -1 if it is in a member of the body."""
    member: str
    """The body's member, if it is not in a message."""
    path: Path
    rule: str
    action: ActionTaken
    count: int


@dataclass(frozen=True, slots=True)
class MaskedPrompt:
    """A prompt after the guard."""

    split: Split
    """The sent prompt itself, if nothing is masked."""
    noted: Sequence[NotedFinding] = ()
    """Finds in the new parts."""
    originals: Mapping[int, bytes] = field(default_factory=dict)
    """Messages in which something was defanged, by index, before that: masked only."""


class _MaskingInputs(NamedTuple):
    """What decides, in addition to the prompt, what the guard does with it."""

    format: str
    masks: bool
    rules: bytes
    """Digest of the rules."""
    knows: bool
    lost: int
    changes: int
    """The number of changes of the run's values."""


@dataclass(slots=True)
class Progress:
    """The progress of masking a prompt, for the retry of an interrupted call."""

    sent: Split
    state: _MaskingInputs
    parts: dict[tuple[int, str], NewPart] = field(default_factory=dict)
    """The messages and members that were scanned, wholly or in part; empty once the prompt is masked."""
    masked: MaskedPrompt | None = None
    """The prompt, once it is masked."""
    messages: int = 0
    """Number of messages and members that were scanned."""
    characters: int = 0
    """Characters of texts that were scanned."""
    texts: int = 0
    """Number of texts that were scanned."""

    @property
    def worth_keeping(self) -> bool:
        """Whether it holds more than is scanned in some milliseconds."""
        return self.messages >= TOGETHER or self.characters >= TOGETHER_BYTES or self.texts >= TOGETHER_TEXTS

    @property
    def bytes(self) -> int:
        """Bytes that it keeps in addition to the masked prompt."""
        return len(self.sent.raw) if self.masked is not None and self.masked.split is not self.sent else 0


@dataclass(slots=True)
class RunGuard:
    """What the guard remembers of a run in addition to its values. A run is used under its lock."""

    other_keys: Sequence[bytes] = ()
    """The run's keys derived from the sidecar's other keys."""
    masks: bool = False
    """Whether its prompts are masked: once set, for the rest of the run."""
    lost: int = 0
    """How often its values had been evicted at the last prompt: the values that it has now must then be found again."""
    known: KnownValues | None = None
    changes: int = -1
    """The number of changes of the run's values when `known` was made."""
    reported: dict[bytes, None] = field(default_factory=dict)
    """Digests of findings that were reported for texts outside the history."""


class Masker:
    """Masks one prompt of a run. Values it adds to the vault can be removed again (`take_back`)."""

    def __init__(
        self,
        rules: RuleSet,
        vault: Vault,
        run: str,
        key: bytes,
        state: RunGuard,
        *,
        watch: Watch | None = None,
        reached: Callable[[str], None] = lambda _: None,
        fail_closed: bool = False,
        knows: bool = False,
    ) -> None:
        """Take the rules and the run: its name in the vault, its key, and its remembered state.

        `knows`: the run has been answered before, so that the masks in its prompts are known.
        """
        self._knows = knows
        self._rules, self._vault, self._run, self._key, self._state = rules, vault, run, key, state
        self._watch, self._reached, self._fail_closed = watch, reached, fail_closed
        self._added: list[Value] = []
        self._noted: dict[tuple[int, str, Path, str, ActionTaken], int] = {}
        self._names = Names(rules)
        self._known_outside: KnownValues | None = None
        self.progress: Progress | None = None
        """The progress with the prompt."""

    @property
    def masks(self) -> bool:
        """Whether anything is masked; otherwise finds are only observed."""
        return self._state.masks

    def take_back(self) -> None:
        """Remove the values that only this prompt has added."""
        self._vault.take_back(self._run, self._added)
        self._state.known = self._known_outside = None
        self._added = []

    def mask(  # noqa: PLR0917 - the prompt, and all that came before it
        self,
        sent: Split,
        before: Before | None,
        format_: Format,
        check: Callable[[], None],
        stands: Callable[[bytes], bool],
        done: Progress | None = None,
    ) -> MaskedPrompt:
        """Mask a prompt. When `check` ends the call, `progress` has the work done so far.

        Args:
            sent: what was sent; its `same` refers to `before.sent`.
            before: the last prompt.
            format_: the format of both.
            check: called now and then; what it raises ends the call.
            stands: whether a masked message is part of the run's history already.
            done: the progress of an earlier call with what may be the same prompt.

        Raises:
            GuardRefused: a rule finds something whose action is to refuse, or did not have the time to search.
            InvalidJson: a message can be read in two ways, and is nested too deeply.
        """
        lost = self._vault.lost(self._run)
        known = before if lost == self._state.lost else None
        progress = self._begun(sent, format_, lost, done)
        if progress.masked is not None:
            return _again(progress.masked, progress.sent, sent, before)
        system = format_.member(sent)[0]
        new_parts = chain(self._members(sent, known, system), self._messages(sent, known, format_, check))
        parts = self._scan(new_parts, check, progress)
        masked = self._made(parts, sent, before, known, format_, stands)
        self._state.lost = lost
        progress.masked = masked
        progress.state = progress.state._replace(changes=self._vault.changes(self._run))
        progress.parts.clear()
        return masked

    def mask_task(self, text: str, where: str) -> str:
        """Mask a text outside of prompts. `where`: its field, for an error. Raises GuardRefused, as `mask`."""
        part = NewPart(OUTSIDE, "", where, b"", (Leaf(0, (), text, StringUse.TEXT),), JSON)
        parsed = self._taken_apart(text, StringUse.TEXT, "")
        self._look([*parsed.all()])
        self._take_values(part, part.leaves[0], parsed)
        return applied(text, self._masked(parsed, _TextPlace(part, part.leaves[0], set())))

    def mask_body(
        self, body: bytes, texts: Collection[str], check: Callable[[], None]
    ) -> tuple[bytes, Sequence[NotedFinding]]:
        """Mask a body that is not a prompt of a run. Returns the same object if nothing is masked.

        Args:
            body: JSON, or lines of JSON.
            texts: members whose strings are text, if the body is a prompt's; none: all strings are.
            check: called now and then; what it raises ends the call.

        Raises:
            GuardRefused: as `mask`.
            InvalidJson: the body is neither.
            TooLarge: decoding it would take too much memory for its size.
        """
        made: list[bytes] = []
        is_masked = False
        for some in _together(pieces(body, texts, check)):
            new = self._pieces(some, check)
            is_masked = is_masked or any(one is not piece.raw for one, piece in zip(new, some, strict=True))
            made += new
        noted = [NotedFinding(*where, count) for where, count in self._noted.items()]
        return b"".join(made) if is_masked else body, noted

    def _pieces(self, some: Sequence[BodyPiece], check: Callable[[], None]) -> Sequence[bytes]:
        """Return pieces of a body, masked."""
        strings = [(index, leaf) for index, piece in enumerate(some) if piece.part for leaf in piece.part.leaves]
        changes: dict[int, dict[int, Sequence[TextEdit]]] = {}
        for few in _some(strings):
            texts = [self._taken_apart(leaf.text, leaf.use, name_of(leaf)) for _, leaf in few]
            self._look([each for text in texts for each in text.all()])
            check()
            for (index, leaf), text in zip(few, texts, strict=True):
                part = some[index].part
                if part is not None and (edits := self._edits(part, leaf, text)):
                    changes.setdefault(index, {})[leaf.place] = in_string(leaf, edits)
        return [
            piece.part.written(changes[index]) if piece.part is not None and index in changes else piece.raw
            for index, piece in enumerate(some)
        ]

    def _edits(self, part: NewPart, leaf: Leaf, text: Text) -> Sequence[TextEdit]:
        """Return the edits that mask a string outside a history."""
        self._take_values(part, leaf, text)
        if leaf.use is StringUse.OBSERVED:
            return ()
        if leaf.use is StringUse.SIGNED:
            return self._as_signed(part, leaf, text, self._known())
        return self._masked(text, _TextPlace(part, leaf, set()))

    def _begun(self, sent: Split, format_: Format, lost: int, done: Progress | None) -> Progress:
        """Return an earlier call's progress with the same prompt, if the same rules and values apply now."""
        changes = self._vault.changes(self._run)
        state = _MaskingInputs(format_.name, self.masks, self._rules.digest, self._knows, lost, changes)
        alike = done is not None and done.state == state and done.sent.raw == sent.raw
        if done is None or not alike or done.sent.starts != sent.starts or done.sent.ends != sent.ends:
            done = Progress(sent, state)
        self.progress = done
        return done

    def _made(  # noqa: PLR0917 - what was found, and what came before
        self,
        parts: Sequence[NewPart],
        sent: Split,
        before: Before | None,
        known: Before | None,
        format_: Format,
        stands: Callable[[bytes], bool],
    ) -> MaskedPrompt:
        """Return the masked prompt from its scanned new parts; `known`: the last one, if its values are known."""
        if not parts and (before is None or before.sent is before.masked):
            return MaskedPrompt(sent)
        members: dict[str, bytes] = {}
        messages: dict[int, bytes] = {}
        originals: dict[int, bytes] = {}
        for part in parts:
            for leaf, text in zip(part.leaves, part.texts, strict=True):
                self._take_values(part, leaf, text)
            if not self.masks:
                continue
            part.raw = bytes(part.raw)
            new = self._part(part, stands)
            broken = self._defanged(part, new, format_, stands)
            if broken != new:
                originals[part.message], new = new, broken
            if new != part.raw:
                if part.message < 0:
                    members[part.member] = new
                else:
                    messages[part.message] = new
        if not parts and known is not None and before is not None and are_same(sent, before.sent):
            masked = before.masked
            whole = len(masked)
            return MaskedPrompt(masked if masked.same == whole else replace(masked, same=whole), ())
        noted = [NotedFinding(*where, count) for where, count in self._noted.items()]
        return MaskedPrompt(masked_body(sent, before, members, messages, carry=known is not None), noted, originals)

    # -- what is new -------------------------------------------------------------------------------------------------

    def _known_part(self, message: int, member: str) -> NewPart | None:
        """Return a message or member of the same body that an earlier call has begun to scan."""
        return self.progress.parts.get((message, member)) if self.progress is not None else None

    def _members(self, sent: Split, before: Before | None, system: str) -> Iterable[NewPart]:
        """Yield the body's new members, the system prompt first."""
        names = sorted(sent.fields, key=lambda name: name != system)
        for name in names:
            raw = sent.field(name) or b""
            if (before is not None and before.sent.field(name) == raw) or raw[:1] not in _HOLDS_TEXT:
                continue
            apart = name != system
            yield self._known_part(-1, name) or NewPart(
                -1, name, f"{FIELD}.{name}", raw, self._leaves(raw, name, apart=apart), JSON, apart=apart
            )

    def _messages(
        self, sent: Split, before: Before | None, format_: Format, check: Callable[[], None]
    ) -> Iterable[NewPart]:
        """Yield the new messages. `check` is called before each long one, which is decoded at once."""
        for index in range(sent.same if before is not None else 0, len(sent)):
            if before is not None and equal_slice(sent, before.sent, index):
                continue
            part = self._known_part(index, "")
            if part is not None:
                yield part
                continue
            raw = sent.text(index) if format_.is_json else sent.message(index)
            if len(raw) > WRITTEN_BYTES:
                check()
            where = format_.messages_path if sent.is_text or format_.single else f"{format_.messages_path}[{index}]"
            try:
                leaves = format_.strings.leaves(raw, where)
            except AmbiguousJson:
                leaves = ambiguous_leaves(raw, where)
            except InvalidRequest:
                continue  # the reader reports what is wrong
            yield NewPart(index, "", where, raw, leaves, format_.strings)

    def _leaves(self, raw: bytes, name: str, *, apart: bool) -> Sequence[Leaf]:
        """Return the strings of a member; `apart`: it is not the system prompt."""
        where = f"{FIELD}.{name}"
        try:
            if apart:
                return leaves_of_member(raw, where, name)
            try:
                return leaves_of(raw, where)
            except AmbiguousJson:
                return ambiguous_leaves(raw, where)
        except InvalidRequest:
            if self.masks and not is_setting(name):
                raise
            return ()

    def _scan(self, parts: Iterable[NewPart], check: Callable[[], None], progress: Progress) -> Sequence[NewPart]:
        """Let the rules scan all texts, some at a time."""
        scanned: list[NewPart] = []
        begun: list[NewPart] = []
        waiting: list[Text] = []
        size = passed_by = 0

        def look() -> None:
            nonlocal size
            self._look(waiting)
            for part in begun:
                part.scanned = len(part.texts)
                progress.parts[part.message, part.member] = part
            progress.messages += len(begun)
            progress.characters += size
            progress.texts += len(waiting)
            begun.clear()
            waiting.clear()
            size = 0

        for part in parts:
            scanned.append(part)
            del part.texts[part.scanned :]
            if part.texts and len(part.texts) == len(part.leaves):
                passed_by += 1
                if not passed_by % PASSED_BY:
                    check()
                continue
            begun.append(part)
            for leaf in part.leaves[part.scanned :]:
                name = leaf.path[-1] if leaf.path else ""
                text = self._taken_apart(leaf.text, leaf.use, name if type(name) is str else name_of(leaf))
                part.texts.append(text)
                for each in text.all():
                    waiting.append(each)
                    size += len(each.text)
                if size >= TOGETHER_BYTES or len(waiting) >= TOGETHER_TEXTS:
                    look()
                    begun.append(part)
                    check()
            if len(begun) >= TOGETHER:
                look()
                check()
        look()
        return scanned

    def _look(self, texts: Sequence[Text]) -> None:
        found = self._found(texts, self._watch)
        if self._watch is not None and self._watch.passed:
            self._reached(SCAN_BOUND)
            if self._fail_closed:
                raise GuardRefused(
                    "the rules did not have the time to look at all of the prompt (guard.scan_seconds), and "
                    "guard.fail_closed is set",
                )
            self._watch.passed.clear()
        for text, finds in zip(texts, found, strict=True):
            text.finds = self._outside_masks(text.text, finds) if finds else ()

    def _taken_apart(self, text: str, use: StringUse, name: str, depth: int = 0) -> Text:
        """Return a text, with the strings in it if it is JSON; `name`: of the member that it is the value of."""
        inner = None
        if use is not StringUse.OBSERVED and depth < MAX_NESTED and (use is StringUse.ARGUMENTS or "\\" in text):
            strings = nested(text, keys=use is not StringUse.ARGUMENTS)
            if strings is not None:
                inner = [
                    (each.place, self._taken_apart(each.text, StringUse.TEXT, each.name, depth + 1))
                    for each in strings
                    if each.text
                ]
        return Text(text, inner, (), self._names[name])

    def _found(self, texts: Sequence[Text], watch: Watch | None = None) -> Sequence[Sequence[Find]]:
        """Return the finds of the rules in texts, and in those after the names of secrets."""
        found = self._rules.scan([each.text for each in texts], watch)
        named = [index for index, each in enumerate(texts) if each.name]
        if not named:
            return found
        behind = self._rules.scan_named([(texts[index].name, texts[index].text) for index in named], watch)
        more = dict(zip(named, behind, strict=True))
        return [resolved([*finds, *more[index]]) if more.get(index) else finds for index, finds in enumerate(found)]

    def _outside_masks(self, text: str, finds: Sequence[Find]) -> Sequence[Find]:
        """Return the finds outside masks, in any form; finds in forged masks are kept if values are known."""
        found = [((start, end), text[end - ID_CHARACTERS - 1 : end - 1]) for start, end in places(text)]
        found += [((each.start, each.end), each.id) for each in written(text) if each.spelling != "plain"]
        if not found:
            return finds
        masks = [span for span, _ in found]
        forged = [span for span, mask_id in found if self._knows and not self._is_known(mask_id)]
        return [
            find
            for find in finds
            if not _in(find, masks) or (find.rule.group is RuleGroup.LOOKALIKES and _in(find, forged))
        ]

    def _is_known(self, mask_id: str) -> bool:
        return self._vault.get(self._run, mask_id, self._state.other_keys) is not None

    # -- one message or member ---------------------------------------------------------------------------------------

    def _part(self, part: NewPart, stands: Callable[[bytes], bool]) -> bytes:
        """Return a message or member, masked."""
        known = self._known()
        later: set[str] = set()
        changes: dict[int, Sequence[TextEdit]] = {}
        signed: dict[int, Sequence[TextEdit]] = {}
        for leaf, text in zip(part.leaves, part.texts, strict=True):
            if leaf.use is StringUse.OBSERVED:
                self._observe(part, leaf, text, known)
            elif leaf.use is StringUse.SIGNED:
                if edits := self._as_signed(part, leaf, text, known):
                    signed[leaf.place] = edits
            elif edits := self._masked(text, _TextPlace(part, leaf, later)):
                changes[leaf.place] = in_string(leaf, edits)
        made = part.written(changes | signed)
        if not later:
            return made
        # A value that was found in a later message than this one: if the message is known without its mask, it stays.
        earlier = {
            leaf.place: in_string(leaf, edits)
            for leaf, text in zip(part.leaves, part.texts, strict=True)
            if leaf.use not in _UNCHANGED
            and (edits := self._masked(text, _TextPlace(part, leaf, set(), earlier_only=True)))
        }
        as_before = part.written(earlier | signed)
        return as_before if as_before != made and stands(as_before) else made

    def _observe(self, part: NewPart, leaf: Leaf, text: Text, known: KnownValues) -> None:
        """Record the known values in a string that must not be changed, except those that a rule has found there."""
        spans = [(find.start, find.end) for find in text.finds]
        for start, end, value in known.find(leaf.text):
            if part.message >= value.first and not any(start < last and first < end for first, last in spans):
                self._note(part, leaf, value.rule, ActionTaken.OBSERVED)

    def _as_signed(self, part: NewPart, leaf: Leaf, text: Text, known: KnownValues) -> Sequence[TextEdit]:
        """Return edits that restore what the model wrote in a signed call's arguments: masks of values it never saw.

        The values are in the call because they were put back for the agent's tool. Values that the model wrote itself
        stay.
        """
        if text.inner is not None:
            changes = {place: self._as_signed(part, leaf, each, known) for place, each in text.inner}
            return nested_edits(text.text, changes)
        spans = [span for span in known.find(text.text) if _knew_as_mask(span[2], part)]
        kept = _apart(spans, places(text.text))
        for _, _, value in kept:
            self._note(part, leaf, value.rule, ActionTaken.MASKED)
        return [TextEdit(start, end, value.mask) for start, end, value in kept]

    def _take_values(self, part: NewPart, leaf: Leaf, text: Text) -> None:
        """Add values that the rules mask to the vault, and record finds that are only observed.

        Raises:
            GuardRefused: a rule finds something whose action is to refuse.
        """
        for each in text.all():
            for find in each.finds:
                if find.rule.group is RuleGroup.LOOKALIKES and self._is_ours(part, leaf):
                    continue
                if self.masks and find.rule.action is RuleAction.DEFANG:
                    part.imitates = True
                elif self.masks and find.rule.action is RuleAction.REFUSE:
                    raise refusal(part, find.rule.name)
                elif not (self.masks and find.rule.action is RuleAction.MASK):
                    if each.inner is None or not any(
                        other.rule is find.rule for below in each.all() if below is not each for other in below.finds
                    ):
                        self._note(part, leaf, find.rule.name, ActionTaken.OBSERVED)
                elif leaf.use is StringUse.OBSERVED:
                    self._note(part, leaf, find.rule.name, ActionTaken.OBSERVED)
                elif leaf.use is StringUse.SIGNED:
                    if not self._was_masked(each.text[find.start : find.end], part):
                        self._note(part, leaf, find.rule.name, ActionTaken.OBSERVED)
                else:
                    self._take(find.rule, each.value(find), part)

    def _defanged(self, part: NewPart, raw: bytes, format_: Format, stands: Callable[[bytes], bool]) -> bytes:
        """Return a masked message with its results defanged where a rule says so; users' and the model's words stay."""
        if not part.imitates or stands(raw):
            return raw
        try:
            found = part.strings.leaves(raw, part.where)
        except AmbiguousJson:
            return raw  # it is not decoded, so nothing in it counts as a result
        leaves = [leaf for leaf in found if leaf.use is StringUse.TEXT]
        results = [item.path for item in format_.read(raw, part.where).items if item.kind is ItemKind.RESULT]
        changes: dict[int, Sequence[TextEdit]] = {}
        for leaf, finds in zip(leaves, self._rules.scan([leaf.text for leaf in leaves]), strict=True):
            broken = [
                find for find in finds if find.rule.action is RuleAction.DEFANG and not _in(find, places(leaf.text))
            ]
            if not broken or self._is_ours(part, leaf):
                continue
            inside = any(leaf.path[: len(path)] == path for path in results)
            for find in broken:
                self._note(part, leaf, find.rule.name, ActionTaken.DEFANGED if inside else ActionTaken.OBSERVED)
            if inside:
                changes[leaf.place] = [TextEdit(0, len(leaf.text), defang(leaf.text, broken))]
        return part.strings.changed(raw, changes)

    def _is_ours(self, part: NewPart, leaf: Leaf) -> bool:
        """Whether text that looks like the sidecar's may be that: in the system prompt, or an answer of its tools."""
        return part.message < 0 or recognise(self._key, leaf.text, self._state.other_keys) is not None

    def _take(self, rule: Rule, text: str, part: NewPart) -> Value:
        """Add a value to the vault. Without room there the value is still masked, but no tool gets it back."""
        value, is_new = self._vault.put(self._run, self._key, Value(rule.kind, "", text, rule.name, part.first))
        if value is None:
            return Value(rule.kind, mint(self._key, text), text, rule.name, part.first)
        if is_new:
            self._added.append(value)
            self._known().add(value)
            if self._known_outside is not None:
                self._known_outside.add(value)
            self._state.changes = self._vault.changes(self._run)
        return value

    def _was_masked(self, text: str, part: NewPart) -> bool:
        """Whether a text is a value that the model knew only as a mask when it wrote a message."""
        return any(value.text == text and _knew_as_mask(value, part) for *_, value in self._known().find(text))

    def _known(self) -> KnownValues:
        state = self._state
        if state.known is None or (not self._added and state.changes != self._vault.changes(self._run)):
            state.known, state.changes = KnownValues(self._vault.values(self._run)), self._vault.changes(self._run)
        return state.known

    def _outside(self) -> KnownValues:
        """Return the values that were found outside the history only."""
        if self._known_outside is None:
            self._known_outside = KnownValues(self._vault.values(self._run), of_tasks=True)
        return self._known_outside

    def _masked(self, text: Text, at: _TextPlace, short: Sequence[Value] = ()) -> Sequence[TextEdit]:
        """Return the edits that put masks into a text. `short`: values that are masked only as a whole string."""
        if text.inner is not None:
            here = [
                self._take(find.rule, text.value(find), at.part)
                for find in text.finds
                if find.rule.action is RuleAction.MASK
            ]
            changes = {place: edits for place, each in text.inner if (edits := self._masked(each, at, (*short, *here)))}
            return nested_edits(text.text, changes) if changes else ()
        edits = self._round(text.text, text.finds, at, short)
        if not edits:
            return ()
        now = applied(text.text, edits)
        for _ in range(ROUNDS):
            finds = self._found([Text(now, None, name=text.name)])[0]
            more = self._round(now, self._outside_masks(now, finds), at, ())
            if not more:
                return edits
            now = applied(now, more)
            edits = [TextEdit(0, len(text.text), now)]
        return edits

    def _round(self, text: str, finds: Sequence[Find], at: _TextPlace, short: Sequence[Value]) -> Sequence[TextEdit]:
        """Return the edits that mask finds of the rules and known values."""
        spans = [
            (find.start, find.end, self._take(find.rule, text[find.start : find.end], at.part))
            for find in finds
            if find.rule.action is RuleAction.MASK
        ]
        found = self._known().find(text)
        if at.part.first == OUTSIDE:
            found += self._outside().find(text)
        for start, end, value in found:
            if value.first > at.part.message >= 0:
                at.later.add(value.id)
                if at.earlier_only:
                    continue
            spans.append((start, end, value))
        spans += [(0, len(text), value) for value in short if value.text == text]
        kept = _apart(spans, places(text)) if spans else ()
        if not at.earlier_only:
            for _, _, value in kept:
                self._note(at.part, at.leaf, value.rule, ActionTaken.MASKED)
        return [TextEdit(start, end, value.mask) for start, end, value in kept]

    def _note(self, part: NewPart, leaf: Leaf, rule: str, done: ActionTaken) -> None:
        where = part.message, part.member, leaf.path, rule, done
        self._noted[where] = self._noted.get(where, 0) + 1


@dataclass(frozen=True, slots=True)
class _TextPlace:
    """The place of a text that is masked."""

    part: NewPart
    leaf: Leaf
    later: set[str]
    """Collects the ids of values that were found in a later message than this one."""
    earlier_only: bool = False
    """Whether such values stay unmasked."""


def _knew_as_mask(value: Value, part: NewPart) -> bool:
    """Whether the model knew a value only as a mask when it wrote a message. Outside a history that is assumed."""
    return part.first == OUTSIDE or value.first < part.message


def _together(found: Iterable[BodyPiece]) -> Iterable[Sequence[BodyPiece]]:
    """Yield the pieces of a body in order, some at a time."""
    begun: list[BodyPiece] = []
    size = texts = 0
    for piece in found:
        begun.append(piece)
        size += len(piece.raw)
        texts += 1 + (len(piece.part.leaves) if piece.part is not None else 0)
        if size >= TOGETHER_BYTES or texts >= TOGETHER_TEXTS:
            yield begun
            begun, size, texts = [], 0, 0
    yield begun


def _some(strings: Sequence[tuple[int, Leaf]]) -> Iterable[Sequence[tuple[int, Leaf]]]:
    """Yield strings in order, some at a time."""
    begun: list[tuple[int, Leaf]] = []
    size = 0
    for each in strings:
        begun.append(each)
        size += len(each[1].text)
        if size >= TOGETHER_BYTES or len(begun) >= TOGETHER_TEXTS:
            yield begun
            begun, size = [], 0
    yield begun


def _in(find: Find, spans: Sequence[tuple[int, int]]) -> bool:
    return any(start < find.end and find.start < end for start, end in spans)


def _apart(spans: list[tuple[int, int, Value]], masks: Sequence[tuple[int, int]]) -> list[tuple[int, int, Value]]:
    """Return the spans that overlap neither a mask nor each other: the leftmost, of these the longest."""
    kept: list[tuple[int, int, Value]] = []
    end = other = 0
    for span in sorted(spans, key=lambda span: (span[0], -span[1])):
        while other < len(masks) and masks[other][1] <= span[0]:
            other += 1
        if span[0] >= end and (other == len(masks) or masks[other][0] >= span[1]):
            kept.append(span)
            end = span[1]
    return kept


def _again(masked: MaskedPrompt, was: Split, sent: Split, before: Before | None) -> MaskedPrompt:
    """Reuse the masked prompt of an interrupted call for its retry; `was`: what the interrupted call sent."""
    if masked.split is was:
        return replace(masked, split=sent)
    known = before.masked if before is not None else None
    return replace(masked, split=replace(masked.split, same=same_at_start(masked.split, known)))
