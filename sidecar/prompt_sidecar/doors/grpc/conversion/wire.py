"""Reads TrimPrompt's request: its body is copied once, and its typed messages stay slices of bytes.

In protobuf's encoding, a field of repeated messages and a field of repeated bytes look the same. So the requests are
read with a twin of TrimPromptRequest in which `Conversation.messages` is declared `repeated bytes`: a message is
returned as the bytes that were sent, including unknown fields and unusual encodings, and a message that was seen before
is never parsed. The twin is made from the generated descriptor, so it follows every change of the proto.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from prompt_sidecar.calls.checks import MESSAGE_BYTES
from prompt_sidecar.errors import TooLarge
from prompt_sidecar.v1 import conversation_pb2, trim_pb2

MOST_FIELDS = 200_000
"""Fields of one message of a request: enough for two annotations for each of limits.run_messages. They are counted
before the request is parsed, as each then takes some hundred bytes, and a microsecond in which no other thread runs."""
FIELDS_BOUND = "request.annotations"


ASK_EVERY = 4_000
"""Fields between two checks of the deadline: some milliseconds."""


def _never() -> None:
    """Do nothing: the default for a call that cannot be ended."""


class Slices(Protocol):
    """A Conversation whose messages are bytes."""

    messages: Sequence[bytes]


class WireEnum(Protocol):
    """A generated enum: its values by name."""

    def items(self) -> Iterable[tuple[str, Any]]:
        """Name and number of each value."""

    def Value(self, name: str) -> Any:  # noqa: N802  # the name is protobuf's
        """Number of the value that has this name; ValueError if none has."""


def read_request(
    raw: bytes, check: Callable[[], None] = _never
) -> tuple[trim_pb2.TrimPromptRequest, Sequence[bytes] | None]:
    """Parse a TrimPromptRequest; return it with its typed messages as slices, None if its prompt is not typed.

    The `conversation` of the request returned must not be read. `check` is called from time to time; an exception from
    it ends the call.

    Raises:
        DecodeError: the bytes are not a request.
    """
    if len(raw) > MESSAGE_BYTES:
        _check_policy(raw, check)
    if raw.count(_MESSAGE_TAG) > MOST_FIELDS:  # a line feed has the same byte as a tag, so most of these may be text
        _check_messages(raw, check)
    request = cast(trim_pb2.TrimPromptRequest, _REQUEST.FromString(raw))
    if request.WhichOneof("prompt") != "conversation":
        return request, None
    return request, tuple(cast(Slices, request.conversation).messages)


def lift_body(raw: bytes, check: Callable[[], None] = _never) -> tuple[bytes, bytes]:
    """Take `json.body` out of a TrimPromptRequest; return it and the encoding of the rest. Raises TooLarge.

    A parse copies the body twice, once into the message and once out of it; this copies it once. If the request is not
    of the ordinary form, with one `json` that has one `body`, nothing is taken out and the parser reads it. `check`:
    see `read_request`.
    """
    outer = _only(raw, 0, len(raw), trim_pb2.TrimPromptRequest.JSON_FIELD_NUMBER, check)
    inner = None
    if outer is not None:
        inner = _only(raw, outer[1], outer[2], trim_pb2.JsonPrompt.BODY_FIELD_NUMBER, check)
    if outer is None or inner is None:
        return b"", raw
    tag, start, end = outer
    rest_of_json = raw[start : inner[0]] + raw[inner[2] : end]
    rest = b"".join(
        (raw[:tag], *length_delimited(trim_pb2.TrimPromptRequest.JSON_FIELD_NUMBER, rest_of_json), raw[end:])
    )
    return raw[inner[1] : inner[2]], rest


def _only(raw: bytes, at: int, end: int, number: int, check: Callable[[], None]) -> tuple[int, int, int] | None:
    """Find the only length-delimited field with this number: its tag, its content and the end of that.

    Returns None if it is missing or repeated, or if the encoding is not as expected. Raises TooLarge as `_fields` does.
    """
    walked = _fields(raw, at, end, number, check)
    return walked.found[0] if walked.plain and len(walked.found) == 1 else None


class _Walked(NamedTuple):
    """The result of a walk over the fields of a message."""

    found: list[tuple[int, int, int]]
    """For each matching field its tag, its content and the end of that."""
    plain: bool
    """Whether the fields contain no group, and the bytes are a message; otherwise the parser has to decide."""
    left: int
    """Number of further fields that are allowed."""


def _fields(
    raw: bytes, at: int, end: int, number: int, check: Callable[[], None], *, most: int = MOST_FIELDS
) -> _Walked:
    """Walk over a message's fields and find the length-delimited ones with a number, at most 15.

    Raises:
        TooLarge: there are more than `most` fields.
    """
    wanted = number << 3 | _LENGTH_DELIMITED
    found: list[tuple[int, int, int]] = []
    plain = True
    left = most
    while at < end:
        if not left:
            raise TooLarge(
                f"the request has over {MOST_FIELDS:,} annotations or messages", field="annotations", bound=FIELDS_BOUND
            )
        left -= 1
        if not left % ASK_EVERY:
            check()
        tag_at, tag = at, raw[at]
        # Most fields are short, and there may be many: one function call per number would cost much more.
        if tag & _SHORT_TAG == _LENGTH_DELIMITED and at + 1 < end and raw[at + 1] < _CONTINUES:
            size = raw[at + 1]
            at += 2
        else:
            tag, at = _read_varint(raw, at, end)
            kind = tag & 7
            if kind == _VARINT:
                _, at = _read_varint(raw, at, end)
                continue
            if kind != _LENGTH_DELIMITED:
                plain = plain and kind in _FIXED
                at += _FIXED.get(kind, 0)
                continue
            size, at = _read_varint(raw, at, end)
        if tag == wanted:
            found.append((tag_at, at, at + size))
        at += size
    return _Walked(found, plain and at == end, left)


def _check_messages(raw: bytes, check: Callable[[], None]) -> None:
    """Raise TooLarge if the request's conversations, which the parser merges, have too many messages."""
    left = MOST_FIELDS
    walked = _fields(raw, 0, len(raw), trim_pb2.TrimPromptRequest.CONVERSATION_FIELD_NUMBER, check)
    for _, start, end in walked.found:
        left = _fields(raw, start, min(end, len(raw)), 0, check, most=left).left


def _check_policy(raw: bytes, check: Callable[[], None]) -> None:
    """Raise TooLarge if the policy is so long that parsing its lists could block the interpreter."""
    walked = _fields(raw, 0, len(raw), trim_pb2.TrimPromptRequest.POLICY_FIELD_NUMBER, check)
    size = sum(end - start for _, start, end in walked.found)
    if size > MESSAGE_BYTES:
        raise TooLarge(
            f"policy has {size:,} bytes; it may have {MESSAGE_BYTES:,}", field="policy", bound="request.bytes"
        )


def _read_varint(raw: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a varint's value and where it ends: past `end` if it is cut off or too long."""
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
    return [tag(number) + varint(sum(map(len, pieces))), *pieces]


def tag(number: int) -> bytes:
    """Return the tag of a length-delimited field, `number` up to 15."""
    return bytes((number << 3 | _LENGTH_DELIMITED,))


def varint(value: int) -> bytes:
    """Return the encoding of a number that is not negative."""
    if value < _CONTINUES:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _twin() -> Mapping[str, type[Message]]:
    """Return the classes of all messages by their full names.

    All are kept for ever: the collector frees the class of a nested message while no message of it is in use, as
    nothing else refers to it in a pool of one's own. The next access makes it again, in any thread. A worker of the
    tests once crashed at such an access (compare protobuf issue 12047).
    """
    pool = descriptor_pool.DescriptorPool()
    for generated in (*trim_pb2.DESCRIPTOR.dependencies, trim_pb2.DESCRIPTOR):
        file = descriptor_pb2.FileDescriptorProto()
        generated.CopyToProto(file)
        for message in file.message_type:
            for field in message.field:
                if (message.name, field.name) == ("Conversation", "messages"):
                    field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
                    field.ClearField("type_name")
        pool.Add(file)
    waiting = [
        each for file in trim_pb2.DESCRIPTOR.dependencies for each in _messages_of(pool, file.name)
    ] + _messages_of(pool, trim_pb2.DESCRIPTOR.name)
    classes: dict[str, type[Message]] = {}
    while waiting:
        descriptor = waiting.pop()
        classes[descriptor.full_name] = message_factory.GetMessageClass(descriptor)
        waiting.extend(descriptor.nested_types)
    return classes


def _messages_of(pool: descriptor_pool.DescriptorPool, file: str) -> list[Descriptor]:
    return list(pool.FindFileByName(file).message_types_by_name.values())


_VARINT, _LENGTH_DELIMITED = 0, 2
_FIXED = {1: 8, 5: 4}
"""Protobuf's wire types; for those of fixed size the number of bytes."""
_MESSAGE_TAG = bytes((conversation_pb2.Conversation.MESSAGES_FIELD_NUMBER << 3 | _LENGTH_DELIMITED,))
_VARINT_BITS = 70
_CONTINUES = 0x80
_ONE_BYTE = [bytes((value,)) for value in range(_CONTINUES)]
_SHORT_TAG = _CONTINUES | 7
"""The bits of a tag's first byte that say whether there is a second one, and the wire type."""
_TWINS: Final = _twin()
_REQUEST, _SLICES = (_TWINS[f"prompt_sidecar.v1.{name}"] for name in ("TrimPromptRequest", "Conversation"))
