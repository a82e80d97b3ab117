"""What arrived, in slices: which memory it continues, and which variant of its format it is.

A body that differs from the run's others in its format, or in what decides the variant of one, is another history:
where our own text stands is not the same in both. A side call is a slice of the run's, whatever stands around it.
"""

from __future__ import annotations

from dataclasses import dataclass

from prompt_sidecar.errors import InvalidRequest, RevisionUnknown, TooLarge
from prompt_sidecar.facts.trim_calls import TrimCall
from prompt_sidecar.prompt.body import Split, continued, join_slices, split
from prompt_sidecar.prompt.format import Format
from prompt_sidecar.prompt.thinking import binds_thinking
from prompt_sidecar.runs.run import Run
from prompt_sidecar.trim.policy import ReasoningBinding
from prompt_sidecar.trim.revision import run_digest, unseal
from prompt_sidecar.turn.in_force import model_of
from prompt_sidecar.turn.memory import Memory


@dataclass(frozen=True, slots=True)
class Arrived:
    """A prompt in slices, and what it is read with."""

    body: Split
    format: Format
    """The variant that the body is in."""
    memory: Memory
    """The run's, or a new one where the prompt is another history."""


def arrived(
    run: Run, call: TrimCall, format_: Format, key: bytes, *, most_messages: int, binding: ReasoningBinding
) -> Arrived:
    """Split a prompt. `binding` is the policy's.

    Raises:
        InvalidRequest: the body is not of the format's shape.
        TooLarge: it has more than `most_messages` messages.
        RevisionUnknown: `base_revision` is not a state of this run that this process knows.
    """
    memory = run.memory if run.form is not None and run.form.name == format_.name else run.new_memory()
    body = _split(run, call, format_, memory, key)
    model = model_of(call, body)
    variant = format_ if format_.variant is None else format_.variant(body, model)
    bound = binds_thinking(model) if binding is ReasoningBinding.AUTO else binding is ReasoningBinding.BOUND
    if bound and variant.bound is not None:
        variant = variant.bound
    if call.side_call and len(memory.ledger) and run.form is not None:
        variant = run.form
    if len(memory.ledger) and variant is not run.form:
        ours = memory.own.recognised()
        memory = run.new_memory()
        memory.own.recognise(ours)
        body = _split(run, call, format_, memory, key)
    if len(body) > most_messages:
        raise TooLarge(
            f"the prompt has {len(body):,} messages; limits.run_messages allows {most_messages:,}",
            field=format_.messages_path,
            bound="limits.run_messages",
        )
    return Arrived(body, variant, memory)


def _split(run: Run, call: TrimCall, format_: Format, memory: Memory, key: bytes) -> Split:
    received = memory.received
    before = received.split if received is not None else None
    if call.base_revision:
        kept = _messages_of(run, call.base_revision, memory, key)
        assert before is not None
        new = split(call.body, None, format_.messages_field) if format_.is_json else join_slices(call.messages or ())
        return continued(before, kept, new, is_json=format_.is_json)
    if format_.is_json:
        return split(call.body, before, format_.messages_field, text=format_.text_message)
    if not call.messages:
        raise InvalidRequest("conversation.messages is empty; it must hold at least one message", field="conversation")
    return join_slices(call.messages, before)


def _messages_of(run: Run, sealed: bytes, memory: Memory, key: bytes) -> int:
    """How many messages of the last prompt make up the history that a revision stands for."""
    revision = unseal(key, sealed)
    records = memory.ledger.records
    received = memory.received
    if (
        revision is not None
        and received is not None
        and not received.split.is_text
        and revision.run == run_digest(run.key)
        and 0 < revision.length <= len(records)
        and records[revision.length - 1].chain == revision.chain
    ):
        kept = len(received.nexts)
        while kept and received.nexts[kept - 1] > revision.length:
            kept -= 1
        if kept and received.nexts[kept - 1] == revision.length:
            return kept
    raise RevisionUnknown(
        "base_revision is not a revision of this run that this process knows; send the whole history",
        field="base_revision",
    )
