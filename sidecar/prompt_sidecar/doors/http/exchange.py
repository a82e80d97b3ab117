"""One request of an agent and the answer to it, which may take several turns of the model.

    prepare ─► ask ─┬─ refused as too long, or for its thinking ─► trim again ─► ask
                    ├─ a hidden turn ─► answer its calls, trim again ─► ask
                    └─ anything else ─► sent to the agent

Everything that takes processor time runs in a worker thread; this file has only what waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from typing import Any, Final, Protocol, TypeVar

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from prompt_sidecar.answers.answer_json import read
from prompt_sidecar.answers.answer_stream import READ_AT_ONCE, AnswerStream, Discontinued, Why
from prompt_sidecar.answers.base import Dialect, EarlierTurns, Filter, ModelTurn
from prompt_sidecar.answers.reported_usage import UsageReader
from prompt_sidecar.answers.restoring import Restore, restored
from prompt_sidecar.answers.rewriting import rewritten
from prompt_sidecar.calls import headers as names
from prompt_sidecar.calls.memory import ANSWER_COPIES
from prompt_sidecar.calls.provider_errors import error_body, http_status
from prompt_sidecar.calls.use_cases import Check
from prompt_sidecar.calls.work import CallWorkers
from prompt_sidecar.doors.http.agents import RequestingAgent
from prompt_sidecar.doors.http.bodies import SMALL
from prompt_sidecar.doors.http.encodings import UNPACKED, decoded, encoding_of
from prompt_sidecar.doors.http.passthrough import relay
from prompt_sidecar.doors.http.prompting import Prompter, PromptRequest, SentPrompt
from prompt_sidecar.doors.http.provider_calls import ProviderCall
from prompt_sidecar.doors.http.reading import Source, TurnStream, UpstreamFailed, read_on
from prompt_sidecar.doors.http.routes import Route
from prompt_sidecar.doors.http.turns import BeginningTurn, StreamPace
from prompt_sidecar.doors.http.unpacking import unpacked
from prompt_sidecar.doors.http.upstream import (
    MOST_ERROR,
    checked,
    forwarded,
    media_type,
    reason,
    refuses_thinking,
)
from prompt_sidecar.errors import SidecarError, Stopping, TooLarge
from prompt_sidecar.facts.http_calls import CANCELLED, AgentAnswered, ProviderAsked
from prompt_sidecar.facts.untrimmed import Handled, Through
from prompt_sidecar.process.logs import frames
from prompt_sidecar.prompt.structure import never
from prompt_sidecar.providers.api import Provider
from prompt_sidecar.providers.table import APIS
from prompt_sidecar.providers.usage import ProviderUsage
from prompt_sidecar.providers.usage_reader import MOST_BYTES as MOST_USAGE
from prompt_sidecar.providers.usage_reader import too_long

MOST_HIDDEN: Final = 6
"""Hidden turns in one answer. A model needs one to three to find what it misses; after six it must answer without the
sidecar's tools, so that the agent gets an answer before it times out."""
MOST_REFUSALS: Final = 8
"""How often one prompt may be refused as too long before the refusal is sent to the agent; each time it must be
shorter."""
_SENDING_SECONDS: Final = 0.02
"""Seconds after which a prompt is assumed to be sent; background work waits until then. Sending a megabyte takes a
millisecond or two, and the first words of an answer often take longer."""
_ERRORS: Final = 400
"""The first status that is an error."""
_MALFORMED: Final = frozenset({400, 422})
"""Statuses by which a provider refuses a request with unknown fields."""
_FAILURES: Final = 500
"""The first status that is the provider's own fault."""
T = TypeVar("T")
_JSON: Final = "application/json"
STOPPING: Final = "this sidecar is stopping; send the request again"
_BROKEN: Final = "upstream_failed"
"""Outcome of a provider call that no status describes."""
_COUNTS: Final = "count_tokens"
_COMPACTS: Final = "compact"
"""Name of operations for which OpenTelemetry's conventions have none."""
_log = logging.getLogger("prompt_sidecar.http")


@dataclass(slots=True)
class RequestOutcome:
    """The outcome of a request, for metrics."""

    status: int = 0
    """The upstream's status; 0 if it was not asked, or did not answer."""
    hidden: int = 0
    """Number of hidden turns."""
    failed_open: bool = False
    """Whether its prompt could not be taken through its run, and was forwarded untrimmed."""
    handled: Handled | None = None
    """What was done about a gateway's request; None for other requests."""
    ended: str = ""
    """The metric's value for how a begun answer ended, if the status does not say it; otherwise empty."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Response headers that say what was done to the prompt, once that is known."""
    reason: str = ""
    """Reason of the sidecar's own refusal, or kind of its failure; empty if there was none."""
    caller: str = ""
    """The caller; empty if not known."""
    run_id: str = ""
    """The run's id; empty if not known."""
    became: str = ""
    """The metric's value, once the request has ended."""

    @property
    def word(self) -> str:
        """The metric's value for a request that got an answer; a provider's error does not count as one."""
        if self.ended:
            return self.ended
        if self.status >= _ERRORS:
            return "upstream_failed" if self.status >= _FAILURES else "upstream_refused"
        return "failed_open" if self.failed_open else "answered"

    def facts(self, status: int) -> AgentAnswered:
        """Return the facts for telemetry about an ended request; `status` is the one that the agent got, 0 if none."""
        return AgentAnswered(status, self.became, self.reason, self.hidden, self.caller, self.run_id)


class TooLongAnswer(Exception):
    """An upstream's answer has more bytes than any answer needs."""


class Sends(Protocol):
    """Connections to providers, such as `Upstreams`."""

    def address(self, provider: Provider) -> tuple[str, int]:
        """Return host and port of a provider; empty and 0 if not known."""

    def send(self, provider: Provider, method: str, target: URL, headers: CIMultiDict[str], data: bytes) -> Any:
        """Send a request; use the result with `async with`, as aiohttp's."""


@dataclass(slots=True)
class HttpExchange:
    """See the module."""

    request: web.Request
    agent: RequestingAgent
    route: Route
    dialect: Dialect
    """The route's dialect."""
    prompter: Prompter
    upstreams: Sends
    outcome: RequestOutcome
    """Receives the outcome of the request."""
    work: CallWorkers
    """Runs what takes processor time."""
    most_bytes: int
    """Largest answer that is read, and largest event of a stream."""
    beginning: BeginningTurn = field(default_factory=BeginningTurn)
    """The request's turn to begin, which ends when its prompt is sent."""
    pace: StreamPace | None = None
    """Keeps its streams within a rate."""
    _made_for: tuple[SentPrompt, Mapping[str, str]] | None = None
    """The prompt for which headers were made last, and these."""
    _shown: EarlierTurns = field(default_factory=EarlierTurns)
    _input: int = 0
    _refusals: int = 0
    _thinking_refused: bool = False
    _unnarrowed: bool = False
    """Whether a prompt was sent again with the agent's own tool choice."""
    _response: web.StreamResponse | None = None
    """The response that has begun."""
    _filter: Filter | None = None
    _call: ProviderCall = field(init=False)
    """The current or last call of the provider."""
    _reports: bool = False
    """Whether the outcome of the call is reported, or will be once it is read."""
    _read_so_far: BytesIO = field(default_factory=BytesIO)
    """The part read so far of an answer that is read whole."""

    async def run(self, asked: PromptRequest) -> web.StreamResponse:
        """Send the agent its answer.

        Raises:
            SidecarError: the guard or a ceiling refuses the prompt, or a header is wrong; nothing was sent.
            aiohttp.ClientError: the upstream cannot be reached; nothing was sent.
            TooLongAnswer: the upstream's answer is too long; nothing was sent.
        """
        self.work.begin()
        try:
            return await self._turns(asked)
        finally:
            self.work.rest()
            self.beginning.end()

    async def _turns(self, asked: PromptRequest) -> web.StreamResponse:
        prompt = await self.work.run(self.prompter.prepare, asked, self.work.check)
        self.outcome.failed_open = prompt.failed_open
        self.outcome.headers = self._facts(prompt)
        self.outcome.run_id = prompt.conversation.run_id if prompt.conversation is not None else ""
        self.work.shared.use_cases.handled(self._handled(prompt))
        while True:
            try:
                step = await self._step(prompt)
            except SidecarError as error:
                if self._response is None:
                    raise
                _log.warning("a hidden turn was refused: %s", error.reason)
                self.outcome.ended = "refused"
                status = http_status(error)
                body = error_body(self.dialect.format, status, error.message, error.reason)
                return await self._end_with_error(status, body)
            except ConnectionError:
                if self._response is None:
                    raise
                self.outcome.ended = "cancelled"
                self.agent.cut_off()
                return self._response
            except Exception as error:
                if self._response is None:
                    raise
                _log.error("a stream was ended: %s", frames(error))
                self.outcome.ended = "failed"
                return await self._end_with_error(502, b"")
            if not isinstance(step, SentPrompt):
                return step
            prompt = step

    async def _step(self, prompt: SentPrompt) -> SentPrompt | web.StreamResponse:
        """Ask the model once; return the next prompt, or the answer that was sent to the agent."""
        encoding = ("content-encoding",) if prompt.asked.decoded else ()
        headers = forwarded(self.request.headers, "host", "content-length", "accept-encoding", *encoding)
        headers["Accept-Encoding"] = "identity"
        self.work.begin()
        self._reports = False
        sent = asyncio.get_running_loop().call_later(_SENDING_SECONDS, self.work.rest)
        shared = self.work.shared
        call = self._call = ProviderCall(shared.use_cases.observer, self._asked(prompt), shared.provider_states)
        try:
            with call.sending():
                sending = self.upstreams.send(self.route.provider, "POST", self.request.rel_url, headers, prompt.body)
            self.beginning.end_soon()
            async with sending as answer:
                self.beginning.end()
                self.agent.settle()
                self.outcome.status = checked(answer).status
                call.answers(answer.status)
                if answer.status >= 400:
                    call.error = str(answer.status)
                    return await self._refused(prompt, answer)
                return await self._answered(prompt, answer)
        except (aiohttp.ClientError, TimeoutError, TooLongAnswer) as error:
            call.ends(type(error).__name__)
            if self._response is None or self._left:
                raise
            self.outcome.ended = "upstream_failed"
            return await self._end_with_error(502, b"")
        except (asyncio.CancelledError, ConnectionError):
            call.ends(CANCELLED)
            raise
        finally:
            sent.cancel()
            if self.agent.broken:
                call.ends(_BROKEN)
            call.over()
            if call.failed and not self._reports:
                self.work.soon(self.prompter.failed, prompt)

    def _asked(self, prompt: SentPrompt) -> ProviderAsked:
        """Return the facts about a call of the provider, when it is made."""
        asked, provider = prompt.asked, self.route.provider
        address, port = self.upstreams.address(provider)
        return ProviderAsked(
            provider.telemetry,
            _COUNTS if asked.counting else _COMPACTS if asked.compacting else APIS[self.dialect.format].operation,
            self.route.name,
            asked.model if prompt.answer is None else prompt.answer.model,
            self.outcome.run_id,
            address,
            port,
            self.outcome.hidden,
            compacted=prompt.answer is not None and prompt.answer.trimmed.hides,
            cached_apart=APIS[self.dialect.format].usage.cached_apart,
        )

    def _handled(self, prompt: SentPrompt) -> Handled:
        """Return what was done about the request. One that only counts tokens does not count as a prompt of its run."""
        run_id = prompt.conversation.run_id if prompt.conversation is not None else self.request.headers.get(names.RUN)
        return Handled(
            Through.HTTP,
            prompt.untrimmed,
            self.agent.received_bytes or self.work.size,
            recall=prompt.recall,
            caller=prompt.asked.caller,
            run_id=run_id if run_id is not None and not prompt.asked.counting else "",
            path=self.request.rel_url.raw_path,
        )

    @property
    def _left(self) -> bool:
        """Whether the agent has closed its connection."""
        return self.request.transport is None or self.request.transport.is_closing()

    async def _answered(self, prompt: SentPrompt, answer: aiohttp.ClientResponse) -> SentPrompt | web.StreamResponse:
        kind, encoding = media_type(answer), encoding_of(answer.headers)
        if not prompt.asked.counting:
            if kind == self.dialect.streamed and (not encoding or encoding in UNPACKED):
                return await self._streamed(prompt, answer)
            if kind == _JSON and self.route.in_array and not encoding:
                return await self._read_in_passing(prompt, answer)
            if kind == _JSON and not self.route.in_array and self._response is None:
                return await self._whole_turn(prompt, answer)
        if self._response is not None:
            self.outcome.ended = "upstream_failed"
            return await self._end_with_error(502, b"")
        response = self._begun(prompt, answer)
        await relay(self.request, self.agent, answer, response)
        return response

    async def _read_in_passing(self, prompt: SentPrompt, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        """Forward a JSON array; its usage is read while it passes."""
        reader = UsageReader(self.dialect.format, answer.status, media_type(answer))
        response = self._begun(prompt, answer)

        def whole(*, failed: bool = False) -> None:
            self._report_soon(prompt, reader.end, reader.kept_bytes, failed=failed)

        def seen(piece: bytes) -> None:
            try:
                if reader.reads:
                    self.agent.hold_answer(len(piece))
                reader.feed(piece)
            except TooLarge:
                reader.stop()
            if not reader.reads:
                self.agent.settle_answer()

        async def take(piece: bytes) -> None:
            seen(piece)

        try:
            await relay(self.request, self.agent, answer, response, seen=seen, whole=whole)
        except (asyncio.CancelledError, ConnectionError):
            await read_on(Source(answer), take)
            whole(failed=True)
            raise
        return response

    # -- answers read whole ----------------------------------------------------------------------------------------

    async def _whole_turn(self, prompt: SentPrompt, answer: aiohttp.ClientResponse) -> SentPrompt | web.StreamResponse:
        body = await self._whole_body(prompt, answer)
        if body is None:
            return await self._passed_unread(prompt, answer)
        self._call.ends()
        plain = await self._plain(answer, body)
        found, turn = await self._run(len(plain), partial(self._turn_in, plain, prompt))
        if turn is None:
            return await self._sent(prompt, answer, body)
        self._call.finish = turn.finish
        self._call.counted(turn.usage)
        if turn.hidden and self.outcome.hidden < MOST_HIDDEN:
            self.dialect.show(self._shown, turn)
            return await self._next(prompt, turn)
        try:
            made = await self._for_the_agent(prompt, turn, plain, found)
            return await self._sent(prompt, answer, made or body, plain=bool(made))
        finally:  # the agent may close the connection as soon as it has the whole answer
            self._reports = True
            self.work.soon(self.prompter.report, prompt, turn.usage)

    async def _whole_body(self, prompt: SentPrompt, answer: aiohttp.ClientResponse) -> bytes | None:
        """Return an answer's body; None if there is no memory for it, and `_read_so_far` has what was read.

        The provider's usage is reported even if the agent has disconnected meanwhile.
        """
        self._read_so_far = BytesIO()

        async def take(piece: bytes) -> None:
            self._read_so_far.write(piece)

        try:
            return await self._read(answer)
        except asyncio.CancelledError:
            await read_on(Source(answer), take)
            body, encoding = self._read_so_far.getvalue(), encoding_of(answer.headers)
            usage = UsageReader(self.dialect.format, answer.status, media_type(answer))
            self._report_soon(prompt, partial(self._counted, usage, body, encoding), len(body), failed=True)
            raise

    def _counted(self, usage: UsageReader, body: bytes, encoding: str) -> ProviderUsage | None:
        """Return the usage in an answer whose agent has disconnected; None if there is no memory to read it."""
        with self.work.shared.use_cases.memory.growing() as reserved:
            try:
                reserved.resize(ANSWER_COPIES * len(body) if len(body) > SMALL else 0)
                plain = decoded(
                    body, encoding, MOST_USAGE, padded=True, hold=lambda size: reserved.resize(ANSWER_COPIES * size)
                )
            except TooLarge:
                return None
            usage.feed(body if plain is None else plain)
            return usage.end()

    async def _passed_unread(self, prompt: SentPrompt, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        """Forward an answer unread, as there is no memory to read it; its provider is paid for it anyway."""
        message = "answers pass unread: there is no room for them (http.body_bytes, limits.process_bytes)"
        self.work.shared.once.warning(_log, message)
        self.agent.settle_answer()
        first, self._read_so_far = self._read_so_far.getvalue(), BytesIO()
        response = self._begun(prompt, answer)
        await relay(self.request, self.agent, answer, response, first=first)
        return response

    def _report_soon(
        self, prompt: SentPrompt, counted: Callable[[], ProviderUsage | None], size: int, *, failed: bool
    ) -> None:
        """Report the provider's usage, which is read in a worker thread.

        Args:
            prompt: the prompt that was sent.
            counted: reads the usage.
            size: the bytes that it reads, which may be many.
            failed: whether the answer failed; reported if there is no usage.
        """
        call, self._reports = self._call, True
        call.awaits()

        def report() -> None:
            usage = None
            try:
                usage = counted()
            finally:
                call.counted(usage)
            self.prompter.report(prompt, usage, failed=failed)

        self.work.soon(report, size=size)

    async def _run(self, size: int, function: Callable[[Check], T]) -> T:
        """Return a function's result; it runs in a worker thread if `size`, the bytes that it reads, is large.

        Its argument is the check to call between two of its steps.
        """
        return function(never) if size <= READ_AT_ONCE else await self.work.run_paced(size, function)

    async def _plain(self, answer: aiohttp.ClientResponse, body: bytes) -> bytes:
        """Return a decompressed body, if its encoding is known and there is memory for it. Raises TooLongAnswer."""
        if not (encoding := encoding_of(answer.headers)):
            return body
        try:
            plain = await unpacked(self.work, body, encoding, self.most_bytes, ANSWER_COPIES, padded=True)
            if plain is not None and len(plain) > self.most_bytes:
                raise TooLongAnswer
            self.agent.hold_answer(len(plain or b""))
        except TooLarge:
            message = (
                "answers pass packed: there is no room for what they become (http.body_bytes, limits.process_bytes)"
            )
            self.work.shared.once.warning(_log, message)
            return body
        return body if plain is None else plain

    def _turn_in(self, plain: bytes, prompt: SentPrompt, check: Check) -> tuple[dict[str, Any], ModelTurn | None]:
        """Return a whole answer as JSON types, and its turn; None if it cannot be read."""
        answer = read(plain, check)
        if not isinstance(answer, dict):
            return {}, None
        try:
            return answer, self.dialect.read(answer, prompt.own)
        except Exception as error:  # noqa: BLE001 - whatever a provider sends, the agent gets its answer
            _log.error("an answer is passed on unchanged: %s", frames(error))
            return answer, None

    async def _for_the_agent(self, prompt: SentPrompt, turn: ModelTurn, plain: bytes, found: dict[str, Any]) -> bytes:
        """Rewrite the last turn for the agent (empty if unchanged), and remember the original.

        `found` is `plain` as JSON types.
        """
        self._count(turn)
        body = b""
        visible: Sequence[Any] = ()
        size = len(plain)
        try:
            if prompt.added or turn.own:
                body, visible = await self.work.run_paced(size, partial(self._written, plain, found, prompt))
            if (restore := self.prompter.restore(prompt)) is not None:
                body = await self.work.run(self._restored, body or plain, found, restore, size=size) or body
            if prompt.added or turn.own or turn.id or turn.compaction:
                await self.work.run(self.prompter.keep, prompt, turn, visible, self.work.check, size=size)
        except SidecarError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            self.prompter.not_kept()
            _log.error("an answer passes as far as it was made: %s", frames(error))
        return body

    def _written(
        self, plain: bytes, found: dict[str, Any], prompt: SentPrompt, check: Check
    ) -> tuple[bytes, Sequence[Any]]:
        """Return an answer as it is sent to the agent, and the entries that the agent then holds."""
        visible = self.dialect.written(found, self._shown, prompt.own)
        return rewritten(plain, found, check), visible

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes | None:
        """Return an answer's body, read into `_read_so_far`; None if there is no memory for it.

        Raises:
            TooLongAnswer: the body is too long.
        """
        found, size = self._read_so_far, 0
        async for chunk in answer.content.iter_any():
            found.write(chunk)
            size += len(chunk)
            if size > self.most_bytes:
                raise TooLongAnswer
            try:
                self.agent.hold_answer(len(chunk))
            except TooLarge:
                return None
        self.work.begin()
        self._read_so_far = BytesIO()
        return found.getvalue()

    async def _sent(
        self, prompt: SentPrompt, answer: aiohttp.ClientResponse, body: bytes, *, plain: bool = False
    ) -> web.StreamResponse:
        """Send a whole answer; `plain`: the body is decompressed, whatever the provider's encoding was."""
        headers = self._headers(prompt, answer, plain=plain)
        return await self.agent.send(body, headers, answer.status, reason(answer))

    def _restored(self, body: bytes, answer: dict[str, Any], restore: Restore) -> bytes:
        """Return an answer, parsed from `body`, with values in place of masks; empty if it has no masks."""
        done = [restored(*each, restore) for each in self.dialect.arguments(answer)]
        return rewritten(body, answer, self.work.go_on) if any(done) else b""

    # -- streams ---------------------------------------------------------------------------------------------------

    async def _streamed(self, prompt: SentPrompt, answer: aiohttp.ClientResponse) -> SentPrompt | web.StreamResponse:
        dialect, response = self.dialect, self._response
        if response is None:
            response = self._response = self._begun(prompt, answer, plain=True)
            self._filter = dialect.filter(prompt.own, prompt.members)
            self._filter.restore = self.prompter.restore(prompt)
            await response.prepare(self.request)
        events = self._filter
        assert events is not None
        events.output_before = self._shown.output_tokens
        events.last = self.outcome.hidden >= MOST_HIDDEN
        events.begin()
        reader = UsageReader(dialect.format, answer.status, media_type(answer))
        passing = AnswerStream(dialect.splitter(self.most_bytes), events, self.most_bytes)
        source = Source(answer, encoding_of(answer.headers))
        stream = TurnStream(
            source=source,
            stream=passing,
            events=events,
            reader=reader,
            run=self.work.run_whole,
            hold=self.agent.hold_answer,
            settle=self.agent.settle_answer,
            pace=self.pace,
        )
        hidden = cut = False
        try:
            await self._passed(prompt, stream, response)
            self._call.finish = events.finish
            self._call.ends()
            hidden = stream.hides
            if not hidden:
                await self.agent.end(response)
        except Discontinued as ended:
            self.outcome.ended = "upstream_failed" if passing.why is Why.UNREADABLE else "failed"
            self._call.ends(self.outcome.ended)
            await self.agent.write(response, ended.made)
            return await self._end_with_error(502, b"")
        except UpstreamFailed:
            cut = True
            self.outcome.ended = "upstream_failed"
            self._call.ends(self.outcome.ended)
            self.agent.cut_off()  # abort as the upstream did: the agent must not take a part for the whole
            return response
        except (asyncio.CancelledError, ConnectionError):  # the agent has disconnected, or the sidecar stops
            self._call.finish = events.finish
            self._call.ends(CANCELLED)
            if self.agent.stopping():
                return await self._end_for_stop()
            await stream.read_on()
            raise
        finally:
            if not hidden and not cut:  # a stream that was cut off has no figures of an answer
                self._report_soon(prompt, stream.counted, reader.kept_bytes, failed=self._call.failed)
        if not hidden:
            return response
        return await self._next(prompt, await self._run(passing.taken_bytes, lambda _: events.turn()))

    async def _passed(self, prompt: SentPrompt, stream: TurnStream, response: web.StreamResponse) -> None:
        """Forward a turn's stream. Raises Discontinued, UpstreamFailed."""
        kept = False
        async for piece in stream.pieces():
            if piece:
                self._call.chunk()
            out = await stream.feed(piece)
            if stream.ended and not kept:
                kept = True
                await self._keep(prompt, stream.taken_bytes)
            if out:
                await self.agent.write(response, out)

    async def _keep(self, prompt: SentPrompt, size: int) -> None:
        """Remember the original answer, before the agent has the end of it and sends the next request.

        `size` is the bytes of the stream.
        """
        events = self._filter
        assert events is not None
        turn = await self._run(size, lambda _: events.turn())
        if not (prompt.added or turn.own or turn.id or turn.compaction or prompt.asked.on_socket):
            return
        shown = events.ids[0] if events.ids is not None else ""
        try:
            await self.work.run(
                lambda: self.prompter.keep(prompt, turn, events.visible(), self.work.check, shown=shown), size=size
            )
        except SidecarError:
            raise
        except Exception as error:  # noqa: BLE001 - the agent gets its answer, whatever it was
            self.prompter.not_kept()
            _log.error("what an answer really was is not remembered: %s", frames(error))

    # -- between turns ---------------------------------------------------------------------------------------------

    async def _next(self, prompt: SentPrompt, turn: ModelTurn) -> SentPrompt:
        """Answer a hidden turn; return the next prompt."""
        self._call.hidden = True
        self._call.counted(turn.usage)
        self._call.ends()
        self._count(turn)
        self.outcome.hidden += 1
        if turn.usage is not None:
            self._shown.output_tokens += turn.usage.output_tokens or 0
        await asyncio.shield(self.work.run(self.prompter.report, prompt, turn.usage))
        last = self.outcome.hidden == MOST_HIDDEN
        return await self.work.run(self.prompter.answered, prompt, turn, self.work.check, last=last)

    def _count(self, turn: ModelTurn) -> None:
        if turn.usage is not None:
            self._input += turn.usage.input_tokens or 0

    async def _refused(self, prompt: SentPrompt, answer: aiohttp.ClientResponse) -> SentPrompt | web.StreamResponse:
        """Trim again a prompt refused as too long or for its thinking; forward any other refusal."""
        self._read_so_far = BytesIO()
        body = await self._read(answer)
        self._call.ends()
        if body is None and self._response is None:
            return await self._passed_unread(prompt, answer)
        if body is None:
            return await self._end_with_error(answer.status, b"")
        plain = await self._plain(answer, body)
        message = too_long(answer.status, plain)
        self._reports = True
        if not message:  # before the agent can send the prompt again
            await asyncio.shield(self.work.run(self.prompter.failed, prompt))
        if prompt.answer is not None and not prompt.asked.counting:
            if refuses_thinking(answer.status, plain) and not self._thinking_refused:
                self._thinking_refused = True
                return await self.work.run(self.prompter.again, prompt, self.work.check, served=0)
            if message and self._refusals < MOST_REFUSALS:
                self._refusals += 1
                learned = await self.work.run(self.prompter.refused, prompt, message)
                shorter = await self.work.run(self.prompter.again, prompt, self.work.check)
                if learned is not None and learned.learned_limit and _is_shorter(shorter, prompt):
                    return shorter
        if self._response is not None:
            return await self._end_with_error(answer.status, plain)
        if prompt.narrowed and not message and answer.status in _MALFORMED:
            self._unnarrowed = True
            return await self.work.run(self.prompter.unnarrowed, prompt, self.work.check)
        if self._unnarrowed:
            self.prompter.refused_anyway(prompt)
        return await self._sent(prompt, answer, body)

    async def _end_with_error(self, status: int, body: bytes) -> web.StreamResponse:
        """End a stream that has begun with an error in the provider's format."""
        assert self._response is not None
        shown = body if len(body) <= MOST_ERROR else b""
        await self.agent.write(self._response, self.dialect.stream_error(status, shown))
        await self.agent.end(self._response)
        return self._response

    async def _end_for_stop(self) -> web.StreamResponse:
        """End a stream that outlasted the grace period of a stop, so that the agent knows that a part is missing."""
        go_on()
        self.outcome.ended = CANCELLED
        return await self._end_with_error(503, error_body(self.dialect.format, 503, STOPPING, Stopping.reason))

    # -- headers ---------------------------------------------------------------------------------------------------

    def _begun(self, prompt: SentPrompt, answer: aiohttp.ClientResponse, *, plain: bool = False) -> web.StreamResponse:
        return self.agent.begun(answer.status, reason(answer), self._headers(prompt, answer, plain=plain))

    def _facts(self, prompt: SentPrompt) -> Mapping[str, str]:
        """Return the response headers that say what was done to a prompt."""
        if self._made_for is None or self._made_for[0] is not prompt:
            self._made_for = prompt, _facts(prompt)
        return self._made_for[1]

    def _headers(self, prompt: SentPrompt, answer: aiohttp.ClientResponse, *, plain: bool) -> Mapping[str, str]:
        headers = forwarded(answer.headers, "content-length", *(["content-encoding"] if plain else []))
        headers.update(self._facts(prompt))
        if self.outcome.hidden:
            headers[names.PREFIX + "hidden-turns"] = str(self.outcome.hidden)
            headers[names.PREFIX + "total-input-tokens"] = str(self._input)
        return headers


def go_on() -> None:
    """Continue in a task that was cancelled, so that its agent gets an answer."""
    if (task := asyncio.current_task()) is not None:
        task.uncancel()


def _facts(prompt: SentPrompt) -> dict[str, str]:
    """Return the response headers that say what was done to a prompt."""
    headers: dict[str, str] = {}
    if prompt.conversation is not None:
        headers[names.RUN] = prompt.conversation.run_id
    if prompt.answer is not None:
        headers |= names.facts(prompt.answer) | names.revision(prompt.answer)
    return headers | names.handled(prompt.untrimmed, prompt.recall)


def _is_shorter(one: SentPrompt, other: SentPrompt) -> bool:
    if one.answer is None or other.answer is None:
        return False
    return one.answer.tokens.after < other.answer.tokens.after
