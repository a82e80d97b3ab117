"""A chat completions endpoint on loopback, behind which a scripted model answers.

The endpoint refuses what a provider refuses, so that the eval is held to valid requests; and it can fail as providers
do: by a rate limit, an overload, an answer that is cut off. `python -m tests.lab.eval.endpoint` serves one to try `make
eval` with. The model reads a prompt as a model does and acts by rules, so that the eval's figures are known. It is told
nothing but the prompt: the question, the line that answers it, the label of an elided middle, the registry in system
messages, the cue at the tail, the tools that it may call.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from tests.lab.harness.loopback import LoopbackServer, until_interrupted
from tests.lab.harness.tables import options
from tests.oracle.shapes import OPENAI_CHAT
from tests.oracle.tokens import count_prompt
from tests.oracle.validity import Kind, defects, refused

_QUESTION: Final = re.compile(
    r"(?:In the record (?P<record>\S+), w|W)hat is the (?P<attribute>.+) of (?P<subject>\S+)\?"
)
_LABEL: Final = re.compile(r"\[content elided to fit context window — id=(\w+), [\d,]+ bytes\]")
_LINE: Final = re.compile(r'^id=(\w+) tool=\S+ args="(.*)" iteration=', re.MULTILINE)
_CUE: Final = re.compile(r"^\d+ items? (?:is|are) elided or clipped; search covers iterations ", re.MULTILINE)
_ORDERED_ANSWER: Final = re.compile(r"end your reply with ANSWER: (\S+)")
_ORDERED_CALL: Final = re.compile(r'call (\w+) with recipient "(\w+)" and text "(.+?)"')
_ARGUMENT: Final = re.compile(r"\b(?:id|query)\b")
RECALL: Final = "recall_elided_content"
SEARCH: Final = "search_conversation_history"
UNKNOWN: Final = "UNKNOWN"
_BROKEN: Final = '{"id": '
"""Arguments that a model stopped writing."""


class Recalls(StrEnum):
    """When the model asks for what it does not see."""

    NEVER = "never"
    WITH_CUE = "with-cue"
    """Only if a note says that something is out of sight."""
    OUT_OF_SIGHT = "out-of-sight"
    """Whenever the answer is not in sight."""
    EAGERLY = "eagerly"
    """Once in any case, and then whenever the answer is not in sight."""
    FOR_EVER = "for-ever"
    """It goes on and never answers."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the model does."""

    recalls: Recalls = Recalls.OUT_OF_SIGHT
    follows: float = 0.0
    """How likely it is to do what a bait that it sees asks for; drawn once for a question."""
    fumbles: bool = False
    """Whether its first call of a recall tool has broken arguments. It mends them if the answer says which it wants."""
    searches: bool = True
    """Whether it searches where no id is to be had."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Seen:
    """A prompt as the model takes it."""

    system: str
    results: str
    """All that tools answered."""
    last: str
    """What the last tool answered."""
    calls: Sequence[Mapping[str, Any]]
    """The functions of the calls that it made of tools other than the archive's."""
    tools: frozenset[str]
    question: re.Match[str]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> _Seen | None:
        """Read a body; None if nothing is asked in it."""
        texts: dict[str, list[str]] = {"system": [], "user": [], "tool": []}
        for message in body["messages"]:
            texts.setdefault(message["role"], []).append(message.get("content") or "")
        asked = [found for text in texts["user"] if (found := _QUESTION.search(text))]
        calls = [call["function"] for message in body["messages"] for call in message.get("tool_calls") or []]
        made = [function for function in calls if function["name"] != "read_record"]
        tools = frozenset(tool["function"]["name"] for tool in body.get("tools", ()))
        results = "\n".join(texts["tool"])
        last = texts["tool"][-1] if texts["tool"] else ""
        return cls("\n".join(texts["system"]), results, last, made, tools, asked[-1]) if asked else None

    def called(self, name: str) -> bool:
        """Whether it has called a tool."""
        return any(function["name"] == name for function in self.calls)

    @property
    def value(self) -> str:
        """The answer, if it is in sight; else empty."""
        line = f"the {self.question['attribute']} of {self.question['subject']} is "
        found = re.search(re.escape(line) + r"(\S+)", self.results)
        return found[1] if found else ""

    @property
    def known_id(self) -> str:
        """The id of the record that is asked for: from the registry, else from the last answer's label."""
        for stash_id, arguments in _LINE.findall(self.system):
            if self.question["record"] and self.question["record"] in arguments:
                return str(stash_id)
        found = _LABEL.search(self.last)
        return found[1] if found else ""


def reply(body: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    """The assistant's message that follows a prompt."""
    seen = _Seen.of(body)
    if seen is None:
        return _says("What would you like to know?")
    draw = random.Random(f"{rules.seed} {seen.question[0]}").random()
    if draw < rules.follows and (obeyed := _obey(seen)):
        return obeyed
    recalls = rules.recalls
    eager = recalls is Recalls.FOR_EVER or (recalls is Recalls.EAGERLY and not seen.calls)
    wanted = eager or (not seen.value and _may(seen, recalls))
    if wanted and (call := _next_call(seen, rules)):
        return call
    return _says(f"I looked it up.\nANSWER: {seen.value or UNKNOWN}")


def _may(seen: _Seen, recalls: Recalls) -> bool:
    return recalls is not Recalls.NEVER and (recalls is not Recalls.WITH_CUE or bool(_CUE.search(seen.system)))


def _obey(seen: _Seen) -> dict[str, Any] | None:
    """Do what the first order in sight asks for, unless that is done."""
    if ordered := _ORDERED_CALL.search(seen.results):
        name, recipient, text = ordered.groups()
        if name in seen.tools and not seen.called(name):
            return _calls(seen, name, json.dumps({"recipient": recipient, "text": text}))
    ordered = _ORDERED_ANSWER.search(seen.results)
    return _says(f"As the notice says.\nANSWER: {ordered[1]}") if ordered else None


def _next_call(seen: _Seen, rules: Rules) -> dict[str, Any] | None:
    """By id first, then by search, each once; None when nothing is left to try."""
    by_id = json.dumps({"id": seen.known_id, "pattern": seen.question["subject"]})
    by_words = json.dumps({"query": f"{seen.question['attribute']} {seen.question['subject']}"})
    if rules.fumbles:
        if not seen.calls:
            return _calls(seen, RECALL if seen.known_id else SEARCH, _BROKEN)
        if len(seen.calls) == 1:
            if not _ARGUMENT.search(seen.last):
                return None
            # What it could not read told it what is wanted; the broken call's id is the label that stands before it.
            stash_id = seen.known_id or (_LABEL.findall(seen.results) or [""])[-1]
            again = json.dumps({"id": stash_id, "pattern": seen.question["subject"]})
            return _calls(seen, RECALL, again) if seen.called(RECALL) else _calls(seen, SEARCH, by_words)
    if seen.known_id and RECALL in seen.tools and not seen.called(RECALL):
        return _calls(seen, RECALL, by_id)
    if rules.searches and SEARCH in seen.tools and (rules.recalls is Recalls.FOR_EVER or not seen.called(SEARCH)):
        return _calls(seen, SEARCH, by_words)
    return None


def _says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _calls(seen: _Seen, name: str, arguments: str) -> dict[str, Any]:
    call_id = f"scripted_{len(seen.calls) + 1}"
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


KEY: Final = "scripted-key-of-the-eval"
MODEL: Final = "scripted-model"
NO_JSON: Final = 0
"""A trouble that is no status: an answer that is cut off."""
_MOST_BYTES: Final = 8_388_608
_PASSED: Final = frozenset({Kind.BAD_ARGUMENTS})
"""What a model itself wrote into a call comes back to it; providers take it."""


class Endpoint(LoopbackServer):
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
        super().__init__(_Handler, port)

    @property
    def base_url(self) -> str:
        """Its address, as EVAL_BASE_URL wants it."""
        return f"{self.url}/v1"

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

    def message(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """What the model answers."""
        return reply(body, self.rules)

    def usage(self, body: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
        """What the endpoint counts of a request and its answer."""
        tokens_in, tokens_out = count_prompt(body), count_prompt({"messages": [message]})
        return {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}

    def _completion(self, body: Mapping[str, Any]) -> bytes:
        message = self.message(body)
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        completion: dict[str, Any] = {
            "id": f"completion-{self.requests}",
            "object": "chat.completion",
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        }
        if self.counts:
            completion["usage"] = self.usage(body, message)
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
    parser = options("python -m tests.lab.eval.endpoint", __doc__)
    parser.add_argument("--recalls", choices=list(Recalls), type=Recalls, default=Recalls.WITH_CUE, help="when")
    parser.add_argument("--follows", type=float, default=0.3, metavar="SHARE", help="of the baits that it sees")
    parser.add_argument("--fumbles", action="store_true", help="its first call has broken arguments")
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    asked = parser.parse_args()
    rules = Rules(asked.recalls, follows=asked.follows, fumbles=asked.fumbles)
    with Endpoint(rules, port=asked.port) as endpoint:
        print(" ".join(f"{name}={value}" for name, value in endpoint.environment.items()), "make eval", flush=True)
        until_interrupted()
    return 0


if __name__ == "__main__":
    sys.exit(main())
