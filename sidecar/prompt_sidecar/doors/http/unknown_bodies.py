"""What goes to paths that the sidecar does not know, where the guard masks: no body leaves unread.

    body ──► unpacked ──► its strings masked one by one ──► sent on
      └─ cannot be read: a form with files, an unknown encoding, too long ──► 403, or as it came (guard.unread)

What is not changed goes on as the bytes that came. Path, query and headers are not looked at: providers take their
credentials there. Nothing is known of what the answer means, so masks in it stay masks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from prompt_sidecar.calls import headers as names
from prompt_sidecar.calls.checks import checked_run_id
from prompt_sidecar.calls.content_types import unread_kind
from prompt_sidecar.calls.memory import REQUEST_COPIES
from prompt_sidecar.calls.use_cases import UseCases
from prompt_sidecar.calls.work import CallWorkers
from prompt_sidecar.doors.http.agents import RequestingAgent
from prompt_sidecar.doors.http.encodings import encoding_of
from prompt_sidecar.doors.http.passthrough import passed
from prompt_sidecar.doors.http.unpacking import unpacked
from prompt_sidecar.doors.http.upstream import Upstreams
from prompt_sidecar.errors import TooLarge
from prompt_sidecar.facts.guard_calls import MaskCall, SendingDoor, Unread
from prompt_sidecar.providers.api import Provider, signs_body

_OF_BODY: Final = (
    "content-length",
    "content-encoding",
    "content-md5",
    "content-digest",
    "digest",
    "repr-digest",
)
"""Headers that a changed body makes wrong."""


@dataclass(frozen=True, slots=True)
class UnknownBodies:
    """Sends requests on to paths that are not known, masked."""

    use_cases: UseCases
    upstreams: Upstreams
    most_bytes: int
    """Of a body that is read."""

    def reads(self, request: web.Request, caller: str) -> bool:
        """Whether the guard must look at a request before it goes on."""
        return bool(request.body_exists and self.use_cases.runs.guarding.unread(caller))

    async def sent_on(
        self,
        request: web.Request,
        agent: RequestingAgent,
        provider: Provider,
        caller: str,
        work: CallWorkers,
        *,
        told: Callable[[], Mapping[str, str]],
    ) -> tuple[web.StreamResponse, int]:
        """Send a request on; return the answer, which was sent, and the upstream's status. `told`: see `passed`.

        Raises:
            GuardUnread: it cannot be read, and the settings refuse such requests.
            GuardRefused: a rule finds something whose action is to refuse.
            HTTPRequestEntityTooLarge: it has more bytes than are read, as it turned out while it was read.
        """
        why = self._unread(request)
        if why is not None:
            self.use_cases.left_unread(SendingDoor.HTTP, caller, why)
            return await passed(request, agent, provider, self.upstreams, told=told)
        body = await agent.body(self.most_bytes)
        work.size = len(body)
        made = await self._masked(request, body, agent, caller, work)
        without = () if made is body else _OF_BODY
        return await passed(request, agent, provider, self.upstreams, made, without, told)

    async def _masked(
        self, request: web.Request, body: bytes, agent: RequestingAgent, caller: str, work: CallWorkers
    ) -> bytes:
        """A body with masks; the same object if nothing is masked."""
        plain, encoding = body, encoding_of(request.headers)
        if encoding:
            try:
                found = await unpacked(work, body, encoding, self.most_bytes, REQUEST_COPIES)
            except TooLarge:  # there is no memory now for what it becomes
                return self.use_cases.left_unread(SendingDoor.HTTP, caller, Unread.FAILED, body)
            if found is None:
                return self.use_cases.left_unread(SendingDoor.HTTP, caller, Unread.ENCODED, body)
            if len(found) > self.most_bytes:
                return self.use_cases.left_unread(SendingDoor.HTTP, caller, Unread.TOO_LARGE, body)
            agent.hold(len(found))
            plain = found
        if not plain.strip():
            return body
        signed = signs_body(request.headers)
        call = MaskCall(caller, plain, _run(request))
        work.size = len(plain)
        made = await work.run(self.use_cases.mask, SendingDoor.HTTP, call, work.check, signed=signed)
        return body if made is plain else made

    def _unread(self, request: web.Request) -> Unread | None:
        """Why a body cannot be read, where its headers say so."""
        if (why := unread_kind(request.headers.get("content-type", ""))) is not None:
            return why
        if (request.content_length or 0) > self.most_bytes:
            return Unread.TOO_LARGE
        return None


def _run(request: web.Request) -> str:
    """The run that the agent names; empty: none."""
    named = request.headers.get(names.RUN, "")
    return checked_run_id(named) if named else ""
