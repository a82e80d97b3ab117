"""The external processor by itself, asked by a client that speaks Envoy's protocol."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from prompt_sidecar.calls.caller_names import CallerNames
from prompt_sidecar.calls.conversations import Conversations
from prompt_sidecar.calls.memory import REQUEST_COPIES, MemoryGate
from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.doors.doors import Doors
from prompt_sidecar.doors.envoy.door import SERVICE, EnvoyDoor
from prompt_sidecar.doors.envoy.identity import Identities
from prompt_sidecar.doors.envoy.options import EnvoyOptions
from prompt_sidecar.doors.envoy.v1 import ext_proc_pb2 as wire
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.errors import RunCeiling
from prompt_sidecar.facts.envoy_calls import EnvoyOutcome
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.telemetry.observer import Observer
from tests.doors.envoy.through import chat
from tests.doors.grpc.serving import WIDE, core_of, runs
from tests.waiting import until

KEY = b"k" * 32
TOKEN = "a-token-of-some-length"


@dataclass
class Watched(Observer):
    """Keeps the outcomes."""

    outcomes: list[EnvoyOutcome] = field(default_factory=list)

    def envoy_request(self, outcome: EnvoyOutcome) -> None:
        """Keep it."""
        self.outcomes.append(outcome)


@dataclass(frozen=True, slots=True)
class Asked:
    """A door that runs, and what it counted."""

    channel: grpc.Channel
    observer: Watched
    door: EnvoyDoor

    def process(
        self, *requests: wire.ProcessingRequest, metadata: tuple[tuple[str, str], ...] = ()
    ) -> list[wire.ProcessingResponse]:
        """Send messages as Envoy would; return the answers until the stream ends, but for requests to wait longer."""
        call = self.channel.stream_stream(
            f"/{SERVICE}/Process",
            request_serializer=wire.ProcessingRequest.SerializeToString,
            response_deserializer=wire.ProcessingResponse.FromString,
        )
        return [answer for answer in call(iter(requests), metadata=metadata) if answer.WhichOneof("response")]


@contextmanager
def door(
    options: EnvoyOptions | None = None,
    core: Runs | None = None,
    tokens_file: str = "",
    bounds: Mapping[str, Any] | None = None,
    observed_by: Observer | None = None,
) -> Iterator[Asked]:
    """Run a door alone; `bounds`: of its connections; `observed_by` is given the outcomes instead."""
    observer = Watched()
    observed_by = observed_by or observer
    server = ServerOptions(listen="", sweep_interval=3_600, tokens_file=tokens_file, **(bounds or {}))
    shared = DoorServices(server, observed_by)
    made = EnvoyDoor(options or EnvoyOptions(listen="127.0.0.1:0"), shared, KEY)
    process = Doors(shared, [made])
    process.bind()
    process.start(runs() if core is None else core)
    try:
        with grpc.insecure_channel(made.address, options=WIDE) as channel:
            yield Asked(channel, observer, made)
    finally:
        process.stop(0)


def headers(path: str = "/v1/chat/completions", **more: str) -> wire.ProcessingRequest:
    """A request's headers."""
    named = {":method": "POST", ":path": path, **{name.replace("_", "-"): value for name, value in more.items()}}
    pairs = [wire.HeaderValue(key=name, raw_value=value.encode()) for name, value in named.items()]
    return wire.ProcessingRequest(
        request_headers=wire.HttpHeaders(headers=wire.HeaderMap(headers=pairs)),
        protocol_config=wire.ProtocolConfiguration(request_body_mode=2, response_body_mode=1),
    )


def body(text: bytes) -> wire.ProcessingRequest:
    """A request's whole body."""
    return wire.ProcessingRequest(request_body=wire.HttpBody(body=text, end_of_stream=True))


class _Failing(Runs):
    """A core that fails each prompt."""

    failure: BaseException = RuntimeError("text of a prompt")

    def trim(self, call: TrimCall, check: Callable[[], None]) -> TrimAnswer:  # noqa: ARG002 - as Runs has it
        """Fail."""
        raise self.failure


def failing(failure: BaseException) -> Runs:
    """Return a core that fails so."""
    core = core_of(_Failing, lambda: 0.0)
    core.failure = failure
    return core


def test_a_ceiling_is_refused_in_the_providers_shape() -> None:
    """Refusals of guard and ceilings end the exchange; the request is never sent on."""
    with door(core=failing(RunCeiling("the run has used its tokens"))) as asked:
        answers = asked.process(headers("/v1/messages"), body(b'{"messages":[]}'))
    immediate = answers[-1].immediate_response

    assert 400 == immediate.status.code
    assert b'"type":"invalid_request_error","message":"RUN_CEILING: the run has used its tokens"' in immediate.body
    assert [EnvoyOutcome.REFUSED] == asked.observer.outcomes


def test_a_prompt_whose_provider_failed_saves_nothing() -> None:
    """As through the other doors: an answer with an error is no part of the comparison with never trimming."""
    core = runs()
    status = wire.HeaderMap(headers=[wire.HeaderValue(key=":status", raw_value=b"503")])
    failed = wire.ProcessingRequest(response_headers=wire.HttpHeaders(headers=status))
    with door(core=core) as asked:
        asked.process(headers(x_prompt_sidecar_run="r"), body(chat(3, "a line of a log\n" * 2_000)))
        (caller,) = {run.caller for run in core.summaries(9)}
        assert 1 == core.figures(caller, "r").comparison.prompts
        asked.process(headers(x_prompt_sidecar_run="r"), body(chat(3, "a line of a log\n" * 2_000)), failed)
        until(lambda: core.figures(caller, "r").usage.failures == 1)
        assert 0 == core.figures(caller, "r").comparison.prompts


def test_a_failing_core_lets_the_request_pass() -> None:
    """It goes on as it came, is counted, and no text of the failure leaves the process."""
    with door(core=failing(RuntimeError("text of a prompt"))) as asked:
        answers = asked.process(headers(), body(chat(1, "a")))

    assert ["request_headers", "request_body"] == [answer.WhichOneof("response") for answer in answers]
    assert not answers[1].request_body.HasField("response")
    assert [EnvoyOutcome.FAILED] == asked.observer.outcomes
    assert b"text of a prompt" not in b"".join(answer.SerializeToString() for answer in answers)


def test_too_many_exchanges_pass() -> None:
    """Beyond envoy.max_exchanges the stream ends at once, and Envoy goes on by itself."""
    with door(EnvoyOptions(listen="127.0.0.1:0", max_exchanges=0)) as asked:
        answers = asked.process(headers(), body(chat(1, "a")))

    assert [] == answers
    assert [EnvoyOutcome.BUSY] == asked.observer.outcomes


def test_a_draining_sidecar_sends_envoy_to_another() -> None:
    """By the status that Envoy repeats; where there is no other, it goes on by failure_mode_allow."""
    with door() as asked:
        asked.door.drain()
        with pytest.raises(grpc.RpcError) as refused:
            asked.process(headers(), body(chat(1, "a")))

    assert grpc.StatusCode.UNAVAILABLE is refused.value.code()
    assert [EnvoyOutcome.STOPPING] == asked.observer.outcomes


def test_a_body_in_pieces_passes() -> None:
    """Where Envoy is configured to stream bodies, they cannot be trimmed: the stream ends after the headers."""
    streamed = headers()
    streamed.protocol_config.request_body_mode = 1
    with door() as asked:
        answers = asked.process(streamed)

    assert ["request_headers"] == [answer.WhichOneof("response") for answer in answers]
    assert [EnvoyOutcome.UNREADABLE] == asked.observer.outcomes


def test_a_signed_request_passes() -> None:
    """A changed body would make its signature wrong: the stream ends after the headers."""
    with door() as asked:
        answers = asked.process(headers(authorization="AWS4-HMAC-SHA256 Credential=a"))

    assert ["request_headers"] == [answer.WhichOneof("response") for answer in answers]
    assert [EnvoyOutcome.UNREADABLE] == asked.observer.outcomes


def test_a_trimmed_body_has_its_own_length() -> None:
    """Envoy answers 500 where it is wrong."""
    with door() as asked:
        answers = asked.process(headers(), body(chat(3, "a line of a log\n" * 20_000)))

    changed = answers[1].request_body.response
    put = {each.header.key: each.header.raw_value for each in changed.header_mutation.set_headers}
    assert 0 < len(changed.body_mutation.body) < 500_000
    assert str(len(changed.body_mutation.body)).encode() == put["content-length"]


@pytest.mark.parametrize(("pin", "whole"), [("", False), ("1", False), ("2", True), ("-1", True)])
def test_a_pinned_message_stays(pin: str, *, whole: bool) -> None:
    """As behind the HTTP door."""
    result = "a line of a log\n" * 20_000
    named = {"x_prompt_sidecar_pin": pin} if pin else {}
    with door() as asked:
        changed = asked.process(headers(**named), body(chat(1, result)))[1].request_body.response
    made = changed.body_mutation.body.decode() or json.dumps(result)

    assert whole == (json.dumps(result)[1:-1] in made)


@pytest.mark.parametrize("pin", ["3", "first"])
def test_a_request_whose_pin_names_no_message_passes(pin: str) -> None:
    """Nothing of it is trimmed, as anything might be what was meant."""
    with door() as asked:
        answers = asked.process(headers(x_prompt_sidecar_pin=pin), body(chat(1, "a line of a log\n" * 20_000)))

    assert [EnvoyOutcome.INVALID] == asked.observer.outcomes
    assert not answers[1].request_body.response.body_mutation.body


def test_a_token_is_asked_for_where_there_are_some(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Envoy proves who it is by initial_metadata; without it nothing is processed."""
    file = tmp_path_factory.mktemp("tokens") / "tokens"
    file.write_text(f"gateway:{TOKEN}\n")
    file.chmod(0o600)
    with door(tokens_file=str(file)) as asked:
        with pytest.raises(grpc.RpcError) as refused:
            asked.process(headers(), body(chat(1, "a")))
        answers = asked.process(headers(), body(chat(1, "a")), metadata=(("authorization", f"Bearer {TOKEN}"),))

    assert grpc.StatusCode.UNAUTHENTICATED is refused.value.code()
    assert [EnvoyOutcome.UNAUTHENTICATED, EnvoyOutcome.ANSWERED] == asked.observer.outcomes
    assert 2 == len(answers)


def test_two_conversations_that_begin_alike_are_two_runs() -> None:
    """As behind the HTTP door: the model's first answer tells them apart; the first call's run is adopted."""
    identities = Identities(
        KEY, by_credential=False, names=CallerNames(), conversations=Conversations(KEY, 100, "envoy-")
    )

    def run_id(*later: str, **named: str) -> str:
        messages = [("user", "Hello"), *(("assistant", text) for text in later)]
        entries = ",".join(f'{{"role":"{role}","content":"{text}"}}' for role, text in messages)
        return identities.of("openai_chat", named, f'{{"messages":[{entries}]}}'.encode(), "").run_id

    one = run_id()

    assert one == run_id("one") == run_id("one", "more")
    assert one != run_id("two")
    assert "named" == run_id(**{"x-prompt-sidecar-run": "named"})


def test_conversations_end_with_their_runs() -> None:
    """By EndRuns as by EndRun; what comes next begins another run under the same id."""
    core = runs()
    with door(core=core) as asked:
        for end in (lambda run_id: core.end("local", run_id), lambda _: core.end_all("local")):
            asked.process(headers(), body(chat(1, "a")))
            (conversations,) = core.table.doors
            assert isinstance(conversations, Conversations)
            (run,) = core.summaries(10)
            assert 1 == len(conversations)
            end(run.run_id)
            assert (0, 0) == (len(conversations), len(core))


def test_callers_are_distinguished_by_credentials_where_asked() -> None:
    """Each key is a caller of whoever Envoy proved to be; without the setting all are one."""

    def caller(value: str, peer: str = "", *, by_credential: bool = True) -> str:
        identities = Identities(KEY, by_credential, CallerNames(), Conversations(KEY, 100, "envoy-"))
        return identities.of("openai_chat", {"authorization": value}, b"{}", peer).caller

    assert caller("Bearer one") != caller("Bearer two")
    assert f"mtls:gateway/{caller('Bearer one')}" == caller("Bearer one", "mtls:gateway")
    assert "local" == caller("Bearer one", by_credential=False)


def test_a_body_that_is_no_object_passes() -> None:
    """The provider says what is wrong with it; it is no fault of the sidecar's."""
    with door() as asked:
        answers = asked.process(headers(), body(b'{"messages":' + b"[" * 50_000))

    assert not answers[1].request_body.HasField("response")
    assert [EnvoyOutcome.INVALID] == asked.observer.outcomes


@pytest.mark.parametrize(
    ("more", "answered"), [({"content_length": "100000000"}, 0), ({}, 1), ({"content_length": "9" * 400}, 1)]
)
def test_a_body_for_which_there_is_no_memory_passes(more: Mapping[str, str], answered: int) -> None:
    """Where its length is known it is not asked for; else it is not parsed. What was reserved is given back."""
    with door() as asked:
        memory = asked.door._shared.use_cases.memory = MemoryGate(REQUEST_COPIES << 22, lambda: (0, 0))  # noqa: SLF001
        room = memory.room()
        answers = asked.process(headers(**more), body(b'{"messages":[' + b" " * (1 << 23) + b"]}"))
        until(lambda: asked.door.streams == 0)
    assert answered == len(answers)
    assert [EnvoyOutcome.TOO_LARGE] == asked.observer.outcomes
    assert room == memory.room()
