"""Results condensed at first sight, as a provider gets them through the HTTP door."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pytest

from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.trim.presets import preset
from tests.client.provider import Says
from tests.doors.http.habits import APIS, Turn
from tests.doors.http.path_models import WAYS, post
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.upstream import scripted

EACH_API = pytest.mark.parametrize("api", APIS)
WINDOW: Final = 200_000
RECALL: Final = "recall_elided_content"
SAFE: Final = Rules(CallerRules(preset("cache_first").override({"condense": "safe"})))

RED: Final = "".join(f"\x1b[31mFAIL\x1b[0m x{number} of the suite\n" for number in range(120))
PLAIN: Final = RED.replace("\x1b[31m", "").replace("\x1b[0m", "")
PARTS: Final = "".join(f"unpacked part {number * 7919 % 10007} into the cache\n" for number in range(30))
PROGRESS: Final = "".join(f"fetch {number}% of the archive\r" for number in range(10, 99))
WAIT: Final = "waiting for the server to start on its port\n"
ROWS: Final = json.dumps([{"id": number, "state": "ok", "queue": "orders"} for number in range(60)], indent=1)
NUMBERS: Final = ",".join(f'{{"price":{number}.10,"rate":1e5,"queue":"orders of the day"}}' for number in range(60))
TWICE: Final = ",".join(f'{{"id":{number},"id":0,"state":"ok","queue":"orders of the day"}}' for number in range(60))
FOUND: Final = "".join(f"src/service/handler_of_orders.go:{number}:\tcheck(order_{number})\n" for number in range(60))
PASSED: Final = "".join(f"✓ suite of orders > case {number} {'does what it should ' * 16}\n" for number in range(6))
SUMS: Final = "✗ suite of orders > case 6 fails\n 6 pass\n 1 fail\n"
SOURCE: Final = "".join(f"def function_{number}(order):\n    return order.total * {number}\n\n" for number in range(60))
CASES: Final[Mapping[str, tuple[str, Mapping[str, str], str, str]]] = {
    "colours": ("bash", {"command": "make test"}, RED, PLAIN),
    "carriage returns": (
        "bash",
        {"command": "make fetch"},
        f"{PROGRESS}error: disk full\rfetch 100%\ndone\n{PARTS}",
        f"error: disk full\nfetch 100%\ndone\n{PARTS}",
    ),
    "identical lines": (
        "bash",
        {"command": "make start"},
        f"{WAIT * 60}up\n",
        f"{WAIT}[the line above 60 times]\nup\n",
    ),
    "rows": (
        "list_jobs",
        {"queue": "orders"},
        ROWS,
        '[rows of JSON: 60; in all: {"state":"ok","queue":"orders"}; columns: ["id"]]\n'
        + "".join(f"{number}\n" for number in range(60)),
    ),
    "rows of a file": ("read", {"path": "x.json"}, ROWS, ROWS),
    "a name twice": ("list_jobs", {"queue": "all"}, f"[{TWICE}]", f"[{TWICE}]"),
    "numbers as spelled": (
        "list_jobs",
        {"queue": "prices"},
        f"[{NUMBERS}]",
        '[rows of JSON: 60; in all: {"rate":1e5,"queue":"orders of the day"}; columns: ["price"]]\n'
        + "".join(f"{number}.10\n" for number in range(60)),
    ),
    "grep": (
        "bash",
        {"command": "grep -rn check src"},
        FOUND,
        "src/service/handler_of_orders.go\n" + FOUND.replace("src/service/handler_of_orders.go:", ""),
    ),
    "grep with a stray line": (
        "bash",
        {"command": "grep -rn check src"},
        f"{FOUND}5:require z\n",
        f"{FOUND}5:require z\n",
    ),
    "source": ("bash", {"command": "sed -n 1,180p orders.py"}, SOURCE, SOURCE),
}
"""Of each a tool, its arguments, what it returned, and what the provider is to get."""


def _turns(api: str, calls: Sequence[tuple[str, Mapping[str, str], str]]) -> list[Any]:
    """A task, and for each call of a tool what the model says and what comes back."""
    spoken, made = APIS[api], [APIS[api].asked("Fix the orders.")]
    for number, (tool, arguments, text) in enumerate(calls):
        turn = Turn(f"Step {number}.", f"call-{number}", tool, json.dumps(arguments))
        made += [*spoken.answer_entries(turn), spoken.result(turn, text)]
    return made


def _send(here: Proxied, api: str, history: Sequence[Any], run: str = "condensed") -> Mapping[str, str]:
    spoken = APIS[api]
    path = WAYS[spoken.way].path if spoken.way else spoken.path
    body = json.dumps(spoken.request(history, False)).encode()
    status, answer, headers = asyncio.run(post(here.url + path, body, **{"x-prompt-sidecar-run": run}))
    assert 200 == status, answer
    return headers


def _model(here: Proxied, api: str, *says: Says) -> Callable[[], list[str]]:
    """Have a model answer; return what gives the texts of the last body that it was sent."""
    sent = APIS[api].upstream(here, scripted(*says), stream=False)
    return lambda: list(_leaves(sent()[0][-1]))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each)


def _condensed(texts: Sequence[str]) -> list[tuple[str, str]]:
    """The condensed results: the text, and the id that its last line names."""
    found = (re.fullmatch(r"(?s)(.*?)\[condensed — id=(\w+)\]", text) for text in texts)
    return [(each[1], each[2]) for each in found if each]


@EACH_API
def test_what_a_provider_gets(api: str) -> None:
    """With default settings, of ten results in one prompt; a passed test is counted where the policy says so."""
    calls = [(tool, arguments, text) for tool, arguments, text, _ in CASES.values()]
    calls.append(("bash", {"command": "npm test"}, PASSED + SUMS))
    smaller = [shown for _, _, text, shown in CASES.values() if shown != text]
    for rules in (None, SAFE):
        with proxied(scripted(), window=WINDOW, rules=rules) as here:
            texts = _model(here, api, Says("ok"))
            headers = _send(here, api, _turns(api, calls))
            shown = texts()
        counted = [f"{PASSED.partition(chr(10))[0]}\n[5 more lines of passed tests left out]\n{SUMS}"] if rules else []
        assert [*smaller, *counted] == [text for text, _ in _condensed(shown)]
        assert str(len([*smaller, *counted])) == headers["x-prompt-sidecar-trims"]
        whole = [text for _, _, text, to_be in CASES.values() if text == to_be]
        assert all(text in shown for text in [*whole, *([] if rules else [PASSED + SUMS])])


@EACH_API
def test_a_run_of_nine_calls_on_two_replicas(api: str) -> None:
    """Condensed at call 5 and sent raw at calls 6 to 9: the same bytes here and there; a recall is the original."""
    test = {"command": "make test"}
    calls = [("bash", test, RED if number == 5 else f"done {number}") for number in range(1, 10)]
    with proxied(scripted(), window=WINDOW) as one, proxied(scripted(), window=WINDOW) as other:
        shown: list[tuple[str, str]] = []
        for made in range(1, 10):
            for here in (one, other)[: 1 if made < 6 else 2]:
                texts = _model(here, api, Says("ok"))
                _send(here, api, _turns(api, calls[:made]))
                shown += _condensed(texts())
        assert {PLAIN} == {text for text, _ in shown}
        assert 1 + 2 * 4 == len(shown)
        (stash_id,) = {stash_id for _, stash_id in shown}
        for here in (one, other):
            texts = _model(here, api, Says("", [("own-1", RECALL, {"id": stash_id})]), Says("ok"))
            _send(here, api, _turns(api, calls))
            assert any(RED.rstrip("\n") in text for text in texts())
