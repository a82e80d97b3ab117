"""The window of a prompt's model, as its run first found it, and the limit that follows from it.

What is looked up of a model (in the settings and the catalogue, or by what refusals have taught its caller) holds for a
run from the run's first prompt for that model on, as the settings' `policy.ceiling_tokens` does. It is carried in the
revision, so that another catalogue, other settings, or a replica of another release change no prompt of a run that is
under way. What the agent says with a prompt, a window, a reserve or a ceiling, is not looked up: it holds for that
prompt, as always.

A prompt goes by the window of the model that it is for. To a model with a smaller window it is cut only if it does not
fit there; for one with a larger window nothing is written again, as a limit that rises takes nothing back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

MODELS_OF_RUN: Final = 16
"""Models of one run whose windows are kept: a main model, those of side calls, and some that a user has tried. Of any
further one the window is looked up at each prompt."""
BOUND: Final = "run.models"
"""What it is counted as when it is reached."""
_DIGEST_BYTES: Final = 8

Carried = tuple[bytes, int, int, int, int]
"""A window in a revision: digest of the model's name, then the fields of `Window` in order."""


@dataclass(frozen=True, slots=True)
class Window:
    """What is known of a model's window. Tokens; 0: nothing."""

    known: int = 0
    """Prompt and answer together, by the settings or the catalogue."""
    most_input: int = 0
    """What a prompt may take whatever answer is asked for."""
    default: int = 0
    """What is assumed where neither the agent nor anything else says it."""
    taught: int = 0
    """Of a model that is not known: what refusals have said to its caller."""

    def of(self, asked: int) -> int:
        """The window in force, given the one that the agent asks for; 0: none."""
        named = [tokens for tokens in (asked, self.known) if tokens] or [self.default]
        return min(*named, self.taught) if self.taught else min(named)

    def assumed(self, asked: int) -> bool:
        """Whether neither the agent nor anything that is known says the window."""
        return not (asked or self.known)

    def limit(self, asked: int, reserve: int) -> int:
        """What a prompt may take, with `reserve` kept free for the answer."""
        left = self.of(asked) - reserve
        return min(left, self.most_input) if self.most_input else left


class RunWindows:
    """The windows of the models that a run's prompts were for. Not thread-safe: a run is used under its lock."""

    def __init__(self) -> None:
        self._windows: dict[bytes, Window] = {}
        self.ceiling: int | None = None
        """The settings' `policy.ceiling_tokens` at the run's first prompt; None: each had one of the agent's own."""

    def find(self, model: str) -> Window | None:
        """The window as the run first found it; None: no prompt was for that model."""
        return self._windows.get(_digest(model))

    def keep(self, model: str, window: Window) -> bool:
        """Keep what was found for a prompt that is returned, unless it is known; return whether there is room."""
        if len(self._windows) >= MODELS_OF_RUN and _digest(model) not in self._windows:
            return False
        self._windows.setdefault(_digest(model), window)
        return True

    def carried(self, model: str, window: Window) -> list[Carried]:
        """All windows, with that of the prompt at hand, for its revision."""
        windows = self._windows
        if len(windows) < MODELS_OF_RUN:
            windows = {_digest(model): window, **windows}
        return [(digest, each.known, each.most_input, each.default, each.taught) for digest, each in windows.items()]

    def take_over(self, carried: Iterable[Carried], ceiling: int | None) -> None:
        """Keep what another process found for earlier prompts of the run."""
        self.ceiling = ceiling if self.ceiling is None else self.ceiling
        for digest, *tokens in carried:
            if len(self._windows) < MODELS_OF_RUN:
                self._windows.setdefault(digest, Window(*tokens))


def _digest(model: str) -> bytes:
    return sha256(model.lower().encode(errors="surrogatepass")).digest()[:_DIGEST_BYTES]
