"""A client of chat completions that fails in bounded time: the one place of the eval that speaks HTTP.

429, 5xx and a broken connection are tried again, after a pause that grows, or after the one that the answer names.
Redirects are not followed: the key would go along.
"""

from __future__ import annotations

import http.client
import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")
TRIES: Final = 6
"""Of one request; with the pauses between them some half a minute, in which a rate limit by the minute lets go."""
FIRST_PAUSE: Final = 1.0
MOST_PAUSE: Final = 60.0
"""Seconds; an answer that asks for more is not waited for any longer."""
MOST_BYTES: Final = 8_388_608
"""Of one answer; a reply of some thousand tokens takes a hundredth."""
_TOLD: Final = 300
"""Characters of an error's body that are told."""
_HOPELESS: Final = frozenset({401, 403, 404, 405})
"""Wrong key, wrong model, wrong address: the next request would fare no better."""
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class ChatError(Exception):
    """A request got no answer of use; the message says what came back."""

    def __init__(self, message: str, *, hopeless: bool = False, status: int = 0) -> None:
        super().__init__(message)
        self.status = status
        """Of the answer that refused the request; 0: there was none, or it was no refusal."""
        self.hopeless = hopeless
        """Whether the next request would fare no better."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model answered."""

    message: Mapping[str, Any]
    """The assistant's message, to go into the history."""
    cut: bool
    """Whether it ended for want of room."""
    tokens_in: int | None
    """As the endpoint counts them; None: it did not say."""
    tokens_out: int | None

    @property
    def text(self) -> str:
        """Its text; empty where it only calls tools."""
        content = self.message.get("content")
        if isinstance(content, list):
            return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        return content if isinstance(content, str) else ""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the endpoint is, and as whom to ask it."""

    base_url: str
    model: str
    key: str = ""

    def problem(self) -> str:
        """What is wrong with the address; empty: nothing."""
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return "EVAL_BASE_URL is no http or https address; it may be such as http://127.0.0.1:8000/v1"
        if parts.username or parts.password or parts.query:
            return "EVAL_BASE_URL holds a user, a password or a query; the key belongs into EVAL_API_KEY"
        if not (self.key.isascii() and self.key.isprintable()):
            return "EVAL_API_KEY holds characters that no HTTP header can carry"
        return "" if self.model else "EVAL_MODEL is not set; name the model as the endpoint does"

    @property
    def url(self) -> str:
        """Where completions are asked for; the base may end with a slash, or name them already."""
        base = self.base_url.rstrip("/").removesuffix("/chat/completions")
        return f"{base}/chat/completions"


class Chat:
    """See the file's docstring. Not thread-safe.

    Args:
        address: where and as whom.
        seconds: that one try may take.
        pause: waits some seconds before the next try.
        headers: more headers of each request.
    """

    def __init__(
        self,
        address: Address,
        seconds: float,
        pause: Callable[[float], None] = time.sleep,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.address = address
        self._headers = dict(headers or {})
        self.tried_again = 0
        """Tries after the first, of all requests."""
        self._seconds = seconds
        self._pause = pause
        # A proxy of the environment has no business between two processes of one machine.
        local = urlsplit(address.base_url).hostname in _LOOPBACK
        proxies = [urllib.request.ProxyHandler({})] if local else []
        self._opener = urllib.request.build_opener(_NoRedirect, *proxies)

    def ask(self, body: bytes) -> Reply:
        """Send a request body.

        Raises:
            ChatError: it got no answer of use, after all tries.
        """
        return self._tried(body, _reply)

    def send(self, body: bytes) -> bytes:
        """Send a request body as `ask` does; return the answer's bytes.

        Raises:
            ChatError: it got no answer, after all tries.
        """
        return self._tried(body, bytes)

    def _tried(self, body: bytes, read: Callable[[bytes], T]) -> T:
        for number in range(1, TRIES + 1):
            try:
                return read(self._send(body))
            except urllib.error.HTTPError as error:
                with error:
                    message = self._described(error)
                    wait = _asked_pause(error.headers.get("Retry-After"))
                if error.code != http.client.TOO_MANY_REQUESTS and error.code < http.client.INTERNAL_SERVER_ERROR:
                    raise ChatError(message, hopeless=error.code in _HOPELESS, status=error.code) from None
            except (OSError, http.client.HTTPException) as error:
                message, wait = f"no answer: {getattr(error, 'reason', '') or type(error).__name__}", None
            if number < TRIES:
                self.tried_again += 1
                # Half of the pause is chance, so that several agents of one key do not come back together.
                grown = min(FIRST_PAUSE * 2 ** (number - 1), MOST_PAUSE) * random.uniform(0.5, 1.0)
                self._pause(grown if wait is None else wait)
        raise ChatError(f"{message}, at {TRIES} tries")

    def _send(self, body: bytes) -> bytes:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": "prompt-sidecar-eval",
        } | self._headers
        if self.address.key:
            headers["Authorization"] = f"Bearer {self.address.key}"
        request = urllib.request.Request(self.address.url, data=body, headers=headers, method="POST")
        end = time.monotonic() + self._seconds
        with self._opener.open(request, timeout=self._seconds) as answer:
            pieces: list[bytes] = []
            left = MOST_BYTES
            # Piece by piece: the timeout holds for each, and an answer that trickles must end as well.
            while piece := answer.read1(65_536):
                pieces.append(piece)
                left -= len(piece)
                if left < 0:
                    raise ChatError(f"the answer has more than {MOST_BYTES:,} bytes")
                if time.monotonic() > end:
                    raise TimeoutError
        return b"".join(pieces)

    def _described(self, error: urllib.error.HTTPError) -> str:
        """An error's status and the start of its body, without the key, should the endpoint repeat it."""
        try:
            body = error.read(4_096).decode(errors="replace")
        except (OSError, http.client.HTTPException):
            body = ""
        if self.address.key:
            body = body.replace(self.address.key, "…")
        plain = " ".join("".join(each if each.isprintable() else " " for each in body).split())
        return f"HTTP {error.code}{': ' if plain else ''}{plain[:_TOLD]}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Lets a redirect be the error that it is here."""

    def redirect_request(self, *_: object) -> None:
        """Follow none."""


def _asked_pause(value: str | None) -> float | None:
    """The seconds that an answer asks to wait; None where it names none."""
    if value is None or not value.strip().replace(".", "", 1).isdecimal():
        return None
    return min(float(value), MOST_PAUSE)


def _reply(raw: bytes) -> Reply:
    try:
        # A half of a surrogate pair, which models write now and then, is no UTF-8 and would be refused further on.
        value = json.loads(json.dumps(json.loads(raw), ensure_ascii=False).encode(errors="replace"))
        choice = value["choices"][0]
        message = choice["message"]
        finish = choice.get("finish_reason")
        usage = value.get("usage") or {}
        calls = message.get("tool_calls") or []
        kept = {name: message.get(name) for name in ("content", "tool_calls") if message.get(name)}
        well_formed = all(isinstance(each["function"]["name"], str) for each in calls)
        tokens = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ChatError("the answer is no chat completion") from None
    if not well_formed:
        raise ChatError("the answer calls a tool without a name")
    counted = [each if isinstance(each, int) and not isinstance(each, bool) else None for each in tokens]
    return Reply({"role": "assistant", "content": None} | kept, finish == "length", *counted)
