"""Each request that Envoy shows and that goes on counts once, by what was done about it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from prompt_sidecar.doors.envoy.v1 import ext_proc_pb2 as wire
from prompt_sidecar.errors import RunCeiling, TooLarge
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.facts.untrimmed import Handled, Through, Untrimmed
from tests.doors.envoy.test_door import Watched, body, door, failing, headers
from tests.doors.envoy.through import chat

SIGNED = {"authorization": "AWS4-HMAC-SHA256 x"}
WHOLE = body(chat(1, "a result"))
HALF = wire.ProcessingRequest(request_body=wire.HttpBody(body=b"{", end_of_stream=False))


class Kept(Watched):
    """Keeps what was done."""

    def __init__(self) -> None:
        super().__init__()
        self.handled_requests: list[Handled] = []

    def handled(self, handled: Handled) -> None:
        """Keep it."""
        self.handled_requests.append(handled)


def reasons_of(*sent: wire.ProcessingRequest, error: BaseException | None = None) -> list[Handled]:
    """What is counted of an exchange."""
    kept = Kept()
    with door(observed_by=kept, core=None if error is None else failing(error)) as asked:
        asked.process(*sent)
    return kept.handled_requests


def method(name: str, request: wire.ProcessingRequest) -> wire.ProcessingRequest:
    """A request's headers with another method."""
    request.request_headers.headers.headers[0].raw_value = name.encode()
    return request


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ([headers(), WHOLE], Untrimmed.NO_NEED),
        ([headers(), body(b"{")], Untrimmed.UNREADABLE),
        ([headers(content_encoding="gzip")], Untrimmed.ENCODED),
        ([headers(**SIGNED)], Untrimmed.SIGNED),
        ([headers("/v9/thoughts", content_length="9")], Untrimmed.UNKNOWN_PATH),
        ([headers("/v1/embeddings", content_length="9")], Untrimmed.NO_PROMPT),
        ([headers("/v1/messages/count_tokens", content_length="9")], Untrimmed.COUNTING),
        ([method("GET", headers("/v1/realtime", upgrade="websocket"))], Untrimmed.WEBSOCKET),
        ([method("GET", headers("/v1/models"))], Untrimmed.NO_PROMPT),
    ],
    ids=lambda value: value.value if isinstance(value, Untrimmed) else "",
)
def test_each_request_has_one_reason(sent: Sequence[wire.ProcessingRequest], reason: Untrimmed) -> None:
    """By its headers, or by what the core says of its body."""
    (handled,) = reasons_of(*sent)
    assert (Through.ENVOY, reason) == (handled.through, handled.untrimmed)
    assert (handled.recall is None) == (reason is Untrimmed.NO_PROMPT)


def test_a_body_that_is_not_whole() -> None:
    """Envoy is not set to buffer it."""
    request = headers()
    request.protocol_config.request_body_mode = 1
    assert [Untrimmed.UNBUFFERED] == [each.untrimmed for each in reasons_of(request, HALF)]


def test_errors_of_the_core() -> None:
    """A limit, a lack of memory, a fault; what is refused does not go on."""
    expected = {TooLarge("no"): "too_large", MemoryError(): "overloaded", RuntimeError("text"): "internal"}
    for error, reason in expected.items():
        assert [reason] == [each.outcome for each in reasons_of(headers(), WHOLE, error=error)]
    assert [] == reasons_of(headers(), WHOLE, error=RunCeiling("no", scope="run", kind="model_calls"))


def test_a_run_is_named() -> None:
    """With the size of its body, and whether the agent has given the model tools for recall."""
    (handled,) = reasons_of(headers(x_prompt_sidecar_run="r-1", x_prompt_sidecar_recall="tools"), WHOLE)
    assert ("r-1", RecallOffer.OFFERED) == (handled.run_id, handled.recall)
    assert len(WHOLE.request_body.body) == handled.size
