"""Values behind masks in the store: off by default, encrypted where it is on, and of nobody else's run."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from prompt_sidecar.config.settings import SettingsError, load
from prompt_sidecar.facts.archived import StoreCommand, StoreLoss, StoreReply
from prompt_sidecar.facts.guard_calls import RestoreAnswer, RestoreCall, RestoredArguments, ToolArguments
from prompt_sidecar.facts.task_calls import CreateTasksCall
from prompt_sidecar.v1 import guard_pb2, run_pb2, trim_pb2
from tests.client.provider import Says
from tests.doors.http.agents import TOOL
from tests.doors.http.agents import Agent as Speaking
from tests.doors.http.upstream import scripted
from tests.engine.runs.making import OPENAI_CHAT
from tests.guard.test_refusing import ENFORCE, KEY, chat
from tests.promises.engine import CALLER, RUN_ID, Engine
from tests.promises.engine import KEY as SIDECARS_KEY
from tests.store.sharing import Stepped, Valkey, one_kind
from tests.store.test_hidden_turns import doors
from tests.store.test_killed import Replica, shared

OTHER_KEY: Final = KEY[:-4] + "Zzz9"
MASK: Final = re.compile("⟦github_token:[a-z0-9]+⟧")
WORD: Final = "FaKe0rNoTrEaL1bUt"
"""A value that a rule finds in its place, and nowhere else."""


def sharing(valkey: Valkey, *, vault: bool = True, **options: Any) -> tuple[Engine, Stepped]:
    """A replica that masks, and may give each value to each tool."""
    archive = Stepped(valkey.url, vault=vault, **options)
    return Engine(limit=5_000, guard=replace(ENFORCE, restore=("deploy:*",)), archive=archive), archive


def mask_in(engine: Engine, text: str, **fields: Any) -> str:
    """The mask that is in place of a secret in the last message."""
    answer = engine.trim(OPENAI_CHAT, chat(text), **fields)
    content = str(json.loads(answer.prompt.body or b"")["messages"][-1]["content"])
    return content[content.index("⟦") : content.index("⟧") + 1]


def filled(
    engine: Engine, *masks: str, tool: str = "deploy", caller: str = CALLER, waits: bool = True
) -> RestoreAnswer:
    """A call's arguments with these masks, one after the other, as a tool gets them."""
    arguments = json.dumps({"token": " ".join(masks)}, ensure_ascii=False).encode()
    call = RestoreCall(caller, RUN_ID, [ToolArguments(tool, arguments)], may_wait=waits)
    return engine.runs.restore(call)


def one(answer: RestoreAnswer) -> RestoredArguments:
    """The only call."""
    (call,) = answer.calls
    return call


def everything(valkey: Valkey) -> Iterator[bytes]:
    """All that is in the database: names of keys, fields and values."""
    for name in valkey.client.scan_iter():
        yield name
        kind = valkey.client.type(name)
        if kind == b"hash":
            for field, value in valkey.client.hgetall(name).items():
                yield from (field, value)
        elif kind == b"zset":
            yield from valkey.client.zrange(name, 0, -1)
        else:
            yield valkey.client.get(name)


def leaks(valkey: Valkey, secrets: Sequence[str]) -> list[bytes]:
    """What of the database holds any eight characters of a secret, as they are or in Base64."""
    pieces = [secret[at : at + 8].encode() for secret in secrets for at in range(len(secret) - 7)]
    forms = {*pieces, *(b64encode(secret.encode())[:12] for secret in secrets)}
    return [each for each in everything(valkey) if any(form in each for form in forms)]


def test_a_replica_that_has_not_seen_the_prompt_fills_masks(valkey: Valkey) -> None:
    """Byte for byte what the first one gives, for the tools on the list alone."""
    first, writing = sharing(valkey)
    mask = mask_in(first, f"use {KEY}")
    writing.drain()
    second, _ = sharing(valkey)

    assert one(filled(first, mask)) == one(filled(second, mask))
    assert KEY in one(filled(second, mask)).arguments.decode()
    assert 1 == one(filled(second, mask, tool="http_post")).not_allowed
    assert 1 == one(filled(sharing(valkey)[0], mask.replace(mask[-4:-1], "aaa"))).unknown


@pytest.mark.parametrize("vault", [False, True])
def test_the_database_holds_no_value_in_clear(valkey: Valkey, *, vault: bool) -> None:
    """Of a history, of tasks, of what other calls hold: not at all by default, and encrypted where it is on."""
    first, writing = sharing(valkey, vault=vault)
    masks = [mask_in(first, f"use {KEY}"), mask_in(first, f"postgres://app:{WORD}@db.internal/orders")]
    first.runs.recalling.create_tasks(CreateTasksCall(CALLER, RUN_ID, [f"deploy with {OTHER_KEY}"]))
    filled(first, *masks)
    writing.drain()
    (name,) = valkey.client.keys("ps:*")
    fields = {each for each in valkey.client.hkeys(name) if each.startswith(b"v")}

    assert [] == leaks(valkey, [KEY, OTHER_KEY, WORD])
    assert (5 if vault else 0) == len(fields)
    second, _ = sharing(valkey, vault=vault)
    assert (not vault) == bool(one(filled(second, masks[0])).unknown)
    assert not filled(second, masks[0]).store_unavailable


def test_only_what_a_tool_may_get_is_kept(valkey: Valkey) -> None:
    """A value of a kind that no pair names could not be given back, so it is not written."""
    first, writing = sharing(valkey)
    first = Engine(limit=5_000, guard=replace(ENFORCE, restore=("deploy:password",)), archive=writing)
    mask_in(first, f"use {KEY}")
    writing.drain()
    (name,) = valkey.client.keys("ps:*")
    assert not [each for each in valkey.client.hkeys(name) if each.startswith(b"v")]


def test_another_callers_run_of_the_same_name_has_none(valkey: Valkey) -> None:
    """Its place and its key are others, also where it asks for the very mask."""
    first, writing = sharing(valkey)
    mask = mask_in(first, f"use {KEY}")
    writing.drain()
    second, also = sharing(valkey)
    second.trim(OPENAI_CHAT, chat("hello"), caller="another")
    also.drain()
    for engine in (second, sharing(valkey)[0]):
        assert 1 == one(filled(engine, mask, caller="another")).unknown
    assert 1 == one(filled(second, mask)).restored


def test_values_end_with_their_run(valkey: Valkey) -> None:
    """The store has nothing of them left, and a new run of the same name does not get them."""
    first, writing = sharing(valkey)
    mask = mask_in(first, f"use {KEY}")
    writing.drain()
    second, ending = sharing(valkey)
    assert 1 == one(filled(second, mask)).restored
    second.runs.end(CALLER, RUN_ID)
    ending.drain()
    (name,) = valkey.client.keys("ps:*")
    assert {b"e", b"x"} == {*valkey.client.hkeys(name)}
    third, also = sharing(valkey)
    third.trim(OPENAI_CHAT, chat("hello"))
    also.drain()
    assert 1 == one(filled(third, mask)).unknown


def test_a_key_is_replaced(valkey: Valkey) -> None:
    """The run's values are found by the key that it began with."""
    first, writing = sharing(valkey)
    mask = mask_in(first, f"use {KEY}")
    writing.drain()
    archive = Stepped(valkey.url, vault=True)
    guard = replace(ENFORCE, restore=("deploy:*",))
    after = Engine(limit=5_000, guard=guard, archive=archive, key=bytes(32), previous_keys=[SIDECARS_KEY])
    assert one(filled(first, mask)) == one(filled(after, mask))
    without = Engine(limit=5_000, guard=guard, archive=Stepped(valkey.url, vault=True), key=bytes(32))
    assert 1 == one(filled(without, mask)).unknown


@pytest.mark.parametrize(("bound", "value"), [("vault_values", 1), ("vault_bytes", 100)])
def test_a_run_has_so_many_values_there(valkey: Valkey, bound: str, value: int) -> None:
    """What is too many is counted under its bound; the process that found it goes on filling it."""
    options: dict[str, Any] = {bound: value}
    first, writing = sharing(valkey, **options)
    kept, refused = mask_in(first, f"use {KEY}"), mask_in(first, f"use {OTHER_KEY}")
    writing.drain()
    second, _ = sharing(valkey)

    assert 1 == writing.store.lost[StoreLoss.VAULT_FULL]
    assert {f"store.{bound}": 1} == writing.store.bounds
    assert (1, 1) == (one(filled(second, kept, refused)).restored, one(filled(second, kept, refused)).unknown)
    assert 2 == one(filled(first, kept, refused)).restored


def test_a_door_fills_what_another_replica_found(valkey: Valkey) -> None:
    """It cannot wait in an answer: a prompt without the value, as after compaction, has it lent."""
    first, writing = sharing(valkey)
    mask = mask_in(first, f"use {KEY}")
    writing.drain()
    second, reading = sharing(valkey)
    assert 1 == one(filled(second, mask, waits=False)).unknown
    second.trim(OPENAI_CHAT, chat("a summary of what was"))
    assert one(filled(first, mask)) == one(filled(second, mask, waits=False))
    later = mask_in(first, f"and {OTHER_KEY}")
    writing.drain()
    reads = reading.store.commands[StoreCommand.READ, StoreReply.DONE]
    for number in range(3):
        second.trim(OPENAI_CHAT, chat(f"summary {number} of what was"))
    assert 1 == one(filled(second, later, waits=False)).restored
    # Each prompt asks for what has changed; of three one reads values, and none reads them again.
    assert 3 + 1 == reading.store.commands[StoreCommand.READ, StoreReply.DONE] - reads


@pytest.mark.parametrize("stream", [False, True])
def test_the_http_door_fills_calls_after_a_move(valkey: Valkey, *, stream: bool) -> None:
    """The history that the second door gets has no value any more; the model still knows its mask."""
    guard = replace(ENFORCE, restore=(f"{TOOL}:github_token",))
    headers = {"x-prompt-sidecar-run": RUN_ID}
    with doors(valkey, guard=guard, store={"vault": True}) as (first, second):
        first.here.upstream.model = scripted(Says("Done."))
        Speaking(OPENAI_CHAT, stream, first.here.url, [{"role": "user", "content": f"Use {KEY}."}], headers).ask()
        (mask,) = {each for sent in first.here.upstream.sent for each in MASK.findall(sent.raw.decode())}
        first.archive.drain()
        second.here.upstream.model = scripted(Says("", [("c1", TOOL, {"token": f"a {mask} b"})]), Says("Done."))
        summary = [{"role": "user", "content": "A summary."}]
        agent = Speaking(OPENAI_CHAT, stream, second.here.url, summary, headers)
        agent.answer(agent.ask(), lambda _: "deployed")
        (call,) = agent.history[1]["tool_calls"]
        assert {"token": f"a {KEY} b"} == json.loads(call["function"]["arguments"])
        agent.ask()
        assert KEY.encode() not in b"".join(sent.raw for sent in second.here.upstream.sent)


def test_what_is_lent_masks_only_once_it_was_given(valkey: Valkey) -> None:
    """What is masked must not depend on when the store replies; what the agent was given here may come back."""
    first, writing = sharing(valkey)
    mask = mask_in(first, f"postgres://app:{WORD}@db.internal/orders")
    writing.drain()
    second, _ = sharing(valkey)
    text = f"echo {WORD}"
    fresh = Engine(limit=5_000, guard=ENFORCE).trim(OPENAI_CHAT, chat("a summary", text))
    before = second.trim(OPENAI_CHAT, chat("a summary", text))
    assert fresh.prompt.body == before.prompt.body
    assert WORD in one(filled(second, mask, waits=False)).arguments.decode()
    after = second.trim(OPENAI_CHAT, chat("a summary", text, f"call {WORD}"))
    assert f"call {mask}" == json.loads(after.prompt.body or b"")["messages"][-1]["content"]


def test_a_store_that_is_away_is_reported() -> None:
    """The masks stay, and the answer says that the same call may fill them later."""
    second = Engine(
        limit=5_000,
        guard=replace(ENFORCE, restore=("deploy:*",)),
        archive=Stepped("valkey://127.0.0.1:1/0", vault=True),
    )
    answer = filled(second, "⟦github_token:aaaaaaaaaa⟧")
    assert (1, True) == (one(answer).unknown, answer.store_unavailable)


@one_kind
def test_a_killed_process_and_the_next(valkey: Valkey, tmp_path: Path) -> None:
    """Two real processes: one masks and is killed, the other fills byte for byte; no log or store holds a value."""
    settings = shared(
        valkey, GUARD__MODE="enforce", GUARD__RESTORE='["deploy:*"]', STORE__VAULT="true", LOG__LEVEL="debug"
    )
    with ExitStack() as stack:
        first = Replica(stack, tmp_path / "first", **settings)
        prompt = trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=chat(f"use {KEY}"))
        trimmed = first.stub.TrimPrompt(trim_pb2.TrimPromptRequest(run_id="r", json=prompt))
        mask = "⟦github_token:" + trimmed.json_body.decode().partition("⟦github_token:")[2][:11]
        call = guard_pb2.ToolArguments(tool="deploy", arguments=json.dumps({"token": mask}).encode())
        request = guard_pb2.RestoreSecretsRequest(run_id="r", calls=[call])
        given = first.stub.RestoreSecrets(request)
        first.kill()
        second = Replica(stack, tmp_path / "second", **settings)
        assert given == second.stub.RestoreSecrets(request)
        assert KEY in given.calls[0].arguments.decode()
        assert [] == leaks(valkey, [KEY])
        second.stub.EndRun(run_pb2.EndRunRequest(run_id="r"))
        (name,) = valkey.client.keys("ps:*")
        assert {b"e", b"x"} == {*valkey.client.hkeys(name)}
        assert ["⟦github_token:" in each for each in second.stub.RestoreSecrets(request).unknown_masks] == [True]
        second.kill()
        assert not [line for line in (*first.lines, *second.lines) if KEY[4:16] in line]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"guard.restore": '["deploy:*"]'}, "store.vault needs store.url"),
        ({"store.url": "valkey://store.example:6379/0", "key": "k" * 64}, "guard.restore names no pair"),
        ({"store.url": "valkey://store.example:6379/0", "guard.restore": '["deploy:*"]'}, "key is not"),
    ],
)
def test_settings_without_which_it_does_not_start(settings: dict[str, str], words: str) -> None:
    """A store, the key that encrypts what is in it, and a tool that may get a value."""
    with pytest.raises(SettingsError, match=words):
        load({}, flags={"store.vault": "true", **settings})
