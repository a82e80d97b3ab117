"""Whether a model was offered tools for recall, or why it was not."""

from __future__ import annotations

from enum import StrEnum


class RecallOffer(StrEnum):
    """The values of the header `x-prompt-sidecar-recall` of an answer."""

    OFFERED = "offered"
    """The sidecar's tools are among the request's, or an agent or gateway declares that it offers them itself. A
    request that must call a tool of the agent's, or none, may not call them."""
    NO_TOOLS = "no_tools"
    """The request has no tools to which the sidecar's could be added: an agent without tools expects no calls. Nor can
    they be added to tools in an input item that the provider stores, as they would be offered in all later requests."""
    FORCED = "forced"
    """The request demands a call of any tool, so more tools would change its answer, its provider accepts no list of
    allowed tools, and no earlier request of the run had them. The first request with a free choice gets them."""
    SEVERAL_ANSWERS = "several_answers"
    """The run's first request with tools asks for several answers: there would not be one call to answer."""
    UNREADABLE = "unreadable"
    """Calls cannot be answered in the form in which the provider sends them: an array in pieces, arguments in pieces,
    or later."""
    OBSERVING = "observing"
    """The sidecar only observes."""
    UNTRIMMED = "untrimmed"
    """The prompt is forwarded unchanged, as another header shows."""
    UNAVAILABLE = "unavailable"
    """The agent or gateway has given the model no tools for recall, and the sidecar adds none there."""
