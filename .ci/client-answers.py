"""Print the Python client's dataclasses: one for each message that an answer of the service holds.

`.ci/stubs` gives it the protos' descriptors with their comments, and writes `sidecar/prompt_sidecar/client/answers.py`.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

SERVICE = "prompt_sidecar.v1.SidecarService"
PACKAGE = ".prompt_sidecar.v1."
TIME = ".google.protobuf.Timestamp"
NAMES = {
    "CacheFigures": "Cache",
    "CallToolResponse": "ToolAnswer",
    "EndRunResponse": "Ended",
    "ListTasksResponse": "TaskList",
    "ListToolsResponse": "Tools",
    "ReportUsageResponse": "UsageLearned",
    "RetrieveContentResponse": "Retrieved",
    "SearchHistoryResponse": "Found",
    "TaskItem": "Task",
    "TokenFigures": "Tokens",
    "ToolDefinition": "Tool",
}
"""What the client calls a message, where that is not the message's own name."""
UNWRAPPED = frozenset(
    {"CreateTasksResponse", "EndRunsResponse", "GetRunResponse", "RestoreSecretsResponse", "UpdateTaskResponse"}
)
"""Answers of which the client returns what they hold."""
BY_HAND = frozenset({"RestoredArguments", "TrimPromptResponse"})
"""Those that client/facts.py has, as what they hold is the caller's own prompt or text."""
NOT_SHOWN = frozenset({"Conversation", "Edit"})
"""What only these hold."""
HEAD = '''"""The sidecar's answers as frozen dataclasses, generated from `protos/` by `make protos`; do not edit.

Each has the fields of its message, under the same names. Enums are words in lower case (`elided`, `hit`), times are
aware datetimes, JSON stays text or bytes.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
'''
WIDTH = 120

Field = FieldDescriptorProto
SCALARS = {
    Field.TYPE_BOOL: ("bool", "False"),
    Field.TYPE_BYTES: ("bytes", 'b""'),
    Field.TYPE_DOUBLE: ("float", "0.0"),
    Field.TYPE_ENUM: ("str", '"unspecified"'),
    Field.TYPE_FLOAT: ("float", "0.0"),
    Field.TYPE_INT32: ("int", "0"),
    Field.TYPE_INT64: ("int", "0"),
    Field.TYPE_STRING: ("str", '""'),
    Field.TYPE_UINT32: ("int", "0"),
    Field.TYPE_UINT64: ("int", "0"),
}


class Messages:
    """All messages of the protos, with their comments."""

    def __init__(self, described: FileDescriptorSet) -> None:
        self.known: dict[str, tuple[DescriptorProto, FileDescriptorProto, int]] = {}
        self.words: dict[str, str] = {}
        """What each enum can be, as programs write it."""
        self.roots: list[str] = []
        for file in described.file:
            if f".{file.package}." != PACKAGE:
                continue
            for place, message in enumerate(file.message_type):
                self.known[message.name] = (message, file, place)
            for enum in file.enum_type:
                first, *rest = (value.name for value in enum.value)
                prefix = first.removesuffix("UNSPECIFIED")
                self.words[PACKAGE + enum.name] = ", ".join(name.removeprefix(prefix).lower() for name in rest)
            for service in file.service:
                self.roots += [method.output_type.removeprefix(PACKAGE) for method in service.method]

    def shown(self) -> Iterator[str]:
        """Yield the names of the messages that the client has a dataclass of, in the order in which they are met."""
        waiting, seen = list(self.roots), set(NOT_SHOWN)
        while waiting:
            name = waiting.pop(0)
            if name in seen:
                continue
            seen.add(name)
            if name not in BY_HAND | UNWRAPPED:
                yield name
            waiting += [
                field.type_name.removeprefix(PACKAGE)
                for field in self.known[name][0].field
                if field.type == Field.TYPE_MESSAGE and field.type_name != TIME
            ]

    def comment(self, name: str, *within: int) -> str:
        """Return the comment of a message, or of what is at a path within it."""
        _, file, place = self.known[name]
        found = next(each for each in file.source_code_info.location if list(each.path) == [4, place, *within])
        return " ".join(found.leading_comments.split())

    def field_comment(self, name: str, place: int) -> str:
        """Return the comment of a message's field, with what an enum can be."""
        words = self.words.get(self.known[name][0].field[place].type_name)
        return self.comment(name, 2, place) + (f" One of {words}." if words else "")


def annotated(field: Field) -> str:
    """Return a field's type and default."""
    if field.type == Field.TYPE_MESSAGE:
        name = field.type_name.removeprefix(PACKAGE)
        one, default = "dt.datetime" if field.type_name == TIME else NAMES.get(name, name), "None"
    else:
        one, default = SCALARS[field.type]
    if field.label == Field.LABEL_REPEATED:
        return f"tuple[{one}, ...] = ()"
    if field.type == Field.TYPE_MESSAGE or field.proto3_optional:
        return f"{one} | None = None"
    return f"{one} = {default}"


def docstring(comment: str) -> Iterator[str]:
    """Yield the lines of a docstring: the first sentence, and the rest below it."""
    first, *rest = re.split(r"(?<=[.]) (?=[A-Z`])", comment, maxsplit=1)
    width = WIDTH - 4
    if len(comment) + 6 <= width:
        yield f'    """{comment}"""'
        return
    lines = textwrap.wrap(first, width - 3, break_on_hyphens=False)
    lines += ["", *textwrap.wrap(rest[0], width, break_on_hyphens=False)] if rest else []
    yield f'    """{lines[0]}'
    yield from (f"    {line}" if line else "" for line in lines[1:])
    yield '    """'


def code(messages: Messages) -> Iterator[str]:
    """Yield the lines of the module."""
    yield HEAD.rstrip("\n")
    for name in sorted(messages.shown(), key=lambda each: NAMES.get(each, each)):
        yield from ("", "", "@dataclass(frozen=True, slots=True)", f"class {NAMES.get(name, name)}:")
        yield from docstring(messages.comment(name))
        yield ""
        for place, field in enumerate(messages.known[name][0].field):
            yield f"    {field.name}: {annotated(field)}"
            yield from docstring(messages.field_comment(name, place))


def main(arguments: Iterable[str]) -> None:
    """Print the module for the descriptors in a file."""
    (path,) = arguments
    described = FileDescriptorSet.FromString(Path(path).read_bytes())
    print("\n".join(code(Messages(described))))


if __name__ == "__main__":
    main(sys.argv[1:])
