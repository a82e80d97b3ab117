"""The blocking client against a real server: every method, both shapes of a prompt, and what is remembered."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.client import Bytes, Client, InvalidRequest, Lines, Pattern, RunUnknown, Trimmed
from prompt_sidecar.client.kept import MOST_RUNS, ValuesByRun
from tests.client.histories import FACT, WINDOW, history, result
from tests.client.serving import PATIENT, client_of
from tests.doors.grpc.serving import serving


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """One client for all tests of the file; each has a run of its own."""
    with client_of() as (made, _):
        yield made


@pytest.mark.parametrize("format", ["openai_chat", "anthropic_messages"])
def test_all_shapes_say_the_same(client: Client, format: Any) -> None:
    """Bytes, text, an object and a bare list of messages become the same prompt, each in its own shape."""
    messages = history(format, 12)
    body = {"model": "m", "messages": messages}
    made: list[Trimmed[Any]] = [
        client.trim(f"shapes-{format}", prompt, format=format, context_window=WINDOW, output_reserve=500)
        for prompt in (json.dumps(body).encode(), json.dumps(body), body)
    ]
    raw, text, native = (each.prompt for each in made)

    assert (bytes, str, dict) == (type(raw), type(text), type(native))
    assert json.loads(raw) == json.loads(text) == native
    assert all(each.trimmed and each.fits and each.trims for each in made)
    assert made[0].trims == made[2].trims
    assert history(format, 12) == messages
    bare = client.trim(f"bare-{format}", messages, format=format, context_window=WINDOW, output_reserve=500)
    assert list is type(bare.prompt)
    assert bare.trims


def test_untrimmed_objects_stay_themselves(client: Client) -> None:
    """A message that is not trimmed is the very object that was given."""
    messages = history("openai_chat", 12)
    made = client.trim("same", messages, context_window=WINDOW, output_reserve=500)
    given = {id(message) for message in messages}
    touched = {trim.message_index for trim in made.trims}

    assert len(messages) - len(touched) == sum(id(message) in given for message in made.prompt)


def test_an_original_is_retrieved_by_every_selection(client: Client) -> None:
    """An original by id: whole in pages, by lines, by bytes, by pattern; and a passage by its words."""
    made = client.trim("recall", history("openai_chat", 12), context_window=WINDOW, output_reserve=500)
    trim = next(each for each in made.trims if each.kind == "result")
    original = result((trim.message_index + 1) // 2)
    pages, offset, more = b"", 0, True
    while more:
        page = client.retrieve("recall", trim.stash_id, page_tokens=200, offset=offset)
        pages, offset, more = pages + page.content, page.next_offset, page.more

    assert original == pages.decode()
    first = original.splitlines(keepends=True)[0].encode()
    assert first == client.retrieve("recall", trim.stash_id, Lines(1, 1)).content
    assert first[:5] == client.retrieve("recall", trim.stash_id, Bytes(0, 5)).content
    assert first == client.retrieve("recall", trim.stash_id, Pattern("BUILD NUMBER", ignore_case=True)).content
    assert "not_found" == client.retrieve("recall", "0123456789").outcome
    found = client.search("recall", f"{FACT} 3", roles=["tool"], max_snippets=1)
    assert ("found", 1) == (found.outcome, len(found.snippets))
    assert "tool" == found.snippets[0].role


def test_tasks_and_tools(client: Client) -> None:
    """Tasks are written, ticked off and listed; tools are told in each format and run."""
    assert [(1, "a", "pending")] == [(t.id, t.text, t.status) for t in client.create_tasks("tasks", ["a"])]
    assert ["a", "b"] == [task.text for task in client.create_tasks("tasks", ["b"], mode="append")]
    client.update_task("tasks", 1, "completed")
    assert ["completed", "pending"] == [task.status for task in client.list_tasks("tasks")]
    tools = client.list_tools("anthropic_messages")
    assert {"recall_elided_content", "update_task"} < {tool.name for tool in tools.tools}
    assert "input_schema" in json.loads(tools.tools_json)[0]
    assert tools is client.list_tools("anthropic_messages")
    assert "" != client.list_tools("").tools[0].parameters_json
    for arguments in ({"id": 2, "status": "completed"}, '{"id": 2, "status": "completed"}'):
        answer = client.call_tool("tasks", "update_task", arguments)
        assert ("ok", False) == (answer.outcome, answer.is_error)
        assert answer.tasks is not None
        assert "completed" == answer.tasks.tasks[1].status
    assert "unknown_tool" == client.call_tool("tasks", "nonesuch", {}).outcome
    assert "invalid_arguments" == client.call_tool("tasks", "update_task", "{").outcome


def test_a_retry_with_its_id_changes_nothing_more(client: Client) -> None:
    """The caller may name a change; else each call is another one."""
    for _ in range(2):
        client.create_tasks("retry", ["a"], mode="append", request_id="one")
    assert 1 == len(client.list_tasks("retry"))
    for _ in range(2):
        client.create_tasks("retry", ["a"], mode="append")
    assert 3 == len(client.list_tasks("retry"))


def test_usage_and_figures(client: Client) -> None:
    """What the provider counted goes back; the run's figures hold it until the run ends."""
    made = client.trim("usage", history("openai_chat", 2))
    learned = client.report_usage("usage", input_tokens=1_300, cached_tokens=0, revision=made.revision)
    assert ("recorded", 1_300) == (learned.outcome, learned.real_tokens)
    refused = client.report_usage("usage", refusal={"message": "maximum context length is 8192 tokens"})
    assert "prompt_unknown" != refused.outcome
    figures = client.get_run("usage")
    assert figures.usage is not None
    assert (1, figures.usage.reports) == (figures.calls, 1)
    ended = client.end_run("usage")
    assert (True, figures.calls) == (ended.ended, ended.run.calls if ended.run else None)
    with pytest.raises(RunUnknown) as caught:
        client.get_run("usage")
    assert ("NOT_FOUND", "RUN_UNKNOWN") == (caught.value.code, caught.value.reason)


def test_errors_name_code_reason_and_field(client: Client) -> None:
    """As the sidecar says them; options that are no options are told before anything is sent."""
    with pytest.raises(InvalidRequest) as caught:
        client.search("errors", "words", max_snippets=1_000)
    assert ("INVALID_ARGUMENT", "INVALID_REQUEST", "max_snippets") == (
        caught.value.code,
        caught.value.reason,
        caught.value.field,
    )
    assert "INVALID_REQUEST at max_snippets: " in str(caught.value)
    wrong: Any = {"presett": "lean"}
    with pytest.raises(TypeError, match="presett"):
        client.trim("errors", [], policy=wrong)
    with pytest.raises(ValueError, match="pind"):
        client.trim("errors", [], annotations={0: "pind"})  # type: ignore[dict-item]  # that is the slip


def test_options_reach_the_server(client: Client) -> None:
    """Policy, annotations, dry run: each does what the interface says."""
    messages = history("openai_chat", 12)
    made = client.trim(
        "options",
        messages,
        context_window=WINDOW,
        output_reserve=500,
        policy={"preset": "lean"},
        annotations={2: "pinned"},
        recall_unavailable=True,
    )
    assert messages[2] in made.prompt
    assert not {"directives", "registry", "note"} & {own.kind for own in made.own_text}
    assert "age" in {trim.reason for trim in made.trims}
    client.trim("dry", messages, dry_run=True)
    with pytest.raises(RunUnknown):
        client.get_run("dry")


def test_lists_in_a_policy(client: Client) -> None:
    """Feedback is told by how it begins, as the request says: old feedback of a kind becomes one line."""
    messages = history("openai_chat", 1)
    for number in range(2, 12):
        messages += [{"role": "user", "content": f"ERR: step {number} failed"}, *history("openai_chat", number)[-2:]]
    policy = {"preset": "lean", "feedback_error": ["ERR: "], "feedback_validation": []}
    made = client.trim("lists", messages, policy=policy)
    assert "collapsed" in {trim.action for trim in made.trims}
    assert "collapsed" not in {trim.action for trim in client.trim("none", messages, policy={"preset": "lean"}).trims}


def test_the_revision_goes_to_the_next_server(tmp_path: Path) -> None:
    """A server that has not seen the run makes the same edits, though the window changed on the way."""
    socket = ServerOptions(listen="", socket=str(tmp_path / "s"), sweep_interval=3_600)
    wide: Any = {"context_window": 4 * WINDOW}
    messages = history("openai_chat", 12)
    with Client(f"unix:{tmp_path}/s", deadline=PATIENT) as client:
        with serving(socket):
            client.trim("r", history("openai_chat", 8), context_window=WINDOW)
            made = client.trim("r", messages, **wide)
            assert made.trims
        with serving(socket):
            again = client.trim("r", messages, **wide)
            assert ("applied", made.trims) == (again.revision_use, again.trims)
            assert () == client.trim("other", messages, **wide).trims
            assert "unspecified" == client.trim("another", messages, revision=b"", **wide).revision_use
        with serving(socket):
            client.end_run("r")
            assert "unspecified" == client.trim("r", messages, **wide).revision_use
            client.trim("dry", messages, dry_run=True)
            assert "unspecified" == client.trim("dry", messages).revision_use


def test_revisions_are_remembered_within_a_bound() -> None:
    """A client that lives for months keeps those of the newest runs."""
    revisions = ValuesByRun[bytes]()
    for number in range(MOST_RUNS + 5):
        revisions.keep(f"run-{number}", b"r%d" % number)
        revisions.keep("used again and again", b"newest")
    revisions.forget("run-900")
    assert (None, None, b"newest") == tuple(map(revisions.of, ("run-0", "run-900", "used again and again")))
    assert (MOST_RUNS - 1, b"r901") == (len(revisions), revisions.of("run-901"))


def test_threads_share_a_client(client: Client) -> None:
    """Many threads, a run each: every one gets its own answer, and all are counted."""
    before = client.trimmed
    fits: list[bool | None] = []

    def work(number: int) -> None:
        for iterations in range(1, 6):
            made = client.trim(f"thread-{number}", history("openai_chat", iterations), context_window=WINDOW)
            fits.append(made.fits and made.iteration == iterations + 1)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [True] * 30 == fits
    assert before + 30 == client.trimmed


def test_a_unix_socket(tmp_path: Path) -> None:
    """The target may be a socket's path."""
    options = ServerOptions(listen="", socket=str(tmp_path / "s"), sweep_interval=3_600)
    with serving(options), Client(f"unix:{tmp_path}/s", deadline=PATIENT) as client:
        assert client.trim("r", history("openai_chat", 1)).trimmed


def test_a_large_prompt_both_ways(client: Client) -> None:
    """More than the 4 MiB that gRPC takes by default."""
    body = json.dumps([{"role": "user", "content": "word " * 900_000}]).encode()
    made = client.trim("large", body, context_window=10_000_000)
    assert made.trimmed
    assert 4 << 20 < len(body) <= len(made.prompt)


def test_a_closed_client_says_so() -> None:
    """It is an error of the program, and no reason to go on untrimmed."""
    with client_of() as (client, _):
        client.trim("r", [])
        client.close()
        client.close()
        with pytest.raises(RuntimeError, match="closed"):
            client.trim("r", [])
