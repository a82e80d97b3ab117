"""Whether a model was offered tools for recall, or why it was not."""

from __future__ import annotations

from enum import StrEnum


class RecallOffer(StrEnum):
    """The values of the header `x-prompt-sidecar-recall` of an answer."""

    OFFERED = "offered"
    """By the sidecar, or, where an agent or a gateway says so, by them."""
    NO_TOOLS = "no_tools"
    """The request has no tools that others could join: an agent without tools expects no calls. Nor can they join those
    in an item of the input that the provider stores, as they would be offered from there on."""
    FORCED = "forced"
    """The run's first request with tools says which are called, or that none is: more tools would change its answer."""
    SEVERAL_ANSWERS = "several_answers"
    """The run's first request with tools asks for several answers: there would be no one call to answer."""
    UNREADABLE = "unreadable"
    """Calls cannot be answered in what the provider sends: an array in pieces, arguments in pieces, or later."""
    OBSERVING = "observing"
    """The sidecar only observes."""
    UNTRIMMED = "untrimmed"
    """The prompt goes on as it came, as another header says."""
    UNAVAILABLE = "unavailable"
    """The agent or gateway has given the model no tools for recall, and the sidecar adds none there."""
