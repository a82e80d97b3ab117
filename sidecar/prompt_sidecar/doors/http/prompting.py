"""Turns a request's body into the prompt that is sent to the provider. Runs in a worker thread.

It finds the run, restores hidden turns, adds the sidecar's tools, and trims. A step that fails is left out, and the
request is forwarded without it: a failure of the door must not fail its agent. Only the guard's refusals are final.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

import orjson

from prompt_sidecar import slots
from prompt_sidecar.answers.answer_json import write_sound
from prompt_sidecar.answers.base import Call, Dialect, ModelTurn
from prompt_sidecar.answers.reported_usage import usage_call
from prompt_sidecar.answers.restoring import Restore, safe
from prompt_sidecar.calls import headers as names
from prompt_sidecar.calls.checks import checked_run_id
from prompt_sidecar.calls.conversations import (
    SESSION_HEADERS,
    Conversation,
    Conversations,
    Opening,
    opening_of,
    session_of,
)
from prompt_sidecar.calls.provider_errors import is_final
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.doors.http.hidden import HiddenLoss, HiddenTurns, Splice
from prompt_sidecar.doors.http.options import HttpOptions
from prompt_sidecar.doors.http.placing import SentEntry, identity
from prompt_sidecar.doors.http.stored_responses import Link, StoredResponse, StoredResponses, history
from prompt_sidecar.engine.tools.definitions import definitions
from prompt_sidecar.errors import GuardRefused, InvalidRequest, SidecarError, TooLarge
from prompt_sidecar.facts.guard_calls import MaskCall, SendingDoor, Unread
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.facts.tool_calls import ToolAnswer, ToolCall, ToolOutcome
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.facts.untrimmed import Untrimmed, untrimmed_by
from prompt_sidecar.facts.usage_calls import ReportedRefusal, UsageAnswer, UsageCall
from prompt_sidecar.process.logs import frames
from prompt_sidecar.prompt.members import Members, NotJson, array, loads, prompt_format
from prompt_sidecar.providers.untyped import MOST_TOKENS
from prompt_sidecar.providers.usage import ProviderUsage

UNREACHABLE: Final = "This tool cannot be used right now. Go on without it."
"""The result of a call of the sidecar's tools that failed."""

MOST_CALLS: Final = 64
"""Calls of the sidecar's tools that are answered in one turn. A model makes one to five; the result of each may be 16
kB, and a provider's answer could contain a million of them."""
CALLS_BOUND: Final = "http.tool_calls"
TOO_MANY: Final = "Too many calls at once: this one was not answered. Call again with fewer, or go on without."
"""The result of each further call."""
_PLAIN: Final = frozenset({"", "identity"})
"""Content encodings of a body that is not compressed."""
_ENDED: Final = "ended"
"""Replaces the number of a run that ended as soon as its prompt was trimmed."""
_WINDOW_DIGITS: Final = 20
"""Longest number that is read from a header, in digits; Python refuses to read more than 4,300."""
_CHAINED: Final = {"note_place": "off", "cache_marks": False}
"""Policy for prompts on a WebSocket: a note, or a cache mark, would stay in what the provider stores and the next
request continues from."""
_LONG: Final = 262_144
"""Bytes of a body from which on looking for the run's last prompt takes less time than reading all of it."""
_BEGINNING: Final = 16_384
"""Bytes of a body by which its run is found: more than many system prompts have, digested in a hundredth of the time
that reading a megabyte takes."""
_log = logging.getLogger("prompt_sidecar.http")


@dataclass(frozen=True, slots=True)
class Modes:
    """Settings that change what the door does."""

    restores: bool = False
    """Whether the guard may restore values in tool calls."""
    observes: bool = False
    """Whether prompts are forwarded unchanged, and only reported."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The history that a request on a WebSocket continues from, and its new entries."""

    before: Link | None = None
    """The chain that it continues from; None if the history begins with it."""
    previous: str = ""
    """The provider's id of the response that it continues from; empty if none is known here."""
    added: tuple[bytes, ...] = ()
    """The entries that the agent sent."""


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """One request of an agent."""

    dialect: Dialect
    caller: str
    headers: Mapping[str, str]
    body: bytes
    model: str = ""
    """The model that the path names; empty if the body names it."""
    counting: bool = False
    """Whether the request only counts tokens: nothing is recorded."""
    compacting: bool = False
    """Whether the provider answers with a shorter history."""
    decoded: bool = False
    """Whether the body was compressed."""
    recalls: bool = True
    """Whether calls of the sidecar's tools can be answered within the provider's answer."""
    on_socket: bool = False
    """Whether it was sent on a WebSocket, where a request may continue from any response."""
    chain: Chain | None = None
    """Set for a request on a WebSocket whose whole history is known; None if it is not known or not needed."""
    generates: bool = True
    """Whether the provider has to generate an answer, and not only to prepare for one."""


@dataclass(frozen=True, slots=True)
class SentPrompt:
    """A prompt as it is sent to the provider, and what is known about it."""

    asked: PromptRequest
    body: bytes
    members: Members | None = None
    """The agent's prompt with hidden turns and tools, untrimmed; None if the body cannot be read."""
    conversation: Conversation | None = None
    own: frozenset[str] = frozenset()
    """Names of the sidecar's tools that are offered."""
    recall: RecallOffer = RecallOffer.UNTRIMMED
    """Whether the sidecar's tools are offered, or why not."""
    narrowed: bool = False
    """Whether its tool choice is replaced, so that the model calls one of the agent's tools."""
    pinned: frozenset[int] = frozenset()
    """Indices of entries that no cut may change, hidden turns included."""
    answer: TrimAnswer | None = None
    """The trim answer; None if it was not trimmed."""
    left: Untrimmed | None = None
    """Why it could not be taken through its run; None if it was."""
    added: tuple[bytes, ...] = ()
    """Entries added by hidden turns of this answer."""

    number: str = ""
    """Distinguishes its run from others with the same name; empty if not known."""

    @property
    def untrimmed(self) -> Untrimmed | None:
        """Why it is forwarded untrimmed; None if it is trimmed."""
        return self.answer.untrimmed if self.answer is not None else self.left

    @property
    def failed_open(self) -> bool:
        """Whether it should have been taken through its run, but could not."""
        return self.left not in (None, Untrimmed.NO_NEED)

    @property
    def run(self) -> tuple[str, str]:
        """Caller and id of the run."""
        assert self.conversation is not None
        return self.asked.caller, self.conversation.run_id


class Prompter:
    """Makes prompts. Thread-safe."""

    def __init__(
        self,
        shared: DoorServices,
        options: HttpOptions,
        conversations: Conversations,
        hidden: HiddenTurns,
        *,
        modes: Modes,
    ) -> None:
        self._modes = modes
        self._use_cases = shared.use_cases
        self._shares = shared.use_cases.runs.shared
        """Whether hidden turns go to the store that replicas share."""
        self._refused = shared.refused
        self._options = options
        self._conversations = conversations
        self.hidden = hidden
        self._reached = shared.use_cases.observer.reached
        self._stored = StoredResponses(
            options.max_conversations,
            options.hidden_bytes,
            self._reached,
            shared.use_cases.runs.now,
            options.chain_bytes,
        )
        shared.use_cases.runs.table.keep_with(conversations)
        self.hidden.life = shared.use_cases.runs.table.keep_with(self.hidden)
        self._stored.life = shared.use_cases.runs.table.keep_with(self._stored)
        self._tools: dict[str, list[tuple[str, bytes]]] = {}
        self._lock = threading.Lock()
        self._beginnings: OrderedDict[bytes, str] = OrderedDict()
        """Ids of the runs that agents do not name, by the digest of how the body of their last prompt begins."""

    # -- before the model is asked ---------------------------------------------------------------------------------

    def prepare(self, asked: PromptRequest, check: Callable[[], None]) -> SentPrompt:
        """Make the prompt of a request.

        Raises:
            SidecarError: the guard refuses it, or a header is wrong.
        """
        dialect = asked.dialect
        try:
            members = self._split(asked)
        except NotJson:  # the provider reports what is wrong with it
            packed = _packed(asked)
            return self._open(
                SentPrompt(asked, asked.body), Untrimmed.ENCODED if packed else Untrimmed.UNREADABLE, check
            )
        except TooLarge as error:
            self._refused(f"http {dialect.format}", error, error.status, asked.caller)
            return self._open(SentPrompt(asked, asked.body), untrimmed_by(error), check)
        if asked.on_socket:
            asked = self._whole(asked, members)
        if dialect.continues_stored(members):
            return self._continued(asked, members, check)
        dialect.as_entries(members)
        conversation = self._conversation(asked, members)
        if not asked.generates and not _has_begun(dialect, members):
            recall, own, narrowed = self._offered(asked, members, conversation)
            prompt = SentPrompt(asked, members.bytes(), members, conversation, own, recall, narrowed=narrowed)
            return self._open(prompt, Untrimmed.NO_NEED, check)
        with slots.holding(conversation.lock), ExitStack() as stack:
            run = asked.caller, conversation.run_id
            loaded = self._load(asked, run, stack, check)
            pinned = names.pinned(asked.headers, lambda: sum(1 for _ in dialect.entries(members)))
            restored = self.hidden.restored(
                run, dialect, lambda: list(dialect.entries(members)), only_look=asked.counting
            )
            if self._shares and self.hidden.unsaved(run) and not asked.counting:
                self._use_cases.runs.keep_hidden(*run, self.hidden.saved(run), check, at_once=False)
            lost = self.hidden.lost(run) or not (conversation.seen or loaded)
            if restored is not None and restored.entries is not None:
                members.set(dialect.messages, array(restored.entries))
                pinned = frozenset(restored.places[index] for index in pinned)
            recall, own, narrowed = self._offered(asked, members, conversation)
            # Thinking produced under prompts that are not known here is not valid under this one.
            served = 0 if lost and conversation.opening.answer else None
            prompt = SentPrompt(asked, members.bytes(), members, conversation, own, recall, narrowed, pinned=pinned)
            prompt = self._trimmed(prompt, check, served=served)
            if prompt.answer is not None:
                conversation.seen = True
                self._note_beginning(asked, conversation.run_id)
            return prompt

    def _split(self, asked: PromptRequest) -> Members:
        """Split a request's body; of a long one only what the last prompt of its run did not have is read.

        Raises NotJson, TooLarge.
        """
        if len(asked.body) < _LONG:
            return Members(asked.body)
        run_id = asked.headers.get(names.RUN, "")
        if not run_id:
            with self._lock:
                run_id = self._beginnings.get(_beginning(asked), "")
        before = self._use_cases.runs.table.last_sent(asked.caller, run_id) if run_id else None
        return Members(asked.body, before, asked.dialect.messages)

    def _note_beginning(self, asked: PromptRequest, run_id: str) -> None:
        """Note the run of a prompt whose agent names none, by its beginning, for `_split`; a wrong run does no harm."""
        if len(asked.body) < _LONG or asked.headers.get(names.RUN, ""):
            return
        key = _beginning(asked)
        with self._lock:
            self._beginnings[key] = run_id
            self._beginnings.move_to_end(key)
            if len(self._beginnings) > self._options.max_conversations:
                self._beginnings.popitem(last=False)

    def _load(self, asked: PromptRequest, run: tuple[str, str], stack: ExitStack, check: Callable[[], None]) -> bool:
        """Take in what other processes have made of a run's hidden turns; whether they left any that are new here.

        What the store cannot give is missing as without a store.
        """
        if not self._shares:
            return False
        revision = _revision(asked.headers)
        try:
            found = stack.enter_context(self._use_cases.runs.awaiting(*run, revision, check))
            if found is not None:
                self.hidden.load(run, found)
        except SidecarError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the agent's run goes on
            _log.error("hidden turns of another process are left out: %s", frames(error))
            return False
        return bool(found)

    def again(self, prompt: SentPrompt, check: Callable[[], None], *, served: int | None = None) -> SentPrompt:
        """Trim a prompt again that the provider has refused. Errors as `prepare`."""
        assert prompt.conversation is not None
        with slots.holding(prompt.conversation.lock):
            return self._trimmed(prompt, check, served=served)

    def unnarrowed(self, prompt: SentPrompt, check: Callable[[], None]) -> SentPrompt:
        """Make a prompt again with the agent's own tool choice, as the provider has refused the narrowed one.

        Errors as `prepare`.
        """
        assert prompt.conversation is not None
        prompt.conversation.narrows = False
        return self.prepare(prompt.asked, check)

    @staticmethod
    def refused_anyway(prompt: SentPrompt) -> None:
        """Note that the provider has refused the agent's own tool choice as well, for another reason."""
        if prompt.conversation is not None:
            prompt.conversation.narrows = True

    def answered(self, prompt: SentPrompt, turn: ModelTurn, check: Callable[[], None], *, last: bool) -> SentPrompt:
        """Answer a hidden turn, and make the next prompt; `last`: the model must answer it without tools."""
        members, conversation, dialect = prompt.members, prompt.conversation, prompt.asked.dialect
        assert members is not None
        assert conversation is not None
        added = [write_sound(each) for each in self._sendable(prompt, turn)]
        answers = dialect.answers(self._results(prompt, turn, check))
        if last and dialect.recall(members) is RecallOffer.FORCED:  # the model must call one of the agent's tools
            dialect.withdraw(members, prompt.own)
        elif last:
            dialect.forbid_tools(members, answers)
        added += [orjson.dumps(each) for each in answers]
        members.set(dialect.messages, dialect.continued(members.raw(dialect.messages), added))
        prompt = replace(prompt, body=members.bytes(), added=(*prompt.added, *added))
        if prompt.answer is None:
            return self._open(prompt, prompt.left, check)
        with slots.holding(conversation.lock):
            return self._trimmed(prompt, check)

    def _results(self, prompt: SentPrompt, turn: ModelTurn, check: Callable[[], None]) -> list[tuple[Call, str, bool]]:
        answered, rest = turn.own[:MOST_CALLS], turn.own[MOST_CALLS:]
        if rest:
            self._reached(CALLS_BOUND)
        answers = [(call, self._run_tool(prompt, call, check)) for call in answered]
        results = [(call, answer.content, answer.is_error) for call, answer in answers]
        return results + [(call, TOO_MANY, True) for call in rest]

    def _run_tool(self, prompt: SentPrompt, call: Call, check: Callable[[], None]) -> ToolAnswer:
        caller, run_id = prompt.run
        try:
            return self._use_cases.call_tool(
                ToolCall(caller, run_id, call.name, call.arguments, call_id=call.id), check
            )
        except SidecarError as error:
            self._refused("http tool", error, error.status, caller)
        except Exception as error:  # noqa: BLE001 - whatever it is, the agent's run goes on
            _log.error("a call of a tool failed: %s", frames(error))
        return ToolAnswer(ToolOutcome.RUN_UNKNOWN, UNREACHABLE)

    @staticmethod
    def _sendable(prompt: SentPrompt, turn: ModelTurn) -> Sequence[Any]:
        if prompt.members is None:
            return turn.entries
        return prompt.asked.dialect.sendable(turn.entries, prompt.members)

    # -- after the last turn ---------------------------------------------------------------------------------------

    def keep(
        self, prompt: SentPrompt, turn: ModelTurn, visible: Sequence[Any], check: Callable[[], None], *, shown: str = ""
    ) -> None:
        """Remember the original of an answer, if the agent got something else.

        Args:
            prompt: the prompt answered last.
            turn: the answer's last turn.
            visible: the entries that the agent got.
            check: ends the work if the agent has gone.
            shown: the id that the agent got, if it is not the provider's.
        """
        if prompt.conversation is None:
            return
        dialect = prompt.asked.dialect
        answers = dialect.answers(self._results(prompt, turn, check)) if turn.mixed else []
        if not self._lives(prompt):  # nothing of an ended run may be sent again
            self.hidden.tell(HiddenLoss.ENDED, int(bool(prompt.added) or turn.mixed))
            return
        response_id = turn.response_id if prompt.asked.on_socket else turn.id
        if response_id:
            stored = StoredResponse(
                response_id, prompt.conversation, tuple(answers), self._chain(prompt, turn, visible)
            )
            self._stored.keep(prompt.asked.caller, shown or response_id, stored)
        if turn.compaction:
            self._conversations.compacted(prompt.run, turn.compaction)
        if turn.own and not turn.mixed:  # calls without a result cannot be sent back
            prompt.conversation.seen = False
        elif prompt.added or turn.mixed:
            splice = self._splice(prompt, turn, visible, answers, check)
            self.hidden.keep(prompt.run, splice, stays=self._shares and self._holds_secrets(prompt, splice, check))
        if not self._lives(prompt):
            self._forget(prompt)
        self._use_cases.runs.table.weigh_of_doors(*prompt.run)
        if self._shares and self.hidden.unsaved(prompt.run):
            self._use_cases.runs.keep_hidden(*prompt.run, self.hidden.saved(prompt.run), check, at_once=True)

    @staticmethod
    def _chain(prompt: SentPrompt, turn: ModelTurn, visible: Sequence[Any]) -> Link | None:
        """Return the history up to an answer, as the agent would send it, or None if it is not known."""
        asked = prompt.asked
        if asked.chain is None or prompt.members is None:
            return None
        shown = visible if turn.whole else asked.dialect.finished(visible)
        given = [write_sound(each) for each in asked.dialect.sendable(shown, prompt.members)]
        return Link(asked.chain.before, (*asked.chain.added, *given), prompt.run)

    def _lives(self, prompt: SentPrompt) -> bool:
        """Whether the run is still the one it was trimmed in. One that was never known ends by its time to live."""
        return self._use_cases.runs.table.number_of(*prompt.run) == prompt.number

    def _forget(self, prompt: SentPrompt) -> None:
        for memory in (self.hidden, self._stored):
            memory.forget(prompt.run)

    def _masked(self, prompt: SentPrompt, entries: Sequence[bytes], check: Callable[[], None]) -> Sequence[bytes]:
        """Return entries with the masks that the guard puts into them in the run's next prompt.

        Text that a rule refuses stays: the next prompt is refused for it.
        """
        runs, dialect = self._use_cases.runs, prompt.asked.dialect
        if not entries or not runs.guarding.unread(prompt.asked.caller):
            return entries
        body = Members(b"{}")
        body.set(dialect.messages, array(entries))
        raw = body.bytes()
        try:
            made = runs.mask(MaskCall(prompt.asked.caller, raw, prompt.run[1], dialect.format), check).body
        except GuardRefused:
            return entries
        return entries if made is raw else list(dialect.entries(Members(made)))

    def _splice(
        self,
        prompt: SentPrompt,
        turn: ModelTurn,
        visible: Sequence[Any],
        answers: Sequence[Any],
        check: Callable[[], None],
    ) -> Splice:
        """Return an answer's original entries, and what identifies the entries that the agent got."""
        dialect, own = prompt.asked.dialect, prompt.own
        sendable = self._sendable(prompt, turn)
        sent = [loads(entry) for entry in prompt.added]
        held = list(dialect.entries(Members(prompt.asked.body)))
        mixed = turn.entries if turn.mixed else ()
        ours = [call for entry in (*sent, *mixed) for call in dialect.calls(entry) if call.id and call.name in own]
        return Splice(
            visible=tuple(gist for entry in visible if (gist := dialect.gist(entry))),
            entries=tuple(self._masked(prompt, (*prompt.added, *map(write_sound, sendable)), check)),
            answers=tuple(answers),
            place=len(held),
            hidden=tuple(filter(None, dialect.gists(sent))),
            hidden_entries=len(prompt.added),
            before=identity(held[-1]) if held else b"",
            seen=tuple(_seen(dialect, entry) for entry in visible),
            own=tuple(map(write_sound, dialect.own_calls(mixed, own))),
            calling=tuple(map(write_sound, dialect.calling(mixed, own))),
            own_calls=tuple((call.id, call.name) for call in ours),
        )

    def _holds_secrets(self, prompt: SentPrompt, splice: Splice, check: Callable[[], None]) -> bool:
        """Whether what a splice is known by holds anything that the guard masks or refuses.

        Its entries and answers are masked already.
        """
        runs = self._use_cases.runs
        if not runs.guarding.unread(prompt.asked.caller):
            return False
        seen = [(each.gist, each.text, *((call.id, call.name) for call in each.calls)) for each in splice.seen]
        calls = [call.decode(errors="replace") for call in (*splice.own, *splice.calling)]
        raw = json.dumps([splice.visible, splice.hidden, seen, calls]).encode()
        try:
            return runs.mask(MaskCall(prompt.asked.caller, raw, prompt.run[1]), check).body is not raw
        except GuardRefused:
            return True

    def not_kept(self) -> None:
        """Count an answer that could not be remembered."""
        self.hidden.tell(HiddenLoss.FAILED)

    def restore(self, prompt: SentPrompt) -> Restore | None:
        """Return the function that restores masks in the agent's calls, or None if there are no masks to restore."""
        if not self._modes.restores or prompt.conversation is None:
            return None
        return safe(self._use_cases.restores(*prompt.run))

    def report(self, prompt: SentPrompt, usage: ProviderUsage | None, *, failed: bool = False) -> None:
        """Report the provider's usage; if there is none and the call `failed`, report that."""
        asked = prompt.asked
        if (
            usage is not None
            and usage.reported
            and prompt.answer is not None
            and not asked.counting
            and asked.generates
        ):
            self._reported(usage_call(usage, *prompt.run, prompt.answer.prompt.revision))
        elif failed:
            self.failed(prompt)

    def failed(self, prompt: SentPrompt) -> None:
        """Report that the provider failed, or sent an incomplete answer."""
        if prompt.answer is not None and not prompt.asked.counting and prompt.asked.generates:
            caller, run_id = prompt.run
            self._reported(UsageCall(caller, run_id, failed=True, revision=prompt.answer.prompt.revision))

    def refused(self, prompt: SentPrompt, message: str) -> UsageAnswer | None:
        """Report that the provider refused the prompt as too long; None if the report failed."""
        if prompt.answer is None:
            return None
        caller, run_id = prompt.run
        return self._reported(
            UsageCall(caller, run_id, refusal=ReportedRefusal(message), revision=prompt.answer.prompt.revision)
        )

    def _reported(self, call: UsageCall) -> UsageAnswer | None:
        try:
            return self._use_cases.report_usage(call, lambda: None)
        except SidecarError as error:
            self._refused("http report", error, error.status, call.caller)
            return None

    def bytes_behind(self, caller: str, shown: str) -> int:
        """Return the bytes of the history that a request on a WebSocket continues from, by the response's id."""
        return self._stored.bytes_behind(caller, shown)

    # -- chains ---------------------------------------------------------------------------------------------------

    def _whole(self, asked: PromptRequest, members: Members) -> PromptRequest:
        """Add the history to a request on a WebSocket that continues from a response, if the history is known."""
        dialect = asked.dialect
        before, previous = None, ""
        if dialect.continues_stored(members):
            shown = dialect.stored_id(members)
            stored = self._stored.find(asked.caller, shown) if shown else None
            if stored is None or stored.chain is None:
                return asked
            before, previous = stored.chain, stored.id
        dialect.as_entries(members)
        added = tuple(dialect.entries(members))
        if before is not None:
            dialect.begin_anew(members)
            members.set(dialect.messages, array([*history(before), *added]))
        chain = Chain(before, previous, added)
        generates = members.raw("generate") != b"false"
        return replace(asked, body=members.bytes(), chain=chain, generates=generates)

    # -- the parts -------------------------------------------------------------------------------------------------

    def _continued(self, asked: PromptRequest, members: Members, check: Callable[[], None]) -> SentPrompt:
        """Prepare a request whose history the provider stores: it cannot be trimmed."""
        dialect = asked.dialect
        previous = dialect.stored_id(members)
        stored = self._stored.find(asked.caller, previous) if previous else None
        if stored is None:
            return self._open(SentPrompt(asked, members.bytes()), Untrimmed.STORED_BY_PROVIDER, check)
        if stored.id != previous:
            dialect.go_on_from(members, stored.id)
        dialect.as_entries(members)
        if stored.answers:
            members.set(dialect.messages, array(dialect.joined(stored.answers, list(dialect.entries(members)))))
        recall, own, narrowed = self._offered(asked, members, stored.conversation)
        prompt = SentPrompt(asked, members.bytes(), members, stored.conversation, own, recall, narrowed=narrowed)
        prompt = replace(prompt, number=self._use_cases.runs.table.number_of(*prompt.run))
        return self._open(prompt, Untrimmed.STORED_BY_PROVIDER, check)

    def _open(self, prompt: SentPrompt, why: Untrimmed | None, check: Callable[[], None]) -> SentPrompt:
        """Prepare a prompt that is forwarded untrimmed; masked if the guard masks.

        Raises:
            GuardUnread: the guard cannot read it, and the settings refuse such prompts.
            GuardRefused: a rule finds something whose action is to refuse.
        """
        prompt = replace(prompt, answer=None, left=why)
        asked = prompt.asked
        if not self._use_cases.runs.guarding.unread(asked.caller):
            return prompt
        if _packed(asked):
            self._use_cases.left_unread(SendingDoor.HTTP, asked.caller, Unread.ENCODED)
            return prompt
        run_id = prompt.conversation.run_id if prompt.conversation is not None else asked.headers.get(names.RUN, "")
        call = MaskCall(asked.caller, prompt.body, run_id, prompt_format(asked.dialect.format, prompt.body))
        return replace(prompt, body=self._use_cases.mask(SendingDoor.HTTP, call, check))

    def _conversation(self, asked: PromptRequest, members: Members) -> Conversation:
        def opening() -> Opening:
            return opening_of(asked.dialect, members, asked.caller, session_of(asked.headers, members))

        named = asked.headers.get(names.RUN, "")
        if named:
            return self._conversations.named(asked.caller, checked_run_id(named), opening)
        return self._conversations.of(opening(), alike=asked.counting or asked.compacting)

    def _offered(
        self, asked: PromptRequest, members: Members, conversation: Conversation
    ) -> tuple[RecallOffer, frozenset[str], bool]:
        """Add the sidecar's tools, if this run has them; an agent's tool with the same name stays the agent's.

        Returns:
            Whether they were offered, or why not; the names of those that were; and whether the choice among the tools
            was narrowed to the agent's.
        """
        recall, narrowed = self._recall(asked, members, conversation)
        if recall is not RecallOffer.OFFERED:
            return recall, frozenset(), False
        dialect = asked.dialect
        taken = dialect.tool_names(members)
        offered = [each for each in self._definitions(dialect.format) if each[0] not in taken]
        dialect.offer(members, [definition for _, definition in offered])
        return recall, frozenset(name for name, _ in offered), narrowed

    def _recall(self, asked: PromptRequest, members: Members, conversation: Conversation) -> tuple[RecallOffer, bool]:
        """Whether this run has the sidecar's tools: decided by its first request with tools, as tools are cached.

        A request whose tool choice requires a call of any tool does not decide it: it has them if the choice can be
        narrowed to the agent's tools, or else if the run has them.

        Returns:
            Whether the request has them, or why not; and whether the choice was narrowed.
        """
        if self._modes.observes:
            return RecallOffer.OBSERVING, False
        if not asked.dialect.agent_tools(members):
            return RecallOffer.NO_TOOLS, False
        if not asked.recalls:
            return RecallOffer.UNREADABLE, False
        found = asked.dialect.recall(members)
        if found is RecallOffer.FORCED:
            may_join = conversation.recall in (None, RecallOffer.OFFERED)
            if may_join and conversation.narrows and asked.dialect.narrow(members):
                return RecallOffer.OFFERED, True
        elif conversation.recall is None:
            conversation.recall = found
        return conversation.recall or found, False

    @staticmethod
    def _recalls(prompt: SentPrompt) -> bool:
        """Whether the run has the sidecar's tools, even if this request could not have them."""
        return prompt.conversation is not None and prompt.conversation.recall is RecallOffer.OFFERED

    def _definitions(self, format_name: str) -> list[tuple[str, bytes]]:
        if format_name not in self._tools:
            found = definitions(format_name, ())
            self._tools[format_name] = [(each.name, each.definition) for each in found]
        return self._tools[format_name]

    def _trimmed(self, prompt: SentPrompt, check: Callable[[], None], *, served: int | None = None) -> SentPrompt:
        asked = prompt.asked
        assert prompt.members is not None
        body = prompt.members.bytes()
        caller, run_id = prompt.run
        call = TrimCall(
            caller=caller,
            run_id=run_id,
            format=asked.dialect.format,
            body=body,
            model=asked.model,
            context_window=_window(asked.headers),
            pinned=prompt.pinned,
            recall_unavailable=not (prompt.own or (asked.compacting and self._recalls(prompt))),
            as_run=asked.counting or asked.compacting,
            dry_run=asked.counting,
            revision=_revision(asked.headers),
            accept_bytes=self._options.max_body_bytes * 2,
            served_iterations=served,
            policy=_CHAINED if asked.on_socket else {},
        )
        try:
            answer = self._use_cases.trim(body, lambda _: call, check, lambda _, answer: answer)
        except SidecarError as error:
            if is_final(error) or error.status in ("DEADLINE_EXCEEDED", "CANCELLED"):
                raise
            self._refused(f"http {asked.dialect.format}", error, error.status, caller)
            return self._open(replace(prompt, body=body), untrimmed_by(error), check)
        except Exception as error:  # noqa: BLE001 - whatever it is, the agent's run goes on
            _log.error("a prompt goes on untrimmed: %s", frames(error))
            return self._open(replace(prompt, body=body), untrimmed_by(error), check)
        trimmed = body if answer.prompt.body is None else answer.prompt.body
        number = prompt.number or self._use_cases.runs.table.number_of(*prompt.run) or _ENDED
        return replace(prompt, body=trimmed, answer=answer, left=None, number=number)


def _beginning(asked: PromptRequest) -> bytes:
    """Return a digest of how a request's body begins, and of its caller and session."""
    sessions = (asked.headers.get(name, "") for name in SESSION_HEADERS)
    known = "\n".join((asked.caller, asked.dialect.format, *sessions)).encode("utf-8", "surrogatepass")
    return blake2b(asked.body[:_BEGINNING], digest_size=16, key=blake2b(known).digest()).digest()


def _packed(asked: PromptRequest) -> bool:
    """Whether a body has an encoding that could not be decoded."""
    return not asked.decoded and asked.headers.get("content-encoding", "").strip().lower() not in _PLAIN


def _has_begun(dialect: Dialect, members: Members) -> bool:
    """Whether the history contains a message of the user or the model.

    Before that there is nothing to trim, and the place of the sidecar's own text is not known.
    """
    return any(dialect.speaker(loads(entry)) != "other" for entry in dialect.entries(members))


def _seen(dialect: Dialect, entry: Any) -> SentEntry:
    """Return what identifies an entry that was sent to the agent."""
    calls = tuple(call.digested() for call in dialect.calls(entry))
    return SentEntry(dialect.gist(entry), dialect.text(entry) or "", calls, dialect.item(entry))


def _window(headers: Mapping[str, str]) -> int:
    text = headers.get(names.WINDOW, "")
    if not text:
        return 0
    if not text.isdecimal() or len(text) > _WINDOW_DIGITS or not 0 < int(text) <= MOST_TOKENS:
        raise InvalidRequest(f"{names.WINDOW} must be a number of tokens", field=names.WINDOW)
    return int(text)


def _revision(headers: Mapping[str, str]) -> bytes:
    text = headers.get(names.REVISION, "")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise InvalidRequest(f"{names.REVISION} is not Base64", field=names.REVISION) from None
