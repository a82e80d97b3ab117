"""Masks the bodies of requests to unknown paths, where the guard masks: no body is forwarded unread.

    body ──► decompressed ──► its strings masked one by one ──► forwarded
      └─ cannot be read: a form with files, an unknown encoding, too long ──► 403, or forwarded unchanged (guard.unread)

A body without findings is forwarded byte for byte. Path, query and headers are not searched: they carry the provider's
credentials. The format of the response is not known, so masks in it are not replaced by values.
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
"""Headers that are wrong once the body has changed; they are not forwarded with it."""


@dataclass(frozen=True, slots=True)
class UnknownBodies:
    """Forwards requests to unknown paths, with masked bodies."""

    use_cases: UseCases
    upstreams: Upstreams
    most_bytes: int
    """Largest body that is read."""

    def reads(self, request: web.Request, caller: str) -> bool:
        """Whether the guard must search a request before it is forwarded."""
        return bool(request.body_exists and self.use_cases.runs.guarding.unread(caller))

    async def sent_on(
        self,
        request: web.Request,
        agent: RequestingAgent,
        provider: Provider,
        caller: str,
        work: CallWorkers,
        *,
        more_headers: Callable[[], Mapping[str, str]],
    ) -> tuple[web.StreamResponse, int]:
        """Forward a request; return the response, already sent to the agent, and the upstream's status.

        Raises:
            GuardUnread: the body cannot be read, and the settings refuse such requests.
            GuardRefused: a rule finds something whose action is to refuse.
            HTTPRequestEntityTooLarge: the body is larger than `most_bytes`, which showed while it was read.
        """
        why = self._unread(request)
        if why is not None:
            self.use_cases.left_unread(SendingDoor.HTTP, caller, why)
            return await passed(request, agent, provider, self.upstreams, more_headers=more_headers)
        body = await agent.body(self.most_bytes)
        work.size = len(body)
        made = await self._masked(request, body, agent, caller, work)
        without = () if made is body else _OF_BODY
        return await passed(request, agent, provider, self.upstreams, made, without, more_headers)

    async def _masked(
        self, request: web.Request, body: bytes, agent: RequestingAgent, caller: str, work: CallWorkers
    ) -> bytes:
        """Return a body with masks, or the same object if nothing is masked."""
        plain, encoding = body, encoding_of(request.headers)
        if encoding:
            try:
                found = await unpacked(work, body, encoding, self.most_bytes, REQUEST_COPIES)
            except TooLarge:  # no memory for the decompressed body now
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
        """Return why a body cannot be read, judged by its headers; None if it can."""
        if (why := unread_kind(request.headers.get("content-type", ""))) is not None:
            return why
        if (request.content_length or 0) > self.most_bytes:
            return Unread.TOO_LARGE
        return None


def _run(request: web.Request) -> str:
    """Return the run named by the agent's header, or an empty string."""
    named = request.headers.get(names.RUN, "")
    return checked_run_id(named) if named else ""
