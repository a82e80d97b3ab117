"""What every provider API has: paths, usage, errors, calls in its answers."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final

from prompt_sidecar.providers.call_pieces import CallEvent, CallPlace, NameOf
from prompt_sidecar.providers.messages import FormatMessages
from prompt_sidecar.providers.untyped import sdk_member
from prompt_sidecar.providers.usage import UsageMembers


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """An environment variable by which SDKs and agents are configured with a provider's base URL."""

    variable: str
    path: str = ""
    """The part of the URL after the provider's address."""


@dataclass(frozen=True, slots=True)
class Provider:
    """The provider of an API."""

    name: str
    upstream: str
    """Where requests are sent, unless the setting `http.{name}_upstream` gives another address."""
    base_urls: tuple[BaseUrl, ...] = ()
    """Variables of its SDKs, and of other programs that use its APIs; the first is the SDK's own."""
    keys: tuple[str, ...] = ()
    """Environment variables in which its SDKs look for a credential; one is enough."""
    telemetry_name: str = ""
    """`gen_ai.provider.name` of OpenTelemetry's conventions for generative AI (0.1.0); empty: the same as `name`."""

    @property
    def telemetry(self) -> str:
        """`gen_ai.provider.name`."""
        return self.telemetry_name or self.name

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ApiPath:
    """The end of a path by which an API is recognised. Gateways add a prefix, and Azure a deployment's name."""

    end: re.Pattern[str]
    """Named groups, if it has them: `model`, as in a URL, and `method`, which gives the kind of answer."""
    counts: bool = False
    """Whether the provider only counts the prompt's tokens."""
    compacts: bool = False
    """Whether the provider answers with a shorter history."""


OTHER_REASON: Final = "other"
"""The value in spans for an unknown reason to stop. An answer is untrusted, and may contain any text."""


class PassedPrompts(StrEnum):
    """The kinds of prompts in requests to a path that are forwarded unchanged."""

    BATCH = "batch"
    """Many prompts of unrelated runs in one body, or the name of a file with them, answered within a day."""
    TEXT_PROMPT = "text_prompt"
    """A text without messages: it has no part that could be trimmed and found again by its place."""


def signs_body(headers: Mapping[str, str]) -> bool:
    """Whether a request's credential also signs the body, so that the body cannot be changed.

    Amazon's Signature Version 4 does, by HMAC or by ECDSA: for Bedrock's own API and for other providers' APIs that
    Amazon serves.
    """
    return headers.get("authorization", "").startswith("AWS4-")


class ProviderApi(FormatMessages):
    """One API of a provider."""

    provider: ClassVar[Provider]
    route: ClassVar[str]
    """Its requests' name in metrics."""
    paths: ClassVar[tuple[ApiPath, ...]]
    passed: ClassVar[tuple[tuple[re.Pattern[str], PassedPrompts], ...]] = ()
    """Ends of other paths that accept prompts; these are forwarded unchanged."""
    operation: ClassVar[str] = "chat"
    """`gen_ai.operation.name` of OpenTelemetry's conventions for generative AI (0.1.0)."""
    finish_reasons: ClassVar[frozenset[str]] = frozenset()
    """Words by which its answers give the reason to stop; any other is `OTHER_REASON` in spans."""
    usage: ClassVar[UsageMembers]
    streams_events: ClassVar[bool] = True
    """Whether its streams are server-sent events."""
    may_stream_array: ClassVar[bool] = False
    """Whether a stream may be a JSON array in pieces."""
    without_prompt: ClassVar[re.Pattern[str] | None] = None
    """The part of a path that shows that a request to this provider has no prompt; None if there is none."""
    websocket: ClassVar[str] = ""
    """The end of the path at which prompts are accepted on a WebSocket too; empty if there is none."""
    stored: ClassVar[tuple[str, ...]] = ()
    """The body's members by which a request continues a history stored by the provider; the first one names the
    response to continue. Empty: the provider stores none."""

    @property
    def names_model_in_path(self) -> bool:
        """Whether the model is named in a request's path, and not in its body."""
        return any("model" in path.end.groupindex for path in self.paths)

    def claims(self, path: str, headers: Mapping[str, str]) -> bool:
        """Whether a request without a prompt is for this provider, by its path and its headers in lower case."""
        del path, headers
        return False

    def streams_array(self, query: Mapping[str, str]) -> bool:
        """Whether a stream requested by the path is an array in pieces, by the query, and not a series of events."""
        del query
        return False

    def finish_reason(self, reported: Any) -> str:
        """Return an answer's reason to stop for spans; empty if it has none."""
        if not reported:
            return ""
        return reported if isinstance(reported, str) and reported in self.finish_reasons else OTHER_REASON

    @abstractmethod
    def error(self, status: int, message: str, reason: str, *, final: bool) -> dict[str, Any]:
        """Return an error of the sidecar's in the provider's shape.

        Args:
            status: the HTTP status.
            message: the sidecar's own.
            reason: the sidecar's; placed before the message if the provider's shape has no place for it.
            final: whether another try cannot succeed.
        """

    def error_headers(self, status: int) -> dict[str, str]:
        """Return further headers of such an error, in addition to its content type, in lower case."""
        del status
        return {}

    @abstractmethod
    def call_places(self, answer: Mapping[str, Any]) -> Iterator[CallPlace]:
        """Yield the places of the arguments of each function call in a whole answer."""

    def call_event(self, data: dict[str, Any], name_of: NameOf) -> CallEvent:
        """Return the pieces of calls in an event of a stream.

        Args:
            data: the event's data, as JSON types; returned pieces are places in it.
            name_of: returns the names of calls that earlier events have begun.
        """
        del name_of
        return CallEvent(whole=list(self.call_places(data)))

    def tool_name(self, definition: Any) -> Any:
        """Return the name in a tool's definition, as JSON types or an SDK's object; empty or None if it has none."""
        return sdk_member(definition, "name")

    @abstractmethod
    def tool_result(self, call_id: str, name: str, text: str, *, is_error: bool) -> dict[str, Any]:
        """Return the answer to a tool call as an entry of the history, or a part of one: see `joined`."""

    def joined(self, results: Sequence[Any]) -> list[Any]:
        """Return the answers of one turn's calls as entries of the history."""
        return list(results)
