"""The headers between an agent and a door: what the agent states about its prompt, and what the sidecar did to it."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Final

from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.facts.untrimmed import Untrimmed

PREFIX: Final = "x-prompt-sidecar-"
"""Prefix of these headers; they are not forwarded to providers."""
RUN: Final = PREFIX + "run"
WINDOW: Final = PREFIX + "context-window"
"""Request: tokens of the model's window, if the agent knows it better."""
WINDOW_ASSUMED: Final = PREFIX + "window"
"""Response: `assumed`, if the window is `limits.default_window`; absent otherwise."""
PROTECTED_LEAVES: Final = PREFIX + "protected-leaves"
"""Response: tokens that the protected text leaves, if they are too few for cuts to be useful; absent otherwise."""
REVISION: Final = PREFIX + "revision"
"""Both: a run's decisions, in Base64."""
TOKEN: Final = PREFIX + "token"
"""Request: the sidecar's own token, if the usual header has the provider's credential."""
RECALL: Final = PREFIX + "recall"
"""Request: that the model has tools for recall. Response: whether the model was offered the sidecar's, or why not."""
UNTRIMMED: Final = PREFIX + "untrimmed"
"""Response: why its request was forwarded untrimmed; absent if the prompt was trimmed."""
STOPPING: Final = PREFIX + "stopping"
"""Response with status 503: `true`, as the sidecar is stopping and has not begun the request, so that a load balancer
may send it elsewhere."""
PIN: Final = PREFIX + "pin"
"""Request: indices of messages that no cut may change, from 0; negative ones count from the end, -1 the newest."""
MOST_PINS: Final = 256
"""Indices in one header, at most. Their digits take a hundredth of a header's limit; agents pin one to ten messages."""
_INDEX: Final = re.compile(r"-?[0-9]{1,9}")
_LONGEST_REVISION: Final = 4_000
"""Longest revision in a header, in characters: clients accept some 8,000 for all headers together."""


def facts(answer: TrimAnswer) -> dict[str, str]:
    """Return the headers that report to an agent what was done to its prompt."""
    headers = {
        PREFIX + "tokens-before": str(answer.tokens.before),
        PREFIX + "tokens-after": str(answer.tokens.after),
        PREFIX + "limit": str(answer.tokens.limit),
        PREFIX + "trims": str(len(answer.trimmed.trims)),
        PREFIX + "fits": "true" if answer.fits else "false",
    }
    if answer.tokens.window_assumed:
        headers[WINDOW_ASSUMED] = "assumed"
    if answer.tokens.protected_leaves is not None:
        headers[PROTECTED_LEAVES] = str(answer.tokens.protected_leaves)
    return headers


def handled(untrimmed: Untrimmed | None, recall: RecallOffer | None) -> dict[str, str]:
    """Return the headers that report what was done about a request; for the values see `Handled`."""
    headers = {} if recall is None else {RECALL: recall.value}
    return headers if untrimmed is None else {**headers, UNTRIMMED: untrimmed.value}


def pinned(headers: Mapping[str, str], count: Callable[[], int]) -> frozenset[int]:
    """Return the indices of the messages that a request pins, from 0.

    Args:
        headers: of the request.
        count: returns the number of its messages; called if it pins any.

    Raises:
        InvalidRequest: the header is not a list of indices, or an index is out of range.
    """
    text = headers.get(PIN, "").strip()
    if not text:
        return frozenset()
    given = [each.strip() for each in text.split(",", MOST_PINS)]
    if len(given) > MOST_PINS or not all(map(_INDEX.fullmatch, given)):
        raise InvalidRequest(f"{PIN} must be at most {MOST_PINS} indices of messages, such as 0,3 or -1", field=PIN)
    messages = count()
    indices = frozenset(index if index >= 0 else messages + index for index in map(int, given))
    if wrong := [index for index in indices if not 0 <= index < messages]:
        raise InvalidRequest(
            f"{PIN} names message {min(wrong)}; the request has {messages}, of which the first is 0", field=PIN
        )
    return indices


def revision(answer: TrimAnswer) -> dict[str, str]:
    """Return the header with the run's decisions; empty if the header would be too long."""
    text = base64.b64encode(answer.prompt.revision).decode()
    return {REVISION: text} if len(text) <= _LONGEST_REVISION else {}
