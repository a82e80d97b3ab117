"""The headers between an agent and a door: what the agent says of its prompt, and what the sidecar did to it."""

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
"""What they begin with; no provider sees one."""
RUN: Final = PREFIX + "run"
WINDOW: Final = PREFIX + "context-window"
"""Tokens of the model's window, where the agent knows better."""
WINDOW_ASSUMED: Final = PREFIX + "window"
"""Of an answer: `assumed`, where the window is `limits.default_window`; else it is absent."""
PROTECTED_LEAVES: Final = PREFIX + "protected-leaves"
"""Of an answer: tokens that the protected text leaves, where that is too little for cuts to be useful; else absent."""
REVISION: Final = PREFIX + "revision"
"""A run's decisions, in Base64."""
TOKEN: Final = PREFIX + "token"
"""The sidecar's own token, where the usual header carries the provider's."""
RECALL: Final = PREFIX + "recall"
"""Of a request: that the model has tools for recall. Of an answer: whether it was offered the sidecar's, or why not."""
UNTRIMMED: Final = PREFIX + "untrimmed"
"""Of an answer: why its request went on untrimmed; absent where the prompt was trimmed."""
STOPPING: Final = PREFIX + "stopping"
"""Of a 503: `true`, as the sidecar stops and has not begun the request, so a load balancer may repeat it elsewhere."""
PIN: Final = PREFIX + "pin"
"""Of a request: indices of messages that no cut may touch, from 0; negative ones from the end, -1 the newest."""
MOST_PINS: Final = 256
"""Indices in one header. Their digits are a hundredth of what a header may have; agents pin one to ten messages."""
_INDEX: Final = re.compile(r"-?[0-9]{1,9}")
_LONGEST_REVISION: Final = 4_000
"""Characters of a revision in a header: clients take some 8,000 for all headers together."""


def facts(answer: TrimAnswer) -> dict[str, str]:
    """Return the headers that tell an agent what was done to its prompt."""
    told = {
        PREFIX + "tokens-before": str(answer.tokens.before),
        PREFIX + "tokens-after": str(answer.tokens.after),
        PREFIX + "limit": str(answer.tokens.limit),
        PREFIX + "trims": str(len(answer.trimmed.trims)),
        PREFIX + "fits": "true" if answer.fits else "false",
    }
    if answer.tokens.window_assumed:
        told[WINDOW_ASSUMED] = "assumed"
    if answer.tokens.protected_leaves is not None:
        told[PROTECTED_LEAVES] = str(answer.tokens.protected_leaves)
    return told


def handled(untrimmed: Untrimmed | None, recall: RecallOffer | None) -> dict[str, str]:
    """Return the headers that tell what was done about a request: `Handled` has what the values mean."""
    told = {} if recall is None else {RECALL: recall.value}
    return told if untrimmed is None else {**told, UNTRIMMED: untrimmed.value}


def pinned(headers: Mapping[str, str], count: Callable[[], int]) -> frozenset[int]:
    """Return the indices of the messages that a request pins, from 0.

    Args:
        headers: the request's.
        count: asked for the number of its messages, where it pins any.

    Raises:
        InvalidRequest: the header is no list of indices, or names a message that is not there.
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
    """Return the header with the run's decisions; none where it would be too long."""
    text = base64.b64encode(answer.prompt.revision).decode()
    return {REVISION: text} if len(text) <= _LONGEST_REVISION else {}
