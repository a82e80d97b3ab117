"""The client's behaviour without I/O: each use case is a generator that yields steps and is sent their results.

A step is a call of the sidecar (`Rpc`) or of the model (`Ask`). Both clients drive the same generators; an error of a
step is raised at its `yield`. So one piece of code decides what happens when the sidecar is down.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar

from prompt_sidecar.client import native
from prompt_sidecar.client.answers import (
    ToolAnswer,
    Tools,
    UsageLearned,
)
from prompt_sidecar.client.arguments import (
    Prompt,
    TrimOptions,
    Usage,
    annotated,
    check_order,
)
from prompt_sidecar.client.continuing import (
    SentMessages,
    SentPrompt,
    by_message,
    merged,
    prepared,
    sent_again,
    whole_body,
)
from prompt_sidecar.client.errors import (
    BAD_ANSWER,
    BAD_EDITS,
    CIRCUIT_OPEN,
    MASKED_RUN,
    NO_PROMPT,
    NOT_JSON,
    REVISION_UNKNOWN,
    ClientError,
    InvalidRequest,
    MaskedRun,
    Refused,
)
from prompt_sidecar.client.facts import Restored, Trimmed, read
from prompt_sidecar.client.fallbacks import FallbackCall, Fallbacks, edits_of
from prompt_sidecar.client.kept import ValuesByRun
from prompt_sidecar.client.metrics import TRIMMED, PromptCounter
from prompt_sidecar.client.options import Options
from prompt_sidecar.client.pieces import WithoutHalves
from prompt_sidecar.client.schema import make, unknown
from prompt_sidecar.client.sent import Edit
from prompt_sidecar.providers.surrogates import sound
from prompt_sidecar.providers.table import MESSAGES

_log = logging.getLogger("prompt_sidecar.client")

Result = TypeVar("Result")
_MASK: Final = re.compile(rb"(?:\xe2\x9f\xa6|\\u27e6)[a-z][a-z0-9_]{0,63}:[a-z0-9]{10}(?:\xe2\x9f\xa7|\\u27e7)")
"""A mask of the guard in JSON."""
EDITS: Final = 2
"""RESPONSE_MODE_EDITS in the protos."""
_SENT_AGAIN: Final = frozenset({REVISION_UNKNOWN, BAD_EDITS})
"""Reasons for which a prompt of which only the newest messages were sent is sent whole, at once."""


@dataclass(frozen=True, slots=True)
class Rpc:
    """A call of the sidecar; its result is the response message."""

    method: str
    request: Any

    @property
    def run_id(self) -> str:
        """The run of the call; empty if it has none."""
        return str(getattr(self.request, "run_id", ""))


@dataclass(frozen=True, slots=True)
class Ask:
    """A call of the model with these keyword arguments."""

    keywords: Mapping[str, Any]


Steps: TypeAlias = Generator[Rpc | Ask, Any, Result]


class Engine:
    """One client's memory and use cases. Thread-safe."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._lock = threading.Lock()
        self._revisions = ValuesByRun[bytes]()
        """The last revision of each run: a sidecar that has not seen the run needs it to make the same edits."""
        self._masked = ValuesByRun[bool]()
        """Runs whose prompts contained masks."""
        self._tools: dict[str, Tools] = {}
        self._trimmed = 0
        self._untrimmed: Counter[str] = Counter()
        self._fallback_kinds: Counter[str] = Counter()
        self._unreported = 0
        self._logged: set[str] = set()
        """Reasons logged since a prompt was last trimmed."""
        self._fallback = Fallbacks(options.fallback_bytes)
        self._histories = ValuesByRun[SentMessages](lambda sent: sent.weight, options.history_bytes)
        self._sent_new_only = 0
        self._sent_again_whole = 0
        self._metric = PromptCounter()

    @property
    def trimmed(self) -> int:
        """Number of prompts that the sidecar answered."""
        return self._trimmed

    @property
    def untrimmed(self) -> Mapping[str, int]:
        """Number of prompts sent without the sidecar, by reason."""
        with self._lock:
            return dict(self._untrimmed)

    @property
    def fallbacks(self) -> Mapping[str, int]:
        """Number of prompts sent without the sidecar, by the kind of the prompt sent instead."""
        with self._lock:
            return dict(self._fallback_kinds)

    @property
    def prompts_forgotten(self) -> int:
        """Number of runs whose last prompt was evicted for others'."""
        return self._fallback.forgotten

    @property
    def sent_new_only(self) -> int:
        """Number of prompts of which only the newest messages were sent."""
        return self._sent_new_only

    @property
    def sent_again_whole(self) -> int:
        """Number of prompts that were sent whole after that, as the sidecar did not know the messages before."""
        return self._sent_again_whole

    @property
    def histories_forgotten(self) -> int:
        """Number of runs whose sent messages were evicted for others'."""
        return self._histories.forgotten

    @property
    def unreported(self) -> int:
        """Number of usage reports of the loop that did not reach the sidecar."""
        return self._unreported

    def check(self, run_id: str, options: TrimOptions) -> None:
        """Check the options that do not depend on the prompt.

        Raises:
            TypeError: an option is not known, or of another type.
            ValueError: a value is out of range.
        """
        self._request(FallbackCall(run_id, [], "openai_chat", options), "edits")

    def trim(self, run_id: str, prompt: Prompt, format: str, options: TrimOptions) -> Steps[Trimmed[Prompt]]:
        """Trim a prompt: bytes or text of a body, or native objects."""
        call = FallbackCall(run_id, prompt, format, options)
        # An answer after the caller's own base cannot be edited in place: it is longer than the request.
        request = self._request(call, "edits" if call.native and not call.base else "full")
        last = self._histories.of(run_id)
        sent, shape = SentPrompt(b""), MESSAGES.get(format)
        member = "" if shape is None else shape.messages
        try:
            sent = self._prepared(call, last)
            try:
                answer, trimmed, edits = yield from _asked_for(request, sent, prompt, last, member)
            except ClientError as error:
                if not sent.base or error.reason not in _SENT_AGAIN:
                    raise
                with self._lock:
                    self._sent_again_whole += 1
                sent = sent_again(prompt, sent, last)
                answer, trimmed, edits = yield from _asked_for(request, sent, prompt, None, member)
        except ClientError as error:
            self._histories.forget(run_id)
            body = sent.body if not sent.base else whole_body(prompt)
            known = self._fallback.history(call, body)
            if call.base and known is None:
                raise  # the newest messages alone are not a prompt
            if error.reason == REVISION_UNKNOWN and call.base:
                again = yield from self.trim(run_id, known, format, call.without_base())
                made = native.remade(prompt, json.loads(body), again.prompt, MESSAGES[format].messages)
                return replace(again, prompt=made)
            if not self.options.goes_without(error) or (_names_option(error) and not self._revisions.of(run_id)):
                raise
            self._check_unmasked(run_id, error)
            return self._gave_up(self._fallback.prompt(call, known, error.reason), error)
        self._succeeded(call, trimmed.revision)
        if call.changes:
            self._remember(call, sent, trimmed.revision, edits, last)
        self._watch_masks(run_id, sent.body, answer)
        return self._fallback.remembered(call, sent, answer, trimmed, edits)

    def _prepared(self, call: FallbackCall, last: SentMessages | None) -> SentPrompt:
        """Return a prompt as it is sent. Raises InvalidRequest if it cannot be written as JSON."""
        prompt, shape = call.prompt, MESSAGES.get(call.format)
        try:
            if shape is None or call.base or not (call.changes and self.options.history_bytes):
                return SentPrompt(whole_body(prompt))
            mine = last is not None and last.format == call.format and last.newest == self._revisions.of(call.run_id)
            return prepared(prompt, call.format, shape, last if mine and "revision" not in call.options else None)
        except (TypeError, ValueError, RecursionError) as error:
            # Only the error's type, as its text may quote the prompt.
            message = f"the prompt cannot be written as JSON ({type(error).__name__})"
            raise InvalidRequest(message, code="INVALID_ARGUMENT", reason=NOT_JSON) from None

    def _remember(
        self, call: FallbackCall, sent: SentPrompt, revision: bytes, edits: Sequence[Edit], last: SentMessages | None
    ) -> None:
        """Remember what was sent, for the next prompt; if another call has changed the run meanwhile, nothing."""
        run_id = call.run_id
        if sent.base:
            with self._lock:
                self._sent_new_only += 1
        if sent.sent is None or not revision or self._histories.of(run_id) is not last:
            self._histories.forget(run_id)
        else:
            member = MESSAGES[call.format].messages if isinstance(call.prompt, Mapping) else ""
            kept = by_message(edits, member)[0] if call.native else None
            self._histories.keep(run_id, replace(sent.sent.answered(revision), edits=kept))

    def trim_keywords(
        self, run_id: str, keywords: Mapping[str, Any], format: str, options: TrimOptions
    ) -> Steps[Trimmed[dict[str, Any]]]:
        """Trim a prompt given as the keyword arguments of an SDK's call; arguments outside the body are unchanged."""
        body = {name: value for name, value in keywords.items() if _in_body(name, value)}
        trimmed = yield from self.trim(run_id, body, format, options)
        # The caller's order of arguments is kept, and so are those that were not sent to the sidecar.
        merged = {name: trimmed.prompt.get(name, value) for name, value in keywords.items()} | trimmed.prompt
        return replace(trimmed, prompt=merged)

    def list_tools(self, format: str) -> Steps[Tools]:
        """Fetch the tools once: they do not change, and are part of the prefix that the provider caches."""
        known = self._tools.get(format)
        if known is None:
            known = yield from _asked(Tools, "ListTools", format=format or None)
            if not _are_definitions(known.tools_json):
                raise Refused(
                    "the answer's definitions are no JSON array of objects", code="INTERNAL", reason=BAD_ANSWER
                )
            self._tools[format] = known
        return known

    def call_tool(
        self, run_id: str, name: str, arguments: str | Mapping[str, Any], request_id: str
    ) -> Steps[ToolAnswer]:
        """Have the sidecar run one of its tools."""
        text = sound(arguments) if isinstance(arguments, str) else json.dumps(arguments)
        named = request_id or secrets.token_hex(8)
        return _asked(ToolAnswer, "CallTool", run_id=run_id, name=name, arguments_json=text, request_id=named)

    def restore_secrets(self, run_id: str, calls: Iterable[tuple[str, str]]) -> Steps[tuple[Restored, ...]]:
        """Put values in place of masks in arguments of tool calls."""
        given = [(tool, WithoutHalves.of(arguments)) for tool, arguments in calls]
        asked = [{"tool": sound(tool), "arguments": whole.text.encode()} for tool, whole in given]
        answer = yield Rpc("RestoreSecrets", make("RestoreSecretsRequest", run_id=run_id, calls=asked))
        if len(answer.calls) != len(asked):
            message = f"the answer holds {len(answer.calls)} calls, asked was for {len(asked)}"
            raise Refused(message, code="INTERNAL", reason=BAD_ANSWER)
        return tuple(
            read(Restored, each, arguments=whole.back(each.arguments.decode("utf-8", "replace")))
            for (_, whole), each in zip(given, answer.calls, strict=True)
        )

    def report_usage(self, run_id: str, usage: Usage) -> Steps[UsageLearned]:
        """Report the provider's usage, or that it refused the prompt as too long."""
        return _asked(UsageLearned, "ReportUsage", run_id=run_id, **usage)

    def forget(self, run_id: str) -> None:
        """Forget a run that has ended."""
        self._revisions.forget(run_id)
        self._masked.forget(run_id)
        self._fallback.forget(run_id)
        self._histories.forget(run_id)

    def forget_all(self) -> None:
        """Forget all runs."""
        self._revisions.forget_all()
        self._masked.forget_all()
        self._fallback.forget_all()
        self._histories.forget_all()

    def refused(self, run_id: str) -> None:
        """Record that the provider refused a run's last prompt as too long."""
        self._fallback.refused(run_id)

    def thinking_refused(self, run_id: str) -> bool:
        """Record that the provider refused thinking in a run's last prompt; return whether there is any to remove."""
        removed = self._fallback.thinking_refused(run_id)
        if removed:
            _log.warning("the provider refused thinking that is bound to another prompt: it is removed from the run's")
        return removed

    def not_reported(self) -> None:
        """Count a usage report that did not arrive. Only a correction of the sidecar's estimate is lost."""
        with self._lock:
            self._unreported += 1

    def _request(self, call: FallbackCall, mode: str) -> Any:
        """Return a request without its body. Wrong options raise TypeError or ValueError."""
        for name in call.options:
            if name not in TrimOptions.__annotations__:
                raise TypeError(unknown("a prompt has no option", name, TrimOptions.__annotations__))
        if not isinstance(call.run_id, str):
            raise TypeError(f"run_id is a {type(call.run_id).__name__}; it must be a text")
        if not call.run_id.isprintable():
            raise ValueError("run_id holds a character that cannot be printed")
        policy = call.options.get("policy")
        if isinstance(policy, Mapping):
            check_order(policy)
        given: dict[str, Any] = dict(call.options)
        annotations = annotated(given.pop("annotations", None))
        given.setdefault("revision", self._revisions.of(call.run_id) or b"")
        if not given["revision"] and self._fallback.fell_back(call):
            given.setdefault("served_iterations", 0)  # all prompts of the run so far were made without the sidecar
        return make(
            "TrimPromptRequest",
            run_id=call.run_id,
            json={"format": call.format},
            annotations=[{"message_index": index, "kind": kind} for index, kind in annotations],
            response_mode=mode,
            accept_bytes=self.options.max_message_bytes,
            **given,
        )

    def _watch_masks(self, run_id: str, body: bytes, answer: Any) -> None:
        """Remember that a run has masks: prompts sent without the sidecar would not be masked."""
        if self._masked.of(run_id) or any(
            _MASK.search(each) for each in (body, answer.json_body, *(edit.value for edit in answer.edits))
        ):
            self._masked.keep(run_id, value=True)

    def _check_unmasked(self, run_id: str, error: ClientError) -> None:
        """Raise MaskedRun if a prompt must not be sent to the model without the sidecar."""
        if self._masked.of(run_id) and not self.options.fail_open_masked:
            message = f"the run has masks, and the sidecar did not answer ({error.reason}): new text would go unmasked"
            raise MaskedRun(message, code=error.code, reason=MASKED_RUN) from error

    def _succeeded(self, call: FallbackCall, revision: bytes) -> None:
        with self._lock:
            self._trimmed += 1
            recovered = bool(self._logged)
            self._logged.clear()
        self._metric.add(TRIMMED)
        if revision and call.changes:
            self._revisions.keep(call.run_id, revision)
        if recovered:
            _log.info("prompts are trimmed again")

    def _gave_up(self, trimmed: Trimmed[Prompt], error: ClientError) -> Trimmed[Prompt]:
        """Count and log a prompt that is sent without the sidecar."""
        with self._lock:
            self._untrimmed[error.reason] += 1
            self._fallback_kinds[trimmed.fallback] += 1
            logged = error.reason in self._logged or (error.reason == CIRCUIT_OPEN and bool(self._logged))
            self._logged.add(error.reason)
        self._metric.add(trimmed.fallback, error.code)
        if not logged:  # once until prompts are trimmed again: an agent makes many calls
            at = f" at {error.field}" if error.field else ""
            _log.warning("prompts go to the model untrimmed: %s%s, from %s", error.reason, at, self.options.target)
        return trimmed


def _asked(fact: type[Result], method: str, /, **values: Any) -> Steps[Result]:
    answer = yield Rpc(method, make(f"{method}Request", **values))
    return read(fact, answer)


def _asked_for(
    request: Any, sent: SentPrompt, prompt: Any, last: SentMessages | None, member: str
) -> Steps[tuple[Any, Trimmed[Any], list[Edit]]]:
    """Ask for a prompt as it is sent; return the answer, the prompt that it makes, and the edits that make it."""
    kept = last.edits if last is not None and sent.base and sent.base == last.newest else None
    whole_base = request.base_revision
    request.json.body, request.base_revision = sent.body, sent.base or whole_base
    request.changed_edits_only = kept is not None
    try:
        answer = yield Rpc("TrimPrompt", request)
    finally:
        request.base_revision, request.changed_edits_only = whole_base, False
    if request.response_mode != EDITS:
        return answer, _whole(prompt, answer), []
    edits = edits_of(answer)
    if answer.edits_since_base and kept is not None:
        try:
            edits = merged(kept, edits, member if isinstance(prompt, Mapping) else "")
        except ValueError:
            raise _not_applied("ValueError") from None
    return answer, _patched(prompt, answer, edits), edits


def _whole(prompt: Any, answer: Any) -> Trimmed[Any]:
    body: bytes = answer.json_body
    if not body:
        raise Refused("the answer holds no prompt", code="INTERNAL", reason=NO_PROMPT)
    try:
        made = body.decode() if isinstance(prompt, str) else body if isinstance(prompt, bytes) else json.loads(body)
        _check_kind(prompt, made)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"the answer's prompt cannot be read ({type(error).__name__})"
        raise Refused(message, code="INTERNAL", reason=BAD_ANSWER) from None
    return read(Trimmed, answer, prompt=made, trimmed=True)


def _check_kind(prompt: Any, made: Any) -> None:
    """Raise TypeError if a prompt of native objects did not become a body or a list of messages."""
    if isinstance(prompt, bytes | str) or made is prompt:
        return
    if not isinstance(made, list if isinstance(prompt, Sequence) else Mapping):
        raise TypeError(f"the prompt has become a {type(made).__name__}")


def _are_definitions(text: bytes) -> bool:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(read, list) and all(isinstance(each, dict) for each in read)


def _patched(prompt: Any, answer: Any, edits: Sequence[Edit]) -> Trimmed[Any]:
    try:
        made = native.edited(prompt, edits)
        _check_kind(prompt, made)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise _not_applied(type(error).__name__) from None
    return read(Trimmed, answer, prompt=made, trimmed=True)


def _not_applied(error: str) -> Refused:
    return Refused(f"the answer's edits do not fit the prompt ({error})", code="INTERNAL", reason=BAD_EDITS)


def _names_option(error: ClientError) -> bool:
    """Whether the sidecar rejected an option that would be wrong with any prompt."""
    return isinstance(error, InvalidRequest) and re.split(r"[.\[]", error.field)[0] in TrimOptions.__annotations__


_SDK_OPTIONS: Final = frozenset({"extra_body", "extra_headers", "extra_query", "idempotency_key", "timeout"})
"""Arguments of the SDKs that are not part of a body. Headers may contain secrets, so they are not sent."""
_SENTINELS: Final = frozenset({"NotGiven", "Omit"})
"""Types of the SDKs' values for an argument that is not given."""


def _in_body(name: str, value: Any) -> bool:
    """Whether a keyword argument is part of the body and can be sent to the sidecar."""
    # A class is the type that the SDK parses the answer into.
    return name not in _SDK_OPTIONS and type(value).__name__ not in _SENTINELS and not isinstance(value, type)
