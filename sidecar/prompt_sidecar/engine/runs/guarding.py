"""The guard of all runs: the rules in force for a caller, the values behind masks, and which may be restored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from time import thread_time
from typing import Final

from prompt_sidecar.engine.runs.metering import Rules
from prompt_sidecar.engine.runs.run import Run
from prompt_sidecar.engine.steps.opening import OpenedPrompt
from prompt_sidecar.engine.steps.received import Sighting
from prompt_sidecar.facts.guard_calls import (
    Finding,
    FindingAction,
    MaskAnswer,
    MaskCall,
    RestoreCall,
    RestoredArguments,
)
from prompt_sidecar.facts.trim_calls import TrimCall
from prompt_sidecar.guard import lookalikes
from prompt_sidecar.guard.masking import Masker, RunGuard
from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.guard.restoring import restore
from prompt_sidecar.guard.rules import RuleSet, default_rules
from prompt_sidecar.guard.scanner import Watch
from prompt_sidecar.guard.vault import Value, Vault
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.recall.counts import EventCounts
from prompt_sidecar.trim.ids import sealed

SCAN_CLOCK: Final = thread_time
"""Measures `guard.scan_seconds`. Processor time, as wall-clock time on a busy machine would let a secret pass."""
MOST_RULES: Final = 64
"""Compiled rule sets that are kept, each some megabytes: few callers have rules of their own."""
LOOKALIKES: Final = frozenset(rule.name for rule in lookalikes.RULES)
OUTSIDE_REPORTED: Final = 256
"""Findings outside the history that a run remembers as reported, so that each is counted once; some runs have ten."""


@dataclass(frozen=True, slots=True)
class Filled:
    """Calls' arguments with values in place of masks."""

    calls: Sequence[RestoredArguments]
    missing: Sequence[str]
    """Ids of the masks whose values are not known, each once."""
    filled: Sequence[Value]
    """The values that were put in place of masks, each once."""


class Guarding:
    """See the module's docstring. Thread-safe except for a run's own state, which the run's lock guards."""

    def __init__(self, rules: Rules, vault: Vault, bounds: EventCounts[str], *, keeps_values: bool = False) -> None:
        """Take the settings, the vault for values, and the counter of resource limits that were reached.

        `keeps_values`: whether the archive has values, so that one may be found that this process does not know yet.
        """
        self._keeps_values = keeps_values
        self._settings = rules
        self.vault = vault
        self._bounds = bounds
        self.masks_for("")  # a mistake in the rules is found at the start

    def prepare(self) -> None:
        """Compile the rules of all callers without settings of their own, ahead of the first prompt."""
        options = self._settings.of("").guard
        _rules(options, masks=options.mode == ENFORCE).prepare()

    def masks_for(self, caller: str) -> bool:
        """Whether the settings mask a caller's prompts."""
        options = self._settings.of(caller).guard
        rules = _rules(options, masks=options.mode == ENFORCE)
        return options.mode == ENFORCE and rules.changes_text

    def digest(self, run: Run, caller: str) -> bytes:
        """Return the digest of the rules by which a run is masked; empty if it is not masked."""
        return _rules(self._settings.of(caller).guard, masks=True).digest if run.guard.masks else b""

    def masker(self, run: Run, caller: str, was_masked: Callable[[], bool] = lambda: False) -> Masker | None:
        """Return the masker for a run's texts, or None if there are no rules.

        A run's first call decides whether it is masked.

        `was_masked`: whether another process masked it.
        """
        if not run.calls and not run.guard.masks:
            run.guard.masks = self.masks_for(caller) or was_masked()
        options = self._settings.of(caller).guard
        rules = _rules(options, masks=run.guard.masks)
        if not rules.rules and not run.guard.masks:
            return None
        return Masker(
            rules,
            self.vault,
            run.stash_key,
            run.key,
            run.guard,
            watch=Watch(SCAN_CLOCK, options.scan_seconds),
            reached=self._bounds.add,
            fail_closed=options.fail_closed and options.mode == ENFORCE,
            knows=run.calls > 0,
        )

    def unread(self, caller: str) -> str:
        """Return how a caller's unreadable requests are handled; empty if nothing is masked, so nothing is read."""
        return self._settings.of(caller).guard.unread if self.masks_for(caller) else ""

    def mask(self, run: Run | None, keys: Sequence[bytes], call: MaskCall, check: Callable[[], None]) -> MaskAnswer:
        """Mask a body that is not a prompt.

        Args:
            run: its known values are masked too, and it gets the values that are found; None: values are not kept.
            keys: the run's keys; the first one makes new masks.
            call: the body.
            check: called now and then; what it raises ends the call.

        Raises:
            GuardRefused, InvalidJson, TooLarge: as `Masker.mask_body`.
        """
        options = self._settings.of(call.caller).guard
        own = Vault(options.run_vault_bytes, options.run_vault_bytes, self._bounds.add)
        masker = Masker(
            _rules(options, masks=True),
            own if run is None else self.vault,
            "" if run is None else run.stash_key,
            keys[0],
            RunGuard(keys[1:], masks=True),
            watch=Watch(SCAN_CLOCK, options.scan_seconds),
            reached=self._bounds.add,
            fail_closed=options.fail_closed,
        )
        format_ = FORMATS.get(call.format)
        texts = () if format_ is None else (format_.messages_field, *(format_.system.names if format_.system else ()))
        try:
            body, noted = masker.mask_body(call.body, texts, check)
        except BaseException:
            masker.take_back()
            raise
        return MaskAnswer(
            body, [Finding(each.rule, FindingAction(each.action.value), -1, -1, each.count) for each in noted]
        )

    def findings(self, run: Run, opened: OpenedPrompt, call: TrimCall) -> Sequence[Finding]:
        """Return what the guard found in the new parts of a prompt.

        Where the run has forgotten its history and reads it again, findings that an earlier answer reported are left
        out.
        """
        received, ledger, known = opened.memory.received, opened.memory.ledger, opened.guard.recorded
        if call.side_call or received is None:
            return ()
        since = run.answered_iteration if opened.continues and not known else 0
        found: list[Finding] = []
        for each in opened.guard.sightings:
            place = received.rows[each.message].place if 0 <= each.message < len(received.rows) else -1
            if place < 0:
                if each.message >= 0 and each.rule in LOOKALIKES:
                    continue  # our own text sent back by the agent, or the agent's system prompt
                if self._is_new_outside(run, each, call):
                    found.append(finding_of(each, -1))
            elif place >= known and max(ledger.records[place].group + 1, 1) >= since:
                found.append(finding_of(each, place))
        return found

    def restores(self, run: Run, caller: str) -> bool:
        """Whether a run has masks whose values the settings allow to be given to a tool."""
        known = self._keeps_values or self.vault.has_values(run.stash_key)
        return bool(self._settings.of(caller).guard.restore) and known

    def restore(self, run: Run | None, call: RestoreCall) -> Filled:
        """Replace masks in calls' arguments by their values; without a run no value is known."""
        pairs = self._settings.of(call.caller).guard.restore
        missing: dict[str, None] = {}
        values: dict[str, Value] = {}

        def value(mask_id: str) -> Value | None:
            known = None if run is None else self.vault.get(run.stash_key, mask_id, run.guard.other_keys)
            if known is None:
                missing[mask_id] = None
            return known

        done: list[RestoredArguments] = []
        for each in call.calls:
            filled = restore(each.arguments, each.tool, pairs, value)
            left = sum(filled.not_allowed.values())
            kinds = dict(filled.restored)
            unknown = tuple(filled.unknown_masks)
            values.update(filled.filled)
            done.append(RestoredArguments(filled.arguments, sum(kinds.values()), left, filled.unknown, kinds, unknown))
        return Filled(done, tuple(missing), tuple(values.values()))

    @staticmethod
    def _is_new_outside(run: Run, each: Sighting, call: TrimCall) -> bool:
        """Whether a finding in a system prompt or a member of the body has not been reported yet."""
        reported = run.guard.reported
        digest = sealed(run.key, f"{each.member} {each.rule} {each.action} {each.times}".encode())
        if digest in reported:
            return False
        if not call.dry_run:
            reported[digest] = None
            while len(reported) > OUTSIDE_REPORTED:
                del reported[next(iter(reported))]
        return True


@lru_cache(MOST_RULES)
def _compiled(options: GuardOptions) -> RuleSet:
    return default_rules(options)


def _rules(options: GuardOptions, *, masks: bool) -> RuleSet:
    """Compile the rules of some settings; `masks`: treat the mode as `enforce`."""
    mode = ENFORCE if masks else options.mode
    return _compiled(
        GuardOptions(
            mode=mode,
            actions=tuple(options.actions),
            rules=tuple(options.rules),
            rule_files=tuple(options.rule_files),
        )
    )


def finding_of(each: Sighting, place: int) -> Finding:
    """A finding at a place in the history; -1 if it is outside."""
    return Finding(each.rule, FindingAction(each.action.value), place, each.item if place >= 0 else -1, each.times)
