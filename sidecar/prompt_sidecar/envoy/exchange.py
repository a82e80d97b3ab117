"""One HTTP exchange as Envoy shows it: request headers, the buffered body, then the response in pieces.

    request_headers ──► request_body ──► over, or where usage is read: response_headers ──► response_body … ──► over

An exchange says what to answer to each message. Trimming and reporting are the only work, and are handed back, as
`Trim` and by `report`, since they belong into a thread. Ending the stream is legal at any point: the rest of the
exchange then goes on without the sidecar, so it ends as soon as nothing more is to be done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from prompt_sidecar.envoy import messages
from prompt_sidecar.envoy.processor import Processed
from prompt_sidecar.envoy.v1 import ext_proc_pb2 as wire
from prompt_sidecar.facts.envoy_calls import EnvoyOutcome
from prompt_sidecar.serving.headers import PREFIX
from prompt_sidecar.serving.provider_paths import ProviderPath, provider_path
from prompt_sidecar.serving.provider_usage import ProviderUsage, UsageReader

BUFFERED: Final = 2
"""BodySendMode.BUFFERED."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Send this; `last`: then end the stream. `outcome`: what became of the request, where it is known now."""

    reply: bytes | None
    last: bool = False
    outcome: EnvoyOutcome | None = None


@dataclass(frozen=True, slots=True)
class Trim:
    """Trim this body; `Exchange.trimmed` takes the outcome."""

    path: ProviderPath
    body: bytes


class Exchange:
    """The state of one exchange. `usage`: whether the response is read."""

    def __init__(self, *, usage: bool) -> None:
        self._usage = usage
        self._path: ProviderPath | None = None
        self._processed: Processed | None = None
        self._reader: UsageReader | None = None
        self.headers: dict[str, str] = {}
        """Of the request."""

    @property
    def reads(self) -> bool:
        """Whether a response is being read, so that `report` may have something."""
        return self._reader is not None

    def take(self, message: wire.ProcessingRequest) -> Answer | Trim:
        """Take a message of Envoy's."""
        kind = message.WhichOneof("request")
        if message.observability_mode or kind is None:
            return Answer(None, last=True, outcome=EnvoyOutcome.UNREADABLE)
        if kind == "request_headers":
            return self._request_headers(message)
        if kind == "request_body":
            if self._path is None or not message.request_body.end_of_stream:
                return Answer(messages.request_body(None), last=True, outcome=EnvoyOutcome.UNREADABLE)
            return Trim(self._path, message.request_body.body)
        if kind == "request_trailers":
            return Answer(messages.request_trailers())
        if kind == "response_headers":
            return self._response_headers(message)
        if kind == "response_body":
            return self._response_body(message)
        return Answer(messages.response_trailers(), last=True)

    def trimmed(self, processed: Processed) -> Answer:
        """Answer with what became of the body."""
        self._processed = processed
        goes_on = self._usage and processed.outcome is EnvoyOutcome.ANSWERED
        return Answer(processed.reply, last=not goes_on, outcome=processed.outcome)

    def report(self) -> tuple[Processed, ProviderUsage] | None:
        """Return what is to be reported of the response, once; None: nothing."""
        reader, self._reader = self._reader, None
        if reader is None or self._processed is None:
            return None
        usage = reader.end()
        return (self._processed, usage) if usage.reported else None

    def _request_headers(self, message: wire.ProcessingRequest) -> Answer:
        self.headers = headers = messages.headers_of(message.request_headers)
        own = [name for name in headers if name.startswith(PREFIX)]
        path = provider_path(headers.get(":method", ""), headers.get(":path", ""))
        if path is None or message.request_headers.end_of_stream:
            return Answer(messages.request_headers(own), last=True, outcome=EnvoyOutcome.NOT_A_PROMPT)
        if (
            headers.get("content-encoding", "identity") != "identity"
            or headers.get("authorization", "").startswith("AWS4-")
            or message.protocol_config.request_body_mode not in {0, BUFFERED}  # 0: an Envoy that does not say
        ):
            return Answer(messages.request_headers(own), last=True, outcome=EnvoyOutcome.UNREADABLE)
        self._path = path
        # A compressed response could not be read; on loopback and in a pod compression gains nothing.
        return Answer(messages.request_headers([*own, "accept-encoding"] if self._usage else own))

    def _response_headers(self, message: wire.ProcessingRequest) -> Answer:
        headers = messages.headers_of(message.response_headers)
        told = self._processed.headers if self._processed is not None else None
        status = headers.get(":status", "")
        reader = UsageReader(
            self._path.format if self._path is not None else "",
            int(status) if status.isascii() and status.isdigit() else 0,
            headers.get("content-type", ""),
            encoded=headers.get("content-encoding", "identity") != "identity",
        )
        over = message.response_headers.end_of_stream or not reader.reads
        self._reader = None if over else reader
        return Answer(messages.response_headers(told or {}), last=over)

    def _response_body(self, message: wire.ProcessingRequest) -> Answer:
        over = message.response_body.end_of_stream
        if self._reader is not None:
            self._reader.feed(message.response_body.body)
            over = over or not self._reader.reads
        return Answer(messages.response_body(), last=over)
