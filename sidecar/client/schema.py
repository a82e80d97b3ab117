"""The messages of `sidecar.v1`, made from their descriptors.

Generated stubs refuse a protobuf runtime that is older than their generator, and one that is two major versions newer
(protobuf.dev, Cross-Version Runtime Guarantee). An agent shares its interpreter with packages that hold protobuf back
or push it on. Descriptors are data that every runtime reads: `schema.binpb` is a FileDescriptorSet, which `make protos`
writes from the protos. They are loaded into a pool of their own, so that they meet neither the server's stubs nor
anybody else's messages of the same name.

Programs write enums as the lower-case name of a value without its prefix: `lean` for PRESET_LEAN.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE: Final = "sidecar.v1.SidecarService"
_PACKAGE: Final = "sidecar.v1."


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    raw = (files("sidecar.client") / "schema.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(raw).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


@cache
def _classes() -> Mapping[str, Any]:
    """Every message's class by its full name.

    All are held for ever: runtimes before 4.25 free the class of a nested message that nobody holds, while messages of
    it are in use, and crash (protobuf issue 12047).
    """
    pool = _pool()
    raw = (files("sidecar.client") / "schema.binpb").read_bytes()
    names = [file.name for file in descriptor_pb2.FileDescriptorSet.FromString(raw).file]
    waiting = [each for name in names for each in pool.FindFileByName(name).message_types_by_name.values()]
    found: dict[str, Any] = {}
    while waiting:
        descriptor = waiting.pop()
        found[descriptor.full_name] = message_factory.GetMessageClass(descriptor)
        waiting.extend(descriptor.nested_types)
    return found


def message_class(name: str) -> Any:
    """Return the class of a message: of `sidecar.v1`, or of the package that a name with dots says."""
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
        TypeError: there is no such field, or a value is of another type.
        ValueError: an enum has no value of that name, or a number is out of its type's bounds.
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
            raise TypeError(f"{message.DESCRIPTOR.name} has no {name}; it may be one of {', '.join(sorted(fields))}")
        if value is None:
            continue
        current = getattr(message, name)
        if hasattr(current, "add"):
            for each in value:
                fill(current.add(), each)
        elif hasattr(current, "extend"):
            current.extend(_number(field, each) for each in value)
        elif field.message_type is not None:
            # A message that only wraps a list, as those that tell an empty list from none: it may be given as the list.
            wraps = field.message_type.fields[0].name if len(field.message_type.fields) == 1 else ""
            current.SetInParent()
            fill(current, {wraps: value} if wraps and not isinstance(value, Mapping) else value)
        else:
            setattr(message, name, _number(field, value))


def enum_name(field: Any, number: int) -> str:
    """Return the name of an enum field's value, as programs write it; `unspecified` for 0."""
    value = field.enum_type.values_by_number.get(number)
    # A newer server may know more values than this client.
    return f"unknown_{number}" if value is None else value.name.removeprefix(_prefix(field.enum_type)).lower()


def enum_names(message: str, field: str) -> tuple[str, ...]:
    """Return what an enum field of a message can be, without `unspecified`."""
    enum = message_class(message).DESCRIPTOR.fields_by_name[field].enum_type
    return tuple(value.name.removeprefix(_prefix(enum)).lower() for value in enum.values if value.number)


def _prefix(enum: Any) -> str:
    return str(enum.values_by_number[0].name).removesuffix("UNSPECIFIED")


def _number(field: Any, value: Any) -> Any:
    if field.enum_type is None or not isinstance(value, str):
        return value
    found = field.enum_type.values_by_name.get(_prefix(field.enum_type) + value.upper())
    if found is None or not found.number:
        names = [each.name.removeprefix(_prefix(field.enum_type)).lower() for each in field.enum_type.values]
        raise ValueError(f"{field.name} is {value!r}; it may be one of {', '.join(names[1:])}")
    return found.number
