"""Two processes with one store: what one has answered, the other answers when the first is killed."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from prompt_sidecar.v1 import retrieve_pb2, run_pb2, search_pb2, service_pb2_grpc, task_pb2, trim_pb2
from tests.cli.running import program, run
from tests.engine.runs.making import ANTHROPIC_MESSAGES, FORMATS, LIMIT, OPENAI_CHAT, body, history, result_text
from tests.store.sharing import Valkey, one_kind

KEY = "a key that both servers have"
NUMBERS = {OPENAI_CHAT: trim_pb2.FORMAT_OPENAI_CHAT, ANTHROPIC_MESSAGES: trim_pb2.FORMAT_ANTHROPIC_MESSAGES}
ITERATIONS = 16


class Replica:
    """A real server on a unix socket, with a store."""

    def __init__(self, stack: ExitStack, socket: Path, **settings: str) -> None:
        self._program = stack.enter_context(program("--listen", "", "--socket", str(socket), KEY=KEY, **settings))
        self._program.wait_for("ready: listening on")
        channel = stack.enter_context(grpc.insecure_channel(f"unix:{socket}"))
        self.stub = service_pb2_grpc.SidecarServiceStub(channel)

    @property
    def lines(self) -> list[str]:
        """What it has logged, once it has ended."""
        return self._program.lines

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._program.process.kill()
        self._program.end()

    def trim(self, format: str, iterations: int, window: int = LIMIT) -> trim_pb2.TrimPromptResponse:
        """Send the untrimmed history of so many iterations, without a revision."""
        raw = body(format, history(format, iterations))
        prompt = trim_pb2.JsonPrompt(format=NUMBERS[format], body=raw)
        return self.stub.TrimPrompt(trim_pb2.TrimPromptRequest(run_id="r", json=prompt, context_window=window))

    def original(self, stash_id: str) -> bytes:
        """An original, whole."""
        request = retrieve_pb2.RetrieveContentRequest(run_id="r", stash_id=stash_id, page_tokens=100_000)
        found = self.stub.RetrieveContent(request)
        assert retrieve_pb2.RETRIEVE_OUTCOME_HIT == found.outcome, stash_id
        return found.content


def shared(valkey: Valkey, **more: str) -> dict[str, str]:
    """Settings of the store, with time for a busy machine; acknowledged, so that a test may kill at any moment."""
    return {
        "STORE__URL": valkey.url,
        "STORE__DURABILITY": "acknowledged",
        "STORE__FIRST_WAIT": "30s",
        "STORE__TIMEOUT": "10s",
        "STORE__ACKNOWLEDGE_TIMEOUT": "60s",
        **more,
    }


@one_kind
@pytest.mark.parametrize("format", FORMATS)
def test_every_id_of_a_killed_server_is_answered(format: str, valkey: Valkey, tmp_path: Path) -> None:
    """Killed right after an answer: its ids, a search, the tasks and the figures are the next server's to give."""
    with ExitStack() as stack:
        first = Replica(stack, tmp_path / "first", **shared(valkey))
        second = Replica(stack, tmp_path / "second", **shared(valkey))
        ids: set[str] = set()
        for iterations in range(ITERATIONS + 1):
            trimmed = first.trim(format, iterations)
            ids |= {trim.stash_id for trim in trimmed.trims if trim.stash_id}
        expected = {stash_id: first.original(stash_id) for stash_id in ids}
        first.kill()

        assert ids
        assert expected == {stash_id: second.original(stash_id) for stash_id in ids}
        found = second.stub.SearchHistory(search_pb2.SearchHistoryRequest(run_id="r", query="value_2"))
        assert "value_2" in found.snippets[0].text
        figures = second.stub.GetRun(run_pb2.GetRunRequest(run_id="r")).run
        assert ITERATIONS < figures.calls + 2  # the last answer may leave out nothing new, so that none waited for it


@one_kind
def test_tasks_of_a_killed_server_go_on(valkey: Valkey, tmp_path: Path) -> None:
    """What was planned is known to the next server, and what was done."""
    with ExitStack() as stack:
        first = Replica(stack, tmp_path / "first", **shared(valkey))
        second = Replica(stack, tmp_path / "second", **shared(valkey))
        create = task_pb2.CreateTasksRequest(run_id="r", items=["look"], request_id="a")
        first.stub.CreateTasks(create)
        first.kill()

        listed = second.stub.ListTasks(task_pb2.ListTasksRequest(run_id="r"))
        assert ["look"] == [task.text for task in listed.tasks]


@one_kind
@pytest.mark.parametrize("format", FORMATS)
def test_the_next_server_makes_the_same_prompts(format: str, valkey: Valkey, tmp_path: Path) -> None:
    """The limit changes, a server is killed, the agent carries no revision: the bytes are those of one that lives."""
    with ExitStack() as stack:
        steady = Replica(stack, tmp_path / "steady")
        first = Replica(stack, tmp_path / "first", **shared(valkey))
        second = Replica(stack, tmp_path / "second", **shared(valkey))
        for iterations in range(ITERATIONS + 1):
            window = LIMIT if iterations < 10 else LIMIT * 3 // 2
            server = first if iterations < 12 else second
            if iterations == 12:
                first.kill()
            expected, found = steady.trim(format, iterations, window), server.trim(format, iterations, window)
            assert expected.json_body == found.json_body
            assert [trim.stash_id for trim in expected.trims] == [trim.stash_id for trim in found.trims]
        assert found.trims
        assert result_text(0) not in json.dumps(json.loads(found.json_body))


def test_a_store_without_a_key_is_refused() -> None:
    """What one process wrote with a random key no other could read, so the start says what to set."""
    ended = run("serve", STORE__URL="valkey://127.0.0.1:6379/0")

    assert 0 != ended.returncode
    assert "store.url is set and key is not" in ended.stderr
