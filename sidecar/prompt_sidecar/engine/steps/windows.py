"""The window of a prompt's model, as its run first found it, and the limit that follows from it.

A model's window (from the settings and the catalogue, or learned from refusals to its caller) holds for a run from the
run's first prompt for that model on, as the settings' `policy.ceiling_tokens` does. It is carried in the revision, so
that another catalogue, other settings, or a replica of another release change no prompt of a run that is under way. A
window, reserve or ceiling that the agent sends with a prompt is not looked up: it applies to that prompt only.

A prompt is limited by the window of the model that it is for. For a model with a smaller window it is cut only if it
does not fit; for one with a larger window nothing is restored, as a higher limit undoes no trims.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

MODELS_OF_RUN: Final = 16
"""Models of one run whose windows are kept: a main model, those of side calls, and some that a user has tried. The
window of any further model is looked up at each prompt."""
BOUND: Final = "run.models"
"""The name under which this limit is counted when it is reached."""
_DIGEST_BYTES: Final = 8

Carried = tuple[bytes, int, int, int, int]
"""A window in a revision: digest of the model's name, then the fields of `Window` in order."""


@dataclass(frozen=True, slots=True)
class Window:
    """What is known of a model's window. Tokens; 0 if unknown."""

    known: int = 0
    """Prompt and answer together, by the settings or the catalogue."""
    most_input: int = 0
    """The most that a prompt may take, however short an answer is requested."""
    default: int = 0
    """The assumed window if neither the agent nor any other source gives one."""
    taught: int = 0
    """The window of an unknown model, by refusals that its caller reported."""

    def of(self, asked: int) -> int:
        """Return the window in force, from the one that the agent asks for; 0 if there is none."""
        named = [tokens for tokens in (asked, self.known) if tokens] or [self.default]
        return min(*named, self.taught) if self.taught else min(named)

    def assumed(self, asked: int) -> bool:
        """Whether the window is neither requested by the agent nor known."""
        return not (asked or self.known)

    def limit(self, asked: int, reserve: int) -> int:
        """Return a prompt's limit, with `reserve` kept free for the answer."""
        left = self.of(asked) - reserve
        return min(left, self.most_input) if self.most_input else left


class RunWindows:
    """The windows of the models of a run's prompts. Not thread-safe: a run is used under its lock."""

    def __init__(self) -> None:
        self._windows: dict[bytes, Window] = {}
        self.ceiling: int | None = None
        """The settings' `policy.ceiling_tokens` at the run's first prompt; None: each prompt had its agent's own."""

    def find(self, model: str) -> Window | None:
        """Return the window that the run first found, or None if no prompt was for that model."""
        return self._windows.get(_digest(model))

    def keep(self, model: str, window: Window) -> bool:
        """Keep the window of a returned prompt, unless it is kept already. Returns whether there is room."""
        if len(self._windows) >= MODELS_OF_RUN and _digest(model) not in self._windows:
            return False
        self._windows.setdefault(_digest(model), window)
        return True

    def carried(self, model: str, window: Window) -> list[Carried]:
        """Return all windows, including the current prompt's, for its revision."""
        windows = self._windows
        if len(windows) < MODELS_OF_RUN:
            windows = {_digest(model): window, **windows}
        return [(digest, each.known, each.most_input, each.default, each.taught) for digest, each in windows.items()]

    def take_over(self, carried: Iterable[Carried], ceiling: int | None) -> None:
        """Keep the windows that another process found for earlier prompts of the run."""
        self.ceiling = ceiling if self.ceiling is None else self.ceiling
        for digest, *tokens in carried:
            if len(self._windows) < MODELS_OF_RUN:
                self._windows.setdefault(digest, Window(*tokens))


def _digest(model: str) -> bytes:
    return sha256(model.lower().encode(errors="surrogatepass")).digest()[:_DIGEST_BYTES]
