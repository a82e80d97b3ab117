"""The loop behind `complete` with `stream=True`: forwards the model's events without calls of the sidecar's tools.

A turn is assembled from its events while they are forwarded. Events of the sidecar's calls are held back. If a turn has
only such calls, they are answered and the model is called again, and its events follow as if it were one answer: the
beginning of later turns and the end of earlier ones are held back, and indexes continue. The events are the SDK's own
objects; one whose index changes is a copy.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from prompt_sidecar.client.engine import Ask, Engine, Rpc
from prompt_sidecar.client.facts import Trimmed
from prompt_sidecar.client.forwarding import reported
from prompt_sidecar.client.loop import Completion, completed, turns
from prompt_sidecar.client.model_calls import usage_of
from prompt_sidecar.client.turns import Continuation, answered
from prompt_sidecar.providers.sdk import PartPiece, StreamedTurn, sdk_changed


@dataclass(frozen=True, slots=True)
class Next:
    """A step: the next event of a stream; its result is the event, or `END`."""

    stream: Any


@dataclass(frozen=True, slots=True)
class Emit:
    """A step: an event for the agent."""

    event: Any


END: Final = object()
"""The result of `Next` if there is no further event."""
Streaming: TypeAlias = Generator[Rpc | Ask | Next | Emit, Any, Completion]


def stream_complete(engine: Engine, work: Continuation) -> Streaming:
    """Call the model until it answers or calls one of the agent's tools; see `prompt_sidecar.client.loop.complete`.

    Raises:
        ClientError: the sidecar did not answer, and the client does not fail open.
        ValueError: more than one answer (`n`) is requested.
    """
    if (work.keywords.get("n") or 1) != 1:
        raise ValueError("the loop takes one answer: call it with n = 1")
    return _steps(engine, work)


def _steps(engine: Engine, work: Continuation) -> Streaming:
    api = work.api
    asks = {name: value for name, value in api.asks_usage.items() if not work.keywords.get(name)}
    reader = _TurnReader(hides_usage=bool(asks))

    def answer(step: Continuation, own: frozenset[str]) -> Generator[Any, Any, tuple[Any, Trimmed[dict[str, Any]]]]:
        stream, trimmed = yield from answered(engine, step)
        reader.begin(api.streamed(), own)
        while (event := (yield Next(stream))) is not END:
            for each in reader.take(event):
                yield Emit(each)
        response = reader.turn.response()
        yield from reported(engine, work.run_id, usage_of(api, response), trimmed)
        return response, trimmed

    ended = yield from turns(engine, replace(work, keywords={**work.keywords, **asks}), answer)
    for each in reader.last:
        yield Emit(each)
    return (yield from completed(engine, ended))


class _TurnReader:
    """Reads the events of the turns; `hides_usage`: the agent has not requested the event with the usage."""

    turn: StreamedTurn

    def __init__(self, *, hides_usage: bool) -> None:
        self.last: list[Any] = []
        """Events that end a turn: the agent gets those of the last turn only."""
        self._turns = 0
        self._shown = 0
        """Number of blocks, items or calls that the agent got."""
        self._hides_usage = hides_usage

    def begin(self, turn: StreamedTurn, own: frozenset[str]) -> None:
        """Begin a turn; `own` are the names of the sidecar's tools."""
        self.turn, self._own, self.last = turn, own, []
        self._turns += 1

    def take(self, event: Any) -> list[Any]:
        """Return the events to send to the agent now, for an event of the model."""
        read = self.turn.take(event)
        if (read.is_usage and self._hides_usage) or (read.begins and self._turns > 1):
            return []
        kept = [self._placed(piece) for piece in read.pieces if piece.part is None or piece.part.name not in self._own]
        if read.pieces and not kept and not read.says_more:
            return []
        given = [piece.native for piece in read.pieces]
        if len(kept) < len(given) or any(one is not other for one, other in zip(kept, given, strict=True)):
            event = self.turn.only(event, kept)
        if read.ends:
            self.last.append(event)
            return []
        return [event]

    def _placed(self, piece: PartPiece) -> Any:
        """Return a piece's object with the agent's index."""
        part = piece.part
        if part is None:
            return piece.native
        if part.place is None:
            part.place = self._shown
            self._shown += 1
        if part.place == piece.index:
            return piece.native
        return sdk_changed(piece.native, **{self.turn.index: part.place})
