"""Marks and keys for the provider's cache, through the door: the agent sends none, the provider gets them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

import pytest

from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.trim.presets import preset
from tests.client.provider import Says
from tests.doors.http.habits import APIS, BOTH, Turn
from tests.doors.http.path_models import post
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.test_pins import WINDOW, _history, _model
from tests.doors.http.upstream import scripted

MARKED: Final = Rules(CallerRules(preset("cache_first").override({"cache_marks": True, "cache_key": True})))
NAMES: Final = {"messages": '"cache_control"', "bedrock": '"cachePoint"'}
PATHS: Final = {"bedrock": "/model/anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse"}


def _send(here: Proxied, api: str, history: Sequence[Any], run: str = "marks") -> int:
    spoken = APIS[api]
    body = spoken.request(history, False)
    if "model" in body:
        body["model"] = "gpt-5.4" if api in ("chat", "responses") else "claude-opus-4-5"
    headers = {"x-prompt-sidecar-run": run, "x-prompt-sidecar-context-window": str(WINDOW)}
    return asyncio.run(post(here.url + PATHS.get(api, spoken.path), json.dumps(body).encode(), **headers))[0]


@pytest.mark.parametrize("api", NAMES)
def test_a_provider_gets_marks_that_move_with_the_history(api: str) -> None:
    """At most four in each request, valid for it, one at its newest message; also behind hidden turns and cuts."""
    spoken = APIS[api]
    with proxied(scripted(), rules=MARKED) as here:
        sent = _model(here, api, BOTH, *(Says(str(number)) for number in range(9)))
        history = [spoken.asked("Go")]
        assert 200 == _send(here, api, history)
        history += [*spoken.answer_entries(Turn()), spoken.result(Turn(), "done")]
        for turns in (1, 2, 9, 17, 25):
            assert 200 == _send(here, api, [*history, *_history(api, turns, first=1)])
        bodies, defects = sent(), here.upstream.defects

    assert not defects
    for body in bodies:
        assert 0 < json.dumps(body).count(NAMES[api]) <= 4
        assert NAMES[api] in json.dumps(body[spoken.history][-1])


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_run_keeps_one_key(api: str) -> None:
    """It is none of the run's name."""
    spoken = APIS[api]
    with proxied(scripted(), rules=MARKED) as here:
        sent = _model(here, api, *(Says(str(number)) for number in range(9)))
        for turns in (1, 9, 17):
            assert 200 == _send(here, api, [spoken.asked("Go"), *_history(api, turns)], run="a-name")
        assert 200 == _send(here, api, [spoken.asked("Go"), *_history(api, 1)], run="another")
        keys: list[Any] = [body.get("prompt_cache_key") for body in sent()]

    assert (1, 2) == (len(set(keys[:3])), len(set(keys)))
    assert all(key and "name" not in key for key in keys)
