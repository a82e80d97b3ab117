"""Replay of a recorded run: a client in place of the agent.

Each prompt of its transcript goes through a real server, and the answers are shown turn by turn. If the file has the
provider's counts, they are reported after each call, as by an agent, and the cost of never trimming is the run's real
bill. It is compared with other strategies' (report/strategies.py).
"""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from statistics import quantiles
from typing import Any, TextIO

import grpc

from prompt_sidecar.facts.money import OWN_CURRENCY, Money
from prompt_sidecar.providers.models import first_factor
from prompt_sidecar.report.counted import counted
from prompt_sidecar.report.figures import ProviderCounts, Recommended, ReportedRun, TriedSetting
from prompt_sidecar.report.measuring import counts, reported_tokens, scaled
from prompt_sidecar.report.prices import RelativePrices
from prompt_sidecar.report.recommending import recommended, sentences
from prompt_sidecar.report.sizes import Sizes, steps
from prompt_sidecar.report.strategies import Cost, StrategyPrompt, charges, control, cost, never
from prompt_sidecar.report.transcripts.model import CallUsage, RecordedPrompt, Transcript
from prompt_sidecar.tokens.count import Counter as TokenCounter
from prompt_sidecar.v1 import policy_pb2, run_pb2, service_pb2_grpc, trim_pb2, usage_pb2

_MESSAGE_BYTES = 1 << 29
_WIDE = 2_000_000_000
"""A window that no prompt fills, for finding a prompt's size."""
_LEAST_LIMIT = 256
NO_FIT: Mapping[str, str] = {
    "protected_text": "what is never trimmed is more than the limit by itself: the system prompt, the opening user "
    "messages, the newest turn",
    "policy": "the policy forbids the trimming that would be needed",
    "not_stashable": "an item that would have to be trimmed is larger than all that a run may stash",
}
"""Explanations of the reasons for which a prompt does not fit."""
_NAMED = 36
_HEADER = "turn  messages    before     after      kept  trims  fits      ms"


class ReplayError(Exception):
    """A flag cannot be used; the message gives the reason."""


class ReplayFailed(Exception):
    """The server did not answer a call, or refused it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to replay, and how. `limit` is in tokens."""

    run: Transcript
    """The run, with a text in place of the head that its file lacks (report/head.py)."""
    limit: int
    preset: str = ""
    model: str = ""
    timeout: float = 60.0
    """Seconds that one call may take."""
    prices: RelativePrices = field(default_factory=RelativePrices)
    money: Money = field(default_factory=Money)
    """Prices by model."""
    window: int = 0
    """The model's window in tokens; 0: unknown, so no prompt is refused for it."""
    figures: ReportedRun | None = None
    """The same run measured with this and other limits; None if it was not measured."""


@dataclass(frozen=True, slots=True)
class ReplayedTurn:
    """One turn's prompt and its answer. Tokens, except for `milliseconds`."""

    turn: int
    messages: int
    before: int
    after: int
    limit: int
    kept: int
    """Tokens of `after` that the last prompt began with too."""
    trims: int
    """Number of trimmed items in this prompt."""
    batch_point: bool
    fits: bool
    no_fit_reason: str
    """Why it does not fit, as in the protocol: a name of `NO_FIT`; empty if it fits."""
    counted: int
    """The untrimmed prompt by the provider's count; 0 if unknown."""
    milliseconds: float


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    """The sums of a replay. Costs are in input tokens; see the module."""

    turns: int
    limit: int
    over_limit: int
    no_fit_reasons: Mapping[str, int]
    """How many of them do not fit, by reason."""
    tokens_before: int
    tokens_after: int
    batch_points: int
    prices: RelativePrices
    cost: float
    untrimmed_cost: float
    """Cost of never trimming, with the cache that it would have had; prompts above the window cost nothing."""
    control_cost: float
    """Cost of the plain control, which drops the oldest iterations down to half of the limit."""
    window: int
    untrimmed_refused: int
    """Prompts that are larger than the window untrimmed: they would have been refused, and do not count as savings."""
    share: float
    """Cost of the replay as a share of never trimming's, on the prompts that fit the window untrimmed."""
    control_share: float
    """The same for the control."""
    money: float | None
    """In the currency of the prices, answers included; None if there are no prices."""
    untrimmed_money: float | None
    control_money: float | None
    counted: ProviderCounts | None
    """The provider's counts of the recorded run; None if the file has none."""
    currency: str
    head: int
    """Tokens of system text, tools and attachments that the file lacks."""
    settings: Sequence[TriedSetting]
    """The settings that were tried, the model's own limit first."""
    setting_fits: bool
    """Whether any of them keeps all prompts within its limit."""
    recommended: Sequence[Recommended]
    p50_milliseconds: float
    p99_milliseconds: float


def read_limit(text: str) -> float:
    """Read a number of tokens, a share such as 30%, which is returned as 0.3, or `window`, returned as 0.

    Raises:
        ReplayError: it is none of these, or out of bounds.
    """
    if text == "window":
        return 0.0
    try:
        limit = float(text[:-1]) / 100 if text.endswith("%") else float(int(text))
    except ValueError:
        limit = -1.0
    if (text.endswith("%") and 0 < limit < 1) or _LEAST_LIMIT <= limit <= _WIDE:
        return limit
    raise ReplayError(
        f"--limit is {text}; it may be tokens from {_LEAST_LIMIT}, a share such as 30% below 100%, or window"
    )


def replay(plan: Plan, address: str) -> Generator[ReplayedTurn]:
    """Send the run's prompts to the server at `address`, in a new run, which is ended afterwards.

    Raises:
        ReplayFailed: a call received no answer, or an error.
    """
    options = [("grpc.max_receive_message_length", _MESSAGE_BYTES), ("grpc.max_send_message_length", _MESSAGE_BYTES)]
    run_id = f"replay-{secrets.token_hex(8)}"
    with grpc.insecure_channel(address, options=options) as channel:
        stub = service_pb2_grpc.SidecarServiceStub(channel)
        try:
            for turn, prompt in enumerate(plan.run.prompts, start=1):
                request = _request(plan, run_id, prompt)
                started = time.perf_counter()
                answer = stub.TrimPrompt(request, timeout=plan.timeout)
                took = (time.perf_counter() - started) * 1e3
                if prompt.usage is not None:
                    stub.ReportUsage(_reported(run_id, answer, prompt.usage.input), timeout=plan.timeout)
                yield _turn(turn, len(prompt.messages), answer, took, prompt.usage)
        except grpc.RpcError as error:
            call: Any = error  # a stub's exceptions are also Calls, which the types do not show
            raise ReplayFailed(f"{address}: {call.code().name}: {call.details()}") from None
        finally:  # also if the reader of the turns stops, or is interrupted
            with suppress(grpc.RpcError):
                stub.EndRun(run_pb2.EndRunRequest(run_id=run_id), timeout=plan.timeout)


def show(
    turns: Iterable[ReplayedTurn], plan: Plan, counter: TokenCounter, *, as_json: bool, out: TextIO, progress: TextIO
) -> ReplaySummary:
    """Write each turn and the summary to `out`, as a table or as JSON lines, and the progress to a terminal."""
    shown: list[ReplayedTurn] = []
    moving = progress.isatty() and not out.isatty()
    for turn in turns:
        if not shown and not as_json:
            out.write(_recommended_lines(plan.figures) if plan.figures is not None else "")
            out.write(_HEADER + "\n")
        shown.append(turn)
        out.write((json.dumps(asdict(turn)) if as_json else _line(turn)) + "\n")
        if moving:
            progress.write(f"\rturn {turn.turn} of {len(plan.run.prompts)}")
            progress.flush()
    if moving:
        progress.write("\n")
    summary = summarise(shown, plan, counter)
    out.write((json.dumps({"summary": asdict(summary)}) if as_json else _summary_lines(summary)) + "\n")
    out.flush()
    return summary


def summarise(turns: Sequence[ReplayedTurn], plan: Plan, counter: TokenCounter) -> ReplaySummary:
    """Sum up a replay of a whole transcript; `counter` counts what other strategies would have sent."""
    model = plan.model or plan.run.model
    sizes = Sizes(plan.run, counter, model)
    found = plan.figures
    head = found.head if found is not None else 0
    estimates = [turn.before for turn in turns]
    made = steps(sizes, counts(plan.run.prompts, estimates), first_factor(model), head)
    charged = charges(plan.run.prompts, made, plan.window, plan.money, model)
    limit = turns[-1].limit

    def priced(sent: list[StrategyPrompt]) -> Cost:
        return cost(sent, charged, plan.prices, (limit, plan.window))

    sent = [StrategyPrompt(turn.after, turn.kept, turn.batch_point) for turn in turns]
    own = priced(scaled(sent, estimates, never(made)))
    untrimmed, plain = priced(never(made)), priced(control(made, limit))
    estimate = never(steps(sizes, estimates, first_factor(model), head))
    times = [turn.milliseconds for turn in turns]
    cuts = quantiles(times, n=100, method="inclusive") if len(times) > 1 else times * 99
    return ReplaySummary(
        turns=len(turns),
        limit=limit,
        over_limit=sum(not turn.fits for turn in turns),
        no_fit_reasons=dict(Counter(turn.no_fit_reason for turn in turns if not turn.fits)),
        tokens_before=sum(turn.before for turn in turns),
        tokens_after=sum(turn.after for turn in turns),
        batch_points=sum(turn.batch_point for turn in turns),
        prices=plan.prices,
        cost=own.cost,
        untrimmed_cost=untrimmed.cost,
        control_cost=plain.cost,
        window=plan.window,
        untrimmed_refused=untrimmed.refused,
        share=own.share_of(untrimmed),
        control_share=plain.share_of(untrimmed),
        money=own.money,
        untrimmed_money=untrimmed.money,
        control_money=plain.money,
        counted=counted(plan.run.prompts, estimate, charged, plan.prices),
        currency=plan.money.currency,
        head=head,
        settings=found.settings if found is not None else (),
        setting_fits=found.fits if found is not None else not own.over_limit,
        recommended=recommended([found], ignored=found.ceilings_ignored) if found is not None else (),
        p50_milliseconds=cuts[49],
        p99_milliseconds=cuts[98],
    )


def _request(plan: Plan, run_id: str, prompt: RecordedPrompt) -> trim_pb2.TrimPromptRequest:
    preset = policy_pb2.Preset.Value(f"PRESET_{plan.preset.upper()}") if plan.preset else policy_pb2.PRESET_UNSPECIFIED
    return trim_pb2.TrimPromptRequest(
        run_id=run_id,
        json=trim_pb2.JsonPrompt(
            format=trim_pb2.Format.Value(f"FORMAT_{plan.run.form.upper()}"), body=prompt.body(plan.run.form)
        ),
        model=plan.model or prompt.model,
        context_window=plan.limit,
        output_reserve=0,
        policy=policy_pb2.Policy(preset=preset),
        accept_bytes=_MESSAGE_BYTES,
    )


def _reported(run_id: str, answer: trim_pb2.TrimPromptResponse, counted: int) -> usage_pb2.ReportUsageRequest:
    return usage_pb2.ReportUsageRequest(
        run_id=run_id,
        input_tokens=reported_tokens(answer.tokens.before, answer.tokens.after, counted),
        input_counting=usage_pb2.INPUT_COUNTING_WITH_CACHED,
        revision=answer.revision,
    )


def _turn(
    turn: int, count: int, answer: trim_pb2.TrimPromptResponse, milliseconds: float, used: CallUsage | None
) -> ReplayedTurn:
    return ReplayedTurn(
        turn=turn,
        messages=count,
        before=answer.tokens.before,
        after=answer.tokens.after,
        limit=answer.tokens.limit,
        kept=answer.cache.kept_prefix_tokens,
        trims=len(answer.trims),
        batch_point=answer.cache.batch_point,
        fits=answer.fits,
        no_fit_reason="" if answer.fits else _reason(answer.no_fit_reason),
        counted=used.input if used is not None else 0,
        milliseconds=round(milliseconds, 3),
    )


def _reason(number: trim_pb2.NoFitReason.ValueType) -> str:
    return trim_pb2.NoFitReason.Name(number).removeprefix("NO_FIT_REASON_").lower()


def _line(turn: ReplayedTurn) -> str:
    fits = "yes" if turn.fits else "NO"
    reason = f"  {turn.no_fit_reason}" if turn.no_fit_reason else ""
    return (
        f"{turn.turn:>4}  {turn.messages:>8}  {turn.before:>8}  {turn.after:>8}  {turn.kept:>8}  {turn.trims:>5}"
        f"  {fits:>4}  {turn.milliseconds:>6.1f}{'  batch' if turn.batch_point else ''}{reason}"
    )


def _summary_lines(summary: ReplaySummary) -> str:
    reasons = (f"  {count} {name}: {NO_FIT.get(name, name)}\n" for name, count in summary.no_fit_reasons.items())
    refused = (
        f"untrimmed, {summary.untrimmed_refused} prompts are larger than the window of {summary.window:,} tokens and "
        "would be refused: they are no saving\n"
        if summary.untrimmed_refused
        else ""
    )
    head = f", {summary.head:,} of them system text, tools and attachments that the file lacks" if summary.head else ""
    return (
        f"\n{summary.turns} turns, limit {summary.limit:,} tokens{head}, {summary.over_limit} prompts over it\n"
        f"{''.join(reasons)}"
        f"tokens sent {summary.tokens_before:,}, returned {summary.tokens_after:,}, "
        f"{summary.batch_points} batch points\n"
        f"{_money_lines(summary)}"
        f"cost at {summary.prices.cached:g} for a cached token and {summary.prices.written:g} for any other: "
        f"{summary.cost:,.0f} of {summary.untrimmed_cost:,.0f} input tokens, the plain control "
        f"{summary.control_cost:,.0f}\n{refused}{_counted_lines(summary)}"
        f"a call took {summary.p50_milliseconds:.1f} ms at the median, {summary.p99_milliseconds:.1f} ms at p99"
    )


def _recommended_lines(found: ReportedRun) -> str:
    """Return the recommendation, and the settings that were tried."""
    lines: list[str] = []
    for one in recommended([found], ignored=found.ceilings_ignored):
        lines += [f"recommended: {sentences(one)}", *(f"    {line}" for line in one.lines)]
    if found.settings:
        lines.append(f"{'setting tried':<{_NAMED}} share  control  tokens visible  prompts over the limit")
        lines += [_tried_line(one) for one in found.settings]
    if not found.fits:
        lines.append("NO SETTING that was tried FITS this run: see the reasons below")
    return "".join(line + "\n" for line in [*lines, ""]) if lines else ""


def _tried_line(one: TriedSetting) -> str:
    return (
        f"{one.name:<{_NAMED}} {one.share:>5.2f}  {one.control_share:>7.2f}  {one.visible:>14.0%}"
        f"  {one.cost.over_limit:>22}"
    )


def _money_lines(summary: ReplaySummary) -> str:
    """Return the share of the bill, and the control's next to it."""
    control = "the plain control, which drops the oldest iterations down to half of the limit"
    if summary.money is None or summary.untrimmed_money is None or summary.control_money is None:
        return f"{summary.share:.2f} of never trimming; {control}: {summary.control_share:.2f}\n"
    counted = summary.counted is not None and summary.counted.money is not None
    of = "the real bill" if counted else "never trimming, an estimate as the file has no counts of the provider"
    unit = f" {summary.currency}" if summary.currency != OWN_CURRENCY else " in the currency of the prices"
    return (
        f"{summary.share:.2f} of {of}: {summary.money:,.2f} of {summary.untrimmed_money:,.2f}{unit}, answers included\n"
        f"{control}: {summary.control_share:.2f} ({summary.control_money:,.2f})\n"
    )


def _counted_lines(summary: ReplaySummary) -> str:
    """Return the provider's counts, and the estimates for the same calls."""
    counted = summary.counted
    if counted is None:
        return ""
    bill = f", {counted.money:,.2f} in money" if counted.money is not None else ""
    estimated = f", {counted.estimated_money:,.2f} in money" if counted.estimated_money is not None else ""
    unpriced = f"; {counted.unpriced} calls have no price\n" if counted.unpriced else "\n"
    return (
        f"the provider counted {counted.input:,} tokens in {counted.calls} calls, {counted.cached:,} of them cached, "
        f"at a cost of {counted.cost:,.0f}{bill}{unpriced}"
        f"by our count and with a warm cache these calls are {counted.estimated:,} tokens, "
        f"{counted.estimated_cached:,} of them cached, at a cost of {counted.estimated_cost:,.0f}{estimated}; "
        f"calls that found the cache cold: {counted.cold}\n"
    )
