"""The last prompts of a client's runs, and the prompts made from them without the sidecar.

`fallback_rules.py` has the rules, on JSON; here prompts have the shape that the agent used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from prompt_sidecar.client import native
from prompt_sidecar.client.arguments import TrimOptions, annotated
from prompt_sidecar.client.continuing import SentPrompt
from prompt_sidecar.client.facts import Trimmed
from prompt_sidecar.client.fallback_rules import (
    AS_GIVEN,
    JsonPrompt,
    changed_thinking,
    digest,
    fall_back,
    history,
    without,
)
from prompt_sidecar.client.kept import ValuesByRun
from prompt_sidecar.client.schema import enum_name
from prompt_sidecar.client.sent import Edit, LastPrompt, Piece, UntrimmedPrompt, decoded
from prompt_sidecar.providers.claude import is_bound
from prompt_sidecar.providers.table import MESSAGES


@dataclass(frozen=True, slots=True)
class FallbackCall:
    """A prompt to be trimmed."""

    run_id: str
    prompt: Any
    """Bytes or text of a body, or native objects."""
    format: str
    options: TrimOptions

    @property
    def native(self) -> bool:
        """Whether the prompt is native objects."""
        return not isinstance(self.prompt, bytes | str)

    @property
    def base(self) -> bytes:
        """The revision whose history the prompt continues; empty if the prompt is whole."""
        return self.options.get("base_revision") or b""

    @property
    def changes(self) -> bool:
        """Whether it changes the run, that is, it is not a dry run or a side call."""
        return not (self.options.get("dry_run") or self.options.get("side_call"))

    @property
    def pinned(self) -> list[int]:
        """Indices of the messages that must not be left out."""
        return [index for index, kind in annotated(self.options.get("annotations")) if kind == "pinned"]

    def without_base(self) -> TrimOptions:
        """Return the options for the whole prompt."""
        return cast("TrimOptions", {name: value for name, value in self.options.items() if name != "base_revision"})

    def bound(self, body: Any) -> bool:
        """Whether the model binds its thinking: by the policy, or else by the model's name."""
        policy = self.options.get("policy")
        binding = policy.get("reasoning_binding") if isinstance(policy, Mapping) else None
        return binding == "bound" if binding in ("bound", "unbound") else is_bound(self.options.get("model"), body)


class Fallbacks:
    """Remembers prompts, and makes the next one if the sidecar does not. Thread-safe."""

    def __init__(self, most_bytes: int) -> None:
        self._last = ValuesByRun[LastPrompt](lambda sent: sent.weight, most_bytes)

    @property
    def forgotten(self) -> int:
        """Runs whose last prompt was evicted for others'."""
        return self._last.forgotten

    def forget(self, run_id: str) -> None:
        """Forget a run."""
        self._last.forget(run_id)

    def forget_all(self) -> None:
        """Forget all runs."""
        self._last.forget_all()

    def fell_back(self, call: FallbackCall) -> bool:
        """Whether the run's last prompt was made without the sidecar."""
        last = self._known(call)
        return last is not None and last.fell_back

    def refused(self, run_id: str) -> None:
        """Record that the provider refused a run's last prompt as too long."""
        last = self._last.of(run_id)
        if last is not None:
            self._last.keep(run_id, replace(last, refused=True))

    def thinking_refused(self, run_id: str) -> bool:
        """Record that the provider refused thinking in a run's last prompt: all of it is removed from now on.

        This happens if the prompt under which the thinking was produced is unknown, as after an agent's restart.

        Returns:
            Whether the prompt has any thinking.
        """
        last = self._last.of(run_id)
        body = None if last is None else JsonPrompt.of(last.prompt(), MESSAGES[last.format])
        if last is None or body is None:
            return False
        removed = last.removed | {digest(block) for message in body.messages for block in body.shape.thoughts(message)}
        self._last.keep(run_id, replace(last, removed=removed))
        return removed != last.removed

    def history(self, call: FallbackCall, body: bytes) -> Any:
        """Return the whole untrimmed prompt as JSON types; None if it is not JSON, or its beginning is unknown."""
        try:
            given = json.loads(body)
        except (ValueError, RecursionError):
            return None
        if not call.base:
            return given
        last = self._known(call)
        if last is None or last.revision != call.base:
            return None
        return history(last.covered, MESSAGES[call.format], given)

    def prompt(self, call: FallbackCall, given: Any, reason: str) -> Trimmed[Any]:
        """Return the prompt to send: the last one with the messages since, or the prompt as it was given.

        Args:
            call: the prompt that could not be trimmed.
            given: the whole untrimmed prompt as JSON types; None if it is not JSON, or not known.
            reason: why it could not be trimmed.
        """
        shape = MESSAGES.get(call.format)
        as_given = Trimmed(call.prompt, reason=reason, fallback=AS_GIVEN)
        if shape is None or given is None or not call.changes:
            return as_given
        try:
            made = fall_back(
                given,
                self._known(call),
                format=call.format,
                shape=shape,
                bound=call.bound(given),
                pinned=call.pinned,
            )
            if made.sent is not None:
                self._last.keep(call.run_id, made.sent)
            if made.kind == AS_GIVEN and not call.base:
                return as_given
            sent = given if not call.base else json.loads(native.dumped(call.prompt) if call.native else call.prompt)
            prompt = native.remade(call.prompt, sent, made.prompt, shape.messages)
        except (LookupError, TypeError, ValueError, RecursionError):
            # No provider accepts messages of this shape, and the provider's own error describes them best.
            return as_given
        return replace(
            as_given,
            prompt=prompt,
            fallback=made.kind,
            left_out=made.left_out,
            thinking_removed=made.thinking_removed,
        )

    def remembered(
        self, call: FallbackCall, prompt: SentPrompt, answer: Any, trimmed: Trimmed[Any], edits: Sequence[Edit]
    ) -> Trimmed[Any]:
        """Remember a prompt that the sidecar trimmed, as it was sent, and the edits that made it.

        If earlier prompts were made without the sidecar, or it could not repeat its earlier edits, the thinking that is
        bound to them is removed, now and in all later prompts.
        """
        if not call.changes or call.format not in MESSAGES:
            return trimmed
        last = self._known(call)
        sent = _sent(call, _asked(call, prompt, last, answer), answer, trimmed, last, edits)
        mismatched = last is not None and (last.fell_back or trimmed.revision_use == "mismatched")
        if last is not None and (mismatched or last.removed):
            # A prompt that cannot be parsed here is sent as the sidecar returned it.
            with suppress(LookupError, TypeError, ValueError, RecursionError):
                given = decoded(sent.asked[-1])
                sent, trimmed = _still_valid(call, given, sent, trimmed, before=last if mismatched else None)
        self._last.keep(call.run_id, sent)
        return trimmed

    def _known(self, call: FallbackCall) -> LastPrompt | None:
        last = self._last.of(call.run_id)
        return None if last is None or last.format != call.format else last


def edits_of(answer: Any) -> list[tuple[str, str, bytes]]:
    """Return an answer's edits: operation, pointer and value."""
    operation = answer.DESCRIPTOR.fields_by_name["edits"].message_type.fields_by_name["operation"]
    return [(enum_name(operation, edit.operation), edit.pointer, edit.value) for edit in answer.edits]


def _asked(call: FallbackCall, prompt: SentPrompt, last: LastPrompt | None, answer: Any) -> tuple[Piece, ...]:
    """Return the whole untrimmed history of a prompt that was sent."""
    body, span, sent = prompt.body, prompt.span, prompt.sent
    if call.base:
        # A client that has not seen the beginning of the history uses the trimmed prompt instead, as an agent may.
        return (*last.covered, body) if last is not None and last.revision == call.base else (answer.json_body,)
    if not prompt.base or sent is None:
        return (body,)
    if span is None:
        return (sent.raw,)
    members = body[: span[0]] + b"[]" + body[span[1] :]
    member = MESSAGES[call.format].messages if sent.in_body else ""
    return (UntrimmedPrompt(members, member, sent.messages, sent.size),)


def _sent(  # noqa: PLR0917 - what is remembered
    call: FallbackCall,
    asked: tuple[Piece, ...],
    answer: Any,
    trimmed: Trimmed[Any],
    last: LastPrompt | None,
    edits: Sequence[Edit],
) -> LastPrompt:
    edited = call.native and not call.base
    return LastPrompt(
        call.format,
        asked,
        edits=tuple(edits) if edited else None,
        made=b"" if edited else answer.json_body,
        notes=frozenset(own.message_index for own in trimmed.own_text if own.kind == "note"),
        revision=trimmed.revision,
        covered=asked,
        tokens=trimmed.tokens.after if trimmed.tokens else 0,
        limit=trimmed.tokens.limit if trimmed.tokens else 0,
        removed=frozenset() if last is None else last.removed,
    )


def _still_valid(
    call: FallbackCall, given: Any, sent: LastPrompt, trimmed: Trimmed[Any], *, before: LastPrompt | None
) -> tuple[LastPrompt, Trimmed[Any]]:
    """Remove the thinking that the provider would refuse.

    Removed thinking stays removed; thinking after the first difference from the prompt `before` is removed too.
    """
    shape = MESSAGES[call.format]
    made = JsonPrompt.of(sent.prompt(), shape)
    if made is None:
        return sent, trimmed
    made, new = without(made, sent.removed), frozenset[bytes]()
    if before is not None and call.bound(given):
        old = JsonPrompt.of(before.prompt(), shape)
        new = changed_thinking(made, without(old, sent.removed)) if old is not None else new
    sent = replace(sent, removed=sent.removed | new)
    if not sent.removed:
        return sent, trimmed
    prompt = native.remade(call.prompt, given, without(made, new).json(), shape.messages)
    return sent, replace(trimmed, prompt=prompt, thinking_removed=len(new))
