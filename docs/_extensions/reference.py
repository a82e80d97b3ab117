"""The parts of the reference that are made from their sources while the site is built: errors and protos.

A page says where one stands by a comment, `<!-- made from the sources: errors -->`, which readers on a code host do
not see. Settings, metrics, knobs and windows stand in their pages, where tests hold them to the sources.
"""

from __future__ import annotations

import importlib.resources
import inspect
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from grpc_tools import protoc
from sphinx.application import Sphinx

from prompt_sidecar import errors

PROTOS: Final = Path(__file__).resolve().parents[2] / "protos"
MARK: Final = re.compile(r"<!-- made from the sources: (\w+) -->")
AT_THE_TOP: Final = re.compile(r"\]\((?=(?:\.\./)+[A-Z]+\.md\))")
"""A link to README.md and the like: files of the repository and no pages of the site, so it offers them as files."""

# Where descriptors keep the comments of their parts: paths of field numbers of descriptor.proto.
_MESSAGE, _ENUM, _SERVICE = 4, 5, 6
_IN_MESSAGE_FIELD, _IN_MESSAGE_NESTED, _IN_MESSAGE_ENUM, _IN_MESSAGE_ONEOF = 2, 3, 4, 8
_IN_ENUM_VALUE, _IN_SERVICE_METHOD = 2, 2

_SCALARS: Final = {
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
    FieldDescriptorProto.TYPE_DOUBLE: "double",
    FieldDescriptorProto.TYPE_FLOAT: "float",
    FieldDescriptorProto.TYPE_INT32: "int32",
    FieldDescriptorProto.TYPE_INT64: "int64",
    FieldDescriptorProto.TYPE_STRING: "string",
    FieldDescriptorProto.TYPE_UINT32: "uint32",
    FieldDescriptorProto.TYPE_UINT64: "uint64",
}


def setup(app: Sphinx) -> Mapping[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _fill(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Put what is made in the place of its mark. A name that nothing makes is a KeyError, which ends the build."""
    source[0] = MARK.sub(lambda found: "\n".join(PARTS[found[1]]()), AT_THE_TOP.sub("](path:", source[0]))


def error_table() -> Iterator[str]:
    """One row for each class of `prompt_sidecar.errors`: reason, gRPC status, what it means."""
    yield "| reason | gRPC status | meaning |"
    yield "|---|---|---|"
    seen = set()
    for error in vars(errors).values():
        if inspect.isclass(error) and issubclass(error, errors.SidecarError) and error.reason not in seen:
            seen.add(error.reason)
            meaning = _INTERNAL if error is errors.SidecarError else _one_line(inspect.getdoc(error) or "")
            yield f"| `{error.reason}` | `{error.status}` | {meaning} |"


_INTERNAL: Final = (
    "The sidecar failed unexpectedly. The message holds an opaque id; the line of the log with that id has the details."
)


def proto_pages() -> Iterator[str]:
    """Every method, message and enum of `protos/`, with its comments."""
    files = _described()
    for file in files:
        comments = _comments(file)
        for number, service in enumerate(file.service):
            yield from ("## Methods", "", _one_line(comments.get((_SERVICE, number), "")), "")
            yield from ("| method | request | answer | what |", "|---|---|---|---|")
            for index, method in enumerate(service.method):
                what = _one_line(comments.get((_SERVICE, number, _IN_SERVICE_METHOD, index), ""))
                yield f"| `{method.name}` | {_linked(method.input_type)} | {_linked(method.output_type)} | {what} |"
            yield ""
    yield from ("## Messages", "")
    for file in files:
        comments = _comments(file)
        for number, message in enumerate(file.message_type):
            yield from _message(message, (_MESSAGE, number), comments)
    yield from ("## Enums", "")
    for file in files:
        comments = _comments(file)
        for number, enum in enumerate(file.enum_type):
            yield from _enum(enum, (_ENUM, number), comments)


def _described() -> list[FileDescriptorProto]:
    """The files of `protos/` with their comments, the service's first."""
    sources = sorted(PROTOS.rglob("*.proto"), key=lambda path: (path.name != "service.proto", path.name))
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "set"
        with importlib.resources.as_file(importlib.resources.files("grpc_tools") / "_proto") as common:
            options = [f"-I{PROTOS}", f"-I{common}", "--include_source_info", f"--descriptor_set_out={output}"]
            if protoc.main(["protoc", *options, *(str(path) for path in sources)]):
                raise RuntimeError("protoc cannot read protos/; it has said why")
        described = FileDescriptorSet.FromString(output.read_bytes())
    order = [path.relative_to(PROTOS).as_posix() for path in sources]
    return sorted(described.file, key=lambda file: order.index(file.name))


Comments = Mapping[tuple[int, ...], str]


def _comments(file: FileDescriptorProto) -> Comments:
    return {tuple(place.path): place.leading_comments for place in file.source_code_info.location}


def _message(message: DescriptorProto, path: tuple[int, ...], comments: Comments) -> Iterator[str]:
    yield from (f"### {message.name}", "", _one_line(comments.get(path, "")), "")
    if message.field:
        yield from ("| field | type | what |", "|---|---|---|")
    for index, field in enumerate(message.field):
        what = _one_line(comments.get((*path, _IN_MESSAGE_FIELD, index), ""))
        yield f"| `{field.name}` | {_type(field, message)} | {what} |"
    yield ""
    for index, nested in enumerate(message.nested_type):
        yield from _message(nested, (*path, _IN_MESSAGE_NESTED, index), comments)
    for index, enum in enumerate(message.enum_type):
        yield from _enum(enum, (*path, _IN_MESSAGE_ENUM, index), comments)


def _enum(enum: EnumDescriptorProto, path: tuple[int, ...], comments: Comments) -> Iterator[str]:
    yield from (f"### {enum.name}", "", _one_line(comments.get(path, "")), "", "| value | what |", "|---|---|")
    for index, value in enumerate(enum.value):
        yield f"| `{value.name}` | {_one_line(comments.get((*path, _IN_ENUM_VALUE, index), ''))} |"
    yield ""


def _type(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    named = _linked(field.type_name) if field.type_name else _SCALARS[field.type]
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {named}"
    if field.proto3_optional:
        return f"optional {named}"
    return (
        f"{named} (one of `{message.oneof_decl[field.oneof_index].name}`)" if field.HasField("oneof_index") else named
    )


def _linked(type_name: str) -> str:
    name = type_name.rsplit(".", 1)[1]
    return f"[{name}](#{name.lower()})" if type_name.startswith(".prompt_sidecar.") else f"`{type_name.lstrip('.')}`"


def _one_line(text: str) -> str:
    """A comment or docstring as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


PARTS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {"errors": error_table, "protos": proto_pages}
