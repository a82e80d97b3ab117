"""The headers between an agent and a door: what the agent says of its prompt, and what the sidecar did to it."""

from __future__ import annotations

import base64
from typing import Final

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
REVISION: Final = PREFIX + "revision"
"""A run's decisions, in Base64."""
TOKEN: Final = PREFIX + "token"
"""The sidecar's own token, where the usual header carries the provider's."""
RECALL: Final = PREFIX + "recall"
"""Of a request: that the model has tools for recall. Of an answer: whether it was offered the sidecar's, or why not."""
UNTRIMMED: Final = PREFIX + "untrimmed"
"""Of an answer: why its request went on untrimmed; absent where the prompt was trimmed."""
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
    return told


def handled(untrimmed: Untrimmed | None, recall: RecallOffer | None) -> dict[str, str]:
    """Return the headers that tell what was done about a request: `Handled` has what the values mean."""
    told = {} if recall is None else {RECALL: recall.value}
    return told if untrimmed is None else {**told, UNTRIMMED: untrimmed.value}


def revision(answer: TrimAnswer) -> dict[str, str]:
    """Return the header with the run's decisions; none where it would be too long."""
    text = base64.b64encode(answer.prompt.revision).decode()
    return {REVISION: text} if len(text) <= _LONGEST_REVISION else {}
