"""A chat completions endpoint on loopback, behind which a scripted model answers.

It refuses what a provider refuses, so that the eval is held to valid requests; and it can fail as providers do: by a
rate limit, an overload, an answer that is cut off. `python -m tests.lab.eval.endpoint` serves one to try `make
eval` with.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from tests.lab.eval.scripted import Recalls, Rules, reply
from tests.oracle.shapes import OPENAI_CHAT
from tests.oracle.tokens import count_prompt
from tests.oracle.validity import Kind, defects, refused

KEY: Final = "scripted-key-of-the-eval"
MODEL: Final = "scripted-model"
NO_JSON: Final = 0
"""A trouble that is no status: an answer that is cut off."""
_MOST_BYTES: Final = 8_388_608
_PASSED: Final = frozenset({Kind.BAD_ARGUMENTS})
"""What a model itself wrote into a call comes back to it; providers take it."""


class Endpoint:
    """See the file's docstring. A context manager; `requests` and `refusals` are what it saw.

    Args:
        rules: the model's.
        troubles: statuses with which the first requests are answered.
        retry_after: what a rate limit asks the client to wait.
        counts: whether answers tell the tokens.
        port: where it listens; 0: a free one.
    """

    def __init__(
        self, rules: Rules, *, troubles: Iterable[int] = (), retry_after: str = "0", counts: bool = True, port: int = 0
    ) -> None:
        self.rules = rules
        self.counts = counts
        self.troubles = deque(troubles)
        self.retry_after = retry_after
        self.requests = 0
        self.refusals: list[str] = []
        """Why requests were refused, other than by `troubles`."""
        self.bodies: deque[Mapping[str, Any]] = deque(maxlen=50)
        """The newest requests that were answered."""
        endpoint = self

        class Handler(_Handler):
            owner = endpoint

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="endpoint", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def base_url(self) -> str:
        """Its address, as EVAL_BASE_URL wants it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def environment(self) -> dict[str, str]:
        """What leads the eval here."""
        return {"EVAL_BASE_URL": self.base_url, "EVAL_MODEL": MODEL, "EVAL_API_KEY": KEY}

    def answer(self, path: str, key: str, raw: bytes) -> tuple[int, dict[str, str], bytes]:
        """Answer a request with status, headers and body."""
        self.requests += 1
        if self.troubles:
            status = self.troubles.popleft()
            if status == NO_JSON:
                return HTTPStatus.OK, {}, b'{"choices": [{"mess'
            headers = {
                HTTPStatus.TOO_MANY_REQUESTS: {"Retry-After": self.retry_after},
                HTTPStatus.FOUND: {"Location": f"{self.base_url}/elsewhere"},
            }
            return status, headers.get(HTTPStatus(status), {}), _error("not now")
        if path != "/v1/chat/completions":
            return self._refuse(HTTPStatus.NOT_FOUND, f"there is no {path}")
        if key != f"Bearer {KEY}":
            return self._refuse(HTTPStatus.UNAUTHORIZED, f"wrong key {key.removeprefix('Bearer ')}")
        try:
            body = json.loads(raw)
        except ValueError:
            return self._refuse(HTTPStatus.BAD_REQUEST, "the body is not JSON")
        if body.get("model") != MODEL:
            return self._refuse(HTTPStatus.NOT_FOUND, "there is no such model")
        wrong = [each for each in refused(defects(OPENAI_CHAT, body)) if each.kind not in _PASSED]
        if wrong:
            return self._refuse(HTTPStatus.BAD_REQUEST, f"the messages are not valid: {wrong}")
        for tool in body.get("tools", ()):
            if tool["type"] != "function" or tool["function"]["parameters"]["type"] != "object":
                return self._refuse(HTTPStatus.BAD_REQUEST, "a tool's definition is not valid")
        self.bodies.append(body)
        return HTTPStatus.OK, {}, self._completion(body)

    def _completion(self, body: Mapping[str, Any]) -> bytes:
        message = reply(body, self.rules)
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        completion: dict[str, Any] = {
            "id": f"completion-{self.requests}",
            "object": "chat.completion",
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        }
        if self.counts:
            tokens_in, tokens_out = count_prompt(body), count_prompt({"messages": [message]})
            completion["usage"] = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}
        return json.dumps(completion).encode()

    def _refuse(self, status: int, why: str) -> tuple[int, dict[str, str], bytes]:
        self.refusals.append(why)
        return status, {}, _error(why)


class _Handler(BaseHTTPRequestHandler):
    """HTTP around `Endpoint.answer`."""

    owner: Endpoint
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer."""
        size = int(self.headers.get("Content-Length") or 0)
        if not 0 <= size <= _MOST_BYTES:
            self.close_connection = True
            self._send(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {}, _error("too long"))
            return
        raw = self.rfile.read(size)
        self._send(*self.owner.answer(self.path, self.headers.get("Authorization", ""), raw))

    def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _error(message: str) -> bytes:
    return json.dumps({"error": {"message": message}}).encode()


def main() -> int:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.eval.endpoint", description=__doc__)
    parser.add_argument("--recalls", choices=list(Recalls), type=Recalls, default=Recalls.WITH_CUE, help="when")
    parser.add_argument("--follows", type=float, default=0.3, metavar="SHARE", help="of the baits that it sees")
    parser.add_argument("--fumbles", action="store_true", help="its first call has broken arguments")
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    asked = parser.parse_args()
    rules = Rules(asked.recalls, follows=asked.follows, fumbles=asked.fumbles)
    with Endpoint(rules, port=asked.port) as endpoint:
        print(" ".join(f"{name}={value}" for name, value in endpoint.environment.items()), "make eval", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
