"""Under `enforce` no body goes through Envoy unread: it is masked, or the request is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from prompt_sidecar.doors.envoy.options import EnvoyOptions
from prompt_sidecar.doors.envoy.v1 import ext_proc_pb2 as wire
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.errors import CallCancelled
from prompt_sidecar.facts.envoy_calls import EnvoyOutcome
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.guard.options import GuardOptions
from tests.doors.envoy.test_door import Asked, _Failing, body, door, headers
from tests.doors.envoy.test_through_envoy import counted, sidecar
from tests.doors.envoy.through import chat, configuration, envoy, envoy_binary, provider
from tests.doors.grpc.serving import core_of
from tests.real.needing import need

KEY: Final = "ghp_" + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEa"
ENFORCE: Final = GuardOptions(mode="enforce", scan_seconds=60)
PASS: Final = replace(ENFORCE, unread="pass")
HELD: Final = json.dumps({"x": [{"y": KEY}]}).encode()
MASK: Final = "⟦github_token:".encode()
SIGNED: Final = "AWS4-HMAC-SHA256 Credential=x"


def _core(guard: GuardOptions, kind: type[Runs] = Runs) -> Runs:
    limits = Limits(default_window=100_000)
    return core_of(kind, lambda: 0.0, limits, guard=guard)


@contextmanager
def guarded(guard: GuardOptions = ENFORCE, **more: Any) -> Iterator[Asked]:
    """A door that masks."""
    with door(core=_core(guard), **more) as asked:
        yield asked


def _what(answer: wire.ProcessingResponse) -> Any:
    """What becomes of a request: its new body, a status, or None as it came."""
    if answer.HasField("immediate_response"):
        return answer.immediate_response.status.code
    common = answer.request_body.response
    return common.body_mutation.body if common.HasField("body_mutation") else None


def _streamed(path: str) -> wire.ProcessingRequest:
    made = headers(path)
    made.protocol_config.request_body_mode = 1
    return made


def _many_headers() -> wire.ProcessingRequest:
    return headers(**{f"x-{number}": "1" for number in range(1_001)})


@pytest.mark.parametrize(
    "path", ["/v1/embeddings", "/v1/next", "/v1/responses/compact", "/v1/chat/completions", "/model/m/invoke"]
)
def test_a_body_that_is_no_prompt_is_masked(path: str) -> None:
    """On a path that nobody knows, and on one whose format it has not."""
    known = path == "/v1/chat/completions"
    for name, text, outcome in (
        ("object", HELD, EnvoyOutcome.INVALID if known else EnvoyOutcome.NOT_A_PROMPT),
        ("lines", b'{"a":1}\n' + HELD + b"\n", EnvoyOutcome.INVALID if known else EnvoyOutcome.NOT_A_PROMPT),
    ):
        with guarded() as asked:
            made = _what(asked.process(headers(path), body(text))[-1])
        assert KEY.encode() not in made, name
        assert MASK in made, name
        assert [outcome] == asked.observer.outcomes, name


def test_the_new_length_of_a_masked_body() -> None:
    """Envoy answers 500 where it does not match."""
    with guarded() as asked:
        answer = asked.process(headers("/v1/embeddings"), body(HELD))[-1]
    put = {each.header.key: each.header.raw_value for each in answer.request_body.response.header_mutation.set_headers}
    assert {"content-length": str(len(_what(answer))).encode()} == put


def test_what_is_not_changed_goes_on_unchanged() -> None:
    """A body without a find, an empty one, and a request without one."""
    for sent in ([headers("/v1/embeddings"), body(b'{"a" : 1}')], [headers("/v1/embeddings"), body(b"")]):
        with guarded() as asked:
            assert None is _what(asked.process(*sent)[-1])
        assert [EnvoyOutcome.NOT_A_PROMPT] == asked.observer.outcomes
    bodyless = headers("/v1/models")
    bodyless.request_headers.end_of_stream = True
    with guarded() as asked:
        assert ["request_headers"] == [each.WhichOneof("response") for each in asked.process(bodyless)]


UNREAD: Final[dict[str, tuple[Sequence[wire.ProcessingRequest], int]]] = {
    "text": ([headers("/v1/embeddings"), body(KEY.encode())], 403),
    "a form with files": ([headers("/v1/files", content_type="multipart/form-data; boundary=b"), body(HELD)], 403),
    "another character set": ([headers("/v1/x", content_type="application/json; charset=utf-7"), body(HELD)], 403),
    "no JSON on a known path": ([headers(), body(KEY.encode())], 403),
    "packed": ([headers("/v1/embeddings", content_encoding="gzip"), body(gzip.compress(HELD))], 403),
    "packed prompt": ([headers(content_encoding="zstd"), body(b"x")], 403),
    "in pieces": ([_streamed("/v1/embeddings")], 403),
    "prompt in pieces": ([_streamed("/v1/chat/completions")], 403),
    "a WebSocket": ([headers("/v1/realtime", upgrade="WebSocket")], 403),
    "signed": ([headers("/model/m/converse", authorization=SIGNED), body(HELD)], 403),
    "signed, unknown": ([headers("/model/m/invoke", authorization=SIGNED), body(HELD)], 403),
    "too many headers": ([_many_headers(), body(chat(1, "a"))], 503),
    "out of order": ([headers(), headers(), body(chat(1, "a"))], 503),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_cannot_be_read(name: str) -> None:
    """It is refused in the place of going on, or goes on as it came where the settings say so, and under audit."""
    sent, status = UNREAD[name]
    with guarded() as asked:
        refused = asked.process(*sent)
    assert status == _what(refused[-1])
    assert b"GUARD_UNREAD" in refused[-1].immediate_response.body
    assert [EnvoyOutcome.REFUSED] == asked.observer.outcomes
    for guard in (PASS, GuardOptions()):
        with guarded(guard) as asked:
            assert not any(each.HasField("immediate_response") for each in asked.process(*sent))


@pytest.mark.parametrize(
    ("options", "closes", "outcome"),
    [
        (EnvoyOptions(listen="127.0.0.1:0", max_exchanges=1), True, EnvoyOutcome.STOPPING),
        (EnvoyOptions(listen="127.0.0.1:0", max_exchanges=0), False, EnvoyOutcome.BUSY),
        (EnvoyOptions(listen="127.0.0.1:0", max_prompts=0), False, EnvoyOutcome.BUSY),
    ],
)
def test_a_sidecar_without_room(options: EnvoyOptions, closes: bool, outcome: EnvoyOutcome) -> None:
    """A request is refused with 503, so that it is tried again; it goes on where the settings say so."""
    for guard, status in ((ENFORCE, 503), (PASS, None)):
        for sent in ([headers(), body(chat(1, KEY))], [headers("/v1/embeddings"), body(HELD)]):
            with guarded(guard, options=options) as asked:
                answers: list[wire.ProcessingResponse] = []
                if closes:
                    asked.door.drain()
                with suppress(grpc.RpcError):  # one that stops sends Envoy to another sidecar
                    answers = asked.process(*sent)
            codes = [_what(each) for each in answers if each.HasField("immediate_response")]
            assert ([status] if status else []) == codes
            assert [EnvoyOutcome.REFUSED if status else outcome] == asked.observer.outcomes


@pytest.mark.parametrize("failure", [RuntimeError("text of a prompt"), MemoryError(), CallCancelled("late")])
def test_a_core_that_fails(failure: BaseException) -> None:
    """A prompt is refused with 503, and no text of it leaves."""
    core = _core(ENFORCE, _Failing)
    assert isinstance(core, _Failing)
    core.failure = failure
    with door(core=core) as asked:
        answers = asked.process(headers(), body(chat(1, "a")))
    assert 503 == _what(answers[-1])
    assert b"text of a prompt" not in answers[-1].SerializeToString()
    assert [EnvoyOutcome.REFUSED] == asked.observer.outcomes


def test_through_a_real_envoy(tmp_path: Path) -> None:
    """The provider gets masks or nothing; what was refused is counted by its reason."""
    need(envoy_binary)
    with provider() as there, sidecar(0, GUARD__MODE="enforce") as (_, listens, metrics):
        with envoy(tmp_path, configuration(listens, there.port)) as proxy:
            assert 200 == proxy.send(HELD, "/v1/embeddings?x=1")[0]
            taken = there.next()
            assert 200 == proxy.send(chat(1, KEY), "/v1/chat/completions")[0]
            prompt = there.next()
            status, answer = proxy.send(
                b"--b " + KEY.encode(), "/v1/files", content_type="multipart/form-data; boundary=b"
            )
            packed, _ = proxy.send(gzip.compress(HELD), "/v1/embeddings", content_encoding="gzip")
            assert 200 == proxy.send(b'{"last":1}', "/v1/embeddings")[0]
            last = there.next()
        name = "prompt_sidecar_guard_unread_total"
        figures = [
            counted(metrics, name, door="envoy", reason=reason, outcome="refused") for reason in ("not_json", "encoded")
        ]
    assert ("/v1/embeddings?x=1", str(len(taken.body))) == (taken.path, taken.headers["content-length"])
    assert [True, True] == [MASK in each.body and KEY.encode() not in each.body for each in (taken, prompt)]
    assert (403, 403, True) == (status, packed, b"GUARD_UNREAD" in answer)
    assert b'{"last":1}' == last.body
    assert [1.0, 1.0] == figures
