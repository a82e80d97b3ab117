"""What is in force at a call: the limit, the policy's inputs and the tokens that stand around the history.

The limit is the least of the window that the agent asks for and the one that the model is known to have, less what is
kept for the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.facts.trim_calls import TrimCall
from prompt_sidecar.prompt.ambiguous import load_any
from prompt_sidecar.prompt.body import Split
from prompt_sidecar.prompt.format import Format, SystemMember
from prompt_sidecar.prompt.jsontext import canonical, load
from prompt_sidecar.tokens import known_window
from prompt_sidecar.tokens.weigh import PRIMING, count_opaque
from prompt_sidecar.turn.memory import Memory
from prompt_sidecar.turn.received import Read

Count = Callable[[str], int]


def model_of(call: TrimCall, body: Split) -> str:
    """The model that the prompt is for: the request's, else the body's."""
    return call.model or _string_member(body, "model")


def limit_of(call: TrimCall, body: Split, format_: Format, model: str, default_window: int) -> tuple[int, int]:
    """Tokens that the prompt may take, and the output reserve. Raises InvalidRequest where these leave nothing."""
    if call.context_window < 0:
        raise InvalidRequest(
            f"context_window is {call.context_window}; it may be 0 (the known window) or more", field="context_window"
        )
    windows = [window for window in (call.context_window, known_window(model)) if window]
    window = min(windows) if windows else default_window
    reserve = call.output_reserve
    if reserve is None:
        asked = (_whole_number(body, name) for name in format_.reserve_fields)
        reserve = min(next((tokens for tokens in asked if tokens is not None), 0), window // 2)
    if not 0 <= reserve < window:
        raise InvalidRequest(
            f"output_reserve is {reserve}; it may be from 0 to {window - 1:,}, one less than the window",
            field="output_reserve",
        )
    return window - reserve, reserve


def window_assumed(call: TrimCall, model: str) -> bool:
    """Whether the window is the configured one, as neither the agent nor the table of known models says it."""
    return not call.context_window and known_window(model) is None


def overhead_of(body: Split, reads: list[Read], memory: Memory, format_: Format, count: Count) -> int:
    """Tokens of the system prompt without ours, the tool schemas, and what opens the answer."""
    tokens = PRIMING
    for name in format_.tool_fields:
        value = body.field(name)
        if value is not None and value != b"null":
            tokens += memory.member_tokens(name, value, partial(_weigh_schemas, name, count))
    name, value = format_.member(body)
    if format_.system is not None and value is not None and value != b"null":
        tokens += memory.member_tokens(name, value, partial(_weigh_system, format_.system, memory, count))
    return tokens + memory.leading_tokens(reads, format_)


def check_annotations(call: TrimCall, messages: int) -> None:
    """Raises InvalidRequest if an annotation names a message that was not sent."""
    wrong = [index for index in (*call.pinned, *call.annotations) if not 0 <= index < messages]
    if wrong:
        raise InvalidRequest(
            f"annotations name message {min(wrong)}; the prompt has messages 0 to {messages - 1}", field="annotations"
        )


def _weigh_schemas(name: str, count: Count, value: bytes) -> int:
    decoded = load_any(value, f"json.body.{name}")
    return count(decoded) if isinstance(decoded, str) else count_opaque(canonical(decoded).decode(), count)


def _weigh_system(system: SystemMember, memory: Memory, count: Count, value: bytes) -> int:
    """Tokens of a system prompt without ours. Refuses a shape that our text could not be added to."""
    value = system.without(value, memory.own.is_own_text)
    system.add(value, "")
    return sum(count_opaque(text, count) if text[:1] == "{" else count(text) for text in system.texts(value))


def _string_member(body: Split, name: str) -> str:
    value = body.field(name)
    decoded = load(value, f"json.body.{name}") if value is not None else ""
    return decoded if isinstance(decoded, str) else ""


def _whole_number(body: Split, name: str) -> int | None:
    value = body.field(name)
    decoded = load(value, f"json.body.{name}") if value is not None else None
    return decoded if isinstance(decoded, int) and not isinstance(decoded, bool) and decoded >= 0 else None
