"""A transport for httpx and httpx2 that trims each prompt on its way to a provider.

    http = httpx2.Client(transport=SidecarTransport(Client("127.0.0.1:7717"), "run-1"))
    model = openai.OpenAI(http_client=http)

SDKs that send their requests with httpx or httpx2 (openai, anthropic, google-genai, mistralai and others) take such a
client. The body of a request to a known API's path is trimmed; all other requests are forwarded unchanged. The answer
is forwarded while it arrives; when it ends, its usage is reported. A refusal for a prompt's length teaches the limit,
and the prompt is sent again, shorter. If the guard has masked something in a prompt, masks in the answer's calls are
replaced by the values that are allowed (`answers.py`). One class serves both libraries: it creates requests of the type
that it gets.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Iterator
from functools import cache
from types import TracebackType
from typing import Any, Final, Self, Unpack

from prompt_sidecar.client import AsyncClient, Client
from prompt_sidecar.client.arguments import TrimOptions
from prompt_sidecar.client.forwarding import REFUSING, RefusedAnswer, Sending, forward, reported
from prompt_sidecar.client.model_calls import counted
from prompt_sidecar.integrations.answers import EventStream, WholeAnswer, prompt_has_masks, restoring
from prompt_sidecar.integrations.calls import of_kind
from prompt_sidecar.integrations.naming import RUN_HEADER, RunChoice, chosen
from prompt_sidecar.providers.api import signs_body
from prompt_sidecar.providers.table import APIS, PathFound, api_of
from prompt_sidecar.providers.usage_reader import UsageReader

_log = logging.getLogger("prompt_sidecar.client")
MOST_ANSWER_BYTES: Final = 67_108_864
"""Bytes of an answer that are kept until its end, to read its usage: the size of the longest prompts. The usage of a
longer answer is not reported."""
_ANSWERED: Final = 200
_Base: Any = object
"""For type checkers, in place of the base class of either library's transports, which only require the methods."""


class _Common:
    """The parts of both transports without I/O."""

    def __init__(self, run: RunChoice, options: TrimOptions) -> None:
        self._run = run
        self._options: TrimOptions = {"recall_unavailable": True, **options}
        self._warned = False

    def _sending(self, request: Any) -> tuple[PathFound, str] | None:
        """Return the API and the run of a request; None if it is forwarded unchanged."""
        named = request.headers.get(RUN_HEADER, "")
        api = api_of(request.url.path)
        if request.method != "POST" or api is None or not api.asks or request.headers.get("content-encoding"):
            return None
        run_id = named or chosen(self._run, request)
        signed = signs_body(request.headers)
        if run_id and not signed:
            return api, run_id
        if not self._warned:
            self._warned = True
            why = "their signature covers the body" if signed else "no run is named"
            _log.warning("requests to %s pass untrimmed: %s", request.url.host, why)
        return None

    def _made(self, api: PathFound, run_id: str, body: bytes) -> Sending:
        options = self._options
        if api.model and "model" not in options:
            options = {**options, "model": api.model}
        return Sending(run_id, body, api.format, options, lambda trimmed: {"body": trimmed.prompt})


def _library(request: Any) -> Any:
    """Return the library of a request: httpx or httpx2."""
    names = [each.__module__.partition(".")[0] for each in type(request).__mro__]  # an agent may use its own class
    return sys.modules[next((name for name in names if name in ("httpx", "httpx2")), names[0])]


_REMADE: Final = frozenset({b"content-length", b"transfer-encoding", RUN_HEADER.encode()})


def _outgoing(request: Any, body: bytes) -> Any:
    """Return the request with a new body, and without the header that names the run."""
    masked = prompt_has_masks(body)
    if body == request.content and RUN_HEADER not in request.headers and not masked:
        return request
    removed = _REMADE | {b"accept-encoding"} if masked else _REMADE
    headers = [(name, value) for name, value in request.headers.raw if name.lower() not in removed]
    if masked:
        headers.append((b"accept-encoding", b"identity"))  # the answer is read as it arrives
    return type(request)(request.method, request.url, headers=headers, content=body, extensions=request.extensions)


def _restoring(engine: Any, sending: Sending, prompt: Any, response: Any) -> WholeAnswer | EventStream | None:
    """Return what restores masks in the answer to a prompt; the answer's length is then no longer known."""
    if not prompt_has_masks(prompt):
        return None
    found = restoring(engine, sending.run_id, sending.format, response.headers)
    if found is not None:
        response.headers.pop("content-length", None)
    return found


class _KeptAnswer:
    """The kept bytes of an answer, up to a limit."""

    def __init__(self) -> None:
        self.chunks: list[bytes] | None = []
        self._size = 0

    def add(self, chunk: bytes) -> None:
        """Keep a chunk."""
        if self.chunks is not None:
            self._size += len(chunk)
            self.chunks.append(chunk)
            if self._size > MOST_ANSWER_BYTES:
                self.chunks = None

    def usage(self, sending: Sending, response: Any) -> Any:
        """Return the usage in the answer, decompressed by the library."""
        if not self.chunks:
            return {}
        raw, headers = b"".join(self.chunks), response.headers
        self.chunks = None
        if headers.get("content-encoding"):
            try:
                raw = type(response)(response.status_code, headers=headers, content=raw).content
            except Exception:  # noqa: BLE001  # an answer that ended early cannot always be decompressed
                return {}
        reader = UsageReader(APIS[sending.format], _ANSWERED, headers.get("content-type", ""))
        reader.feed(raw)
        return counted(reader.end())


class SidecarTransport(_Common, _Base):  # type: ignore[misc]
    """A transport for `httpx.Client` and `httpx2.Client`.

    Args:
        client: the client of the sidecar; it is not closed with the transport.
        run: the run's id, or a function called with the request. The request's header `x-prompt-sidecar-run`, which
            is not forwarded, takes precedence, then `in_run`. Without a run a request is forwarded unchanged.
        wrapped: the transport that sends; by default the library's own, without the client's `verify` and `proxy`.
        **options: the options of each prompt. `recall_unavailable` is true unless it is set: with `run.tools()`
            among the agent's tools it should be false.
    """

    def __init__(
        self, client: Client, run: RunChoice = None, *, wrapped: Any = None, **options: Unpack[TrimOptions]
    ) -> None:
        super().__init__(run, options)
        self._client = of_kind(client, Client)
        self._wrapped = wrapped

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the wrapped transport."""
        if self._wrapped is not None:
            self._wrapped.close()

    def handle_request(self, request: Any) -> Any:
        """Send a request.

        Raises:
            ClientError: the sidecar did not trim it, and its client does not fail open.
            MaskedRun: the sidecar did not answer, and the run has masks. OpenAI's SDK passes it on, Anthropic's
                raises its `APIConnectionError` from it.
        """
        if self._wrapped is None:
            self._wrapped = _library(request).HTTPTransport()
        found = self._sending(request)
        if found is None:
            return self._wrapped.handle_request(request)
        sending = self._made(*found, request.read())

        def send(body: bytes) -> Any:
            response = self._wrapped.handle_request(_outgoing(request, body))
            if response.status_code in REFUSING:
                response.read()
                raise RefusedAnswer(response, response.status_code, response.text)
            return response

        engine, drive = self._client._engine, self._client._drive  # noqa: SLF001  # a part of the client
        try:
            response, trimmed = drive(forward(engine, sending), send)
        except RefusedAnswer as refused:
            return refused.native
        kept = _KeptAnswer()
        if response.status_code == 200:

            def ended() -> None:
                usage = kept.usage(sending, response)
                drive(reported(engine, sending.run_id, usage, trimmed))

            masks = _restoring(engine, sending, trimmed.prompt, response)
            stream = _watching(_library(request))
            response.stream = stream(response.stream, kept, ended, masks, drive)
        return response


class AsyncSidecarTransport(_Common, _Base):  # type: ignore[misc]
    """A transport for `httpx.AsyncClient` and `httpx2.AsyncClient`; see `SidecarTransport`."""

    def __init__(
        self, client: AsyncClient, run: RunChoice = None, *, wrapped: Any = None, **options: Unpack[TrimOptions]
    ) -> None:
        super().__init__(run, options)
        self._client = of_kind(client, AsyncClient)
        self._wrapped = wrapped

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the wrapped transport."""
        if self._wrapped is not None:
            await self._wrapped.aclose()

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request.

        Raises:
            ClientError: the sidecar did not trim it, and its client does not fail open.
            MaskedRun: the sidecar did not answer, and the run has masks. OpenAI's SDK passes it on, Anthropic's
                raises its `APIConnectionError` from it.
        """
        if self._wrapped is None:
            self._wrapped = _library(request).AsyncHTTPTransport()
        found = self._sending(request)
        if found is None:
            return await self._wrapped.handle_async_request(request)
        sending = self._made(*found, await request.aread())

        async def send(body: bytes) -> Any:
            response = await self._wrapped.handle_async_request(_outgoing(request, body))
            if response.status_code in REFUSING:
                await response.aread()
                raise RefusedAnswer(response, response.status_code, response.text)
            return response

        engine, drive = self._client._engine, self._client._drive  # noqa: SLF001  # a part of the client
        try:
            response, trimmed = await drive(forward(engine, sending), send)
        except RefusedAnswer as refused:
            return refused.native
        kept = _KeptAnswer()
        if response.status_code == 200:

            async def ended() -> None:
                usage = kept.usage(sending, response)
                await drive(reported(engine, sending.run_id, usage, trimmed))

            masks = _restoring(engine, sending, trimmed.prompt, response)
            stream = _awatching(_library(request))
            response.stream = stream(response.stream, kept, ended, masks, drive)
        return response


# A library accepts only streams of its own base class.


@cache
def _watching(library: Any) -> Any:
    """Return the class of a library's blocking streams."""

    class Watching(library.SyncByteStream):  # type: ignore[misc]
        """Forwards chunks at once, with values in place of masks, and keeps the original chunks."""

        def __init__(
            self, stream: Any, kept: _KeptAnswer, ended: Any, masks: WholeAnswer | EventStream | None, drive: Any
        ) -> None:
            self._stream, self._kept, self._ended = stream, kept, ended
            self._masks, self._drive = masks, drive

        def __iter__(self) -> Iterator[bytes]:
            for chunk in self._stream:
                self._kept.add(chunk)
                made = chunk if self._masks is None else self._drive(self._masks.feed(chunk))
                if made:
                    yield made
            if self._masks is not None and (rest := self._drive(self._masks.end())):
                yield rest

        def close(self) -> None:
            self._stream.close()
            self._ended()

    return Watching


@cache
def _awatching(library: Any) -> Any:
    """Return the class of a library's asyncio streams."""

    class Watching(library.AsyncByteStream):  # type: ignore[misc]
        """Forwards chunks at once, with values in place of masks, and keeps the original chunks."""

        def __init__(
            self, stream: Any, kept: _KeptAnswer, ended: Any, masks: WholeAnswer | EventStream | None, drive: Any
        ) -> None:
            self._stream, self._kept, self._ended = stream, kept, ended
            self._masks, self._drive = masks, drive

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for chunk in self._stream:
                self._kept.add(chunk)
                made = chunk if self._masks is None else await self._drive(self._masks.feed(chunk))
                if made:
                    yield made
            if self._masks is not None and (rest := await self._drive(self._masks.end())):
                yield rest

        async def aclose(self) -> None:
            await self._stream.aclose()
            await self._ended()

    return Watching
