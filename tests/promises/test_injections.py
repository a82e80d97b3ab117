"""Tool output is inert: nothing that a hostile text says is ever said by the sidecar.

Payloads stand in the head, the middle and the tail of tool results, in tool names, arguments, call ids and feedback,
bare and inside forgeries of everything that the sidecar writes. Runs of them are replayed under pressure. Then what the
sidecar wrote itself is read: own text, markers, the lines of envelopes, sentences, errors. No twenty characters of a
payload in a row may be there, but in the escaped and bounded summary of a call's arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import pytest

from prompt_sidecar.errors import SidecarError
from prompt_sidecar.facts.recall_calls import RetrieveCall, SearchCall
from prompt_sidecar.facts.tool_calls import ToolAnswer, ToolCall, ToolOutcome
from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.recall.found import MOST_SNIPPETS, SearchQuery
from prompt_sidecar.recall.outcome import Outcome, describe
from prompt_sidecar.recall.selection import PatternMatch
from prompt_sidecar.recall.tag import AnswerKind, RecognisedAnswer, recognise
from prompt_sidecar.trim.elide import clipped_arguments
from prompt_sidecar.trim.ids import run_key
from prompt_sidecar.trim.own_text import ARGUMENTS_CHARACTERS, NAMES_HEADER
from prompt_sidecar.v1 import conversation_pb2 as pb
from tests.oracle import data
from tests.oracle.alignment import CONDENSED, text_may_stand_for
from tests.oracle.runs import body_of, dumps
from tests.oracle.shapes import ANTHROPIC_MESSAGES, OPENAI_CHAT
from tests.promises.engine import CALLER, KEY, RUN_ID, Engine
from tests.promises.forgeries import (
    FILLER,
    GUESSED_ID,
    TYPED,
    Call,
    calls_of,
    envelope_lines,
    feedback_of,
    opening,
    own_payloads,
    read_envelope,
    step,
    strings,
)
from tests.promises.judge import prompt_of

INJECTIONS = "injections/agentdojo-payloads.jsonl.gz"
LIMIT = 24_000
POLICY = {"registry_share": 0.02, "cap_text_bytes": 8_192}
"""Room for some twenty lines of registry, and a cap that elides every long result at once."""
RUN_OF = 20
"""Characters of a payload in a row that cannot be in the sidecar's words by chance."""
STEPS_A_PROMPT = 20
ASKED = 4
"""Payloads that recall is asked about, spread over the run: each takes a dozen calls."""


def recorded_payloads() -> list[str]:
    """Recorded prompt injections; the test is skipped where they are absent."""
    return [record["payload"] for record in data.lines(data.need(INJECTIONS))]


sources = pytest.mark.parametrize("source", [own_payloads, recorded_payloads], ids=["own", "recorded"])
formats = pytest.mark.parametrize("format", [OPENAI_CHAT, ANTHROPIC_MESSAGES, TYPED])


def send(engine: Engine, format: str, slices: Sequence[bytes]) -> TrimAnswer:
    """Send a history in its format."""
    if format == TYPED:
        return engine.trim(TYPED, b"", messages=list(slices))
    return engine.trim(format, body_of(format, slices))


@dataclass(frozen=True, slots=True)
class Played:
    """A hostile run after its last prompt."""

    format: str
    payloads: Sequence[str]
    engine: Engine
    sent: frozenset[str]
    """Every string that was sent."""
    answers: Sequence[TrimAnswer]


@cache
def played(format: str, source: Any) -> Played:
    """Replay a hostile run, some steps a prompt; made once for all the tests that look at it."""
    payloads = source()
    engine = Engine(limit=LIMIT, policy=POLICY)
    slices, answers = [opening(format)], []
    for number, payload in enumerate(payloads):
        slices += step(format, calls_of(number, payload), feedback_of(number, payload))
        if number % STEPS_A_PROMPT == 0 or number == len(payloads) - 1:
            answers.append(send(engine, format, slices))
    sent = frozenset(text for raw in slices for text in strings(format, raw))
    return Played(format, payloads, engine, sent, answers)


# -- what may not be said ----------------------------------------------------------------------------------------------


def _windows(text: str) -> Iterator[str]:
    return (text[at : at + RUN_OF] for at in range(len(text) - RUN_OF + 1))


def _spellings(text: str) -> list[str]:
    """A text as it is, escaped, and with its white space and escapes evened out."""
    return [text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], " ".join(text.split())]


@cache
def _telling(payloads: tuple[str, ...]) -> frozenset[str]:
    every = chain.from_iterable(_windows(spelled) for payload in payloads for spelled in _spellings(payload))
    return frozenset(every)


def leaks(of: Played, texts: Iterable[str]) -> list[str]:
    """What of the payloads is in texts that the sidecar wrote."""
    telling = _telling(tuple(of.payloads))
    found = {window for text in texts for spelled in {text, " ".join(text.split())} for window in _windows(spelled)}
    return sorted(found & telling)


SUMMARY = re.compile(r'(?<= args=)"(?:[ !#-\[\]-~]|\\(?:["\\bfnrt]|u[0-9a-f]{4}))*"')
"""An escaped JSON string of printable ASCII."""
NAMES = re.compile(rf"(?<={re.escape(NAMES_HEADER)}\n).*")
"""The names below the registry, which are checked by themselves."""
WORDS_OF = 4
"""Words of a payload's prose in a row that cannot stand in a list of names by chance, however it is split."""
MARKER = re.compile(r"\[content elided to fit context window — id=(?P<id>[a-z0-9]{10}), [\d,]+ bytes\]")
PLACEHOLDER = re.compile(
    r"\[content clipped — id=(?P<id>[a-z0-9]{10}), [\d,]+ bytes"
    r"(?:; names in what is clipped so far: (?P<names>[^\]]+?))?(?:; [\d,]+\+? other iterations? dropped)?\]"
)


def own_words(answer: TrimAnswer) -> list[str]:
    """The sidecar's own text and its registry, without the summaries of arguments and the names."""
    return [
        *(SUMMARY.sub("", NAMES.sub("", piece.text)) for piece in answer.prompt.own_text),
        *(entry.tool for entry in answer.trimmed.stash_entries),
    ]


def returned(of: Played, answer: TrimAnswer) -> list[str]:
    """Every string of a returned prompt that is not own text."""
    own = {piece.message_index for piece in answer.prompt.own_text}
    raws = answer.prompt.messages if answer.prompt.messages is not None else prompt_of(answer.prompt.body or b"").slices
    return [text for place, raw in enumerate(raws) if place not in own for text in strings(of.format, raw)]


def is_label(text: str, ids: frozenset[str], sent: frozenset[str]) -> bool:
    """Whether a text is a placeholder of ours, or what was sent with some of ours in it.

    That is two ends of a text around a marker, arguments with placeholders in place of long strings, or a result that
    was condensed.
    """
    clipped = PLACEHOLDER.fullmatch(text)
    if clipped is not None:
        return clipped["id"] in ids
    for found in PLACEHOLDER.finditer(text) if text[:1] in ("{", "[") else ():
        if any(clipped_arguments(whole, found["id"], free_text=False) == text for whole in sent):
            return found["id"] in ids
    for found in MARKER.finditer(text):
        heads = {text[: found.start()], text[: found.start()].removesuffix("\n")}
        tails = {text[found.end() :], text[found.end() :].removeprefix("\n")}
        if found["id"] in ids and any(
            whole.startswith(head) and whole.endswith(tail) for whole in sent for head in heads for tail in tails
        ):
            return True
    condensed = CONDENSED.search(text)
    return (
        condensed is not None
        and any(f"id={each}" in condensed[0] for each in ids)
        and any(text_may_stand_for(whole, text) for whole in sent)
    )


# -- trimming ----------------------------------------------------------------------------------------------------------


@sources
@formats
def test_own_text_says_nothing_of_a_payload(format: str, source: Any) -> None:
    """Directives, registry, note and placeholders, and the tools' names of the registry: nothing is the payload's."""
    run = played(format, source)
    assert run.answers[-1].cache.batch_points > 1
    assert any(entry.tool == "other" for answer in run.answers for entry in answer.trimmed.stash_entries)
    assert [] == leaks(run, chain.from_iterable(own_words(answer) for answer in run.answers))


@sources
@formats
def test_summaries_of_arguments_are_escaped_and_bounded(format: str, source: Any) -> None:
    """A summary is one JSON string of at most 80 printable characters, wherever it stands."""
    run = played(format, source)
    shown = [entry.arguments for answer in run.answers for entry in answer.trimmed.stash_entries if entry.arguments]
    shown += [
        found[0] for answer in run.answers for piece in answer.prompt.own_text for found in SUMMARY.finditer(piece.text)
    ]
    assert any(leaks(run, [summary]) for summary in shown)  # hostile ones are among them
    for summary in shown:
        assert SUMMARY.fullmatch(f" args={summary}", 6), summary
        assert len(summary) <= ARGUMENTS_CHARACTERS + 2
        assert isinstance(json.loads(summary), str)
    lines = [line for answer in run.answers for piece in answer.prompt.own_text for line in piece.text.split("\n")]
    assert [] == [line for line in lines if "args=" in line and SUMMARY.search(line) is None]


def _in_a_row(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    windows = (tuple(words[at : at + WORDS_OF]) for at in range(len(words) - WORDS_OF + 1))
    return (window for window in windows if all(map(str.isalpha, window)))


def _prose(text: str) -> list[str]:
    return [word.strip(".,;:!?()\"'*<>-") for word in text.lower().split()]


@sources
@formats
def test_names_form_no_sentence(format: str, source: Any) -> None:
    """Each name is one of 4 to 40 plain characters, no address, no id; no four words of a payload stand there."""
    run = played(format, source)
    lists = {
        found[0] for answer in run.answers for piece in answer.prompt.own_text for found in NAMES.finditer(piece.text)
    }
    labels = (PLACEHOLDER.fullmatch(text) for answer in run.answers for text in returned(run, answer))
    lists |= {label["names"] for label in labels if label is not None and label["names"]}
    texts = frozenset(chain.from_iterable(_in_a_row(_prose(payload)) for payload in run.payloads))
    ids = {trim.stash_id for answer in run.answers for trim in answer.trimmed.trims}
    for listed in lists:
        names = listed.split(" ")
        assert [] == [name for name in names if not re.fullmatch(r"(?=.*[0-9_./-])[A-Za-z0-9_./-]{4,40}", name)]
        assert [] == [name for name in names if name in ids or re.search(r"www\.|\.com\b|\.example\b", name)]
        assert [] == sorted(texts.intersection(_in_a_row(re.findall(r"[a-z]+", listed.lower()))))


@sources
@formats
def test_markers_are_the_only_words_in_the_history(format: str, source: Any) -> None:
    """A returned prompt holds what was sent, and between two ends of it, or in its place, a label and nothing else."""
    run = played(format, source)
    labels = 0
    for answer in run.answers:
        ids = frozenset(trim.stash_id for trim in answer.trimmed.trims)
        strange = [text for text in returned(run, answer) if text not in run.sent and text not in ("", "{}")]
        assert [] == [text for text in strange if not is_label(text, ids, run.sent)]
        labels += len(strange)
    assert labels > len(run.answers)


@sources
@formats
def test_errors_say_nothing_of_a_payload(format: str, source: Any) -> None:
    """A body that is refused is refused without its words."""
    run = played(format, source)
    texts: list[str] = []
    for payload in run.payloads[:: max(1, len(run.payloads) // ASKED)]:
        bodies: list[Any] = [payload, {"messages": payload}, {payload: payload}, {"messages": [payload]}, [[payload]]]
        bodies += [{"messages": [{"role": role, "content": {payload: payload}}]} for role in ("user", payload)]
        bodies += [{"messages": [{"role": "assistant", "tool_calls": payload, "content": [{"type": payload}]}]}]
        raws = [payload.encode(), *(dumps(body) for body in bodies), dumps({payload: 1})[:-1]]
        call = pb.Part(tool_call=pb.ToolCall(id=payload, name=payload, arguments_json=payload))
        odd = pb.Part(opaque_json=payload)
        typed = [pb.Message(role=pb.ROLE_ASSISTANT, parts=[part]).SerializeToString() for part in (call, odd)]
        for raw in [*raws, *typed]:
            try:
                if format == TYPED:
                    run.engine.trim(TYPED, b"", messages=[raw], run_id="refused")
                else:
                    run.engine.trim(format, raw, run_id="refused")
            except SidecarError as error:
                texts += [error.message, error.field, str(error)]
    assert len(texts) > ASKED
    assert [] == leaks(run, texts)
    assert not any(ord(character) < 32 for text in texts for character in text)


# -- recall ------------------------------------------------------------------------------------------------------------


def _asked(run: Played) -> Sequence[str]:
    return run.payloads[:: max(1, len(run.payloads) // ASKED)]


def _tool(run: Played, name: str, arguments: object, **fields: Any) -> ToolAnswer:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call = ToolCall(**({"caller": CALLER, "run_id": RUN_ID, "name": name, "arguments": text} | fields))
    return run.engine.runs.recalling.call_tool(call, lambda: None)


def _search(run: Played, words: str, **fields: Any) -> Any:
    return run.engine.runs.recalling.search(SearchCall(CALLER, RUN_ID, SearchQuery(words, **fields)), lambda: None)


def _words(payload: str) -> str:
    return " ".join(re.findall(r"\w+", payload)[:12]) or "order"


@sources
@formats
def test_a_search_reads_back(format: str, source: Any) -> None:
    """Quotes are the originals' text, as many as there are snippets; what is said around them is not the payload's."""
    run = played(format, source)
    quoted: list[str] = []
    for payload in _asked(run):
        for words in (_words(payload), payload[:1_000]):
            found = _search(run, words, max_snippets=MOST_SNIPPETS, snippet_tokens=400, total_tokens=20_000)
            texts, quotes = read_envelope(found.rendered) if found.rendered else ("", [])
            assert [snippet.text for snippet in found.snippets] == [quote.text for quote in quotes]
            assert [] == leaks(run, [found.message, texts, *(quote.label for quote in quotes)])
            for snippet in found.snippets:
                held = run.engine.original(snippet.item.stash_id) or b""
                assert held[snippet.start_byte : snippet.end_byte] == snippet.text.encode()
            quoted += [quote.text for quote in quotes]
    assert leaks(run, quoted)  # payloads are found, and in quotes


@sources
@formats
def test_tools_say_nothing_of_a_payload(format: str, source: Any) -> None:
    """In the answers of the model's tools a payload stands in quotes; line, labels and notices are free of it."""
    run = played(format, source)
    key = run_key(KEY, CALLER, RUN_ID)
    texts: list[str] = []
    ids = [trim.stash_id for trim in run.answers[-1].trimmed.trims]
    asked = [("search_conversation_history", {"query": _words(payload)}) for payload in _asked(run)]
    asked += [("recall_elided_content", {"id": stash_id}) for stash_id in ids[:: max(1, len(ids) // ASKED)]]
    kinds = set()
    for name, arguments in asked:
        answer = _tool(run, name, arguments)
        assert ToolOutcome.OK is answer.outcome
        known = recognise(key, answer.content)
        assert known is not None
        kinds.add(known.kind)
        line, _, body = answer.content.partition("\n")
        texts += [line, *(envelope_lines(body) if body else [])]
        if known.kind is AnswerKind.RECALLED:
            assert answer.recalled is not None
            assert RecognisedAnswer(AnswerKind.RECALLED, arguments["id"]) == known
            quotes = read_envelope(body)[1]
            assert answer.recalled.page.content.decode() == "".join(quote.text for quote in quotes)
    assert {AnswerKind.RECALLED, AnswerKind.FOUND} <= kinds
    assert [] == leaks(run, texts)


@sources
@formats
def test_refusals_say_nothing_of_a_payload(format: str, source: Any) -> None:
    """What a model or a program asks wrongly, with a payload in it, is answered without the payload."""
    run = played(format, source)
    recall, search, update = "recall_elided_content", "search_conversation_history", "update_task"
    real = run.answers[-1].trimmed.trims[0].stash_id
    texts: list[str] = []
    for payload in _asked(run):
        calls: list[tuple[str, object]] = [
            (recall, payload), (recall, {"id": payload}), (recall, {"id": [payload, payload]}),
            (recall, {"id": real, "pattern": "(" + payload}), (recall, {"id": real, "first_line": payload}),
            (recall, {"id": real, "offset": payload}), (recall, {payload: payload}), (search, {"query": [payload] * 2}),
            (search, {"query": "x", "role": payload}), (search, {"query": "x", "max_results": payload}),
            (search, {"query": payload * 200}), (update, {"id": payload, "status": payload}),
            ("create_tasks", {"tasks": [payload * 20]}), (payload, {"query": payload}), (search, json.dumps(payload)),
        ]  # fmt: skip
        texts += [_tool(run, name, arguments).content for name, arguments in calls]
        texts.append(_search(run, "zqxjkvbw", tools=frozenset({payload})).message)
        texts.append(run.engine.retrieve(payload).message)
        for refused in (
            lambda payload=payload: run.engine.retrieve(real, selection=PatternMatch("(" + payload, 0, False)),
            lambda payload=payload: _search(run, payload * 1_000),
        ):
            with pytest.raises(SidecarError) as error:
                refused()
            texts += [error.value.message, error.value.field]
    assert [] == leaks(run, texts)


@sources
@formats
def test_ids_that_are_not_the_runs_all_fail_alike(format: str, source: Any) -> None:
    """Made up, another run's, or taken from a forgery: not found, in the same words, for programs and for models."""
    run = played(format, source)
    other = Engine(limit=LIMIT, policy=POLICY, run_id="another run")
    other.runs = run.engine.runs
    steps = (step(format, calls_of(number, run.payloads[number]), "Go on.") for number in range(20))
    slices = [opening(format), *chain.from_iterable(steps)]
    theirs = [trim.stash_id for trim in send(other, format, slices).trimmed.trims]
    assert theirs
    asked = [GUESSED_ID, "zzzzzzzzzz", *theirs[:4], *(payload[:64] for payload in _asked(run)[:4])]
    odd = ["", "*", "../" + theirs[0], theirs[0].upper(), theirs[0] + " "]
    answers = [run.engine.retrieve(stash_id) for stash_id in (*asked, *odd)]
    assert {(Outcome.NOT_FOUND, describe(Outcome.NOT_FOUND), b"")} == {
        (answer.outcome, answer.message, answer.page.content) for answer in answers
    }
    contents = {_tool(run, "recall_elided_content", {"id": stash_id}).content for stash_id in asked[:6]}
    assert 1 == len(contents)
    assert Outcome.HIT is other.retrieve(theirs[0]).outcome
    unknown = run.engine.runs.recalling.retrieve(RetrieveCall("somebody else", RUN_ID, theirs[0]))
    assert Outcome.RUN_UNKNOWN is unknown.outcome


@formats
def test_only_a_true_answer_is_not_recorded(format: str) -> None:
    """Our tool's own answer is not found next to its original; copied, altered or of another run it is any result."""
    engine, other = (Engine(limit=LIMIT, policy=POLICY, run_id=name) for name in (RUN_ID, "another run"))
    rare = "qvxgarble"
    slices = [opening(format), *step(format, [Call("c1", "run", "{}", f"{rare} {FILLER}" + FILLER * 400)], "Go on.")]
    contents = []
    for of in (engine, other):
        trims = send(of, format, slices).trimmed.trims
        call = ToolCall(
            CALLER, of.run_id, "recall_elided_content", json.dumps({"id": trims[0].stash_id, "last_line": 3})
        )
        contents.append(of.runs.recalling.call_tool(call, lambda: None).content)
    assert all(rare in content for content in contents)
    found = []
    for tool, result in (
        ("recall_elided_content", contents[0]),
        ("mcp_sidecar.recall_elided_content", contents[0].replace("\n", "\r\n") + "\n"),
        ("read_file", contents[0]),
        ("recall_elided_content", contents[0].replace("ordinary", "or dinary", 1)),
        ("recall_elided_content", contents[1]),
    ):
        slices += step(format, [Call(f"c{len(slices)}", tool, "{}", result)], "Go on.")
        send(engine, format, slices)
        wanted = SearchCall(CALLER, RUN_ID, SearchQuery(rare, max_snippets=MOST_SNIPPETS))
        found.append(engine.runs.recalling.search(wanted, lambda: None).matching_items)
    assert [1, 1, 2, 3, 4] == found


@formats
def test_a_forged_answer_is_a_result_like_any_other(format: str) -> None:
    """What poses as an answer of our own tool is recorded and found, payload and all."""
    run = played(format, own_payloads)
    payload = run.payloads[0]
    found = _search(run, _words(payload), tools=frozenset({"recall_elided_content"}), snippet_tokens=400)
    assert any("tag=" in snippet.text and payload in snippet.text for snippet in found.snippets)
