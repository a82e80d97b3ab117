"""Names of what is hidden, in the labels of clipped results: where the registry stays as it was written first."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import msgspec

from prompt_sidecar.facts.trim_calls import OwnTextKind, TrimAnswer
from prompt_sidecar.trim.revision import RULES, seal, unseal
from tests.promises.engine import KEY, Engine

ANTHROPIC = "anthropic_messages"
LIMIT = 16_000
ITERATIONS = 90
LISTED = re.compile(r"; names in what is clipped so far: ([^\];]+)")


def history(iterations: int) -> list[dict[str, Any]]:
    """A task, and calls that each name a file of its own, in arguments too long to stay."""
    made: list[dict[str, Any]] = [{"role": "user", "content": "Fix it."}]
    for number in range(iterations):
        call = {"type": "tool_use", "id": f"c{number}", "name": "write", "input": {"path": name(number)}}
        text = f"value {number} of it, " * (40 if number % 3 else 120)
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": text}
        made += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return made


def name(number: int) -> str:
    """The file that an iteration writes."""
    return f"src/part_{number}.py"


def body(messages: list[dict[str, Any]]) -> bytes:
    """The body of a prompt."""
    return json.dumps({"model": "claude-3-5-sonnet-20241022", "max_tokens": 1, "messages": messages}).encode()


def trimmed(engine: Engine, iterations: int, **fields: Any) -> TrimAnswer:
    """The answer to the agent's own history."""
    return engine.trim(ANTHROPIC, body(history(iterations)), **fields)


def shown(answer: TrimAnswer) -> str:
    """The returned messages as JSON."""
    return json.dumps(json.loads(answer.prompt.body or b"")["messages"], ensure_ascii=False)


def listed(answer: TrimAnswer) -> list[str]:
    """The names in labels."""
    return [name for names in LISTED.findall(shown(answer)) for name in names.split()]


@cache
def run() -> list[TrimAnswer]:
    """A run of an agent that sends its own history."""
    engine = Engine(limit=LIMIT)
    return [trimmed(engine, number) for number in range(ITERATIONS)]


def test_what_the_prompt_no_longer_shows_is_named() -> None:
    """Labels name files of dropped calls, each once; the registry stays, so the prefix stays cached."""
    last = run()[-1]
    names = listed(last)
    assert len(names) > 10
    assert len(set(names)) == len(names)
    assert set(names) <= {name(number) for number in range(ITERATIONS)}
    rest = LISTED.sub("", shown(last))
    assert [] == [each for each in names if f'"{each}"' in rest]
    assert 1 == len({
        piece.text for answer in run() for piece in answer.prompt.own_text if piece.kind is OwnTextKind.REGISTRY
    })  # fmt: skip
    assert all(answer.tokens.after <= LIMIT for answer in run())


def test_a_label_keeps_its_names() -> None:
    """From one cut to the next a label that stays is the same, byte for byte."""
    for before, after in zip(run(), run()[1:], strict=False):
        if not after.cache.batch_point:
            assert LISTED.findall(shown(before)) == LISTED.findall(shown(after))


def test_another_process_lists_the_same() -> None:
    """One that is sent the history, or the revision too, or goes on from there, comes to the same prompt."""
    for upto in (50, 71, 88):
        for fields in ({}, {"revision": run()[upto].prompt.revision}):
            engine = Engine(limit=LIMIT)
            assert trimmed(engine, upto, **fields).prompt.body == run()[upto].prompt.body
            assert trimmed(engine, ITERATIONS - 1).prompt.body == run()[-1].prompt.body


def test_a_trimmed_history_sent_back() -> None:
    """An agent that goes on from what it got gets the same prompts."""
    engine, messages = Engine(limit=LIMIT), history(0)
    for number, expected in enumerate(run()):
        answer = engine.trim(ANTHROPIC, body(messages))
        assert json.loads(answer.prompt.body or b"") == json.loads(expected.prompt.body or b"")
        messages = json.loads(answer.prompt.body or b"")["messages"] + history(number + 1)[-2:]


def test_a_rewind_keeps_names_of_what_is_left() -> None:
    """An agent that returns to an earlier point, and another that never left it, can both go on from its revision."""
    engine = Engine(limit=LIMIT)
    trimmed(engine, ITERATIONS - 1)
    back = trimmed(engine, 85)
    fresh = trimmed(Engine(limit=LIMIT), 85, revision=back.prompt.revision)
    assert listed(back)
    assert back.prompt.body == fresh.prompt.body
    assert back.tokens == fresh.tokens


def test_a_run_of_earlier_rules_has_none() -> None:
    """It goes on as it began, in a process that has only its revision."""
    first = run()[3]
    opened = unseal(KEY, first.prompt.revision)
    assert opened is not None
    assert RULES == opened.began_under
    before = seal(KEY, msgspec.structs.replace(opened, began_under=9, version=9))
    engine = Engine(limit=LIMIT)
    trimmed(engine, 3, revision=before)
    answers = [trimmed(engine, number) for number in range(4, ITERATIONS)]
    assert [] == [each for answer in answers for each in listed(answer)]
    after = unseal(KEY, answers[-1].prompt.revision)
    assert after is not None
    assert (RULES, 9) == (after.version, after.began_under)
