"""Batch points, and which trims the registry lists."""

from __future__ import annotations

import msgspec

from prompt_sidecar.trim.ledger.messages import Messages


class RegistryState(msgspec.Struct, frozen=True, array_like=True):
    """The batch points so far, and what is listed, as saved."""

    listed: int
    batch_end: int
    batch_group: int
    batches: int
    unfit_since: int
    names: list[tuple[int, int]]
    named: int


class Registry:
    """The values that our own text was last written from."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self.batches = 0
        """Number of batch points."""
        self.listings = 0
        """Number of those at which registry and placeholder were due to be rewritten, in this process."""
        self.batch_end = 0
        """Number of records at the last batch point; 0: there was none."""
        self.batch_group = -1
        """The group before which the registry is placed, in formats that allow it."""
        self.listed = 0
        """The last iteration whose trims the registry lists, where it precedes the history; 0 if none yet."""
        self.unfit_since = 0
        """The iteration of the first batch since which no prompt could be made to fit; 0 if the last one fits."""
        self.names: list[tuple[int, int]] = []
        """Names of hidden content that are listed below the registry, each as a message and an index of its names."""
        self.named = 0
        """Number of records when these names were chosen; 0 if they were not."""

    def rewind(self, length: int) -> None:
        """Forget the messages from `length` on, after `Messages` did."""
        self.batch_end = min(self.batch_end, length)
        self.batch_group = min(self.batch_group, len(self._messages.groups) - 1)
        self.names = [place for place in self.names if place[0] < length]
        self.named = min(self.named, length)

    def save(self) -> RegistryState:
        """Return what is listed."""
        return RegistryState(
            self.listed,
            self.batch_end,
            self.batch_group,
            self.batches,
            self.unfit_since,
            self.names,
            self.named,
        )

    def load(self, state: RegistryState) -> None:
        """Load what is listed elsewhere."""
        self.listed, self.batches, self.unfit_since = state.listed, state.batches, state.unfit_since
        self.batch_end, self.batch_group = state.batch_end, state.batch_group
        # Versions may differ in what counts as a name; a wrong index is another name of the same message.
        records = self._messages.records
        self.names = [(message, name) for message, name in state.names if name < len(records[message].names)]
        self.named = state.named

    def batch(self) -> None:
        """Count a batch point."""
        self.batches += 1

    def rewrite(self, group: int, *, fits: bool) -> None:
        """Mark registry and placeholder as due to be rewritten, the registry before `group`.

        `fits`: whether the prompt fits.
        """
        self.unfit_since = 0 if fits else self._messages.iteration
        self.listings += 1
        self.batch_end = len(self._messages)
        self.batch_group = group

    def list_all(self) -> None:
        """List everything that was trimmed up to now."""
        self.listed = self._messages.iteration

    def choose_names(self, names: list[tuple[int, int]]) -> None:
        """List these names."""
        self.names, self.named = names, len(self._messages)
