"""Answers of the made-up API, whole and as streams."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final

from prompt_sidecar.answers.base import BETWEEN, Dialect, EarlierTurns, Filter, ModelTurn, error_text
from prompt_sidecar.answers.histories import NamedCall, named
from prompt_sidecar.answers.restoring import restored
from prompt_sidecar.answers.sse import Event, written
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.prompt.members import Members, array, elements
from prompt_sidecar.providers.api import ProviderApi
from prompt_sidecar.providers.table import APIS
from prompt_sidecar.providers.untyped import member, objects, string
from prompt_sidecar.providers.usage import ProviderUsage

API: Final = APIS["made_up"]


class MadeUp(Dialect):
    """See the module."""

    api: ClassVar[ProviderApi] = API

    def speaker(self, entry: Any) -> str:
        """See `History`."""
        return {"machine": "model", "person": "user"}.get(string(member(entry, "role")), "other")

    def text(self, entry: Any) -> str | None:
        """See `History`."""
        return string(member(entry, "said"))

    def calls(self, entry: Any) -> list[NamedCall]:
        """See `History`."""
        return [named(each.get("ref"), each.get("device"), each.get("with")) for each in objects(member(entry, "uses"))]

    def recall(self, members: Members) -> RecallOffer:
        """See `Dialect`."""
        return RecallOffer.FORCED if members.get("quiet") else RecallOffer.OFFERED

    def forbid_tools(self, members: Members, answers: Sequence[Any]) -> None:
        """See `Dialect`."""
        del answers
        members.set("quiet", b"true")

    def own_calls(self, entries: Sequence[Any], own: Collection[str]) -> list[Any]:
        """See `Dialect`."""
        return [use for entry in entries for use in objects(member(entry, "uses")) if use.get("device") in own]

    def calling(self, entries: Sequence[Any], own: Collection[str]) -> list[Any]:
        """See `Dialect`."""
        return [{**entry, "said": "", "uses": self.own_calls([entry], own)} for entry in entries]

    def called_too(self, entries: Sequence[bytes], calls: Sequence[bytes]) -> list[bytes]:
        """See `Dialect`."""
        last = Members(entries[-1])
        last.set("uses", array([*elements(last.raw("uses")), *calls]))
        return [*entries[:-1], last.bytes()]

    def read(self, answer: Mapping[str, Any], own: Collection[str]) -> ModelTurn:
        """See `Dialect`."""
        return self.turn_of([answer["reply"]], own, API.usage.read(answer), whole=True)

    def show(self, shown: EarlierTurns, turn: ModelTurn) -> None:
        """See `Dialect`."""
        shown.texts += [entry["said"] for entry in turn.entries if entry.get("said")]

    def written(self, answer: dict[str, Any], shown: EarlierTurns, own: Collection[str]) -> Sequence[Any]:
        """See `Dialect`."""
        reply = answer["reply"]
        reply["said"] = BETWEEN.join([*shown.texts, reply["said"]])
        reply["uses"] = [use for use in objects(reply.get("uses")) if use.get("device") not in own]
        return [reply]

    def filter(self, own: Collection[str], members: Members | None) -> Filter:
        """See `Dialect`."""
        del members
        return _Events(self, own)

    def stream_error(self, status: int, body: bytes) -> bytes:
        """See `Dialect`."""
        return written({"problem": {"what": str(status), "why": error_text(body, status)}})


class _Events(Filter):
    def __init__(self, dialect: MadeUp, own: Collection[str]) -> None:
        super().__init__(dialect, own)
        self._seen: dict[str, Any] = {"role": "machine", "said": "", "uses": []}

    def begin(self) -> None:
        """See `Filter`."""
        super().begin()
        self._reply: dict[str, Any] = {"role": "machine", "said": "", "uses": []}
        self._usage: ProviderUsage | None = None

    def feed(self, event: Event) -> bytes:
        """See `Filter`."""
        data = event.json() or {}
        if "over" in data:
            self.ended, self._usage = True, API.usage.read(data)
            return b"" if self.hides() else event.raw
        if use := data.get("use"):
            self._reply["uses"].append(use)
            if use["device"] in self.own:
                self.left_out = True
                return b""
            if self.restore is not None:
                restored(use, "with", use["device"], self.restore)
            self._seen["uses"].append(use)
        self._reply["said"] += data.get("said", "")
        self._seen["said"] += data.get("said", "")
        return event.changed(data).raw

    def turn(self) -> ModelTurn:
        """See `Filter`."""
        return self.dialect.turn_of([self._reply], self.own, self._usage, whole=True)

    def counted(self) -> ProviderUsage | None:
        """See `Filter`."""
        return self._usage

    def visible(self) -> Sequence[Any]:
        """See `Filter`."""
        return [self._seen]
