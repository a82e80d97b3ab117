"""Agents that send a conversation's prompts through a sidecar, each in its own way.

What an agent keeps is what it sent and what the provider answered: reasoning signed over the prompt that the provider
really got. So each of them shows a way in which a block can come under another prefix than its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import grpc
import msgspec
import orjson

from sidecar.client import Client
from sidecar.run.calls import EditOperation, TrimAnswer
from sidecar.v1 import policy_pb2, service_pb2_grpc, trim_pb2
from tests.cli.running import program
from tests.client.serving import PATIENT
from tests.conformance.conversations import MEMBER, SYSTEM, Conversation
from tests.promises.engine import KEY, Engine
from tests.server.serving import WIDE, Serving, serving

RESTARTS = (0.2, 0.45, 0.5, 0.75)
"""Where a process ends and another begins, as shares of the run."""
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])
_arrays = msgspec.json.Decoder(list[msgspec.Raw])


class Agent(Protocol):
    """One agent's way to send prompts."""

    def prompt(self, given: Sequence[bytes]) -> bytes:
        """Take new messages in; return the body to send to the provider."""
        ...  # pragma: no cover

    def took(self, answer: Sequence[bytes]) -> None:
        """Keep what the provider answered."""
        ...  # pragma: no cover

    def aside(self) -> Iterator[bytes]:
        """Further bodies that this agent sends now to a model, of the same history; their answers it does not keep."""
        return iter(())

    def close(self) -> None:
        """Give back what it holds."""


class Whole(Agent):
    """Sends its whole untrimmed history each time."""

    restarts: Sequence[float] = ()
    """Where the sidecar is another process from, as shares of the run."""
    sends_revision = False

    def __init__(self, run: Conversation, preset: str, limit: int) -> None:
        self.run, self.preset, self.limit = run, preset, limit
        self.history: list[bytes] = []
        self.engine = self.fresh()
        self.revision = b""
        self.turn = 0
        self.answer: TrimAnswer | None = None

    def fresh(self) -> Engine:
        """A process that has not seen the run; all have one key."""
        return Engine(limit=self.limit, preset=self.preset)

    def prompt(self, given: Sequence[bytes]) -> bytes:
        self.history += given
        if self.turn in [int(share * len(self.run.steps)) for share in self.restarts]:
            self.engine = self.fresh()
        self.turn += 1
        fields = {"revision": self.revision} if self.sends_revision else {}
        self.answer = self.trim(**fields)
        self.revision = self.answer.revision
        return self.received(self.answer)

    def trim(self, **fields: Any) -> TrimAnswer:
        """Ask the sidecar."""
        return self.engine.trim(self.run.format, self.run.body(self.history), **fields)

    def received(self, answer: TrimAnswer) -> bytes:
        """The prompt that came back."""
        assert answer.body is not None
        return answer.body

    def took(self, answer: Sequence[bytes]) -> None:
        self.history += answer


class Restarted(Whole):
    """The same, and the sidecar is killed and started anew; a fresh process has the key and nothing else."""

    restarts = RESTARTS


class Revised(Restarted):
    """The same with the revision sent back."""

    sends_revision = True


class Edited(Whole):
    """Patches its own objects with the edits that come back."""

    def trim(self, **fields: Any) -> TrimAnswer:
        self.sent = self.run.body(self.history)
        return self.engine.trim(self.run.format, self.sent, edits=True, **fields)

    def received(self, answer: TrimAnswer) -> bytes:
        body = orjson.loads(self.sent)
        for edit in answer.edits:
            *path, last = [part.replace("~1", "/").replace("~0", "~") for part in edit.pointer.split("/")[1:]]
            parent = body
            for part in path:
                parent = parent[int(part)] if isinstance(parent, list) else parent[part]
            place: Any = int(last) if isinstance(parent, list) else last
            if edit.operation is EditOperation.REMOVE:
                del parent[place]
            elif edit.operation is EditOperation.INSERT and isinstance(parent, list):
                parent.insert(place, orjson.loads(edit.value))
            else:
                parent[place] = orjson.loads(edit.value)
        return orjson.dumps(body)


class Deltas(Whole):
    """Sends only what is new, on top of the last answer's revision."""

    def trim(self, **fields: Any) -> TrimAnswer:
        body = self.run.body(self.history)
        self.history = []
        if self.revision:
            fields["base_revision"] = self.revision
        return self.engine.trim(self.run.format, body, **fields)


class Adopted(Whole):
    """Keeps the trimmed prompt as its history, the sidecar's own text included."""

    own_text = True

    def __init__(self, run: Conversation, preset: str, limit: int) -> None:
        super().__init__(run, preset, limit)
        self.system: bytes | None = None

    def trim(self, **fields: Any) -> TrimAnswer:
        return self.engine.trim(self.run.format, self.run.body(self.history, self.system), **fields)

    def received(self, answer: TrimAnswer) -> bytes:
        body = super().received(answer)
        members = _objects.decode(body)
        self.history = [bytes(each) for each in _arrays.decode(members[MEMBER[self.run.format]])]
        if self.own_text:
            self.system = bytes(members.get(SYSTEM[self.run.format], b"null"))
        else:
            own = {piece.message_index for piece in answer.own_text if piece.message_index >= 0}
            self.history = [each for place, each in enumerate(self.history) if place not in own]
        return body


class AdoptedPlain(Adopted):
    """Keeps the trimmed prompt without the sidecar's own text."""

    own_text = False


class AdoptedRevised(Adopted):
    """Keeps the trimmed prompt, and the sidecar is another process now and then; the revision is sent back."""

    restarts = RESTARTS
    sends_revision = True


class Aside(Whole):
    """Sends its whole history, and lets other models look at parts of it, as side calls."""

    every = 9
    """Turns."""

    def aside(self) -> Iterator[bytes]:
        if self.turn % self.every:
            return
        for part in (self.history[: len(self.history) // 2], self.history[-7:]):
            while part and not self._begins(part[0]):
                part = part[1:]
            while part and self._calls(part[-1]):
                part = part[:-1]
            if part:
                answer = self.engine.trim(self.run.format, self.run.body(part), side_call=True)
                assert answer.body is not None
                yield answer.body

    def _begins(self, raw: bytes) -> bool:
        """Whether a part of the history may begin with a message: the user's words."""
        value = orjson.loads(raw)
        blocks = value.get("content", value.get("parts"))
        return value.get("role") == "user" and (
            isinstance(blocks, str)
            or all(block.get("type") != "tool_result" and "functionResponse" not in block for block in blocks)
        )

    def _calls(self, raw: bytes) -> bool:
        """Whether a message may not be the last: calls without their results, or reasoning."""
        value = orjson.loads(raw)
        return value.get("role") in {"assistant", "model"} or value.get("type", "message") != "message"


# -- over the wire ---------------------------------------------------------------------------------------------------


class Switch(grpc.GenericRpcHandler):
    """Stands between a client and a server: hands calls on, or says UNAVAILABLE as nobody's port does."""

    def __init__(self) -> None:
        self.served: Serving | None = None
        self.up = True

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Every method."""
        method = handler_call_details.method

        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            if not self.up or self.served is None:
                context.abort(grpc.StatusCode.UNAVAILABLE, "nobody is here")
            assert self.served is not None
            call: Any = self.served.channel.unary_unary(method)
            try:
                answered: bytes = call(request)
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())  # type: ignore[attr-defined]
            return answered

        return grpc.unary_unary_rpc_method_handler(answer)


class Through(Agent):
    """A Python agent with the client of this project, whose sidecar is down for some turns.

    The client gives back what is to be sent all the same. In the last of those times the sidecar loses its memory too.
    """

    down = ((0.2, 1), (0.45, 3), (0.8, 2))
    """When it is down: the share of the run at which it begins, and for how many turns."""
    native = False
    """Whether prompts are objects rather than bytes."""

    def __init__(self, run: Conversation, preset: str, limit: int) -> None:
        self.run, self.limit, self.preset = run, limit, preset
        self.history: list[bytes] = []
        self.turn = 0
        self.untrimmed = 0
        self.stack = ExitStack()
        self.switch = Switch()
        self.server = self.stack.enter_context(ExitStack())
        self.switch.served = self.server.enter_context(serving())
        from concurrent.futures import ThreadPoolExecutor

        pool = self.stack.enter_context(ThreadPoolExecutor(4))
        front = grpc.server(pool, handlers=[self.switch], options=WIDE)
        port = front.add_insecure_port("127.0.0.1:0")
        front.start()
        self.stack.callback(lambda: front.stop(0).wait())
        self.client = self.stack.enter_context(Client(f"127.0.0.1:{port}", deadline=PATIENT))

    def prompt(self, given: Sequence[bytes]) -> bytes:
        self.history += given
        windows = [(int(share * len(self.run.steps)), turns) for share, turns in self.down]
        self.switch.up = not any(start <= self.turn < start + turns for start, turns in windows)
        if self.turn == sum(windows[-1]):
            self.server.close()
            self.switch.served = self.server.enter_context(serving())
        self.turn += 1
        body = self.run.body(self.history)
        prompt: Any = orjson.loads(body) if self.native else body
        made = self.client.trim(
            "run",
            prompt,
            format=self.run.format,  # type: ignore[arg-type]
            context_window=self.limit,
            output_reserve=0,
            policy={"preset": self.preset},
        )
        self.untrimmed += not made.trimmed
        return orjson.dumps(made.prompt) if self.native else bytes(made.prompt)

    def took(self, answer: Sequence[bytes]) -> None:
        self.history += answer

    def close(self) -> None:
        self.stack.close()


class ThroughNative(Through):
    """The same with prompts as objects, which the client patches."""

    native = True


class ThroughLate(Through):
    """The same; the sidecar is not up yet when the run begins."""

    down = ((0.0, 2), (0.6, 1))


class Killed(Agent):
    """Talks to a sidecar in a process of its own, which is killed with SIGKILL and started anew."""

    def __init__(self, run: Conversation, preset: str, limit: int) -> None:
        import tempfile

        self.run, self.limit, self.preset = run, limit, preset
        self.history: list[bytes] = []
        self.turn = 0
        self.stack = ExitStack()
        self.socket = Path(self.stack.enter_context(tempfile.TemporaryDirectory())) / "s"
        self.start()

    def start(self) -> None:
        """Start a process, and connect to it."""
        settings = {"KEY": KEY.decode(), "LOG__FORMAT": "text"}
        self.process = self.stack.enter_context(program("--listen", "", "--socket", str(self.socket), **settings))
        self.process.wait_for("ready: listening on")
        channel = self.stack.enter_context(grpc.insecure_channel(f"unix:{self.socket}", options=WIDE))
        self.stub = service_pb2_grpc.SidecarServiceStub(channel)

    def prompt(self, given: Sequence[bytes]) -> bytes:
        self.history += given
        if self.turn in [int(share * len(self.run.steps)) for share in RESTARTS]:
            self.process.process.kill()
            self.process.end()
            self.start()
        self.turn += 1
        sent = trim_pb2.JsonPrompt(
            format=trim_pb2.Format.Value(f"FORMAT_{self.run.format.upper()}"), body=self.run.body(self.history)
        )
        named = policy_pb2.Policy(preset=policy_pb2.Preset.Value(f"PRESET_{self.preset.upper()}"))
        request = trim_pb2.TrimPromptRequest(
            run_id="run", json=sent, context_window=self.limit, output_reserve=0, policy=named, accept_bytes=1 << 30
        )
        return self.stub.TrimPrompt(request).json_body

    def took(self, answer: Sequence[bytes]) -> None:
        self.history += answer

    def close(self) -> None:
        self.stack.close()


STYLES: Mapping[str, Callable[[Conversation, str, int], Agent]] = {
    "whole": Whole,
    "restarted": Restarted,
    "revised": Revised,
    "edits": Edited,
    "deltas": Deltas,
    "adopted": Adopted,
    "adopted-plain": AdoptedPlain,
    "adopted-revised": AdoptedRevised,
    "aside": Aside,
    "client": Through,
    "client-native": ThroughNative,
    "client-late": ThroughLate,
    "killed": Killed,
}
"""The agents by the names that the program takes."""
