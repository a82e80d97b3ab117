"""Measuring one run: its prompts go through the core under each preset, compared with other strategies' cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from prompt_sidecar.app import build_runs
from prompt_sidecar.config.settings import Settings
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.known_models import Models
from prompt_sidecar.facts.money import Money
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.facts.usage_calls import InputCounting, UsageCall
from prompt_sidecar.guard.ceilings import CeilingPrices
from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.report.counted import counted
from prompt_sidecar.report.figures import (
    CutFigures,
    PresetFigures,
    ReportedRun,
    ReportRequest,
    TriedSetting,
    TurnFigures,
)
from prompt_sidecar.report.head import headed
from prompt_sidecar.report.sizes import Sizes, steps
from prompt_sidecar.report.strategies import Cost, StrategyPrompt, charges, control, cost, never
from prompt_sidecar.report.tool_weights import weigh_tools
from prompt_sidecar.report.transcripts.model import RecordedPrompt, Transcript
from prompt_sidecar.tokens.calibration import PLAUSIBLE
from prompt_sidecar.tokens.count import Counter
from prompt_sidecar.trim.entries import Action
from prompt_sidecar.trim.policy import Condense, Policy
from prompt_sidecar.trim.presets import preset

WIDE: Final = 2_000_000_000
"""A window that no prompt fills, for finding a prompt's size."""
LEAST_LIMIT: Final = 256
MOST_CUTS: Final = 5_000
"""Rows of cuts kept for a run: a preset that trims at each call has one to five for each call."""
_KEY: Final = b"the ids of a replay leave no process, so this key need not be secret"
"""Always the same, so that reports of the same run have the same figures."""
_CALLER: Final = "replay"
_ANSWER_BYTES: Final = 1 << 30


CEILINGS: Final = (300_000, 150_000, 100_000, 60_000)
"""Values of `policy.ceiling_tokens` that are tried if a run has larger prompts; docs/report.md explains the choice."""
LEVELS: Final = (Condense.SAFE, Condense.FULL)
"""Values of `policy.condense` that are tried if a run has prompts above the least ceiling; in shorter ones there is
little to save. `exact`, the default, hides nothing."""
UNKNOWN_LIMIT: Final = 0.3
"""Share of the largest prompt that is used as the limit if the model's own limit is requested and unknown."""


def measure(transcript: Transcript, asked: ReportRequest, settings: Settings, counter: Counter) -> ReportedRun:
    """Measure one run.

    Raises:
        SidecarError: the core refuses a prompt, as one that is not in its format.
    """
    known = Models(settings.models)
    model = transcript.model or asked.model
    window = asked.window or known.window(model) or 0
    transcript, head = headed(transcript, partial(size, transcript, model, asked, settings, counter))
    sizes = Sizes(transcript, counter, model)
    largest = _largest(transcript, asked, settings, sizes)
    takes = min(window, known.most_input(model) or window)
    limit = _limit(asked.limit or takes or UNKNOWN_LIMIT, head, largest)
    replays = [_Replay(sizes, limit, window, name) for name in asked.presets]
    for replay in replays:
        replay.run(build_runs(settings, counter))
    first = replays[0]
    estimates = first.before
    own = steps(sizes, estimates, first.factor, head)
    made = steps(sizes, counts(transcript.prompts, estimates), first.factor, head)
    money = Money(CeilingPrices(asked.money or settings.prices), known, settings.currency)
    charged = charges(transcript.prompts, made, window, money, model)

    def priced(sent: list[StrategyPrompt], limit: int = limit) -> Cost:
        return cost(sent, charged, asked.prices, (limit, window))

    def tried(replay: _Replay) -> TriedSetting:
        sent = scaled(replay.sent, replay.before, whole)
        most = replay.limit if replay.limit < WIDE else 0
        spent, plain = priced(sent, most), priced(control(made, replay.ceiling or replay.limit), most)
        seen = sum(one.tokens for one in sent) / (sum(one.tokens for one in whole) or 1)
        return TriedSetting(
            limit=most,
            whole_window=replay.limit == (takes or WIDE),
            cost=spent,
            share=spent.share_of(untrimmed),
            control_share=plain.share_of(untrimmed),
            visible=min(1.0, seen),
            ceiling=replay.ceiling,
            condense=replay.condense,
        )

    whole = never(made)
    untrimmed = priced(whole)
    plain = priced(control(made, limit))
    settings_tried = [tried(first)]
    for other in _others(sizes, asked, settings, (limit, takes, largest, window)):
        other.run(build_runs(settings, counter))
        settings_tried.append(tried(other))
    settings_tried.sort(key=lambda one: (bool(one.ceiling or one.condense), bool(one.limit) and not one.whole_window))
    presets = [
        PresetFigures(one.preset, spent, spent.share_of(untrimmed), [turn.after for turn in one.turns])
        for one in replays
        for spent in [priced(scaled(one.sent, one.before, whole))]
    ]
    return ReportedRun(
        name=transcript.name,
        source=transcript.source,
        form=transcript.form,
        model=model,
        limit=limit,
        window=window,
        never=untrimmed,
        control=plain,
        control_share=plain.share_of(untrimmed),
        presets=presets,
        turns=first.turns,
        cuts=first.cuts,
        tools=weigh_tools(sizes, first.saved),
        counted=counted(transcript.prompts, never(own), charged, asked.prices),
        missing=transcript.missing,
        head=head,
        settings=settings_tried,
        fits=not all(
            one.over_limit
            for one in [*(one.cost for one in settings_tried if one.limit), *(one.cost for one in presets)]
        ),
        currency=money.currency,
        ceilings_ignored=not policy_of(settings, asked.presets[0]).cuts_in_batches,
        project=transcript.project,
        date=transcript.date,
    )


def _others(
    sizes: Sizes, asked: ReportRequest, settings: Settings, tokens: tuple[int, int, int, int]
) -> Iterator[_Replay]:
    """Yield other settings to try; `tokens`: requested limit, model's limit, largest prompt, window."""
    limit, takes, largest, window = tokens
    name = asked.presets[0]
    if takes and takes != limit:
        yield _Replay(sizes, takes, window, name)
    elif not takes and largest > CEILINGS[-1]:
        yield _Replay(sizes, WIDE, window, name)
    whole = takes or WIDE
    if policy_of(settings, name).cuts_in_batches:
        for ceiling in CEILINGS:
            if ceiling < min(largest, whole):
                yield _Replay(sizes, whole, window, name, ceiling=ceiling)
    for level in LEVELS if largest > CEILINGS[-1] else ():
        yield _Replay(sizes, whole, window, name, condense=level.value)


def policy_of(settings: Settings, name: str) -> Policy:
    """Return the policy of a preset with the settings' overrides."""
    return preset(name).override(settings.policy_overrides)


def counts(prompts: Sequence[RecordedPrompt], estimates: Sequence[int]) -> list[int]:
    """Return the tokens of each prompt: the provider's counts if the file has them, else estimates.

    Counts that cannot belong to the prompts, as when a file was assembled from others, are not used at all.
    """
    pairs = list(zip((prompt.usage for prompt in prompts), estimates, strict=True))
    for used, estimate in pairs:
        if used is not None and not estimate / PLAUSIBLE <= used.input <= estimate * PLAUSIBLE:
            return list(estimates)
    return [estimate if used is None else used.input for used, estimate in pairs]


@dataclass(slots=True)
class _Replay:
    """A run under one preset."""

    sizes: Sizes
    limit: int
    window: int
    preset: str
    ceiling: int = 0
    """`policy.ceiling_tokens`; 0: as in the settings."""
    condense: str = ""
    """`policy.condense`; empty: as in the settings."""
    turns: list[TurnFigures] = field(default_factory=list)
    cuts: list[CutFigures] = field(default_factory=list)
    saved: dict[tuple[int, int], int] = field(default_factory=dict)
    """Tokens that trimming has saved of each item, by message (its object's id) and item."""
    factor: float = 1.0

    @property
    def sent(self) -> list[StrategyPrompt]:
        """The returned prompts, by the sidecar's count."""
        return [StrategyPrompt(turn.after, turn.kept, turn.batch_point) for turn in self.turns]

    @property
    def before(self) -> list[int]:
        """Tokens of the untrimmed prompts."""
        return [turn.before for turn in self.turns]

    def run(self, runs: Runs) -> None:
        """Send every prompt."""
        transcript, model = self.sizes.transcript, self.sizes.model
        for turn, prompt in enumerate(transcript.prompts, start=1):
            call = _call(transcript, prompt, model, self.limit, self.preset)
            answer = runs.trim(replace(call, policy=self._policy()), _never)
            if prompt.usage is not None:
                runs.report_usage(_reported(answer, prompt.usage.input))
            self.factor = answer.tokens.factor
            self.turns.append(self._turn(turn, prompt, answer))
            self._cut(turn, prompt, answer)

    def _policy(self) -> dict[str, object]:
        ceiling = {"ceiling_tokens": self.ceiling} if self.ceiling else {}
        return {**ceiling, **({"condense": Condense(self.condense)} if self.condense else {})}

    def _turn(self, turn: int, prompt: RecordedPrompt, answer: TrimAnswer) -> TurnFigures:
        used = prompt.usage
        return TurnFigures(
            turn=turn,
            messages=len(prompt.messages),
            before=answer.tokens.before,
            after=answer.tokens.after,
            kept=answer.cache.kept,
            trims=len(answer.trimmed.trims),
            batch_point=answer.cache.batch_point,
            fits=answer.fits,
            no_fit_reason=answer.no_fit.value if answer.no_fit else "",
            refused=bool(self.window) and answer.tokens.before > self.window,
            counted=used.input if used else 0,
            counted_cached=used.cached if used else 0,
        )

    def _cut(self, turn: int, prompt: RecordedPrompt, answer: TrimAnswer) -> None:
        found: dict[tuple[Action, ItemKind], list[int]] = {}
        leading = self.sizes.leading(prompt) if answer.news.trims else 0
        for trim in answer.news.trims:
            tally = found.setdefault((trim.action, trim.kind), [0, 0])
            tally[0] += 1
            tally[1] += trim.tokens_saved
            item = (id(prompt.messages[leading + trim.message_index]), trim.item_index)
            self.saved[item] = self.saved.get(item, 0) + trim.tokens_saved
        if len(self.cuts) < MOST_CUTS:
            self.cuts += [
                CutFigures(turn, action.value, kind.value, items, tokens, answer.cache.batch_point)
                for (action, kind), (items, tokens) in found.items()
            ]


def scaled(
    sent: Sequence[StrategyPrompt], before: Sequence[int], untrimmed: Sequence[StrategyPrompt]
) -> list[StrategyPrompt]:
    """Return the returned prompts in the provider's tokens, if it counted the untrimmed ones.

    What is new in a prompt is new in the untrimmed one as well: less would be a counting error, not a saving.

    Args:
        sent: the returned prompts, by the sidecar's count.
        before: tokens of the untrimmed ones, by the same count.
        untrimmed: these, as the provider counted them.
    """
    made: list[StrategyPrompt] = []
    for one, count, other in zip(sent, before, untrimmed, strict=True):
        ratio = other.tokens / count if count else 1.0
        tokens = round(one.tokens * ratio)
        new = max(other.tokens - other.kept, tokens - round(one.kept * ratio))
        made.append(StrategyPrompt(tokens, max(0, tokens - new), one.cut))
    return made


def reported_tokens(before: int, after: int, counted: int) -> int:
    """Return what the provider would have counted for a returned prompt, from its count of the untrimmed one."""
    return round(after * counted / before) if before else counted


def _reported(answer: TrimAnswer, counted: int) -> UsageCall:
    """Return the report that an agent would have made: the tokenizer's factor is learned from it, as in the run."""
    return UsageCall(
        _CALLER,
        _CALLER,
        input_tokens=reported_tokens(answer.tokens.before, answer.tokens.after, counted),
        counting=InputCounting.WITH_CACHED,
        revision=answer.prompt.revision,
    )


def _limit(asked: float, head: int, largest: int) -> int:
    """Return the limit in tokens; a share is of the largest prompt's part above the head, which cannot be trimmed."""
    return int(asked) if asked >= 1 else max(LEAST_LIMIT, int(head + asked * max(0, largest - head)))


def _largest(transcript: Transcript, asked: ReportRequest, settings: Settings, sizes: Sizes) -> int:
    """Return the tokens of the run's largest prompt."""
    counted = max((prompt.usage.input for prompt in transcript.prompts if prompt.usage is not None), default=0)
    largest = max(transcript.prompts, key=lambda prompt: sum(sizes.tokens(prompt)))
    return counted or size(transcript, sizes.model, asked, settings, sizes.counter, largest)[0]


def size(  # noqa: PLR0917 - what a call of the core takes
    transcript: Transcript,
    model: str,
    asked: ReportRequest,
    settings: Settings,
    counter: Counter,
    prompt: RecordedPrompt,
) -> tuple[int, float]:
    """Return a prompt's tokens by the sidecar's count, and the factor that is included in them."""
    call = _call(transcript, prompt, model, WIDE, asked.presets[0], dry_run=True)
    tokens = build_runs(settings, counter).trim(call, _never).tokens
    return tokens.before, tokens.factor


def _call(
    transcript: Transcript, prompt: RecordedPrompt, model: str, limit: int, preset: str, *, dry_run: bool = False
) -> TrimCall:
    return TrimCall(
        caller=_CALLER,
        run_id=_CALLER,
        format=transcript.form,
        body=prompt.body(transcript.form),
        model=prompt.model or model,
        context_window=limit,
        output_reserve=0,
        preset=preset,
        accept_bytes=_ANSWER_BYTES,
        dry_run=dry_run,
    )


def settings_for_replay(settings: Settings) -> Settings:
    """Return the settings with a constant key, so that the same run has the same figures, and in the mode `active`."""
    return replace(settings, key=_KEY, mode="active")


def _never() -> None:
    """Check nothing: the call cannot be cancelled."""
