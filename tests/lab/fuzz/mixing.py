"""Agents that mix: each prompt is made of the last trimmed one, of the agent's own history, and of new messages.

An agent may go on from any of them, or from parts: the call of an iteration that was dropped without its result, a
message twice, another branch. Whatever it sends, no call may end with anything but a documented error, and what comes
back must keep the promises as far as they can be judged without knowing what the agent meant: no defect that was not
sent, every original there, the same answer for the same prompt.
"""

from __future__ import annotations

import json
import re
from collections import Counter as Multiset
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from prompt_sidecar.errors import SidecarError
from prompt_sidecar.facts.trim_calls import Annotation, TrimAnswer
from prompt_sidecar.trim.presets import PRESETS
from tests.conformance.anthropic_messages import INSTRUCTED
from tests.conformance.table import CASES
from tests.lab.fuzz.target import Findings, raised
from tests.promises.engine import Engine
from tests.promises.played import Played, edited

LIMITS: Final = (1, 60, 150, 300, 450, 600, 900, 1_300, 2_000, 3_000, 4_500, 6_000, 9_000)
"""Tokens: most of them so small that whole iterations are dropped."""
POLICIES: Final[Sequence[dict[str, Any]]] = (
    {},
    {},
    {"age_hard_cap_iterations": 2},
    {"age_hard_cap_iterations": 4, "age_keep_iterations": 1},
    {"age_keep_iterations": 0, "fit_residue_high": 0.02, "fit_residue_low": 0.01},
    {"age_keep_iterations": 1, "fit_keep_oldest": 0.9, "fit_residue_high": 0.05, "fit_residue_low": 0.0},
    {"registry_share": 0.02, "cap_text_bytes": 1_024},
    {"registry_share": 0.02, "age_arguments": "empty"},
    {"fit_keep_light": 0.0, "fit_keep_oldest": 0.0},
    {"age_stage": "always", "fit_stage": "oldest_first", "age_keep_iterations": 1},
    {"fit_high": 0.5, "fit_low": 0.2},
)
REASONING: Final = ("auto", "auto", "auto", "bound")
WORDS: Final = ("Go on.", "Error: that is not valid.", "<EXTERNAL-CONTENT a>" + "page " * 300 + "</EXTERNAL-CONTENT>")
LEAST: Final = 3
"""Messages that are left of a history."""
_NUMBERS = re.compile(r"\d+")


@dataclass(slots=True)
class Mixing:
    """One agent, and what it holds."""

    play: Played
    chance: Random
    engine: Engine
    held: list[bytes] = field(default_factory=list)
    """The agent's history."""
    pool: list[bytes] = field(default_factory=list)
    """All messages that were sent or returned."""
    member: bytes | None = None
    """The body's system member in place of the run's own."""
    careless: bool = True
    """Whether it sends prompts that its provider would refuse."""
    done: int = 0
    """Messages of the made history that the agent has added."""
    answer: TrimAnswer | None = None
    got: bytes = b""
    """The body that came back last; empty: none did."""
    own: Collection[int] = frozenset()
    """Which of its messages are the sidecar's."""
    calls: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    restarted: bool = False
    """Whether this process did not see all that was trimmed."""

    @property
    def renamed(self) -> bool:
        """Whether the policy says of a model that it is another one, whose provider takes other prompts."""
        return self.play.policy["reasoning_binding"] != "auto"

    # -- what the agent does to its history --------------------------------------------------------------------------

    def grow(self) -> None:
        """The next messages of the made history."""
        step = self.chance.choice((1, 1, 2, 3, 5, 8, 14))
        messages = self.play.messages
        if self.done >= len(messages):
            self.done = self.chance.randrange(len(messages))
        self.held += [_dumps(each) for each in messages[self.done : self.done + step]]
        self.done += step

    def adopt(self) -> None:
        """All of the prompt that came back, with our own text or without."""
        self.held, self.member = self._returned()

    def mix(self) -> None:
        """What came back and what was sent before, message by message in the order of both."""
        returned, _ = self._returned()
        mine, queue = list(self.held), list(returned)
        mixed: list[bytes] = []
        known = set(returned)
        keep = self.chance.random()
        for each in mine:
            if each in known:
                while queue and queue[0] != each and self.chance.random() < 0.8:
                    mixed.append(queue.pop(0))
                if queue and queue[0] == each:
                    queue.pop(0)
                mixed.append(each)
            elif self.chance.random() < keep:
                mixed.append(each)
        self.held = mixed + queue

    def merge(self) -> None:
        """The untrimmed history, with trimmed forms and gaps where the sidecar made them, or not."""
        if not self.got:
            return
        returned, _ = self._returned()
        mine = self.held
        cut = self.chance.randint(0, len(returned))
        self.held = returned[:cut] + mine[self.chance.randint(0, len(mine)) :]

    def cut(self) -> None:
        """A shorter history."""
        del self.held[self.chance.randint(0, len(self.held)) :]

    def lose(self) -> None:
        """Some messages from the midst are gone."""
        share = self.chance.choice((0.05, 0.2, 0.5))
        self.held = [each for each in self.held if self.chance.random() > share]

    def lose_one(self) -> None:
        """One message is gone."""
        if self.held:
            del self.held[self.chance.randrange(len(self.held))]

    def again(self) -> None:
        """A message that was sent or returned before stands somewhere once more."""
        for _ in range(self.chance.choice((1, 1, 3))):
            if self.pool:
                self.held.insert(self.chance.randint(0, len(self.held)), self.chance.choice(self.pool))

    def shuffle(self) -> None:
        """Some neighbours change places."""
        for _ in range(self.chance.choice((1, 3))):
            if len(self.held) > 1:
                at = self.chance.randrange(len(self.held) - 1)
                self.held[at : at + 2] = self.held[at + 1], self.held[at]

    def halve(self) -> None:
        """The end of an earlier history follows at another place."""
        if self.held:
            first, last = sorted(self.chance.randint(0, len(self.held)) for _ in range(2))
            self.held = self.held[:first] + self.held[last:]

    def speak(self) -> None:
        """A user's words, of any kind, somewhere near the end."""
        users = [each for each in self.play.messages if _is_words(each)]
        if users:
            message = _reworded(self.chance.choice(users), self.chance.choice(WORDS))
            place = max(0, len(self.held) - self.chance.choice((0, 0, 1, 4)))
            self.held.insert(place, _dumps(message))

    def whole(self) -> None:
        """The made history as far as it went."""
        self.held = [_dumps(each) for each in self.play.messages[: self.done]]
        self.member = None

    def mend(self) -> None:
        """Take away messages until the provider has nothing against the prompt, as far as its validator knows.

        That says nothing of ids that are used twice, nor of calls that are open at the end.
        """
        for _ in range(12):
            if len(self.held) < LEAST:
                return
            worst = self._worst()
            if worst < 0:
                return
            del self.held[worst]

    def _worst(self) -> int:
        """The message to take away first; -1: none."""
        form = self.play.form
        seen: set[str] = set()
        waiting = False
        for place, each in enumerate(self.held):
            message = form.read(each, "history")
            ids = [*message.calls, *(f"answer {each}" for each in message.answers)]
            if seen.intersection(ids):
                return place
            seen.update(ids)
            waiting = bool(message.calls)
        try:
            found = self.play.case.defects(self.play.whole(self.play.raw(self.held, self.member)))
        except (KeyError, IndexError, TypeError, AttributeError, ValueError):
            found = []
        if found:
            number = _NUMBERS.search(found[0])
            return min(int(number[0]) if number else len(self.held), len(self.held) - 1)
        return len(self.held) - 1 if waiting else -1

    def stay(self) -> None:
        """Nothing."""

    def step(self) -> None:
        """Do some of these."""
        ways: Sequence[tuple[Callable[[], None], int]] = (
            (self.grow, 4),
            (self.adopt, 4),
            (self.mix, 5),
            (self.merge, 4),
            (self.cut, 2),
            (self.lose, 2),
            (self.lose_one, 3),
            (self.again, 2),
            (self.shuffle, 1),
            (self.halve, 2),
            (self.speak, 1),
            (self.whole, 1),
            (self.stay, 1),
        )
        for way in self.chance.choices([way for way, _ in ways], [weight for _, weight in ways], k=3):
            if self.chance.random() < 0.6:
                way()
        if self.chance.random() < 0.7:
            self.grow()
        if not self.careless:
            self.mend()
        if not self.held:
            self.grow()

    def _returned(self) -> tuple[list[bytes], bytes | None]:
        if not self.got:
            return list(self.held), self.member
        slices = self.play.slices(self.got)
        if self.chance.random() < 0.5:
            return [each for place, each in enumerate(slices) if place not in self.own], self.member
        return slices, self.play.member(self.got)

    # -- the calls ---------------------------------------------------------------------------------------------------

    def send(self) -> Iterator[str]:  # noqa: PLR0912 - one branch for each field of a call
        """One prompt; what is wrong with its answer."""
        chance = self.chance
        fields: dict[str, Any] = {}
        if chance.random() < 0.15:
            self.engine = replace(self.engine)  # another process
            self.restarted = True
        revision = self.answer.prompt.revision if self.answer is not None else b""
        if chance.random() < 0.3:
            fields["revision"] = revision
        if chance.random() < 0.1:
            fields["context_window"] = chance.choice(LIMITS)
        if chance.random() < 0.1:
            fields["recall_unavailable"] = True
        if chance.random() < 0.05:
            fields["served_iterations"] = chance.randrange(6)
        if chance.random() < 0.05:
            fields["policy"] = chance.choice(POLICIES)
        count = len(self.held)
        if chance.random() < 0.15:
            fields["pinned"] = frozenset(chance.randrange(count) for _ in range(2))
        if chance.random() < 0.2:
            fields["annotations"] = {chance.randrange(count): chance.choice(tuple(Annotation)) for _ in range(3)}
        raw = self.play.raw(self.held, self.member)
        self.pool += self.held
        if chance.random() < 0.1:
            self._trim(raw, **fields | {"side_call": True})
        if chance.random() < 0.1:
            self._trim(raw, **fields | {"dry_run": True})
        if revision and chance.random() < 0.1:
            first = chance.randrange(count)
            self._trim(self.play.raw(self.held[first:], self.member), base_revision=revision, **fields)
        if chance.random() < 0.1:
            edits = self._trim(raw, **fields | {"edits": True})
            if edits is not None and not _can_be_applied(raw, edits):
                yield "the edits cannot be applied"
        answer = self._trim(raw, **fields)
        if answer is None:
            return
        assert answer.prompt.body is not None
        fields.pop("revision", None)
        self.answer, self.got = answer, answer.prompt.body
        self.own = {piece.message_index for piece in answer.prompt.own_text if piece.message_index >= 0}
        self.pool += self.play.slices(answer.prompt.body)
        yield from self._complaints(raw, answer)
        again = self._trim(raw, **fields)
        if self.restarted and again is not None:  # a text of ours that this process had not written is known by now
            answer, again = again, self._trim(raw, **fields)
        if again is not None and again.prompt.body != answer.prompt.body:
            yield "the same prompt has another answer"
        if again is not None and list(again.trimmed.trims) != list(answer.trimmed.trims):
            yield "the same prompt has other trims"

    def _trim(self, raw: bytes, **fields: Any) -> TrimAnswer | None:
        self.calls += 1
        answer, status = None, "OK"
        try:
            answer = self.play.trim(self.engine, raw, **fields)
        except SidecarError as error:
            if error.status == "INTERNAL":
                raise
            status = error.status
        self.statuses[status] = self.statuses.get(status, 0) + 1
        return answer

    def _complaints(self, raw: bytes, answer: TrimAnswer) -> Iterator[str]:
        play = self.play
        assert answer.prompt.body is not None
        sent, got = play.slices(raw), play.slices(answer.prompt.body)
        if not (self.careless or self.renamed or self.defects(raw)):
            for defect in self.defects(answer.prompt.body):
                yield f"a new defect: {defect}"
            yield from play.case.worsened(play.whole(raw), play.whole(answer.prompt.body))
        own = {piece.message_index for piece in answer.prompt.own_text if piece.message_index >= 0}
        rest = [each for place, each in enumerate(got) if place not in own]
        if len(rest) > len(sent):
            yield f"{len(rest)} messages came of {len(sent)}"
        changed = Multiset(rest) - Multiset(sent)
        touched = {trim.message_index for trim in answer.trimmed.trims}
        if changed.total() > len(touched):
            yield f"{changed.total()} messages have other bytes, and {len(touched)} are said to be trimmed"
        if not self.restarted:
            for trim in answer.trimmed.trims:
                if self.engine.original(trim.stash_id) is None:
                    yield f"original {trim.item_index} of message {trim.message_index} is not found"
        if answer.fits != (answer.tokens.after <= answer.tokens.limit):
            yield "fits does not say whether it does"
        if answer.cache.kept + answer.cache.rewritten != answer.tokens.after:
            yield "kept and rewritten tokens do not make up the prompt"
        if min(answer.cache.kept, answer.cache.rewritten, answer.tokens.after, answer.tokens.before) < 0:
            yield "a figure is negative"

    def defects(self, raw: bytes) -> list[str]:
        """What the provider would refuse a prompt for, as far as its validator can read it."""
        try:
            return [_NUMBERS.sub("#", each) for each in self.play.case.defects(self.play.whole(raw))]
        except (KeyError, IndexError, TypeError, AttributeError, ValueError):
            return []


def _can_be_applied(raw: bytes, answer: TrimAnswer) -> bool:
    """Whether each edit of what was sent has a place."""
    try:
        edited(raw, answer.prompt.edits)
    except (LookupError, TypeError):
        return False
    return True


def _dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _is_words(message: Any) -> bool:
    if message.get("role") != "user":
        return False
    content = message.get("content", message.get("parts"))
    return isinstance(content, str) or (isinstance(content, list) and all("text" in part for part in content))


def _reworded(message: Any, words: str) -> Any:
    for name in ("content", "parts"):
        content = message.get(name)
        if isinstance(content, str):
            return message | {name: words}
        if isinstance(content, list):
            return message | {name: [content[0] | {"text": words}]}
    return message


def mixing(seed: int, number: int) -> Mixing:
    """The agent of a case."""
    chance = Random(f"mixing:{seed}:{number}")
    case = CASES[chance.choice(list(CASES))]
    if case.format == INSTRUCTED.format and chance.random() < 0.6:
        case = INSTRUCTED
    body = case.history(chance, chance.choice((4, 8, 14, 20))) | dict(chance.choice(list(case.heads)))
    policy = chance.choice(POLICIES) | {"reasoning_binding": chance.choice(REASONING)}
    play = Played(
        case=case,
        body=body,
        limit=chance.choice(LIMITS),
        preset=chance.choice(("cache_first", "cache_first", *PRESETS)),
        bare=chance.random() < 0.2,
        policy=policy,
    )
    return Mixing(play, chance, play.engine(), careless=chance.random() < 0.5)


def mixed_case(agent: Mixing, rounds: int = 8) -> Iterator[str]:
    """Some prompts of one agent; what is wrong, an exception included."""
    for turn in range(rounds):
        try:
            agent.step()
            for complaint in agent.send():
                yield f"prompt {turn}: {complaint}"
        except Exception as error:  # noqa: BLE001 - any is what is looked for
            yield f"prompt {turn}: {raised(error)}"
            return


def mixed_to(found: Findings, seed: int, number: int) -> None:
    """The same, counted as other cases of the fuzzer are."""
    agent = mixing(seed, number)
    for fault in mixed_case(agent):
        found.faults.append(f"--seed {seed} --mixed {number}: {fault}")
    found.add(agent.calls, agent.statuses)
