"""A relay in front of the provider, which counts what it answers: one method for all arms of the trial.

The agent, or the sidecar that the agent is behind, sends its requests here without a key; the relay adds the key, tries
a rate limit again (`tests.lab.eval.chat`), and sums up the usage of each answer. So what the sidecar asks by itself is
in the sums, as it is in the bill.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from prompt_sidecar.facts.money import ModelPrice
from tests.lab.eval.chat import Chat, ChatError
from tests.lab.harness.loopback import LoopbackServer
from tests.lab.live.tasks import NAMES
from tests.oracle.tokens import count_prompt

OURS: Final = frozenset({"recall_elided_content", "search_conversation_history"})
"""The sidecar's tools by which a model gets back what left its prompt."""
_MOST_BYTES: Final = 33_554_432


@dataclass(slots=True)
class Used:
    """What one conversation used, as the provider counted it."""

    requests: int = 0
    tokens_in: int = 0
    cached: int = 0
    """Of `tokens_in`, those that the provider had in its cache."""
    tokens_out: int = 0
    recalls: int = 0
    """Calls of `OURS`."""
    largest: int = 0
    """Tokens of the largest prompt."""
    cost: float | None = None
    """In US dollars; None: the model has no price."""
    estimated: bool = False
    """Whether an answer did not count its tokens, so that they were counted here."""


class OverBudget(Exception):
    """The budget is used up."""


class Relay(LoopbackServer):
    """See the file's docstring. A context manager; conversations go through it one after another.

    Args:
        chat: asks the provider.
        price: the model's; None: it has none.
        budget: dollars (tokens where there is no price) after which requests are refused.
    """

    def __init__(self, chat: Chat, price: ModelPrice | None, budget: float) -> None:
        self.used = Used()
        """Of the conversation that goes on."""
        self.spent = 0.0
        """Of all, in the budget's unit."""
        self.over_budget = False
        self.hopeless = ""
        """Why no request can be answered, such as a wrong key; empty: they can."""
        self._chat = chat
        self._price = price
        self._budget = budget
        self._lock = threading.Lock()
        super().__init__(_Handler)

    def begin(self) -> Used:
        """Begin to count for a new conversation."""
        self.used = Used(cost=None if self._price is None else 0.0)
        return self.used

    def answer(self, path: str, raw: bytes) -> tuple[int, bytes]:
        """Ask the provider; return the status and the answer's body."""
        if not path.endswith("/chat/completions"):
            return HTTPStatus.NOT_FOUND, _error(f"there is no {path}")
        with self._lock:  # the chat is not for several threads
            if self.spent >= self._budget:
                self.over_budget = True
                return HTTPStatus.PAYMENT_REQUIRED, _error("the budget of the trial is used up")
            try:
                answer = self._chat.send(raw)
                self._count(json.loads(raw), json.loads(answer))
            except ChatError as error:
                self.hopeless = str(error) if error.hopeless else self.hopeless
                return error.status or HTTPStatus.BAD_REQUEST, _error(str(error))
            except (ValueError, LookupError, TypeError, AttributeError):
                return HTTPStatus.BAD_REQUEST, _error("the provider's answer is no chat completion")
            return HTTPStatus.OK, answer

    def _count(self, body: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        message, usage, used = answer["choices"][0]["message"], answer.get("usage") or {}, self.used
        tokens_in, tokens_out = usage.get("prompt_tokens"), usage.get("completion_tokens")
        if tokens_in is None or tokens_out is None:
            used.estimated = True
            tokens_in, tokens_out = count_prompt(body), count_prompt({"messages": [message]})
        cached = min((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0, tokens_in)
        used.requests += 1
        used.tokens_in += tokens_in
        used.cached += cached
        used.tokens_out += tokens_out
        used.largest = max(used.largest, tokens_in)
        names = [call["function"]["name"] for call in message.get("tool_calls") or []]
        used.recalls += sum(name in OURS and name not in NAMES for name in names)
        if self._price is None:
            self.spent += tokens_in + tokens_out
            return
        cost = self._price.at(tokens_in).of(plain=tokens_in - cached, cached=cached, output=tokens_out)
        self.spent += cost
        used.cost = (used.cost or 0.0) + cost


class _Handler(BaseHTTPRequestHandler):
    """HTTP around `Relay.answer`."""

    owner: Relay
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer."""
        size = int(self.headers.get("Content-Length") or 0)
        if not 0 <= size <= _MOST_BYTES:
            self.close_connection = True
            self._send(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _error("too long"))
            return
        self._send(*self.owner.answer(self.path, self.rfile.read(size)))

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _error(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "trial"}}).encode()
