"""Types of the arguments of both clients' methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeVar

Annotation: TypeAlias = Literal["pinned", "snapshot", "validation_feedback", "step_error", "repetition_warning"]
Status: TypeAlias = Literal["pending", "in_progress", "completed"]

Prompt = TypeVar("Prompt")


class TrimOptions(TypedDict, total=False):
    """Fields of TrimPromptRequest, under their names there."""

    model: str
    context_window: int
    output_reserve: int
    policy: Mapping[str, Any]
    """Fields of Policy: `{"preset": "lean", "fit_high": 0.8}`."""
    annotations: Mapping[int, Annotation] | Sequence[Mapping[str, Any]]
    """Index of a message → its kind; or as in the request, `[{"message_index": 3, "kind": "pinned"}]`, where one
    message may have several kinds."""
    recall_unavailable: bool
    dry_run: bool
    side_call: bool
    revision: bytes
    """Overrides the revision that the client remembers."""
    served_iterations: int
    """Model calls at the start of the history whose prompts the sidecar made; 0 if it is used from now on."""
    base_revision: bytes
    """The prompt contains only the messages after that revision's untrimmed history. The answer is a whole prompt."""


class SearchOptions(TypedDict, total=False):
    """Fields of SearchHistoryRequest, under their names there."""

    roles: Sequence[Literal["user", "assistant", "tool"]]
    tools: Sequence[str]
    first_iteration: int
    last_iteration: int
    stash_ids: Sequence[str]
    max_snippets: int
    snippet_tokens: int
    total_tokens: int


class Usage(TypedDict, total=False):
    """Fields of ReportUsageRequest, under their names there."""

    model: str
    input_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None
    input_counting: Literal["with_cached", "without_cached"]
    refusal: Mapping[str, Any]
    """`{"message": ..., "limit": ...}`: the provider refused the prompt as too long."""
    revision: bytes
    failed: bool
    """The provider gave no usable answer, for another reason than the prompt's length."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines `first` to `last`, counted from 1; last 0: to the end."""

    first: int
    last: int = 0


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes from `start` up to `end`, counted from 0; end 0: to the end."""

    start: int
    end: int = 0


@dataclass(frozen=True, slots=True)
class Pattern:
    """The lines that match an expression in RE2's syntax, and those around them."""

    expression: str
    context_lines: int = 0
    ignore_case: bool = False


ANNOTATIONS: Final = (
    'annotations may be {3: "pinned"} or [{"message_index": 3, "kind": "pinned"}]: '
    "the indices of messages, and their kinds"
)

Selection: TypeAlias = Lines | Bytes | Pattern | None
"""The part of an original to return; None for the whole."""


def annotated(annotations: Any) -> list[tuple[int, Any]]:
    """Return annotations as pairs of a message's index and its kind.

    Raises:
        TypeError: they have another shape.
    """
    if annotations is None:
        return []
    if not isinstance(annotations, Iterable):
        raise TypeError(ANNOTATIONS)
    given = annotations.items() if isinstance(annotations, Mapping) else annotations
    pairs: list[tuple[int, Any]] = []
    for each in given:
        try:
            pair = (each["message_index"], each["kind"]) if isinstance(each, Mapping) else tuple(each)
            index, kind = pair
        except (KeyError, TypeError, ValueError):
            raise TypeError(ANNOTATIONS) from None
        pairs.append((index, kind))
    return pairs


def check_order(policy: Mapping[str, Any]) -> None:
    """Check the order of low- and high-water marks if both are given. With one, the server checks the other.

    Raises:
        ValueError: a low-water mark is above its high-water mark.
    """
    for low, high in (("fit_low", "fit_high"), ("fit_residue_low", "fit_residue_high")):
        least, most = policy.get(low), policy.get(high)
        if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
            raise ValueError(f"policy.{low} is {least}; it may be at most policy.{high}, which is {most}")


def selected(selection: Selection) -> dict[str, Any]:
    """Return the selection as a field of RetrieveContentRequest.

    Raises:
        TypeError: it is not a selection.
    """
    match selection:
        case Lines():
            return {"lines": {"first": selection.first, "last": selection.last}}
        case Bytes():
            return {"bytes": {"start": selection.start, "end": selection.end}}
        case Pattern():
            names = ("expression", "context_lines", "ignore_case")
            return {"pattern": {name: getattr(selection, name) for name in names}}
        case None:
            return {}
        case _:
            raise TypeError(f"selection is a {type(selection).__name__}; it may be Lines, Bytes, a Pattern or None")
