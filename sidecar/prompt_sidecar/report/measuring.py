"""One run measured: its prompts through the core under each preset, compared with what other strategies cost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from prompt_sidecar.app import build_runs
from prompt_sidecar.config.settings import Settings
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.known_models import Models
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.guard.ceilings import Prices
from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.report.counted import counted
from prompt_sidecar.report.figures import Asked, Cut, PresetFigures, RunFigures, Turn
from prompt_sidecar.report.sizes import Sizes, steps
from prompt_sidecar.report.strategies import Cost, Sent, charges, control, cost, never
from prompt_sidecar.report.tool_weights import weigh_tools
from prompt_sidecar.report.transcripts.model import Prompt, Transcript
from prompt_sidecar.tokens.count import Counter
from prompt_sidecar.trim.entries import Action

WIDE: Final = 2_000_000_000
"""A window that no prompt fills, to learn a prompt's size."""
LEAST_LIMIT: Final = 256
MOST_CUTS: Final = 5_000
"""Rows of cuts kept of a run: a preset that trims at each call has one to five a call."""
_KEY: Final = b"the ids of a replay leave no process, so this key need not be secret"
"""The same at each time, so that a report of the same run has the same figures."""
_CALLER: Final = "replay"
_ANSWER_BYTES: Final = 1 << 30


def measure(transcript: Transcript, asked: Asked, settings: Settings, counter: Counter) -> RunFigures:
    """Measure one run.

    Raises:
        SidecarError: the core refuses a prompt, as one that is not in its format.
    """
    model = transcript.model or asked.model
    window = asked.window or Models(settings.models).window(model) or 0
    sizes = Sizes(transcript, counter, model)
    limit = int(asked.limit) if asked.limit >= 1 else _share(transcript, asked, settings, sizes)
    replays = [_Replay(sizes, limit, window, name) for name in asked.presets]
    for replay in replays:
        replay.run(build_runs(settings, counter))
    first = replays[0]
    made = steps(sizes, [turn.before for turn in first.turns], first.factor)
    charged = charges(transcript.prompts, made, window)
    money = Prices(asked.money).of(model)

    def priced(sent: list[Sent]) -> Cost:
        return cost(sent, charged, asked.prices, money, (limit, window))

    untrimmed = priced(never(made))
    plain = priced(control(made, limit))
    return RunFigures(
        name=transcript.name,
        source=transcript.source,
        form=transcript.form,
        model=model,
        limit=limit,
        window=window,
        never=untrimmed,
        control=plain,
        control_share=plain.share_of(untrimmed),
        presets=[
            PresetFigures(one.preset, spent, spent.share_of(untrimmed), [turn.after for turn in one.turns])
            for one in replays
            for spent in [priced(one.sent)]
        ],
        turns=first.turns,
        cuts=first.cuts,
        tools=weigh_tools(sizes, first.saved),
        counted=counted(transcript.prompts, never(made), charged, asked.prices, money),
        missing=transcript.missing,
    )


@dataclass(slots=True)
class _Replay:
    """A run under one preset."""

    sizes: Sizes
    limit: int
    window: int
    preset: str
    turns: list[Turn] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    saved: dict[tuple[int, int], int] = field(default_factory=dict)
    """Message (its object's id) and item → tokens that trimming has saved of it."""
    factor: float = 1.0

    @property
    def sent(self) -> list[Sent]:
        """The returned prompts."""
        return [Sent(turn.after, turn.kept, turn.batch_point) for turn in self.turns]

    def run(self, runs: Runs) -> None:
        """Send every prompt."""
        transcript, model = self.sizes.transcript, self.sizes.model
        for turn, prompt in enumerate(transcript.prompts, start=1):
            answer = runs.trim(_call(transcript, prompt, model, self.limit, self.preset), _never)
            self.factor = answer.tokens.factor
            self.turns.append(self._turn(turn, prompt, answer))
            self._cut(turn, prompt, answer)

    def _turn(self, turn: int, prompt: Prompt, answer: TrimAnswer) -> Turn:
        used = prompt.usage
        return Turn(
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

    def _cut(self, turn: int, prompt: Prompt, answer: TrimAnswer) -> None:
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
                Cut(turn, action.value, kind.value, items, tokens, answer.cache.batch_point)
                for (action, kind), (items, tokens) in found.items()
            ]


def _share(transcript: Transcript, asked: Asked, settings: Settings, sizes: Sizes) -> int:
    """The share of the run's largest prompt that the limit is, in tokens."""
    largest = max(transcript.prompts, key=lambda prompt: sum(sizes.tokens(prompt)))
    call = _call(transcript, largest, sizes.model, WIDE, asked.presets[0], dry_run=True)
    size = build_runs(settings, sizes.counter).trim(call, _never).tokens.before
    return max(LEAST_LIMIT, int(asked.limit * size))


def _call(
    transcript: Transcript, prompt: Prompt, model: str, limit: int, preset: str, *, dry_run: bool = False
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
    """The settings with a key that does not change, so that the same run has the same figures; and in force."""
    return replace(settings, key=_KEY, mode="active")


def _never() -> None:
    """Nobody stops the call."""
