"""One request of an agent and the answer to it, which may take several turns of the model.

    prepare ─► ask ─┬─ refused as too long, or for its thinking ─► trim again ─► ask
                    ├─ a hidden turn ─► answer its calls, trim again ─► ask
                    └─ anything else ─► the agent's

Everything that takes processor time runs in a worker thread; here is only what waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import aiohttp
from aiohttp import web

from prompt_sidecar.errors import SidecarError
from prompt_sidecar.http.agents import Agent
from prompt_sidecar.http.encodings import UNPACKED, decoded
from prompt_sidecar.http.passthrough import relay
from prompt_sidecar.http.prompting import Asked, Prompt, Prompter
from prompt_sidecar.http.reading import Source, TurnStream, UpstreamFailed, read_on
from prompt_sidecar.http.routes import Route
from prompt_sidecar.http.upstream import (
    MOST_ERROR,
    Upstreams,
    checked,
    forwarded,
    media_type,
    reason,
    refuses_thinking,
)
from prompt_sidecar.http.work import Work
from prompt_sidecar.serving import headers as names
from prompt_sidecar.serving.answer_json import read
from prompt_sidecar.serving.answer_stream import READ_AT_ONCE, AnswerStream, Discontinued
from prompt_sidecar.serving.dialects.base import Dialect, Filter, Shown, Turn
from prompt_sidecar.serving.logs import frames
from prompt_sidecar.serving.provider_errors import error_body, http_status
from prompt_sidecar.serving.provider_usage import ProviderUsage, UsageReader, too_long
from prompt_sidecar.serving.restoring import Restore, restored
from prompt_sidecar.serving.rewriting import rewritten

MOST_HIDDEN: Final = 6
"""Hidden turns in one answer. A model needs one to three to find what it misses; after six it is to answer without
tools, so that the agent hears from it before its patience ends."""
MOST_REFUSALS: Final = 8
"""How often one prompt may be refused as too long before the agent sees the refusal; each time it must be shorter."""
_SENDING_SECONDS: Final = 0.02
"""By when a prompt has been sent on; background work waits until then. A megabyte takes a millisecond or two, and the
first words of an answer often longer."""
T = TypeVar("T")
_JSON: Final = "application/json"
_log = logging.getLogger("prompt_sidecar.http")


@dataclass(slots=True)
class Outcome:
    """What became of a request, for metrics."""

    status: int = 0
    """The upstream's; 0: it was not asked, or did not answer."""
    hidden: int = 0
    """Hidden turns."""
    failed_open: str = ""


class TooLongAnswer(Exception):
    """An upstream's answer has more bytes than any can need."""


class Exchange:
    """See the module.

    Args:
        request: the agent's.
        agent: whose it is.
        route: of the request; it has a dialect.
        prompter: makes the prompts.
        upstreams: the providers.
        outcome: told what becomes of the request.
        work: runs what takes processor time.
        most_bytes: of an answer that is read, and of one event of a stream.
    """

    def __init__(
        self,
        request: web.Request,
        agent: Agent,
        route: Route,
        prompter: Prompter,
        upstreams: Upstreams,
        *,
        outcome: Outcome,
        work: Work,
        most_bytes: int,
    ) -> None:
        assert route.dialect is not None
        self._request = request
        self._agent = agent
        self._route = route
        self._dialect: Dialect = route.dialect
        self._prompter = prompter
        self._upstreams = upstreams
        self._work = work
        self._most_bytes = most_bytes
        self._outcome = outcome
        self._shown = Shown()
        self._input = 0
        self._refusals = 0
        self._thinking_refused = False
        self._response: web.StreamResponse | None = None
        """What has been begun."""
        self._filter: Filter | None = None

    async def run(self, asked: Asked) -> web.StreamResponse:
        """Answer the agent.

        Raises:
            SidecarError: the guard or a ceiling refuses the prompt, or a header is wrong; nothing was sent.
            aiohttp.ClientError: the upstream cannot be reached; nothing was sent.
            TooLongAnswer: its answer is too long; nothing was sent.
        """
        self._work.begin()
        try:
            return await self._turns(asked)
        finally:
            self._work.rest()

    async def _turns(self, asked: Asked) -> web.StreamResponse:
        prompt = await self._work.run(self._prompter.prepare, asked, self._work.check)
        self._outcome.failed_open = prompt.failed_open
        while True:
            try:
                step = await self._step(prompt)
            except SidecarError as error:
                if self._response is None:
                    raise
                _log.warning("a hidden turn was refused: %s", error.reason)
                status = http_status(error)
                body = error_body(self._dialect.format, status, error.message, error.reason)
                return await self._end_with_error(status, body)
            except ConnectionError:
                if self._response is None:
                    raise
                self._agent.cut_off()
                return self._response
            except Exception as error:
                if self._response is None:
                    raise
                _log.error("a stream was ended: %s", frames(error))
                return await self._end_with_error(502, b"")
            if not isinstance(step, Prompt):
                return step
            prompt = step

    async def _step(self, prompt: Prompt) -> Prompt | web.StreamResponse:
        """Ask the model once; return the next prompt, or the answer that was sent."""
        encoding = ("content-encoding",) if prompt.asked.decoded else ()
        headers = forwarded(self._request.headers, "host", "content-length", "accept-encoding", *encoding)
        headers["Accept-Encoding"] = "identity"
        self._work.begin()
        sent = asyncio.get_running_loop().call_later(_SENDING_SECONDS, self._work.rest)
        try:
            async with self._upstreams.send(
                self._route.provider, "POST", self._request.rel_url, headers, prompt.body
            ) as answer:
                self._outcome.status = checked(answer).status
                if answer.status >= 400:
                    return await self._refused(prompt, answer)
                return await self._answered(prompt, answer)
        except (aiohttp.ClientError, TimeoutError, TooLongAnswer) as error:
            if self._response is None or self._left:
                raise
            _log.warning("an upstream failed during an answer: %s", type(error).__name__)
            return await self._end_with_error(502, b"")
        finally:
            sent.cancel()

    @property
    def _left(self) -> bool:
        """Whether the agent has closed its connection."""
        return self._request.transport is None or self._request.transport.is_closing()

    async def _answered(self, prompt: Prompt, answer: aiohttp.ClientResponse) -> Prompt | web.StreamResponse:
        kind, encoding = media_type(answer), _encoding(answer)
        if not prompt.asked.counting:
            if kind == self._dialect.streamed and (not encoding or encoding in UNPACKED):
                return await self._streamed(prompt, answer)
            if kind == _JSON and self._route.in_array and not encoding:
                return await self._read_in_passing(prompt, answer)
            if kind == _JSON and not self._route.in_array and self._response is None:
                return await self._whole_turn(prompt, answer)
        if self._response is not None:
            return await self._end_with_error(502, b"")
        response = self._begun(prompt, answer)
        await relay(self._request, self._agent, answer, response)
        return response

    async def _read_in_passing(self, prompt: Prompt, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        """Relay an array; its usage is read as it passes."""
        reader = UsageReader(self._dialect.format, answer.status, media_type(answer))
        response = self._begun(prompt, answer)

        def whole() -> None:
            self._report_soon(prompt, reader.end)

        async def take(piece: bytes) -> None:
            reader.feed(piece)

        try:
            await relay(self._request, self._agent, answer, response, seen=reader.feed, whole=whole)
        except (asyncio.CancelledError, ConnectionError):
            await read_on(Source(answer), take)
            whole()
            raise
        return response

    # -- a whole answer --------------------------------------------------------------------------------------------

    async def _whole_turn(self, prompt: Prompt, answer: aiohttp.ClientResponse) -> Prompt | web.StreamResponse:
        body = await self._whole_body(prompt, answer)
        plain = await self._plain(answer, body)
        found, turn = await self._run(len(plain), partial(self._turn_in, plain, prompt))
        if turn is None:
            return await self._sent(prompt, answer, body)
        if turn.hidden and self._outcome.hidden < MOST_HIDDEN:
            self._dialect.show(self._shown, turn)
            return await self._next(prompt, turn)
        try:
            made = await self._for_the_agent(prompt, turn, plain, found)
            return await self._sent(prompt, answer, made or body, plain=bool(made))
        finally:  # the agent may close the connection as soon as it has all
            self._work.soon(self._prompter.report, prompt, turn.usage)

    async def _whole_body(self, prompt: Prompt, answer: aiohttp.ClientResponse) -> bytes:
        """Return an answer's body. What the provider counted is reported also where the agent has gone meanwhile."""
        read_so_far = bytearray()

        async def take(piece: bytes) -> None:
            read_so_far.extend(piece)

        def counted() -> ProviderUsage:
            usage = UsageReader(self._dialect.format, answer.status, media_type(answer))
            plain = decoded(bytes(read_so_far), _encoding(answer), self._most_bytes, padded=True)
            usage.feed(plain or bytes(read_so_far))
            return usage.end()

        try:
            return await self._read(answer, read_so_far)
        except asyncio.CancelledError:
            await read_on(Source(answer), take)
            self._report_soon(prompt, counted)
            raise

    def _report_soon(self, prompt: Prompt, counted: Callable[[], ProviderUsage | None]) -> None:
        """Report what the provider has counted, which is read in a worker thread: there may be much of it."""
        self._work.soon(lambda: self._prompter.report(prompt, counted()))

    async def _run(self, size: int, function: Callable[[], T]) -> T:
        """Return a function's result; it runs in a worker thread where `size`, the bytes that it reads, is large."""
        return function() if size <= READ_AT_ONCE else await self._work.run(function)

    async def _plain(self, answer: aiohttp.ClientResponse, body: bytes) -> bytes:
        """Return a body without its encoding, if that is known. Raises TooLongAnswer."""
        if not (encoding := _encoding(answer)):
            return body
        plain = await self._work.run(partial(decoded, padded=True), body, encoding, self._most_bytes)
        if plain is not None and len(plain) > self._most_bytes:
            raise TooLongAnswer
        self._agent.hold_answer(len(plain or b""))
        return body if plain is None else plain

    def _turn_in(self, plain: bytes, prompt: Prompt) -> tuple[dict[str, Any], Turn | None]:
        """Return a whole answer as JSON's types, and its turn; None: it cannot be read."""
        answer = read(plain)
        if not isinstance(answer, dict):
            return {}, None
        try:
            return answer, self._dialect.read(answer, prompt.own)
        except Exception as error:  # noqa: BLE001 - whatever a provider sends, the agent gets its answer
            _log.error("an answer passes as it came: %s", frames(error))
            return answer, None

    async def _for_the_agent(self, prompt: Prompt, turn: Turn, plain: bytes, found: dict[str, Any]) -> bytes:
        """Return the last turn as the agent is given it; empty: as it came. What it really was is remembered.

        `found` is what was read of `plain`.
        """
        self._count(turn)
        body = b""
        visible: Sequence[Any] = ()
        try:
            if prompt.added or turn.own:
                body, visible = await self._work.run(self._written, plain, found, prompt)
            if (restore := self._prompter.restore(prompt)) is not None:
                body = await self._work.run(self._restored, body or plain, found, restore) or body
            if prompt.added or turn.own or turn.id:
                await self._work.run(self._prompter.keep, prompt, turn, visible, self._work.check)
        except SidecarError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            self._prompter.not_kept()
            _log.error("an answer passes as far as it was made: %s", frames(error))
        return body

    def _written(self, plain: bytes, found: dict[str, Any], prompt: Prompt) -> tuple[bytes, Sequence[Any]]:
        """Return an answer as the agent is given it, and what it then holds, as entries."""
        visible = self._dialect.written(found, self._shown, prompt.own)
        return rewritten(plain, found), visible

    async def _read(self, answer: aiohttp.ClientResponse, into: bytearray | None = None) -> bytes:
        """Return an answer's body, read into `into`.

        Raises:
            TooLongAnswer: it is too long.
            TooLarge: there is no room for it beside others.
        """
        found = bytearray() if into is None else into
        async for chunk in answer.content.iter_any():
            found += chunk
            if len(found) > self._most_bytes:
                raise TooLongAnswer
            self._agent.hold_answer(len(chunk))
        self._work.begin()
        return bytes(found)

    async def _sent(
        self, prompt: Prompt, answer: aiohttp.ClientResponse, body: bytes, *, plain: bool = False
    ) -> web.StreamResponse:
        """Send a whole answer; `plain`: it has no encoding, whatever the provider's has."""
        headers = self._headers(prompt, answer, plain=plain)
        return await self._agent.send(body, headers, answer.status, reason(answer))

    def _restored(self, body: bytes, answer: dict[str, Any], restore: Restore) -> bytes:
        """Return an answer, which was read of `body`, with values in place of masks; empty: there are none."""
        done = [restored(*each, restore) for each in self._dialect.arguments(answer)]
        return rewritten(body, answer) if any(done) else b""

    # -- a stream --------------------------------------------------------------------------------------------------

    async def _streamed(self, prompt: Prompt, answer: aiohttp.ClientResponse) -> Prompt | web.StreamResponse:
        dialect, response = self._dialect, self._response
        if response is None:
            response = self._response = self._begun(prompt, answer, plain=True)
            self._filter = dialect.filter(prompt.own, prompt.members)
            self._filter.restore = self._prompter.restore(prompt)
            await response.prepare(self._request)
        events = self._filter
        assert events is not None
        events.output_before = self._shown.output_tokens
        events.last = self._outcome.hidden >= MOST_HIDDEN
        events.begin()
        reader = UsageReader(dialect.format, answer.status, media_type(answer))
        passing = AnswerStream(dialect.splitter(self._most_bytes), events, self._most_bytes)
        source = Source(answer, _encoding(answer))
        stream = TurnStream(source, passing, events, reader, run=self._work.run_whole, hold=self._agent.hold_answer)
        hidden = cut = False
        try:
            await self._passed(prompt, stream, response)
            hidden = stream.hides
            if not hidden:
                await self._agent.end(response)
        except Discontinued as ended:
            await self._agent.write(response, ended.made)
            return await self._end_with_error(502, b"")
        except UpstreamFailed:
            cut = True
            self._agent.cut_off()  # as the upstream did: the agent must not take a part for the whole
            return response
        except (asyncio.CancelledError, ConnectionError):  # the agent has gone
            await stream.read_on()
            raise
        finally:
            if not hidden and not cut:  # the figures of a stream that was cut off are no answer's
                self._report_soon(prompt, stream.counted)
        if not hidden:
            return response
        return await self._next(prompt, await self._run(passing.taken_bytes, events.turn))

    async def _passed(self, prompt: Prompt, stream: TurnStream, response: web.StreamResponse) -> None:
        """Send a turn's stream on. Raises Discontinued, UpstreamFailed."""
        kept = False
        async for piece in stream.pieces():
            out = await stream.feed(piece)
            if stream.ended and not kept:
                kept = True
                await self._keep(prompt, stream.taken_bytes)
            if out:
                await self._agent.write(response, out)

    async def _keep(self, prompt: Prompt, size: int) -> None:
        """Remember what the answer really was, before the agent has its end and sends the next request.

        `size` is the bytes of the stream.
        """
        events = self._filter
        assert events is not None
        turn = await self._run(size, events.turn)
        if not (prompt.added or turn.own or turn.id):
            return
        shown = events.ids[0] if events.ids is not None else ""
        try:
            await self._work.run(
                lambda: self._prompter.keep(prompt, turn, events.visible(), self._work.check, shown=shown)
            )
        except SidecarError:
            raise
        except Exception as error:  # noqa: BLE001 - the agent gets its answer, whatever it was
            self._prompter.not_kept()
            _log.error("what an answer really was is not remembered: %s", frames(error))

    # -- between turns ---------------------------------------------------------------------------------------------

    async def _next(self, prompt: Prompt, turn: Turn) -> Prompt:
        """Answer a hidden turn."""
        self._count(turn)
        self._outcome.hidden += 1
        if turn.usage is not None:
            self._shown.output_tokens += turn.usage.output_tokens or 0
        await asyncio.shield(self._work.run(self._prompter.report, prompt, turn.usage))
        last = self._outcome.hidden == MOST_HIDDEN
        return await self._work.run(self._prompter.answered, prompt, turn, self._work.check, last=last)

    def _count(self, turn: Turn) -> None:
        if turn.usage is not None:
            self._input += turn.usage.input_tokens or 0

    async def _refused(self, prompt: Prompt, answer: aiohttp.ClientResponse) -> Prompt | web.StreamResponse:
        """Trim again what was refused as too long, or for its thinking; send any other refusal on."""
        body = await self._read(answer)
        plain = await self._plain(answer, body)
        if prompt.answer is not None and not prompt.asked.counting:
            if refuses_thinking(answer.status, plain) and not self._thinking_refused:
                self._thinking_refused = True
                return await self._work.run(self._prompter.again, prompt, self._work.check, served=0)
            if (message := too_long(answer.status, plain)) and self._refusals < MOST_REFUSALS:
                self._refusals += 1
                learned = await self._work.run(self._prompter.refused, prompt, message)
                shorter = await self._work.run(self._prompter.again, prompt, self._work.check)
                if learned is not None and learned.learned_limit and _is_shorter(shorter, prompt):
                    return shorter
        if self._response is not None:
            return await self._end_with_error(answer.status, plain)
        return await self._sent(prompt, answer, body)

    async def _end_with_error(self, status: int, body: bytes) -> web.StreamResponse:
        """End a stream that has begun as the provider would."""
        assert self._response is not None
        told = body if len(body) <= MOST_ERROR else b""
        await self._agent.write(self._response, self._dialect.stream_error(status, told))
        await self._agent.end(self._response)
        return self._response

    # -- headers ---------------------------------------------------------------------------------------------------

    def _begun(self, prompt: Prompt, answer: aiohttp.ClientResponse, *, plain: bool = False) -> web.StreamResponse:
        headers = self._headers(prompt, answer, plain=plain)
        return web.StreamResponse(status=answer.status, reason=reason(answer), headers=headers)

    def _headers(self, prompt: Prompt, answer: aiohttp.ClientResponse, *, plain: bool) -> Mapping[str, str]:
        headers = forwarded(answer.headers, "content-length", *(["content-encoding"] if plain else []))
        headers.update(_facts(prompt))
        if self._outcome.hidden:
            headers[names.PREFIX + "hidden-turns"] = str(self._outcome.hidden)
            headers[names.PREFIX + "total-input-tokens"] = str(self._input)
        return headers


def _encoding(answer: aiohttp.ClientResponse) -> str:
    """The encoding of an answer; empty: none."""
    named = answer.headers.get("content-encoding", "").strip().lower()
    return "" if named == "identity" else named


def _facts(prompt: Prompt) -> dict[str, str]:
    """The headers that tell what was done to a prompt."""
    told: dict[str, str] = {}
    if prompt.conversation is not None:
        told[names.RUN] = prompt.conversation.run_id
    if prompt.answer is not None:
        told |= names.facts(prompt.answer) | names.revision(prompt.answer)
    told[names.RECALL] = prompt.recall
    if prompt.failed_open:
        told[names.PREFIX + "untrimmed"] = prompt.failed_open
    return told


def _is_shorter(one: Prompt, other: Prompt) -> bool:
    if one.answer is None or other.answer is None:
        return False
    return one.answer.tokens.after < other.answer.tokens.after
