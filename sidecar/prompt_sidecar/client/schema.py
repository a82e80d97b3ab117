"""The messages of `prompt_sidecar.v1`, made from their descriptors.

Generated stubs refuse a protobuf runtime that is older than their generator, and one that is two major versions newer
(protobuf.dev, Cross-Version Runtime Guarantee). An agent shares its interpreter with packages that require an older or
a newer protobuf. Descriptors are data that every runtime reads: `schema.binpb` is a FileDescriptorSet, which
`make protos` writes from the protos. They are loaded into a separate pool, so that they conflict neither with the
server's stubs nor with other messages of the same name.

`ranges.json` has the limits that the server sets for options of a prompt. They are checked here because a client that
fails open would not report the server's error: `make protos` writes the file from the server's own tables.

Programs write enums as the lower-case name of a value without its prefix: `lean` for PRESET_LEAN.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from numbers import Integral, Real
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor

SERVICE: Final = "prompt_sidecar.v1.SidecarService"
_PACKAGE: Final = "prompt_sidecar.v1."


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    raw = (files("prompt_sidecar.client") / "schema.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(raw).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


@cache
def _classes() -> Mapping[str, Any]:
    """Return every message's class by its full name.

    All are kept for ever: runtimes before 4.25 free the class of a nested message that is not referenced, while
    messages of it are in use, and crash (protobuf issue 12047).
    """
    pool = _pool()
    raw = (files("prompt_sidecar.client") / "schema.binpb").read_bytes()
    names = [file.name for file in descriptor_pb2.FileDescriptorSet.FromString(raw).file]
    waiting = [each for name in names for each in pool.FindFileByName(name).message_types_by_name.values()]
    found: dict[str, Any] = {}
    while waiting:
        descriptor = waiting.pop()
        found[descriptor.full_name] = message_factory.GetMessageClass(descriptor)
        waiting.extend(descriptor.nested_types)
    return found


def message_class(name: str) -> Any:
    """Return the class of a message: of `prompt_sidecar.v1`, or by its full name."""
    return _classes()[name if "." in name else _PACKAGE + name]


@cache
def methods() -> Mapping[str, tuple[str, Any, Any]]:
    """Return each method's path, the class of its request and that of its response, by name."""
    service = _pool().FindServiceByName(SERVICE)
    return {
        method.name: (
            f"/{SERVICE}/{method.name}",
            message_class(method.input_type.full_name),
            message_class(method.output_type.full_name),
        )
        for method in service.methods
    }


def make(message: str, /, **values: Any) -> Any:
    """Return a message with these fields; None leaves a field unset.

    A field that is a message takes a mapping, a repeated one any iterable, an enum the name of its value.

    Raises:
        TypeError: there is no such field, or a value is of another type. The error names the field and what it takes.
        ValueError: an enum has no value of that name, or a number is out of its bounds.
    """
    made = message_class(message)()
    fill(made, values)
    return made


def fill(message: Any, values: Mapping[str, Any]) -> None:
    """Set fields of a message; see `make`."""
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in values.items():
        field = fields.get(name)
        if field is None:
            raise TypeError(unknown(f"{message.DESCRIPTOR.name} has no", name, fields))
        if value is None:
            continue
        current = getattr(message, name)
        if hasattr(current, "extend") and (isinstance(value, str | bytes) or not isinstance(value, Iterable)):
            raise TypeError(f"{name} is a {type(value).__name__}; it must be a list")  # not a text's letters
        if hasattr(current, "add"):
            for each in value:
                fill(current.add(), each)
        elif hasattr(current, "extend"):
            current.extend(_scalar(field, each) for each in value)
        elif field.message_type is not None:
            # A message that only wraps a list, to distinguish an empty list from none, may be given as the list.
            wraps = field.message_type.fields[0].name if len(field.message_type.fields) == 1 else ""
            if not wraps and not isinstance(value, Mapping):
                accepted = f"it must be a mapping of {', '.join(sorted(field.message_type.fields_by_name))}"
                raise TypeError(f"{name} is a {type(value).__name__}; {accepted}")
            if wraps and (isinstance(value, str | bytes) or not isinstance(value, Iterable)):
                raise TypeError(f"{name} is a {type(value).__name__}; it must be a list")
            current.SetInParent()
            fill(current, {wraps: value} if wraps and not isinstance(value, Mapping) else value)
        else:
            setattr(message, name, _scalar(field, value))


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return an error message for an unknown name, with the nearest known name and all of them."""
    names = sorted(known)
    near = get_close_matches(str(name), names, 1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return f"{what} {name}{meant} (there are {', '.join(names)})"


def enum_name(field: Any, number: int) -> str:
    """Return the name of an enum field's value, as programs write it; `unspecified` for 0."""
    value = field.enum_type.values_by_number.get(number)
    # A newer server may know more values than this client.
    return f"unknown_{number}" if value is None else value.name.removeprefix(_prefix(field.enum_type)).lower()


def enum_names(message: str, field: str) -> tuple[str, ...]:
    """Return the names that an enum field may have, without `unspecified`."""
    return _names(message_class(message).DESCRIPTOR.fields_by_name[field].enum_type)


def _names(enum: Any) -> tuple[str, ...]:
    return tuple(value.name.removeprefix(_prefix(enum)).lower() for value in enum.values if value.number)


def _prefix(enum: Any) -> str:
    return str(enum.values_by_number[0].name).removesuffix("UNSPECIFIED")


def _scalar(field: Any, value: Any) -> Any:
    """Return a field's value, checked before it is set: protobuf's own errors name neither the field nor its bounds."""
    if field.enum_type is not None:
        return _number(field, value)
    kind: Any
    kind, words = (bytes, "bytes") if field.type == field.TYPE_BYTES else _KINDS[field.cpp_type]
    low, high = _ranges().get(field.containing_type.name, {}).get(field.name) or _LIMITS.get(field.cpp_type, (0, 0))
    bounded, text = high > low, kind is str
    accepted = f"{words} from {low:,} to {high:,}" if bounded and not text else words
    # In Python a bool is a number too.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{field.name} is {_shown(value)}; it must be {accepted}")
    if text and not _has_encoding(value):
        raise ValueError(f"{field.name} holds a lone surrogate; it must be {accepted}")
    if bounded and text and not low <= len(value.encode(errors="surrogatepass")) <= high:
        size = len(value.encode(errors="surrogatepass"))
        raise ValueError(f"{field.name} has {size:,} bytes; it must have {low:,} to {high:,}")
    if bounded and not text and not low <= value <= high:  # a value that is not a number is in no range
        raise ValueError(f"{field.name} is {value}; it must be {accepted}")
    return value


def _has_encoding(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: Any) -> str:
    """Return a wrong value for an error message; only its type if it may be long, or part of a prompt."""
    shown = repr(value) if isinstance(value, str | int | float) else ""
    return shown if 0 < len(shown) <= _SHOWN else f"a {type(value).__name__}"


def _number(field: Any, value: Any) -> Any:
    names = _names(field.enum_type)
    if isinstance(value, str) and value.lower() in names:
        return field.enum_type.values_by_name[_prefix(field.enum_type) + value.upper()].number
    if isinstance(value, int) and not isinstance(value, bool) and value in field.enum_type.values_by_number:
        return value
    wrong = ValueError if isinstance(value, str | int) else TypeError
    raise wrong(f"{field.name} is {_shown(value)}; it may be one of {', '.join(names)}")


@cache
def _ranges() -> Mapping[str, Mapping[str, tuple[float, float]]]:
    """Return the bounds of fields by message, from the server; `.ci/stubs` wrote the file."""
    found: Mapping[str, Mapping[str, tuple[float, float]]] = json.loads(
        (files("prompt_sidecar.client") / "ranges.json").read_text(encoding="utf-8")
    )
    return found


_SHOWN: Final = 40
"""Characters of a wrong value in an error: enough to show a typing error, but not a prompt."""
_KINDS: Final[Mapping[int, tuple[Any, str]]] = {
    FieldDescriptor.CPPTYPE_INT32: (Integral, "a whole number"),
    FieldDescriptor.CPPTYPE_INT64: (Integral, "a whole number"),
    FieldDescriptor.CPPTYPE_UINT32: (Integral, "a whole number"),
    FieldDescriptor.CPPTYPE_UINT64: (Integral, "a whole number"),
    FieldDescriptor.CPPTYPE_DOUBLE: (Real, "a number"),
    FieldDescriptor.CPPTYPE_FLOAT: (Real, "a number"),
    FieldDescriptor.CPPTYPE_BOOL: (bool, "True or False"),
    FieldDescriptor.CPPTYPE_STRING: (str, "a text"),
}
_LIMITS: Final[Mapping[int, tuple[int, int]]] = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
