"""How an adapter is spoken to: one job on standard input, one line a prompt on standard output.

A run's prompts together take hundreds of megabytes, so each distinct message is written once, and a prompt is a list
of their places in the order in which they were first written. Nothing here imports more than the standard library: it
runs in the peers' environments.

The process may not open a connection: a peer that fetches a price list or a model would be measured by the network,
and prompts are nobody else's business. The try fails like any dead network, and is told.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.lab.peers.adapters.chat import OPENAI, Back, to_chat

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """A run to trim, prompt by prompt."""

    format: str
    """`openai_chat` or `anthropic_messages`."""
    system: str | None
    """The system prompt of Anthropic bodies."""
    messages: Sequence[Message]
    lengths: Sequence[int]
    """Messages that each prompt sends."""
    budget: int
    """Tokens that a prompt may take."""
    options: Mapping[str, Any]
    """What the peer's row asks for."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """A trimmed prompt."""

    messages: Sequence[Message]
    """In the job's format if `native`, else in OpenAI chat's."""
    seconds: float
    """What the peer's own call took; conversion is not its fault."""
    native: bool = False


@dataclass(slots=True)
class Ending:
    """What can be said when all prompts are trimmed."""

    recallable: float | None = None
    """Share of the result text changed in the last prompt that the peer gives back exactly; None: it keeps none."""
    seconds: list[float] = field(default_factory=list)
    """Times that hold in place of those of the prompts, where these were sped up."""
    remark: str = ""


Peer = Callable[[Job, list[Message], Ending], Iterator[Trimmed]]
"""Trims the prompts of a job in turn. The list is the run in OpenAI chat's format, its system prompt first."""


def serve(version: str, peer: Peer) -> None:
    """Do the job on standard input; what the peer prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    refused = _refuse_connections()
    job = Job(**json.load(sys.stdin))
    back = Back(job.format, job.messages)
    chat = to_chat(job.format, job.system, job.messages)
    places: dict[str, int] = {}
    # Messages that are there all along are known by their identity: writing all of a prompt to look it up takes longer
    # than most peers do.
    lasting = {id(message) for message in (*chat, *job.messages)}
    seen: dict[int, int] = {}
    ending = Ending()
    for trimmed in peer(job, chat, ending):
        system, messages = ([], trimmed.messages) if trimmed.native else back.messages(trimmed.messages)
        if trimmed.native and job.system is not None:
            system = [job.system]
        line: dict[str, Any] = {"seconds": trimmed.seconds, "new": [], "places": [], "system": len(system)}
        for message in (*system, *messages):
            place = seen.get(id(message))
            if place is None:
                text = json.dumps(message)
                if text not in places:
                    places[text] = len(places)
                    line["new"].append(message)
                place = places[text]
                if id(message) in lasting:
                    seen[id(message)] = place
            line["places"].append(place)
        out.write(json.dumps(line) + "\n")
    remarks = [ending.remark] if ending.remark else []
    if refused:
        remarks.append(f"tried to connect {len(refused)} times, which was refused")
    end = {"version": version, "recallable": ending.recallable, "seconds": ending.seconds, "remarks": remarks}
    out.write(json.dumps({"end": end}) + "\n")
    out.flush()
    # Threads that a peer left behind must not keep the process.
    os._exit(0)


def chat_lengths(job: Job) -> list[int]:
    """Return how many messages of OpenAI chat each prompt of the job is, the system prompt included."""
    sums = [int(job.system is not None and job.format != OPENAI)]
    for message in job.messages:
        sums.append(sums[-1] + len(to_chat(job.format, None, [message])))
    return [sums[length] for length in job.lengths]


def _refuse_connections() -> list[str]:
    tries: list[str] = []

    def watch(event: str, _: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.getaddrinfo"):
            tries.append(event)
            raise ConnectionRefusedError("the bench of peers runs without a network")

    sys.addaudithook(watch)
    return tries
