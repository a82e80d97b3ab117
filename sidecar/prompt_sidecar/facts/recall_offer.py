"""Whether a model was offered tools for recall, or why it was not."""

from __future__ import annotations

from enum import StrEnum


class RecallOffer(StrEnum):
    """The values of the header `x-prompt-sidecar-recall` of an answer."""

    OFFERED = "offered"
    """The sidecar's tools are among the request's, or, where an agent or a gateway says so, it offers them itself. A
    request that must call a tool of the agent's, or none, may not call them."""
    NO_TOOLS = "no_tools"
    """The request has no tools that others could join: an agent without tools expects no calls. Nor can they join those
    in an item of the input that the provider stores, as they would be offered from there on."""
    FORCED = "forced"
    """The request wants a call of any tool, so more tools would change its answer, and its provider takes no list of
    those that may be called; and no request of the run had them. The first that leaves the choice free has."""
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
