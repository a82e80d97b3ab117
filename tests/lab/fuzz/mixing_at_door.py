"""Agents that mix, behind the HTTP door.

Each prompt is made of what the provider got, of the agent's own history, and of new messages. The provider is scripted
and takes anything; sometimes its model calls the sidecar's own tools, so runs have hidden turns. Whatever an agent
sends, the door answers it; no prompt goes on untrimmed that an engine takes; and none gets a defect that was not sent.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web

from prompt_sidecar.calls import headers as names
from prompt_sidecar.errors import SidecarError
from prompt_sidecar.facts.tool_calls import RECALL, SEARCH
from prompt_sidecar.facts.untrimmed import MISSED, Untrimmed
from prompt_sidecar.prompt.items import Role
from tests.client.provider import SHAPES, Says
from tests.conformance.table import CASES
from tests.doors.http.path_models import WAYS, Way, hear, pieces
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.upstream import scripted
from tests.lab.fuzz.mixing import LIMITS, Mixing
from tests.lab.fuzz.requests import spoiled
from tests.lab.fuzz.target import Findings, raised
from tests.promises.engine import Engine
from tests.promises.played import Played

PATHS: Final[Mapping[str, Way]] = {
    "chat": Way("openai_chat", "/v1/chat/completions", "application/json"),
    "messages": Way("anthropic_messages", "/v1/messages", "application/json"),
    "responses": Way("openai_responses", "/v1/responses", "application/json"),
    **{name: WAYS[name] for name in ("gemini", "gemini-sse", "bedrock", "bedrock-stream")},
}
_ENTRIES: Final[Mapping[str, Any]] = {
    "openai_chat": lambda answer: [answer["choices"][0]["message"]],
    "anthropic_messages": lambda answer: [{"role": "assistant", "content": answer["content"]}],
    "openai_responses": lambda answer: answer["output"],
}
"""What an agent takes of an answer into its history."""
_SYSTEM: Final = (b'"role":"system"', b'"role":"developer"')
_ID: Final = re.compile(rb"id=([\w-]+)")
_AT_LAST: Final = 60.0
"""Seconds without a byte after which an agent gives up."""
ROUNDS: Final = 10
"""Prompts of one agent."""
CASES_TOGETHER: Final = 20
"""How many agents a door serves in `make fuzz`."""


@dataclass(slots=True)
class Provider:
    """Answers every request, as `Upstream.other`. What it says depends on what it was asked alone, and on chance."""

    chance: Random = field(default_factory=Random)
    way: Way = PATHS["chat"]
    bodies: list[bytes] = field(default_factory=list)
    asked: int = 0
    """How often it was."""

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        raw = await request.read()
        self.bodies.append(raw)
        self.asked += 1
        says = self._says(raw)
        name = self.way.path.removeprefix("/v1/")
        made = [json.dumps(SHAPES[name](says, self.asked)).encode()] if name in SHAPES else pieces(self.way, says)
        return web.Response(body=b"".join(made), headers={"content-type": self.way.kind})

    def _says(self, raw: bytes) -> Says:
        chance, number = self.chance, self.chance.randrange(10_000)
        calls: list[tuple[str, str, Mapping[str, Any]]] = []
        if RECALL.encode() in raw and chance.random() < 0.4:
            ids = [each.decode() for each in _ID.findall(raw)]
            calls.append((f"own-{number}", RECALL, {"id": chance.choice(ids) if ids else "none"}))
            if chance.random() < 0.3:
                calls.append((f"own-too-{number}", SEARCH, {"query": "page"}))
        if chance.random() < 0.3:
            calls.append((f"agents-{number}", "read", {"path": f"a{number}.py"}))
        thinks = self.way.format == "anthropic_messages"
        thought = [{"type": "thinking", "thinking": "It may be there.", "signature": f"signed-{number}"}] * thinks
        return Says(f"Answer {number}." if chance.random() < 0.8 or not calls else "", calls, blocks=thought)


@dataclass(slots=True)
class MixingAtDoor(Mixing):
    """One agent behind a door."""

    url: str = ""
    way: Way = PATHS["chat"]
    provider: Provider = field(default_factory=Provider)
    run: str = ""
    """The run that it names; empty: it names none."""
    revision: str = ""
    """The last that it was told."""

    def send(self) -> Iterator[str]:
        """One prompt; what is wrong with what became of it."""
        raw = self.play.raw(self.held, self.member)
        odd = self.chance.random() < 0.1
        if odd:
            raw = json.dumps(spoiled(json.loads(raw), self.chance)).encode()
        else:
            self.pool += self.held
        del self.provider.bodies[:]
        status, answer, headers = self._post(raw)
        self.calls += 1
        why = headers.get(names.PREFIX + "untrimmed", "")
        known = why if why in MISSED else "OK" if status == 200 else str(status)
        self.statuses[known] = self.statuses.get(known, 0) + 1
        bodies = list(self.provider.bodies)
        self.revision = headers.get(names.REVISION, "")
        if status != 200 or not bodies:
            yield f"status {status}, and {len(bodies)} requests reached the provider"
            return
        if why in MISSED and not self._is_refused(raw, known):
            yield f"the prompt went on untrimmed: {known}"
        if odd:
            return
        if not (self.careless or self.defects(raw) or _leaves_calls_open(raw)):
            for turn, body in enumerate(bodies[: self._judged()]):
                for defect in self.defects(body):
                    yield f"a new defect in turn {turn}: {defect}"
        self._take(bodies, answer, headers)

    def _judged(self) -> int | None:
        """How many of the prompts that the provider got are judged; None: all.

        A prompt that ends in a call without its result is refused, which the validators do not know. And where it ends
        in the model's own words, only some of what this provider says to it is what a model would say.
        """
        last = self.play.form.read(self.held[-1], "history")
        return 0 if last.calls else 1 if last.role is Role.ASSISTANT else None

    def _take(self, bodies: list[bytes], answer: bytes, headers: Mapping[str, str]) -> None:
        """Hold what the provider got in place of what was sent, and mostly what it said."""
        self.got = self.chance.choice(bodies)
        slices = self.play.slices(self.got)
        sent = set(self.held)
        self.own = {
            place
            for place, each in enumerate(slices)
            if each not in sent and any(mark in each.replace(b'": "', b'":"') for mark in _SYSTEM)
        }
        self.pool += slices
        if self.chance.random() < 0.7:
            if self.way.format in _ENTRIES:
                entries = _ENTRIES[self.way.format](json.loads(answer))
            else:
                entries = hear(self.way, answer, headers).entries
            self.held += [json.dumps(each, separators=(",", ":")).encode() for each in entries]

    def _post(self, raw: bytes) -> tuple[int, bytes, Mapping[str, str]]:
        where = urlsplit(self.url)
        headers = {"content-type": "application/json", "authorization": "Bearer key", "x-api-key": "key"}
        headers[names.WINDOW] = str(self.play.limit)
        if self.run:
            headers[names.RUN] = self.run
        if self.revision and self.chance.random() < 0.3:
            headers[names.REVISION] = self.revision
        with contextlib.closing(
            http.client.HTTPConnection(where.hostname or "", where.port, timeout=_AT_LAST)
        ) as connection:
            connection.request("POST", self.way.path, raw, headers)
            response = connection.getresponse()
            answer_headers = {name.lower(): value for name, value in response.getheaders()}
            return response.status, response.read(), answer_headers

    def _is_refused(self, raw: bytes, reason: str) -> bool:
        """Whether an engine that knows nothing refuses a body, too: then it is the body's fault."""
        try:
            Engine(limit=self.play.limit).trim(self.way.format, raw)
        except SidecarError as error:
            return error.status != "INTERNAL"
        value = json.loads(raw)
        held_there = isinstance(value, dict) and (value.get("previous_response_id") or value.get("conversation"))
        return bool(held_there) and reason == Untrimmed.STORED_BY_PROVIDER


def _leaves_calls_open(raw: bytes) -> bool:
    """Whether a body of Gemini's ends in the model's words with calls that nobody has answered.

    The judge counts no calls there, and does where a hidden turn with its answer is put back between them.
    """
    for content in reversed(json.loads(raw).get("contents") or []):
        if content.get("role") != "model":
            return False
        if any({"functionCall", "function_call"} & part.keys() for part in content.get("parts") or []):
            return True
    return False


def mixing_at_door(here: Proxied, path: str, seed: int, number: int) -> MixingAtDoor:
    """The agent of a case."""
    chance = Random(f"door:{path}:{seed}:{number}")
    way = PATHS[path]
    case = CASES[way.format]
    body = case.history(chance, chance.choice((4, 8, 14))) | dict(chance.choice(list(case.heads)))
    policy = {"reasoning_binding": "auto"}
    play = Played(case, body, chance.choice(LIMITS) + 1_000, "cache_first", bare=False, policy=policy)
    provider = Provider(Random(chance.random()), way)
    here.upstream.other, here.upstream.only_other = provider, True
    return MixingAtDoor(
        play,
        chance,
        play.engine(),
        careless=chance.random() < 0.5,
        url=here.url,
        way=way,
        provider=provider,
        run=f"mixed-{path}-{seed}-{number}" if chance.random() < 0.7 else "",
    )


def case_at_door(here: Proxied, path: str, seed: int, number: int, found: Findings) -> None:
    """Some prompts of one agent; what is wrong, an exception included."""
    agent = mixing_at_door(here, path, seed, number)
    name = f"--seed {seed} --door {path} --case {number}"
    for turn in range(ROUNDS):
        try:
            agent.step()
            found.faults += [f"{name}: prompt {turn}: {complaint}" for complaint in agent.send()]
        except Exception as error:  # noqa: BLE001 - any is what is looked for
            found.faults.append(f"{name}: prompt {turn}: {raised(error)}")
            break
    found.add(agent.calls, agent.statuses)


def cases_at_door(path: str, seed: int, numbers: Iterable[int], found: Findings) -> None:
    """Cases one after the other, behind a door of their own."""
    with proxied(scripted()) as here:
        for number in numbers:
            case_at_door(here, path, seed, number, found)
