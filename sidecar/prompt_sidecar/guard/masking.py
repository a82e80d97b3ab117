"""Masking: a prompt as it was sent becomes the one that everything behind the guard sees.

    sent ──► what is new ──► its strings ──► rules, known values ──► masks ──► the same prompt, masked
             (by bytes)      (prompt/strings.py)   (vault.py)

Everything that is recorded, decided, returned or reported is made of the masked prompt, so no value can be in any of
it. What is sent is compared byte for byte with what was sent last: only what is new is looked at, so a call without
anything new costs nothing, and a prompt in which nothing is found is passed on as the same bytes.

Messages are masked in their order. A value that was found once is masked in every later text of its run, wherever it
stands; not in earlier ones, which a provider has seen, so that a process that sees the whole history at once makes the
same prompt as one that saw it grow. Masked text is masked to itself: nothing is found in a mask, and what is left of a
text is searched again until nothing more is found.

Nothing is refused for a value that cannot be masked, as the next prompt would hold it again, and the run would end
there for good: what a signature covers goes on as it came and is reported. Only a rule that a user has set to `refuse`
refuses, and `guard.fail_closed`.
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
TOGETHER: Final = 256
"""Messages that are scanned at once, likewise: in short ones it is finding their strings that takes the time."""
TOGETHER_TEXTS: Final = 1_000
"""Texts that are scanned at once, likewise: a message may have tens of thousands of short ones."""
ROUNDS: Final = 6
"""How often what is left of a text is searched again; two rounds find nothing in all but made-up texts."""
_HOLDS_TEXT: Final = frozenset({b'"', b"[", b"{"})
"""First bytes of members that may hold text."""
SCAN_BOUND: Final = "guard.scan_seconds"
_UNCHANGED: Final = frozenset({StringUse.OBSERVED, StringUse.SIGNED})
"""Strings in which a value that a later message shows stays as it is."""


class ActionTaken(StrEnum):
    """What was done about what a rule found."""

    OBSERVED = "observed"
    MASKED = "masked"
    DEFANGED = "defanged"


@dataclass(frozen=True, slots=True)
class NotedFinding:
    """What a rule found in one string; never the text."""

    message: int
    """Index among the messages sent; -1: in a member of the body."""
    member: str
    """The body's member, where it is in no message."""
    path: Path
    rule: str
    action: ActionTaken
    count: int


@dataclass(frozen=True, slots=True)
class MaskedPrompt:
    """A prompt behind the guard."""

    split: Split
    """What was sent, if nothing is masked."""
    noted: Sequence[NotedFinding] = ()
    """What was found in what is new."""
    originals: Mapping[int, bytes] = field(default_factory=dict)
    """Messages in which something was defanged, by index, as they were before that: masked, and no more."""


class _MaskingInputs(NamedTuple):
    """What decides, besides the prompt, what the guard makes of it."""

    format: str
    masks: bool
    rules: bytes
    """Their digest."""
    knows: bool
    lost: int
    changes: int
    """Of the run's values."""


@dataclass(slots=True)
class Progress:
    """What a call has done of masking a prompt, for the retry of one that had to end."""

    sent: Split
    state: _MaskingInputs
    parts: dict[tuple[int, str], NewPart] = field(default_factory=dict)
    """The messages and members that were scanned, wholly or in part; none any more once the prompt is masked."""
    masked: MaskedPrompt | None = None
    """The prompt, once it is masked."""
    messages: int = 0
    """So many messages and members were scanned."""
    characters: int = 0
    """Of texts that were scanned."""
    texts: int = 0
    """So many were scanned."""

    @property
    def worth_keeping(self) -> bool:
        """Whether it holds more than is scanned in some milliseconds."""
        return self.messages >= TOGETHER or self.characters >= TOGETHER_BYTES or self.texts >= TOGETHER_TEXTS

    @property
    def bytes(self) -> int:
        """What it keeps in addition to the masked prompt."""
        return len(self.sent.raw) if self.masked is not None and self.masked.split is not self.sent else 0


@dataclass(slots=True)
class RunGuard:
    """What the guard remembers of a run besides its values. A run is used under its lock."""

    other_keys: Sequence[bytes] = ()
    """What the run's key would be by the sidecar's other keys."""
    masks: bool = False
    """Whether its prompts are masked: from then on for good."""
    lost: int = 0
    """How often its values had been evicted at the last prompt: those that it has now are to be found again."""
    known: KnownValues | None = None
    changes: int = -1
    """Of the run's values, when `known` was made."""
    reported: dict[bytes, None] = field(default_factory=dict)
    """Digests of what was reported of texts outside the history."""


class Masker:
    """Masks one prompt of a run. What it puts into the vault it can take back."""

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
        """Take the rules and the run: its name in the vault, its key, and what is remembered of it.

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
        """What was done so far of the prompt."""

    @property
    def masks(self) -> bool:
        """Whether anything is masked; else it is only looked."""
        return self._state.masks

    def take_back(self) -> None:
        """Forget the values that only this prompt had."""
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
        """Mask a prompt. When `check` ends the call, `progress` is what was done of it.

        Args:
            sent: what was sent; its `same` refers to `before.sent`.
            before: the last prompt.
            format_: the format of both.
            check: called now and then; what it raises ends the call.
            stands: whether a masked message is part of the run's history already.
            done: what an earlier call has done of a prompt that may be the same.

        Raises:
            GuardRefused: a rule finds something whose action is to refuse, or did not have the time to look.
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
        """Mask a text that is in no prompt. `where`: its field, for an error. Raises GuardRefused, as `mask`."""
        part = NewPart(OUTSIDE, "", where, b"", (Leaf(0, (), text, StringUse.TEXT),), JSON)
        parsed = self._taken_apart(text, StringUse.TEXT, "")
        self._look([*parsed.all()])
        self._take_values(part, part.leaves[0], parsed)
        return applied(text, self._masked(parsed, _TextPlace(part, part.leaves[0], set())))

    def mask_body(
        self, body: bytes, texts: Collection[str], check: Callable[[], None]
    ) -> tuple[bytes, Sequence[NotedFinding]]:
        """Mask a body that is no prompt of a run. The same object if nothing is masked.

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
        """Pieces of a body, masked."""
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
        """The edits that mask a string outside a history."""
        self._take_values(part, leaf, text)
        if leaf.use is StringUse.OBSERVED:
            return ()
        if leaf.use is StringUse.SIGNED:
            return self._as_signed(part, leaf, text, self._known())
        return self._masked(text, _TextPlace(part, leaf, set()))

    def _begun(self, sent: Split, format_: Format, lost: int, done: Progress | None) -> Progress:
        """What an earlier call has done of the very prompt, if it would be done alike now."""
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
        """The masked prompt, of what is new in it and was scanned; `known`: the last one, if its values are known."""
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
        """A message or member that an earlier call has begun to scan, of the very same body."""
        return self.progress.parts.get((message, member)) if self.progress is not None else None

    def _members(self, sent: Split, before: Before | None, system: str) -> Iterable[NewPart]:
        """The body's members that are new, the system prompt first."""
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
        """The messages that are new. `check` comes before each long one, which is decoded in one go."""
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
                continue  # reading it says what is wrong
            yield NewPart(index, "", where, raw, leaves, format_.strings)

    def _leaves(self, raw: bytes, name: str, *, apart: bool) -> Sequence[Leaf]:
        """The strings of a member; `apart`: of one besides the system prompt."""
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
        """Have the rules look at all texts, some at a time."""
        scanned: list[NewPart] = []
        begun: list[NewPart] = []
        waiting: list[Text] = []
        size = 0

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
        """A text, with the strings in it; `name`: of the member that it is the value of."""
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
        """What the rules find in texts, and in those behind the names of secrets."""
        found = self._rules.scan([each.text for each in texts], watch)
        named = [index for index, each in enumerate(texts) if each.name]
        if not named:
            return found
        behind = self._rules.scan_named([(texts[index].name, texts[index].text) for index in named], watch)
        more = dict(zip(named, behind, strict=True))
        return [resolved([*finds, *more[index]]) if more.get(index) else finds for index, finds in enumerate(found)]

    def _outside_masks(self, text: str, finds: Sequence[Find]) -> Sequence[Find]:
        """The finds that touch no mask, however it is written; those of forged ones may, where values are known."""
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
        """A message or member, masked."""
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
        """Note the known values in a string that must not be changed, but for those that a rule has found there."""
        spans = [(find.start, find.end) for find in text.finds]
        for start, end, value in known.find(leaf.text):
            if part.message >= value.first and not any(start < last and first < end for first, last in spans):
                self._note(part, leaf, value.rule, ActionTaken.OBSERVED)

    def _as_signed(self, part: NewPart, leaf: Leaf, text: Text, known: KnownValues) -> Sequence[TextEdit]:
        """The edits that make a signed call's arguments what the model wrote: values that it knew as masks only.

        They are in the call because they were put back for the agent's tool. What the model wrote itself stays.
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
        """Put what the rules mask into the vault, and note what they only observe.

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
        """A masked message whose results are broken where a rule says so; the words of users and models stay."""
        if not part.imitates or stands(raw):
            return raw
        try:
            found = part.strings.leaves(raw, part.where)
        except AmbiguousJson:
            return raw  # it is not taken apart, so nothing in it is a result
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
        """Whether what looks like text of the sidecar may be that: in the system prompt, or an answer of its tools."""
        return part.message < 0 or recognise(self._key, leaf.text, self._state.other_keys) is not None

    def _take(self, rule: Rule, text: str, part: NewPart) -> Value:
        """A value in the vault. Where that has no room the value has its mask, and no tool gets it back."""
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
        """Whether a text is a value that the model knew as a mask only when it wrote a message."""
        return any(value.text == text and _knew_as_mask(value, part) for *_, value in self._known().find(text))

    def _known(self) -> KnownValues:
        state = self._state
        if state.known is None or (not self._added and state.changes != self._vault.changes(self._run)):
            state.known, state.changes = KnownValues(self._vault.values(self._run)), self._vault.changes(self._run)
        return state.known

    def _outside(self) -> KnownValues:
        """The values that were found outside the history alone."""
        if self._known_outside is None:
            self._known_outside = KnownValues(self._vault.values(self._run), of_tasks=True)
        return self._known_outside

    def _masked(self, text: Text, at: _TextPlace, short: Sequence[Value] = ()) -> Sequence[TextEdit]:
        """The edits that put masks into a text. `short` are values that are masked where they are a whole string."""
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
        """The edits that mask what the rules found and what is known."""
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
    """Where a text stands that is masked."""

    part: NewPart
    leaf: Leaf
    later: set[str]
    """Gathers the ids of values that were found in a later message than this one."""
    earlier_only: bool = False
    """Whether such values stay unmasked."""


def _knew_as_mask(value: Value, part: NewPart) -> bool:
    """Whether the model knew a value as a mask only when it wrote a message. Outside a history that is assumed."""
    return part.first == OUTSIDE or value.first < part.message


def _together(found: Iterable[BodyPiece]) -> Iterable[Sequence[BodyPiece]]:
    """Pieces of a body in their order, some at a time."""
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
    """Strings in their order, some at a time."""
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
    """Those that overlap neither a mask nor each other: the leftmost, of these the longest."""
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
    """A masked prompt whose call had to end, for the retry of that; `was`: as that had sent it."""
    if masked.split is was:
        return replace(masked, split=sent)
    known = before.masked if before is not None else None
    return replace(masked, split=replace(masked.split, same=same_at_start(masked.split, known)))
