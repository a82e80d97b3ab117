"""The request as the server reads it: typed messages stay slices of bytes.

In protobuf's encoding, a field of repeated messages and a field of repeated bytes look the same. So the requests are
read with a twin of TrimPromptRequest in which `Conversation.messages` is declared `repeated bytes`: a message comes out
as the very bytes that were sent, unknown fields and odd encodings included, and a message that was seen before is never
parsed. The twin is made from the generated descriptor, so it follows every change of the proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from sidecar.v1 import conversation_pb2, policy_pb2, trim_pb2


class Slices(Protocol):
    """A Conversation whose messages are bytes."""

    messages: Sequence[bytes]


class WireEnum(Protocol):
    """A generated enum: its values by name."""

    def items(self) -> Iterable[tuple[str, Any]]:
        """Name and number of each value."""

    def Value(self, name: str) -> Any:  # noqa: N802  # the name is protobuf's
        """Number of the value that has this name; ValueError if none has."""


def read_request(raw: bytes) -> tuple[trim_pb2.TrimPromptRequest, Sequence[bytes] | None]:
    """Parse a TrimPromptRequest; return it with its typed messages as slices, None if its prompt is not typed.

    The `conversation` of the request returned must not be read.

    Raises:
        DecodeError: the bytes are not a request.
    """
    request = cast(trim_pb2.TrimPromptRequest, _REQUEST.FromString(raw))
    if request.WhichOneof("prompt") != "conversation":
        return request, None
    return request, tuple(cast(Slices, request.conversation).messages)


def lift_body(raw: bytes) -> tuple[bytes, bytes]:
    """Take `json.body` out of a TrimPromptRequest; return it and the encoding of the rest.

    A parse copies the body twice, once into the message and once out of it; this copies it once. Where the request is
    not of the ordinary form, with one `json` that has one `body`, nothing is taken and the parse sees to it.
    """
    outer = _only(raw, 0, len(raw), trim_pb2.TrimPromptRequest.JSON_FIELD_NUMBER)
    inner = _only(raw, outer[1], outer[2], trim_pb2.JsonPrompt.BODY_FIELD_NUMBER) if outer is not None else None
    if outer is None or inner is None:
        return b"", raw
    tag, start, end = outer
    rest_of_json = raw[start : inner[0]] + raw[inner[2] : end]
    rest = b"".join(
        (raw[:tag], *length_delimited(trim_pb2.TrimPromptRequest.JSON_FIELD_NUMBER, rest_of_json), raw[end:])
    )
    return raw[inner[1] : inner[2]], rest


def _only(raw: bytes, at: int, end: int, number: int) -> tuple[int, int, int] | None:
    """Where the only length-delimited field with this number stands: its tag, its content and the end of that.

    None if it is missing, comes twice, or anything is not as expected.
    """
    found: tuple[int, int, int] | None = None
    while at < end:
        tag_at = at
        tag, at = _read_varint(raw, at, end)
        kind = tag & 7
        if kind == _VARINT:
            _, at = _read_varint(raw, at, end)
        elif kind == _LENGTH_DELIMITED:
            size, at = _read_varint(raw, at, end)
            if tag >> 3 == number:
                if found is not None:
                    return None
                found = tag_at, at, at + size
            at += size
        else:
            return None
    return found if at == end else None


def _read_varint(raw: bytes, at: int, end: int) -> tuple[int, int]:
    """A varint's value and where it ends; past `end` if it is cut off or longer than any."""
    value = shift = 0
    while at < end and shift < _VARINT_BITS:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _CONTINUES:
            return value, at
        shift += 7
    return 0, end + 1


def write_slices(messages: Sequence[bytes]) -> bytes:
    """Return the encoding of a Conversation whose messages have the encodings `messages`."""
    return _SLICES(messages=messages).SerializeToString()


def length_delimited(number: int, *pieces: bytes) -> list[bytes]:
    """Return the pieces of a length-delimited field's encoding, `number` up to 15, without copying them."""
    return [bytes((number << 3 | 2,)) + _varint(sum(map(len, pieces))), *pieces]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _twin() -> tuple[type[Message], type[Message]]:
    pool = descriptor_pool.DescriptorPool()
    for generated in (conversation_pb2, policy_pb2, trim_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        generated.DESCRIPTOR.CopyToProto(file)
        for message in file.message_type:
            for field in message.field:
                if (message.name, field.name) == ("Conversation", "messages"):
                    field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
                    field.ClearField("type_name")
        pool.Add(file)
    request, conversation = (pool.FindMessageTypeByName(f"sidecar.v1.{name}") for name in _TWINS)
    return message_factory.GetMessageClass(request), message_factory.GetMessageClass(conversation)


_VARINT, _LENGTH_DELIMITED = 0, 2
"""Protobuf's wire types."""
_VARINT_BITS = 70
_CONTINUES = 0x80
_TWINS = ("TrimPromptRequest", "Conversation")
_REQUEST, _SLICES = _twin()
