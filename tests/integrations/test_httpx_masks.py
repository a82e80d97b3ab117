"""Behind the transport, calls in the model's answers get the values that the guard has masked."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prompt_sidecar.client import AsyncClient, Client, MaskedRun
from prompt_sidecar.client.engine import Engine
from prompt_sidecar.client.options import Options
from prompt_sidecar.integrations.answers import JsonEvents, MaskValues
from prompt_sidecar.integrations.httpx import AsyncSidecarTransport, SidecarTransport
from tests.answers.test_odd_answers import odd_events
from tests.client.provider import SHAPES, Says
from tests.client.serving import PATIENT, sdk
from tests.client.test_sdks import FORMATS
from tests.doors.http.streams import EVENTS
from tests.doors.http.upstream import FORMATS as PATHS
from tests.doors.http.upstream import Upstream, scripted
from tests.integrations.test_httpx import keywords, library, made, tool_calls
from tests.integrations.test_masked import VALUE, masking

QUESTION: Final = [{"role": "user", "content": f"Deploy with {VALUE}."}]
MASK: Final = re.compile("⟦github_token:[a-z0-9]+⟧")
ENDS: Final = (b'"finish_reason":"tool_calls"', b"content_block_stop", b"arguments.done")
"""In an event that ends a call."""
STREAMED: Final = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
EACH_FORMAT: Final = pytest.mark.parametrize("format", FORMATS)


@pytest.fixture
def client() -> Iterator[Client]:
    """A client of a sidecar that masks."""
    with masking() as address, Client(address, deadline=PATIENT) as opened:
        yield opened


def mask_in(body: Any) -> str:
    """The mask in a prompt."""
    found = MASK.search(json.dumps(body, ensure_ascii=False))
    assert found is not None
    return found[0]


def calls(body: Any) -> Says:
    """Two calls with the mask, the first also in JSON within JSON, and one of a tool that may not have the value."""
    mask = mask_in(body)
    inner = json.dumps({"line": "a\nb", "token": mask}, ensure_ascii=False)
    return Says(
        "Two.",
        [
            ("c1", "deploy", {"token": f"a {mask} b", "escaped": "\\ %41", "body": inner}),
            ("c2", "show", {"text": mask}),
            ("c3", "deploy", {"none": "%e2%9f \\u27"}),
        ],
    )


def arguments(format: str, response: Any) -> list[Any]:
    """The arguments of the calls in a response."""
    if format == "openai_chat":
        return [json.loads(call.function.arguments) for call in response.choices[0].message.tool_calls]
    if format == "openai_responses":
        return [json.loads(item.arguments) for item in response.output if item.type == "function_call"]
    return [block.input for block in response.content if block.type == "tool_use"]


def check(found: list[Any]) -> None:
    """The tool that may have the value has it everywhere, the other one has the mask."""
    assert f"a {VALUE} b" == found[0]["token"]
    assert "\\ %41" == found[0]["escaped"]
    assert {"line": "a\nb", "token": VALUE} == json.loads(found[0]["body"])
    assert MASK.fullmatch(found[1]["text"])
    assert {"none": "%e2%9f \\u27"} == found[2]


def accumulated(format: str, url: str, http: Any) -> Callable[..., Any]:
    """A function that returns a whole answer, as the SDK makes it of a stream."""

    def ask(**words: Any) -> Any:
        if format == "anthropic_messages":
            model = sdk("anthropic").Anthropic(base_url=url, api_key="k", max_retries=0, http_client=http)
            with model.messages.stream(**words) as stream:
                return stream.get_final_message()
        model = sdk("openai").OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, http_client=http)
        if format == "openai_responses":
            with model.responses.stream(**words) as stream:
                return stream.until_done().get_final_response()
        with model.chat.completions.stream(**words) as stream:
            return stream.get_final_completion()

    return ask


@STREAMED
@EACH_FORMAT
def test_calls_get_values(format: str, stream: bool, client: Client) -> None:
    """Whole and streamed: the SDK reads them from its answer, and no prompt holds the value."""
    with (
        Upstream(scripted(calls, Says("Done."))) as there,
        library().Client(transport=SidecarTransport(client, "run", context_window=100_000)) as http,
    ):
        words = keywords(format, QUESTION)
        ask = accumulated if stream else made
        response = ask(format, there.url, http)(**words)
        sent = [each.raw.decode() for each in there.sent]

    assert [] == there.defects
    assert ["c1", "c2", "c3"] == tool_calls(format, response)
    check(arguments(format, response))
    assert 1 == len(sent)
    assert VALUE not in sent[0]


@EACH_FORMAT
def test_calls_get_values_in_asyncio(format: str, client: Client) -> None:
    """The same in asyncio, whole."""

    async def main() -> Any:
        async with AsyncClient(client.options.target, deadline=PATIENT) as sidecar:
            transport = AsyncSidecarTransport(sidecar, "run", context_window=100_000)
            async with library().AsyncClient(transport=transport) as http:
                return await made(format, there.url, http, asyncio=True)(**keywords(format, QUESTION))

    with Upstream(scripted(calls)) as there:
        response = asyncio.run(main())
    check(arguments(format, response))


def through(client: Client, path: str, question: Any, answer: Callable[[Any], Any]) -> tuple[bytes, Any]:
    """Send a body through the transport to a provider in this process; return what the agent gets, and the request.

    `answer` is given the body that the provider is sent; it returns a content type and pieces.
    """
    seen: list[Any] = []

    def handler(request: Any) -> Any:
        seen.append(request)
        kind, pieces = answer(json.loads(request.content))

        class Pieces(library().SyncByteStream):  # type: ignore[misc]
            def __iter__(self) -> Iterator[bytes]:
                yield from pieces

        return library().Response(200, headers={"content-type": kind}, stream=Pieces())

    transport = SidecarTransport(
        client, "run", wrapped=library().MockTransport(handler), context_window=100_000, model="scripted"
    )
    with (
        library().Client(transport=transport) as http,
        http.stream("POST", f"http://provider.test{path}", json=question) as response,
    ):
        return b"".join(response.iter_raw()), seen[0]


def pieces_of(raw: bytes, size: int) -> list[bytes]:
    """The bytes in pieces."""
    return [raw[at : at + size] for at in range(0, len(raw), size)]


@pytest.mark.parametrize("size", [1, 7, 1_000_000])
@EACH_FORMAT
def test_events_may_be_cut_anywhere(format: str, size: int, client: Client) -> None:
    """Whatever the pieces of a stream are, its events are whole, and are the provider's but for the arguments."""
    path = next(path for path, name in PATHS.items() if name == format)
    given: list[bytes] = []

    def answer(body: Any) -> Any:
        given.append(b"".join(EVENTS[path](SHAPES[path](calls(body), 1), body)))
        return "text/event-stream", pieces_of(given[0], size)

    got, request = through(client, f"/v1/{path}", keywords(format, QUESTION, stream=True), answer)

    assert "identity" == request.headers["accept-encoding"]
    events = [json.loads(line[6:]) for line in got.splitlines() if line.startswith(b"data: {")]
    numbers = [each["sequence_number"] for each in events if "sequence_number" in each]
    assert list(range(len(numbers))) == numbers
    before = [line for line in given[0].splitlines() if line.startswith(b"event:")]
    after = [line for line in got.splitlines() if line.startswith(b"event:")]
    assert list(dict.fromkeys(before)) == list(dict.fromkeys(after))
    assert VALUE in got.decode()


@EACH_FORMAT
def test_a_stream_that_is_cut_off_has_no_value(format: str, client: Client) -> None:
    """A call that has not ended keeps its masks, and all that came goes on."""
    path = next(path for path, name in PATHS.items() if name == format)

    def answer(body: Any) -> Any:
        events = list(EVENTS[path](SHAPES[path](calls(body), 1), body))
        begun = next(at for at, event in enumerate(events) if b'"c1"' in event)
        ended = next(at for at, event in enumerate(events) if at > begun and any(each in event for each in ENDS))
        return "text/event-stream", events[:ended]

    got, _ = through(client, f"/v1/{path}", keywords(format, QUESTION, stream=True), answer)

    assert VALUE not in got.decode()
    assert "github_token:" in got.decode()


def test_several_choices_of_a_stream(client: Client) -> None:
    """Each choice has calls of its own, which come in turns."""

    def chunk(choice: int, text: str, finish: str | None = None, **more: Any) -> bytes:
        call = {"index": 0, "function": {"arguments": text, **more}}
        one = {"index": choice, "delta": {"tool_calls": [call]}, "finish_reason": finish}
        return b"data: " + json.dumps({"choices": [one]}, ensure_ascii=False).encode() + b"\r\n\r\n"

    def answer(body: Any) -> Any:
        mask = mask_in(body)
        half = len(mask) // 2
        events = [
            *(chunk(each, "", name=name) for each, name in enumerate(("deploy", "show", "deploy"))),
            *(chunk(each, '{"token": "' + mask[:half]) for each in range(3)),
            *(chunk(each, mask[half:] + '"}') for each in range(2)),
            chunk(2, mask[half:] + '"}', "tool_calls"),
            *(chunk(each, "", "tool_calls") for each in range(2)),
        ]
        return "text/event-stream", [*events, b"data: [DONE]\n\n"]

    got, _ = through(client, "/v1/chat/completions", keywords("openai_chat", QUESTION, stream=True, n=3), answer)

    assert got.endswith(b"data: [DONE]\n\n")
    texts = ["", "", ""]
    for line in got.splitlines():
        if line.startswith(b"data: {"):
            choice = json.loads(line[6:])["choices"][0]
            texts[choice["index"]] += choice["delta"]["tool_calls"][0]["function"]["arguments"]
    assert [VALUE, VALUE] == [json.loads(texts[each])["token"] for each in (0, 2)]
    assert MASK.fullmatch(json.loads(texts[1])["token"])


GEMINI: Final = "/v1beta/models/scripted:"
ASKED: Final = {"contents": [{"role": "user", "parts": [{"text": f"Deploy with {VALUE}."}]}]}


@pytest.mark.parametrize("how", ["generateContent", "streamGenerateContent", "streamGenerateContent?alt=sse"])
def test_calls_in_gemini_answers_get_values(how: str, client: Client) -> None:
    """Whole, as an array and in events: each part holds a call's arguments whole."""

    def answer(body: Any) -> Any:
        call = {"name": "deploy", "args": {"token": mask_in(body), "number": 1}}
        answer_body = {"candidates": [{"content": {"role": "model", "parts": [{"functionCall": call}]}}]}
        raw = json.dumps(answer_body).encode()
        if "sse" in how:
            return "text/event-stream", [b"data: " + raw + b"\r\n\r\n"]
        return "application/json; charset=utf-8", pieces_of(b"[" + raw + b"]" if "stream" in how else raw, 10)

    got, _ = through(client, GEMINI + how, ASKED, answer)

    answer_body = json.loads(got.removeprefix(b"data: "))
    answer_body = answer_body[0] if isinstance(answer_body, list) else answer_body
    assert {"token": VALUE, "number": 1} == answer_body["candidates"][0]["content"]["parts"][0]["functionCall"]["args"]


def test_calls_in_bedrock_answers_get_values(client: Client) -> None:
    """A whole answer."""

    def answer(body: Any) -> Any:
        use = {"toolUseId": "t", "name": "deploy", "input": {"token": mask_in(body)}}
        answer_body = {"output": {"message": {"role": "assistant", "content": [{"toolUse": use}]}}}
        return "application/json", [json.dumps(answer_body).encode()]

    asked = {"messages": [{"role": "user", "content": [{"text": f"Deploy with {VALUE}."}]}]}
    got, _ = through(client, "/model/scripted/converse", asked, answer)

    use = json.loads(got)["output"]["message"]["content"][0]["toolUse"]
    assert {"token": VALUE} == use["input"]


def test_a_prompt_without_masks_changes_nothing(client: Client) -> None:
    """Its answer is the provider's byte for byte, even with what looks like a mask, and the agent's encodings stay."""
    raw = b'{ "choices": [{"message": {"tool_calls": [{"function": {"arguments": "\\u27e6a:b\\u27e7"}}]}}] }'
    question = keywords("openai_chat", [{"role": "user", "content": "Hello."}])
    got, request = through(client, "/v1/chat/completions", question, lambda _: ("application/json", [raw]))

    assert raw == got
    assert "gzip" in request.headers["accept-encoding"]


@EACH_FORMAT
def test_a_run_with_masks_is_not_failed_open(format: str) -> None:
    """What is new would go unmasked: the SDK raises the client's error, or its own from that, and nothing is sent."""
    with Upstream(scripted(Says("ok"))) as there:
        with masking() as address:
            opened = Client(address, deadline=PATIENT)
            http = library().Client(transport=SidecarTransport(opened, "run"))
            create = made(format, there.url, http)
            create(**keywords(format, QUESTION))
        package = sdk("anthropic" if format == "anthropic_messages" else "openai")
        with opened, pytest.raises((MaskedRun, package.APIConnectionError)) as caught:
            create(**keywords(format, [*QUESTION, *QUESTION]))
        http.close()
        assert isinstance(caught.value if isinstance(caught.value, MaskedRun) else caught.value.__cause__, MaskedRun)
        assert 1 == len(there.sent)


def test_a_sidecar_that_is_gone_leaves_masks() -> None:
    """The call goes on with the mask, which reveals nothing."""
    question = keywords("openai_chat", [{"role": "user", "content": "Deploy with ⟦github_token:aaaaaaaaaa⟧."}])

    def answer(body: Any) -> Any:
        answer_body = SHAPES["chat/completions"](Says("", [("c", "deploy", {"token": mask_in(body)})]), 1)
        return "application/json", [json.dumps(answer_body).encode()]

    with Client("127.0.0.1:1", deadline=PATIENT) as nobody:
        got, _ = through(nobody, "/v1/chat/completions", question, answer)

    assert "github_token" in json.loads(got)["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]


def _pieced(path: str, texts: Sequence[str]) -> list[bytes]:
    """One call of `deploy` as the provider streams it, with its arguments in these pieces."""
    whole = "".join(texts)
    if path == "chat/completions":
        first = {"index": 0, "id": "c1", "function": {"name": "deploy", "arguments": ""}}
        calls = [first, *({"index": 0, "function": {"arguments": text}} for text in texts)]
        events: list[Any] = [{"choices": [{"index": 0, "delta": {"tool_calls": [each]}}]} for each in calls]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    elif path == "messages":
        block = {"type": "tool_use", "id": "c1", "name": "deploy", "input": {}}
        events = [{"type": "content_block_start", "index": 0, "content_block": block}]
        deltas = [{"type": "input_json_delta", "partial_json": text} for text in texts]
        events += [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": 0})
    else:
        item = {"type": "function_call", "call_id": "c1", "name": "deploy", "arguments": ""}
        events = [{"type": "response.output_item.added", "output_index": 0, "item": item}]
        delta = "response.function_call_arguments.delta"
        events += [{"type": delta, "output_index": 0, "delta": text} for text in texts]
        events.append({"type": "response.function_call_arguments.done", "output_index": 0, "arguments": whole})
        events.append({"type": "response.output_item.done", "output_index": 0, "item": {**item, "arguments": whole}})
    return [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]


def _joined(got: bytes) -> str:
    """The arguments in a stream's pieces."""
    found = []
    for line in got.splitlines():
        event = json.loads(line[6:]) if line.startswith(b"data: {") else {}
        for choice in event.get("choices", ()):
            found += [call["function"].get("arguments", "") for call in choice["delta"].get("tool_calls", ())]
        delta = event.get("delta", "")
        found.append(delta if isinstance(delta, str) else delta.get("partial_json", ""))
    return "".join(found)


@pytest.mark.parametrize(
    ("first", "second"), [("\ud83d", "\ude00"), ("\ud83d", "-"), ("-", "\ude00")], ids=["pair", "first", "second"]
)
@EACH_FORMAT
def test_characters_may_be_cut(format: str, first: str, second: str, client: Client) -> None:
    """Between their UTF-16 units, as some servers do: what comes stays in order, and masks become values."""
    path = next(path for path, name in PATHS.items() if name == format)
    texts = ['{"a":"x' + first, second + '","token":"MASK"}']

    def answer(body: Any) -> Any:
        return "text/event-stream", _pieced(path, [each.replace("MASK", mask_in(body)) for each in texts])

    got, _ = through(client, f"/v1/{path}", keywords(format, QUESTION, stream=True), answer)

    wanted = (first + second).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    found = json.loads(_joined(got).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass"))
    assert {"a": "x" + wanted, "token": VALUE} == found


@EACH_FORMAT
def test_characters_may_be_cut_behind_a_mask(format: str, client: Client) -> None:
    """In a stream that is cut off too: what waits goes on as whole characters, which every writer of JSON takes."""
    path = next(path for path, name in PATHS.items() if name == format)

    def answer(body: Any) -> Any:
        events = _pieced(path, ['{"token":"' + mask_in(body) + '","a":"\ud83d', '\ude00"}'])
        return "text/event-stream", events[:3]

    got, _ = through(client, f"/v1/{path}", keywords(format, QUESTION, stream=True), answer)

    assert "\U0001f600" == json.loads(_joined(got))["a"]
    assert b"\\ud83d" not in got


@pytest.mark.parametrize("together", [False, True], ids=["in two chunks", "in one chunk"])
def test_calls_with_one_index(together: bool, client: Client) -> None:
    """Some servers number all calls with 0: each is known by its id, and gets its own values."""

    def answer(body: Any) -> Any:
        calls = [
            {
                "index": 0,
                "id": f"c{number}",
                "function": {"name": name, "arguments": json.dumps({"token": mask_in(body)})},
            }
            for number, name in enumerate(("deploy", "show", "deploy"))
        ]
        deltas = [calls] if together else [[each] for each in calls]
        events: list[Any] = [{"choices": [{"index": 0, "delta": {"tool_calls": each}}]} for each in deltas]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
        return "text/event-stream", [b"data: " + json.dumps(each).encode() + b"\n\n" for each in events]

    got, _ = through(client, "/v1/chat/completions", keywords("openai_chat", QUESTION, stream=True), answer)

    calls: list[str] = []
    for line in got.splitlines():
        if line.startswith(b"data: {"):
            for piece in json.loads(line[6:])["choices"][0]["delta"].get("tool_calls", []):
                calls += [""] if "id" in piece else []
                calls[-1] += piece["function"]["arguments"]
    tokens = [json.loads(each)["token"] for each in calls]
    assert [VALUE, VALUE] == [tokens[0], tokens[2]]
    assert MASK.fullmatch(tokens[1])


@EACH_FORMAT
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_odd_events_pass_byte_for_byte(format: str, client: Client, data: st.DataObject) -> None:
    """Whatever the members of a stream's events are, where no value takes the place of a mask."""
    path = next(path for path, name in PATHS.items() if name == format)
    events = [event.removeprefix(b"data: ") for event in _pieced(path, ['{"a":', "1}"])]
    read = [json.loads(event) for event in events]
    made = data.draw(odd_events([("", each) for each in read]))
    raw = [b"data: " + (each if isinstance(each, bytes) else json.dumps(each).encode()) + b"\n\n" for _, each in made]
    whole = b"".join(raw)

    got, _ = through(
        client, f"/v1/{path}", keywords(format, QUESTION, stream=True), lambda _: ("text/event-stream", [whole])
    )

    assert whole == got


ODD_NUMBERS: Final = '{"a":12345678901234567890123,"b":0.12345678901234567890123,"c":1E400,"d":-0,"e":1.50e+02}'
"""Numbers that few writers write so."""


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
def test_what_is_no_mask_stays(kind: str, client: Client) -> None:
    """Whatever the spelling and the size of numbers, in arguments and beside them; there members may repeat."""
    call = '{"functionCall": {"name": "deploy", "args": {"token": "MASK", "odd": ODD}}}'
    form = f'{{"odd": ODD, "twice": [1], "twice": 2, "candidates": [{{"content": {{"parts": [{call}]}}}}]}}'
    form = form.replace("ODD", ODD_NUMBERS.replace(":", ": ").replace(",", ", "))
    head, end = (b"data: ", b"\n\n") if kind == "text/event-stream" else (b"", b"")

    def answer(body: Any) -> Any:
        return kind, [head + form.replace("MASK", mask_in(body)).encode() + end]

    question = {"contents": [{"role": "user", "parts": [{"text": f"Deploy with {VALUE}."}]}]}
    got, _ = through(client, "/v1beta/models/scripted:generateContent", question, answer)

    assert head + form.replace("MASK", VALUE).encode() + end == got


@pytest.mark.parametrize("line", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("empty", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("size", [1, 1_000_000])
def test_every_line_end_ends_an_event(line: bytes, empty: bytes, size: int, client: Client) -> None:
    """A line's end and an empty line's may differ."""
    if line + empty == b"\r\n":
        pytest.skip("one line end")

    def answer(body: Any) -> Any:
        call = {"name": "deploy", "args": {"token": mask_in(body)}}
        data = {"candidates": [{"content": {"parts": [{"functionCall": call}]}}]}
        event = b"data: " + json.dumps(data, ensure_ascii=False).encode() + line + empty
        return "text/event-stream", pieces_of(event * 2, size)

    question = {"contents": [{"role": "user", "parts": [{"text": f"Deploy with {VALUE}."}]}]}
    got, _ = through(client, "/v1beta/models/scripted:streamGenerateContent?alt=sse", question, answer)

    assert 2 == got.count(VALUE.encode())


def test_a_name_in_endless_pieces_is_not_added_up() -> None:
    """Each piece would cost as much as all before it."""
    events = JsonEvents("openai_chat", MaskValues(Engine(Options("127.0.0.1:1")), "run"))
    for number in range(100):
        piece = {"index": 0, "function": {"name": f"{number}{'x' * 300}"}}
        list(events.take({"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]}))

    (call,) = events._calls.values()  # noqa: SLF001  # what it keeps
    assert len(call.name) < 2_000


@pytest.mark.parametrize("ends", [False, True])
def test_an_event_that_fails_is_taken_back(ends: bool) -> None:
    """What has waited before it goes on once, and the event as it came."""

    def chunk(text: str, finish: str | None = None) -> dict[str, Any]:
        piece = {"index": 0, "function": {"name": "deploy", "arguments": text}}
        return {"choices": [{"index": 0, "delta": {"tool_calls": [piece]}, "finish_reason": finish}]}

    events = JsonEvents("openai_chat", MaskValues(Engine(Options("127.0.0.1:1")), "run"))
    list(events.take(first := chunk('{"token":"⟦github_token:aa')))
    steps = events.take(chunk('aaaaaaaa⟧"}', "tool_calls" if ends else None))
    if ends:
        next(steps)
        with pytest.raises(LookupError):
            steps.throw(LookupError())
    else:
        list(steps)
    events.undo()

    handed = [first, *events.flushed(), chunk('aaaaaaaa⟧"}')]
    texts = [each["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] for each in handed]
    assert '{"token":"⟦github_token:aaaaaaaaaa⟧"}' == "".join(texts)


ODD_ARGUMENTS: Final = (
    '{"n":1E400,"token":"MASK"}',
    '{"token":"MASK","n":1,"n":"MASK"}',
    '{"n":"\\ud83d","token":"MASK"}',
)
"""Arguments that two parsers may read differently."""


@STREAMED
@pytest.mark.parametrize("arguments", ODD_ARGUMENTS)
def test_arguments_that_parsers_read_differently(arguments: str, stream: bool, client: Client) -> None:
    """A number too large, a member twice, half a character: the values come, and the rest stays as it was written."""
    pieces = [arguments[:9], arguments[9:]]

    def answer(body: Any) -> Any:
        mask = mask_in(body)
        if stream:
            events = _pieced("chat/completions", pieces)
            return "text/event-stream", [each.replace(b"MASK", mask.encode()) for each in events]
        call = {"id": "c1", "type": "function", "function": {"name": "deploy", "arguments": arguments}}
        answer_body = {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}
        return "application/json", [json.dumps(answer_body).replace("MASK", mask).encode()]

    got, _ = through(client, "/v1/chat/completions", keywords("openai_chat", QUESTION, stream=stream), answer)
    events = [json.loads(line[6:]) for line in got.splitlines() if line.startswith(b"data: {")] or [json.loads(got)]
    calls = [
        call
        for event in events
        for choice in event["choices"]
        for call in choice.get("delta", choice.get("message")).get("tool_calls", [])
    ]

    assert arguments.replace("MASK", VALUE) == "".join(call["function"]["arguments"] for call in calls)


@pytest.mark.parametrize("size", [1, 2, 1_000])
def test_a_byte_order_mark_before_a_stream(size: int, client: Client) -> None:
    """It belongs to no line: the first event is read, and the mark stays where it was."""

    def answer(body: Any) -> Any:
        call = {"functionCall": {"name": "deploy", "args": {"token": mask_in(body)}}}
        event = json.dumps({"candidates": [{"content": {"parts": [call]}}]}).encode()
        return "text/event-stream", pieces_of(b"\xef\xbb\xbfdata: " + event + b"\n\n", size)

    got, _ = through(client, GEMINI + "streamGenerateContent?alt=sse", ASKED, answer)

    answer_body = json.loads(got.removeprefix(b"\xef\xbb\xbfdata: "))
    assert {"token": VALUE} == answer_body["candidates"][0]["content"]["parts"][0]["functionCall"]["args"]
