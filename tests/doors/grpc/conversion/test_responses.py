"""Responses are made by their messages' descriptors: each field has what the fact says, under whatever name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from prompt_sidecar.doors.grpc.conversion import responses
from prompt_sidecar.doors.grpc.conversion.responses import message
from prompt_sidecar.facts.history_size import HistorySize, KindSize, SizeKind
from prompt_sidecar.prompt.items import Role
from prompt_sidecar.v1 import conversation_pb2, search_pb2, trim_pb2


def test_the_table_names_fields_that_there_are() -> None:
    """A field that was renamed in the proto would be left out of its message."""
    for kind, made in responses._MADE.items():  # noqa: SLF001
        assert made.keys() <= {field.name for field in kind.DESCRIPTOR.fields}, kind


def test_a_name_means_what_its_own_enum_says() -> None:
    """`other` is no role, and a kind of tokens: only the role is left unset."""
    size = HistorySize({SizeKind.OTHER: KindSize(1, 2, 3)}, 1, 1, 1, 1, 0.5)
    (kind,) = message(trim_pb2.HistorySize, size).kinds
    assert (trim_pb2.SIZE_KIND_OTHER, 1, 2, 3) == (kind.kind, kind.tokens_sent, kind.tokens_returned, kind.items)
    item = SimpleNamespace(stash_id="s", role=Role.OTHER, kind=None, tool="read", iteration=2)
    found = message(search_pb2.InPrompt, SimpleNamespace(item=item, first_line=3, last_line=4))
    expected = search_pb2.InPrompt(
        stash_id="s", role=conversation_pb2.ROLE_UNSPECIFIED, tool="read", iteration=2, first_line=3, last_line=4
    )
    assert expected == found


def test_a_fact_without_a_field_is_an_error() -> None:
    """It is not sent as if the field were not set."""
    with pytest.raises(AttributeError, match="stash_id"):
        message(search_pb2.InPrompt, SimpleNamespace(item=SimpleNamespace(), first_line=1))
