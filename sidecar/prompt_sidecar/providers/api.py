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
    """A variable of the environment by which SDKs and agents are told where a provider's API is."""

    variable: str
    path: str = ""
    """What the URL has behind the provider's address."""


@dataclass(frozen=True, slots=True)
class Provider:
    """Whose API it is."""

    name: str
    upstream: str
    """Where its requests go, unless the setting `http.{name}_upstream` says otherwise."""
    base_urls: tuple[BaseUrl, ...] = ()
    """What its SDKs, and others that speak its APIs, read; the first is the SDK's own."""
    keys: tuple[str, ...] = ()
    """Variables of the environment in which its SDKs look for a credential; one will do."""
    telemetry_name: str = ""
    """`gen_ai.provider.name` of OpenTelemetry's conventions for generative AI (0.1.0); empty: as `name`."""

    @property
    def telemetry(self) -> str:
        """`gen_ai.provider.name`."""
        return self.telemetry_name or self.name

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ApiPath:
    """The end of a path by which an API is known. Gateways put a prefix before it, and Azure a deployment's name."""

    end: re.Pattern[str]
    """Groups, where it has them: `model`, as in a URL, and `method`, which names the kind of answer."""
    counts: bool = False
    """Whether the provider only counts the prompt's tokens."""
    compacts: bool = False
    """Whether the provider answers with a shorter history."""


OTHER_REASON: Final = "other"
"""In spans: a reason to stop that is not known. An answer is untrusted, and may hold any text."""


class PassedPrompts(StrEnum):
    """What prompts the requests to a path hold that pass as they came."""

    BATCH = "batch"
    """Many prompts of unrelated runs in one body, or the name of a file with them, answered within a day."""
    TEXT_PROMPT = "text_prompt"
    """A text without messages: there is nothing in it that could be trimmed and fetched by its place."""


def signs_body(headers: Mapping[str, str]) -> bool:
    """Whether a request's credential signs its body too, so that the body cannot be changed.

    Amazon's Signature Version 4 does, by HMAC or by ECDSA: before Bedrock's own API and before those of others that
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
    """Ends of other paths that take prompts, which pass as they came."""
    operation: ClassVar[str] = "chat"
    """`gen_ai.operation.name` of OpenTelemetry's conventions for generative AI (0.1.0)."""
    finish_reasons: ClassVar[frozenset[str]] = frozenset()
    """Words by which its answers say why the model stopped; another one is `OTHER_REASON` in spans."""
    usage: ClassVar[UsageMembers]
    streams_events: ClassVar[bool] = True
    """Whether its streams are server-sent events."""
    may_stream_array: ClassVar[bool] = False
    """Whether a stream may be a JSON array in pieces."""
    without_prompt: ClassVar[re.Pattern[str] | None] = None
    """Where in a path it is seen that a request of this provider's holds no prompt; None: nowhere."""
    websocket: ClassVar[str] = ""
    """The end of the path at which prompts are taken on a WebSocket too; empty: there is none."""
    stored: ClassVar[tuple[str, ...]] = ()
    """The body's members by which a request goes on from a history that the provider holds; the first one names the
    response that it goes on from. Empty: the provider holds none."""

    @property
    def names_model_in_path(self) -> bool:
        """Whether a request's path names the model, and not its body."""
        return any("model" in path.end.groupindex for path in self.paths)

    def claims(self, path: str, headers: Mapping[str, str]) -> bool:
        """Whether a request that is no prompt's is for this provider, by its path and its headers in lower case."""
        del path, headers
        return False

    def streams_array(self, query: Mapping[str, str]) -> bool:
        """Whether a stream that the path asks for is an array in pieces, by the query, and not a series of events."""
        del query
        return False

    def finish_reason(self, reported: Any) -> str:
        """Return an answer's reason to stop as spans have it; empty: it has none."""
        if not reported:
            return ""
        return reported if isinstance(reported, str) and reported in self.finish_reasons else OTHER_REASON

    @abstractmethod
    def error(self, status: int, message: str, reason: str, *, final: bool) -> dict[str, Any]:
        """Return an error of the sidecar's in the provider's shape.

        Args:
            status: of HTTP.
            message: the sidecar's own.
            reason: the sidecar's; before the message where the provider's shape has no place for it.
            final: whether another try cannot succeed.
        """

    def error_headers(self, status: int) -> dict[str, str]:
        """Return the headers of such an error besides its content type, in lower case."""
        del status
        return {}

    @abstractmethod
    def call_places(self, answer: Mapping[str, Any]) -> Iterator[CallPlace]:
        """Yield where a whole answer holds the arguments of each call of a function."""

    def call_event(self, data: dict[str, Any], name_of: NameOf) -> CallEvent:
        """Return what an event of a stream says of calls.

        Args:
            data: the event's, as JSON's types; the pieces returned are places in it.
            name_of: returns the names of calls that earlier events have begun.
        """
        del name_of
        return CallEvent(whole=list(self.call_places(data)))

    def tool_name(self, definition: Any) -> Any:
        """Return the name in a tool's definition, of JSON's types or an SDK's; empty or None if it has none."""
        return sdk_member(definition, "name")

    @abstractmethod
    def tool_result(self, call_id: str, name: str, text: str, *, is_error: bool) -> dict[str, Any]:
        """Return the answer to a call of a tool as an entry of the history, or a part of one: see `joined`."""

    def joined(self, results: Sequence[Any]) -> list[Any]:
        """Return the answers of one turn's calls as the history holds them."""
        return list(results)
