"""The external processor's messages to Envoy, serialised, and reading of the headers that Envoy sends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from google.protobuf.duration_pb2 import Duration

from prompt_sidecar.doors.envoy.v1 import ext_proc_pb2 as wire

OVERWRITE: Final = 2
"""HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD."""

BUFFERED: Final = 2
"""BodySendMode.BUFFERED."""
STREAMED: Final = 1
"""BodySendMode.STREAMED."""
_SEND: Final = 1
_SKIP: Final = 2
"""HeaderSendMode.SKIP."""
_BILLION: Final = 1_000_000_000


_MOST_HEADERS: Final = 1_000
"""Headers of one message that are read: ten times Envoy's default limit (max_headers_count)."""


class TooManyHeaders(Exception):
    """A message has more headers than are read."""


def headers_of(message: wire.HttpHeaders) -> dict[str, str]:
    """Return headers by name in lower case; headers of the same name are joined as HTTP defines.

    Raises:
        TooManyHeaders: there are more than `_MOST_HEADERS`.
    """
    if len(message.headers.headers) > _MOST_HEADERS:
        raise TooManyHeaders
    found: dict[str, list[str]] = {}
    for each in message.headers.headers:
        value = (each.raw_value or each.value.encode()).decode("utf-8", "replace")
        found.setdefault(each.key.lower(), []).append(value)
    return {name: ", ".join(values) for name, values in found.items()}


def _mutation(put: Mapping[str, str], remove: Iterable[str] = ()) -> wire.HeaderMutation:
    return wire.HeaderMutation(
        set_headers=[
            wire.HeaderValueOption(header=wire.HeaderValue(key=name, raw_value=value.encode()), append_action=OVERWRITE)
            for name, value in put.items()
        ],
        remove_headers=remove,
    )


_PLAIN: Final = {"accept-encoding": "identity"}
"""Headers for a request whose response is read: without this one a provider may use any encoding."""


def request_headers(remove: Iterable[str] = (), *, plain: bool = False) -> bytes:
    """Let a request's headers continue, without some of them; `plain`: ask for an uncompressed response."""
    common = wire.CommonResponse(header_mutation=_mutation(_PLAIN if plain else {}, remove))
    return wire.ProcessingResponse(request_headers=wire.HeadersResponse(response=common)).SerializeToString()


def request_body(body: bytes | None, *, plain: bool = False) -> bytes:
    """Let a request's body continue; None: unchanged. `plain`: ask for an uncompressed response.

    A new body needs its own content-length: Envoy answers 500 if it is wrong, whatever its failure_mode_allow is.
    """
    if body is None:
        return wire.ProcessingResponse(request_body=wire.BodyResponse()).SerializeToString()
    common = wire.CommonResponse(
        header_mutation=_mutation({"content-length": str(len(body))} | (_PLAIN if plain else {})),
        body_mutation=wire.BodyMutation(body=body),
    )
    return wire.ProcessingResponse(request_body=wire.BodyResponse(response=common)).SerializeToString()


def request_trailers() -> bytes:
    """Let a request's trailers continue."""
    return wire.ProcessingResponse(request_trailers=wire.TrailersResponse()).SerializeToString()


def response_headers(put: Mapping[str, str], *, whole: bool = False) -> bytes:
    """Let a response's headers continue, with some headers added; `whole`: ask for its body in one piece."""
    common = wire.CommonResponse(header_mutation=_mutation(put))
    mode = None
    if whole:
        mode = wire.ProcessingMode(
            request_header_mode=_SEND,
            response_header_mode=_SEND,
            request_body_mode=BUFFERED,
            response_body_mode=BUFFERED,
            request_trailer_mode=_SKIP,
            response_trailer_mode=_SKIP,
        )
    return wire.ProcessingResponse(
        response_headers=wire.HeadersResponse(response=common), mode_override=mode
    ).SerializeToString()


def response_body(body: bytes | None = None) -> bytes:
    """Let a piece of a response continue; None: unchanged.

    If the piece is the whole body, Envoy has not sent the headers yet, and the content-length must be right; otherwise
    Envoy has sent the headers without one, and ignores it here.
    """
    if body is None:
        return wire.ProcessingResponse(response_body=wire.BodyResponse()).SerializeToString()
    common = wire.CommonResponse(
        header_mutation=_mutation({"content-length": str(len(body))}), body_mutation=wire.BodyMutation(body=body)
    )
    return wire.ProcessingResponse(response_body=wire.BodyResponse(response=common)).SerializeToString()


EMPTIED: Final = wire.ProcessingResponse(
    response_body=wire.BodyResponse(response=wire.CommonResponse(body_mutation=wire.BodyMutation(body=b"")))
).SerializeToString()
"""Removes a piece from a response."""


def response_trailers() -> bytes:
    """Let a response's trailers continue."""
    return wire.ProcessingResponse(response_trailers=wire.TrailersResponse()).SerializeToString()


def immediate(status: int, headers: Mapping[str, str], body: bytes, details: str) -> bytes:
    """End the exchange with a response of the sidecar's; `details` is for Envoy's access log."""
    return wire.ProcessingResponse(
        immediate_response=wire.ImmediateResponse(
            status=wire.HttpStatus(code=status), headers=_mutation(headers), body=body, details=details
        )
    ).SerializeToString()


def wait_longer(seconds: float) -> bytes:
    """Ask Envoy to wait up to so many seconds for the answer to its last message."""
    whole, rest = divmod(int(seconds * _BILLION), _BILLION)
    return wire.ProcessingResponse(override_message_timeout=Duration(seconds=whole, nanos=rest)).SerializeToString()
