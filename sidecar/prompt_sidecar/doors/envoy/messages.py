"""The messages that the external processor answers with, serialised, and the headers that Envoy sends."""

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
"""Of HeaderSendMode."""
_BILLION: Final = 1_000_000_000


_MOST_HEADERS: Final = 1_000
"""Headers of one message: ten times what Envoy takes by default (max_headers_count)."""


class TooManyHeaders(Exception):
    """A message has more headers than are looked at."""


def headers_of(message: wire.HttpHeaders) -> dict[str, str]:
    """Return headers by their names in lower case; of several with one name, all joined as HTTP does.

    Raises:
        TooManyHeaders: see there.
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
"""Of a request whose response is read: without the header a provider may answer in any encoding."""


def request_headers(remove: Iterable[str] = (), *, plain: bool = False) -> bytes:
    """Let a request's headers go on, without some of them; `plain`: ask for a response that is not compressed."""
    common = wire.CommonResponse(header_mutation=_mutation(_PLAIN if plain else {}, remove))
    return wire.ProcessingResponse(request_headers=wire.HeadersResponse(response=common)).SerializeToString()


def request_body(body: bytes | None, *, plain: bool = False) -> bytes:
    """Let a request's body go on; None: as it is. `plain`: ask for a response that is not compressed.

    A new one needs its own content-length: Envoy answers 500 where it is wrong, whatever its failure_mode_allow is.
    """
    if body is None:
        return wire.ProcessingResponse(request_body=wire.BodyResponse()).SerializeToString()
    common = wire.CommonResponse(
        header_mutation=_mutation({"content-length": str(len(body))} | (_PLAIN if plain else {})),
        body_mutation=wire.BodyMutation(body=body),
    )
    return wire.ProcessingResponse(request_body=wire.BodyResponse(response=common)).SerializeToString()


def request_trailers() -> bytes:
    """Let a request's trailers go on."""
    return wire.ProcessingResponse(request_trailers=wire.TrailersResponse()).SerializeToString()


def response_headers(put: Mapping[str, str], *, whole: bool = False) -> bytes:
    """Let a response's headers go on, with some of ours; `whole`: ask for its body in one piece."""
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
    """Let a piece of a response go on; None: as it is.

    Where the piece is all of the body, Envoy still holds the headers, and its length must be right; else Envoy has sent
    them without one, and ignores it here.
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
"""Takes a piece out of a response."""


def response_trailers() -> bytes:
    """Let a response's trailers go on."""
    return wire.ProcessingResponse(response_trailers=wire.TrailersResponse()).SerializeToString()


def immediate(status: int, headers: Mapping[str, str], body: bytes, details: str) -> bytes:
    """End the exchange with a response of ours; `details` is for Envoy's access log."""
    return wire.ProcessingResponse(
        immediate_response=wire.ImmediateResponse(
            status=wire.HttpStatus(code=status), headers=_mutation(headers), body=body, details=details
        )
    ).SerializeToString()


def wait_longer(seconds: float) -> bytes:
    """Ask Envoy to wait so long for the answer to its last message."""
    whole, rest = divmod(int(seconds * _BILLION), _BILLION)
    return wire.ProcessingResponse(override_message_timeout=Duration(seconds=whole, nanos=rest)).SerializeToString()
