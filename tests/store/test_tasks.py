"""Tasks that several replicas change: what each adds stays, answers say what is not shared, prompts show all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from prompt_sidecar.facts.task_calls import CreateTasksCall, Tasks, TaskStatus, UpdateTaskCall
from prompt_sidecar.facts.tool_calls import CREATE_TASKS
from prompt_sidecar.store.options import StoreOptions
from prompt_sidecar.store.server import Server
from prompt_sidecar.store.shared import SharedArchive
from prompt_sidecar.v1 import task_pb2
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, ROOM, send
from tests.promises.engine import CALLER, RUN_ID, Engine
from tests.store.sharing import LIFE, PATIENT, Valkey, one_kind, replica
from tests.store.test_killed import Replica, shared
from tests.store.test_stalled import stalled
from tests.waiting import until

SHORT: Final = 0.05
"""Seconds for a command to a store that is stopped."""
MANY: Final = 18


def add(engine: Engine, *texts: str) -> Tasks:
    """Append tasks."""
    return engine.runs.recalling.create_tasks(CreateTasksCall(CALLER, RUN_ID, texts, append=True))


def listed(engine: Engine) -> Tasks:
    """All tasks, as a replica lists them."""
    return engine.runs.recalling.list_tasks(CALLER, RUN_ID)


def texts(tasks: Tasks) -> list[str]:
    """Of the tasks."""
    return [task.text for task in tasks]


@contextmanager
def threaded(valkey: Valkey, replicas: int, **options: Any) -> Iterator[Sequence[Engine]]:
    """Engines that write behind their answers, as servers do."""
    settings = StoreOptions(url=valkey.url, **({"timeout": SHORT, "connect_timeout": SHORT} | options))
    archives = [SharedArchive(settings, Server(settings), LIFE) for _ in range(replicas)]
    try:
        yield [Engine(limit=LIMIT, policy=ROOM, archive=archive) for archive in archives]
    finally:
        for archive in archives:
            archive.close()


def test_two_that_append_at_the_same_version_keep_both(valkey: Valkey) -> None:
    """Neither has heard of the other's when both are written; a third replica reads both, too."""
    (first, of_first), (second, of_second), (third, _) = (replica(valkey) for _ in range(3))
    add(first, "look")
    of_first.drain()
    assert ["look"] == texts(listed(second))
    add(first, "read")
    add(second, "mend")
    for archive in (of_first, of_second, of_first):
        archive.drain()
    expected = [(task.id, task.text) for task in listed(third)]
    assert {"look", "read", "mend"} == {text for _, text in expected}
    assert expected == [(task.id, task.text) for task in listed(first)]
    assert expected == [(task.id, task.text) for task in listed(second)]


def test_none_of_the_tasks_made_without_the_store_is_lost(valkey: Valkey) -> None:
    """A run that moves at each call while the store is stopped: each answer says so, and all are there afterwards."""
    with threaded(valkey, 2) as engines:
        add(engines[0], "first")
        until(lambda: not listed(engines[1]).not_shared)
        with stalled(valkey):
            answers = [add(engines[number % 2], f"task {number}") for number in range(MANY)]
            assert all(answer.not_shared for answer in answers)
            assert listed(engines[0]).not_shared
        wanted = {"first", *(f"task {number}" for number in range(MANY))}
        until(lambda: all(wanted == set(texts(listed(engine))) for engine in engines))
        until(lambda: not any(listed(engine).not_shared for engine in engines))
        assert texts(listed(engines[0])) == texts(listed(engines[1]))


def test_a_task_keeps_its_number_when_the_store_is_back(valkey: Valkey) -> None:
    """A model that was told a number by either replica means that task with it afterwards."""
    with threaded(valkey, 2) as engines:
        with stalled(valkey):
            made = {add(engine, text)[-1].id: text for engine, text in zip(engines, ("read", "mend"), strict=True)}
        assert 2 == len(made)
        until(lambda: all(made == {task.id: task.text for task in listed(engine)} for engine in engines))
        number = next(iter(made))
        engines[1].runs.recalling.update_task(UpdateTaskCall(CALLER, RUN_ID, number, TaskStatus.COMPLETED))
        until(lambda: TaskStatus.COMPLETED in {task.status for task in listed(engines[0]) if task.id == number})


def test_a_change_says_at_once_that_it_is_shared(valkey: Valkey) -> None:
    """With a store that answers, though it is written behind the answers of prompts."""
    with threaded(valkey, 1, timeout=PATIENT, connect_timeout=PATIENT) as engines:
        assert not add(engines[0], "look").not_shared
        answer = engines[0].call(CREATE_TASKS, {"tasks": ["read"]})
        assert answer.tasks is not None
        assert not answer.tasks.not_shared


def test_without_a_store_nothing_is_reported_as_unshared() -> None:
    """There is no other process that could know other tasks."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    assert not add(engine, "look").not_shared
    assert [1] == [task.id for task in listed(engine)]


def test_a_prompts_note_has_the_tasks_that_another_replica_was_given(valkey: Valkey) -> None:
    """Though this one has known the run for long."""
    (first, of_first), (second, of_second) = replica(valkey), replica(valkey)
    send(first, OPENAI_CHAT, 1)
    of_first.drain()
    add(second, "look for the fault")
    of_second.drain()
    assert b"look for the fault" in (send(first, OPENAI_CHAT, 1).prompt.body or b"")


def test_tasks_are_written_again_where_the_store_has_lost_them(valkey: Valkey) -> None:
    """With the run's next prompt, as the rest of it."""
    (first, of_first), (second, _) = replica(valkey), replica(valkey)
    send(first, OPENAI_CHAT, 1)
    add(first, "look")
    of_first.drain()
    valkey.client.flushall()
    send(first, OPENAI_CHAT, 1)
    of_first.drain()
    assert ["look"] == texts(listed(second))


@one_kind
def test_an_answer_over_grpc_says_what_is_not_shared(valkey: Valkey, tmp_path: Path) -> None:
    """While the store is stopped; and not where it answers."""
    run, added = "r", ["more"]
    calls: dict[str, Any] = {
        "CreateTasks": task_pb2.CreateTasksRequest(run_id=run, items=added),
        "ListTasks": task_pb2.ListTasksRequest(run_id=run),
        "UpdateTask": task_pb2.UpdateTaskRequest(run_id=run, id=1, status=task_pb2.TASK_STATUS_COMPLETED),
    }
    with ExitStack() as stack:
        settings = shared(valkey, STORE__TIMEOUT="100ms", STORE__DURABILITY="local")
        server = Replica(stack, tmp_path / "socket", **settings)
        until(lambda: not any(getattr(server.stub, name)(request).not_shared for name, request in calls.items()))
        with stalled(valkey):
            assert all(getattr(server.stub, name)(calls[name]).not_shared for name in ("ListTasks", "CreateTasks"))
            assert server.stub.ListTasks(calls["ListTasks"]).not_shared
