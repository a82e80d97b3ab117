"""Replay of a recorded run: the client that an agent would be.

The prompt of a turn is the messages before an assistant message, as an agent sends its whole history again at each
call; the last prompt is all of them. Each goes through a real server, and the answers are shown turn by turn. What a
prompt costs where prefixes are cached is one price for a token that the last prompt began with as well, and another for
any other; where nothing is cached both are 1.
"""

from __future__ import annotations

import gzip
import json
import secrets
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any, TextIO

import grpc
import msgspec

from prompt_sidecar.v1 import policy_pb2, run_pb2, service_pb2_grpc, trim_pb2

_MESSAGE_BYTES = 1 << 29
_WIDE = 2_000_000_000
"""A window that no prompt fills, to learn a prompt's size."""
_LEAST_LIMIT = 256
_GZIP = b"\x1f\x8b"
NO_FIT: Mapping[str, str] = {
    "protected_text": "what is never trimmed is more than the limit by itself: the system prompt, the opening user "
    "messages, the newest turn",
    "policy": "the policy forbids the trimming that would be needed",
    "not_stashable": "an item that would have to be trimmed is larger than all that a run may stash",
}
"""What the reasons mean for which a prompt does not fit."""
_HEADER = "turn  messages    before     after      kept  trims  fits      ms"


class ReplayError(Exception):
    """The file or a flag cannot be used; the message says why."""


class ReplayFailed(Exception):
    """The server did not answer a call, or refused it."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a token of the prompt, in plain input tokens. The defaults: Anthropic's five-minute cache."""

    cached: float = 0.1
    written: float = 1.25

    def of(self, kept: int, rest: int) -> float:
        """What a prompt costs of which so many tokens are cached and so many are not."""
        return self.cached * kept + self.written * rest


class _Head(msgspec.Struct):
    """What shows who wrote a message. Items of OpenAI's responses have a type, and a role only if they are messages."""

    role: str = ""
    type: str = ""

    @property
    def known(self) -> bool:
        """Whether it can be a message."""
        return bool(self.role or self.type)

    @property
    def of_model(self) -> bool:
        """Whether the model made it."""
        if self.role:
            return self.role in {"assistant", "model"}
        return not self.type.endswith("_output")


class _File(msgspec.Struct):
    messages: list[msgspec.Raw]
    format: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded run."""

    format: trim_pb2.Format.ValueType
    messages: Sequence[bytes]
    """Each message's JSON, as the file has it."""
    prompts: Sequence[int]
    """How many messages each turn's prompt has."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to replay, and how. `limit` is tokens, or a share of the last prompt if it is below 1."""

    run: Run
    limit: float
    preset: str = ""
    model: str = ""
    timeout: float = 60.0
    """Seconds that one call may take."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn's prompt and its answer. Tokens, except for `milliseconds`."""

    turn: int
    messages: int
    before: int
    after: int
    limit: int
    kept: int
    """Of `after`: the tokens that the last prompt began with as well."""
    trims: int
    """Items that are trimmed in this prompt."""
    batch_point: bool
    fits: bool
    no_fit_reason: str
    """Why it does not fit, as in the protocol: a name of `NO_FIT`; empty if it fits."""
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Summary:
    """A replay as a whole. Costs are in input tokens; see the module."""

    turns: int
    limit: int
    over_limit: int
    no_fit_reasons: Mapping[str, int]
    """How many of them do not fit, by reason."""
    tokens_before: int
    tokens_after: int
    batch_points: int
    prices: Prices
    cost: float
    untrimmed_cost: float
    p50_milliseconds: float
    p99_milliseconds: float


def read_run(path: str, form: str | None) -> Run:
    """Read a run file; `form` names the messages' format where the file does not.

    Raises:
        ReplayError: it cannot be read, is not a run, or is of an unknown format.
    """
    try:
        raw = Path(path).read_bytes()
        text = gzip.decompress(raw) if raw.startswith(_GZIP) else raw
        bare = text.lstrip()[:1] == b"["
        file = (
            _File(msgspec.json.decode(text, type=list[msgspec.Raw])) if bare else msgspec.json.decode(text, type=_File)
        )
        messages = [bytes(message) for message in file.messages]
        heads = [msgspec.json.decode(message, type=_Head) for message in messages]
        if not all(head.known for head in heads):
            raise msgspec.ValidationError("neither role nor type")
    except OSError as error:
        raise ReplayError(f"{path} cannot be read: {error.strerror or 'it is damaged'}") from None
    except (EOFError, zlib.error):
        raise ReplayError(f"{path} is a damaged gzip file") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ReplayError(
            f'{path} is not a run: it must be JSON, {{"format": …, "messages": […]}} or an array of messages with roles'
        ) from None
    prompts = [
        index
        for index, head in enumerate(heads)
        if index and head.of_model and (head.role or not heads[index - 1].of_model)
    ]
    if not messages:
        raise ReplayError(f"{path} holds no messages")
    return Run(_format(path, form or file.format or _guess(text)), messages, (*prompts, len(messages)))


def read_limit(text: str) -> float:
    """Read a number of tokens, or a share such as 30%, which comes back as 0.3.

    Raises:
        ReplayError: it is neither, or out of bounds.
    """
    try:
        limit = float(text[:-1]) / 100 if text.endswith("%") else float(int(text))
    except ValueError:
        limit = -1.0
    if (text.endswith("%") and 0 < limit < 1) or _LEAST_LIMIT <= limit <= _WIDE:
        return limit
    raise ReplayError(f"--limit is {text}; it may be tokens from {_LEAST_LIMIT}, or a share such as 30% below 100%")


def replay(plan: Plan, address: str) -> Iterator[Turn]:
    """Send the run's prompts to the server at `address`, in a new run, which is ended afterwards.

    Raises:
        ReplayFailed: a call got no answer, or an error.
    """
    options = [("grpc.max_receive_message_length", _MESSAGE_BYTES), ("grpc.max_send_message_length", _MESSAGE_BYTES)]
    run_id = f"replay-{secrets.token_hex(8)}"
    with grpc.insecure_channel(address, options=options) as channel:
        stub = service_pb2_grpc.SidecarServiceStub(channel)
        try:
            limit = int(plan.limit) if plan.limit >= 1 else _share(plan, stub, run_id)
            for turn, count in enumerate(plan.run.prompts, start=1):
                request = _request(plan, run_id, count, limit)
                started = time.perf_counter()
                answer = stub.TrimPrompt(request, wait_for_ready=turn == 1, timeout=plan.timeout)
                yield _turn(turn, count, answer, (time.perf_counter() - started) * 1e3)
            stub.EndRun(run_pb2.EndRunRequest(run_id=run_id), timeout=plan.timeout)
        except grpc.RpcError as error:
            call: Any = error  # what a stub raises is a Call as well, which the types do not say
            raise ReplayFailed(f"{address}: {call.code().name}: {call.details()}") from None


def show(turns: Iterable[Turn], total: int, prices: Prices, *, as_json: bool, out: TextIO, progress: TextIO) -> Summary:
    """Write each turn and the summary to `out`, as a table or as JSON lines; and the progress to a terminal."""
    if not as_json:
        out.write(_HEADER + "\n")
    shown: list[Turn] = []
    moving = progress.isatty() and not out.isatty()
    for turn in turns:
        shown.append(turn)
        out.write((json.dumps(asdict(turn)) if as_json else _line(turn)) + "\n")
        if moving:
            progress.write(f"\rturn {turn.turn} of {total}")
            progress.flush()
    if moving:
        progress.write("\n")
    summary = summarise(shown, prices)
    out.write((json.dumps({"summary": asdict(summary)}) if as_json else _summary_lines(summary)) + "\n")
    out.flush()
    return summary


def summarise(turns: Sequence[Turn], prices: Prices) -> Summary:
    """Sum up a replay of at least one turn."""
    untrimmed, last = 0.0, 0
    for turn in turns:
        untrimmed += prices.of(min(last, turn.before), max(0, turn.before - last))
        last = turn.before
    times = [turn.milliseconds for turn in turns]
    cuts = quantiles(times, n=100, method="inclusive") if len(times) > 1 else times * 99
    return Summary(
        turns=len(turns),
        limit=turns[-1].limit,
        over_limit=sum(not turn.fits for turn in turns),
        no_fit_reasons=dict(Counter(turn.no_fit_reason for turn in turns if not turn.fits)),
        tokens_before=sum(turn.before for turn in turns),
        tokens_after=sum(turn.after for turn in turns),
        batch_points=sum(turn.batch_point for turn in turns),
        prices=prices,
        cost=sum(prices.of(turn.kept, turn.after - turn.kept) for turn in turns),
        untrimmed_cost=untrimmed,
        p50_milliseconds=cuts[49],
        p99_milliseconds=cuts[98],
    )


def _share(plan: Plan, stub: service_pb2_grpc.SidecarServiceStub, run_id: str) -> int:
    """The share of the run's last prompt that the plan's limit is, in tokens."""
    request = _request(plan, run_id, len(plan.run.messages), _WIDE)
    request.dry_run = True
    return max(
        _LEAST_LIMIT,
        int(plan.limit * stub.TrimPrompt(request, wait_for_ready=True, timeout=plan.timeout).tokens.before),
    )


def _request(plan: Plan, run_id: str, count: int, limit: int) -> trim_pb2.TrimPromptRequest:
    preset = policy_pb2.Preset.Value(f"PRESET_{plan.preset.upper()}") if plan.preset else policy_pb2.PRESET_UNSPECIFIED
    return trim_pb2.TrimPromptRequest(
        run_id=run_id,
        json=trim_pb2.JsonPrompt(format=plan.run.format, body=b"[" + b",".join(plan.run.messages[:count]) + b"]"),
        model=plan.model,
        context_window=limit,
        output_reserve=0,
        policy=policy_pb2.Policy(preset=preset),
        accept_bytes=_MESSAGE_BYTES,
    )


def _turn(turn: int, count: int, answer: trim_pb2.TrimPromptResponse, milliseconds: float) -> Turn:
    return Turn(
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
        milliseconds=round(milliseconds, 3),
    )


def _reason(number: trim_pb2.NoFitReason.ValueType) -> str:
    return trim_pb2.NoFitReason.Name(number).removeprefix("NO_FIT_REASON_").lower()


def _line(turn: Turn) -> str:
    fits = "yes" if turn.fits else "NO"
    reason = f"  {turn.no_fit_reason}" if turn.no_fit_reason else ""
    return (
        f"{turn.turn:>4}  {turn.messages:>8}  {turn.before:>8}  {turn.after:>8}  {turn.kept:>8}  {turn.trims:>5}"
        f"  {fits:>4}  {turn.milliseconds:>6.1f}{'  batch' if turn.batch_point else ''}{reason}"
    )


def _summary_lines(summary: Summary) -> str:
    share = summary.cost / summary.untrimmed_cost if summary.untrimmed_cost else 1.0
    reasons = (f"  {count} {name}: {NO_FIT.get(name, name)}\n" for name, count in summary.no_fit_reasons.items())
    return (
        f"\n{summary.turns} turns, limit {summary.limit:,} tokens, {summary.over_limit} prompts over it\n"
        f"{''.join(reasons)}"
        f"tokens sent {summary.tokens_before:,}, returned {summary.tokens_after:,}, "
        f"{summary.batch_points} batch points\n"
        f"cost at {summary.prices.cached:g} for a cached token and {summary.prices.written:g} for any other: "
        f"{share:.2f} of never trimming ({summary.cost:,.0f} of {summary.untrimmed_cost:,.0f} input tokens)\n"
        f"a call took {summary.p50_milliseconds:.1f} ms at the median, {summary.p99_milliseconds:.1f} ms at p99"
    )


def _format(path: str, form: str) -> trim_pb2.Format.ValueType:
    known = {name.removeprefix("FORMAT_").lower(): number for name, number in trim_pb2.Format.items() if number}
    found = [number for name, number in known.items() if form and name.startswith(form.lower())]
    if len(found) != 1:
        raise ReplayError(f"{path}: the format is {form!r}; it may be one of {', '.join(known)}")
    return found[0]


_SIGNS: Mapping[str, tuple[bytes, ...]] = {
    "anthropic_messages": (b'"tool_use"', b'"tool_result"'),
    "openai_responses": (b'"function_call_output"', b'"custom_tool_call_output"'),
    "gemini_contents": (b'"functionCall"', b'"functionResponse"', b'"function_response"'),
    "bedrock_converse": (b'"toolUse"', b'"toolResult"'),
    "ai_sdk": (b'"tool-call"', b'"tool-result"'),
}
"""What is found in the messages of one format that call tools, and hardly in another's."""


def _guess(text: bytes) -> str:
    """The format whose signs are most frequent; OpenAI's chat where there are none."""
    counts = {name: sum(map(text.count, signs)) for name, signs in _SIGNS.items()}
    most = max(counts, key=lambda name: counts[name])
    return most if counts[most] > text.count(b'"tool_calls"') else "openai_chat"
