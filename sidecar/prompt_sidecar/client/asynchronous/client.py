"""The client, and one run of it. Each method drives one use case of the engine, which does no I/O.

`blocking/client.py` is generated from `asynchronous/client.py`: edit the latter, then run `make client`.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from secrets import token_hex
from types import TracebackType
from typing import Any, Literal, Self, Unpack, overload

import grpc

from prompt_sidecar.client.answers import (
    Ended,
    Found,
    Retrieved,
    RunFigures,
    Task,
    TaskList,
    ToolAnswer,
    Tools,
    UsageLearned,
)
from prompt_sidecar.client.arguments import Prompt, SearchOptions, Selection, Status, TrimOptions, Usage, selected
from prompt_sidecar.client.asynchronous.transport import AsyncChannels, Create, advance, ask, release
from prompt_sidecar.client.base import Base, BaseRun
from prompt_sidecar.client.engine import Result, Rpc, Steps
from prompt_sidecar.client.errors import ClientError, answer_was_cut_off, from_rpc
from prompt_sidecar.client.facts import Restored, Trimmed, read
from prompt_sidecar.client.loop import Completion, complete
from prompt_sidecar.client.model_calls import ModelCall, only_strict
from prompt_sidecar.client.schema import make, methods
from prompt_sidecar.client.streaming import Emit, Next, Streaming, stream_complete
from prompt_sidecar.client.turns import Continuation
from prompt_sidecar.providers.messages import Format


class AsyncClient(Base):
    """A client of the sidecar; a context manager. It connects at its first call.

    `Client` is for programs that block, and is thread-safe. A process that is forked before the first call opens its
    own connection. So does one that is forked later, but gRPC can be forked safely only while no call is in flight.

    `AsyncClient` is for asyncio. It opens one connection for each event loop that it is used in, as by a second
    `asyncio.run`.
    """

    _make_channels = AsyncChannels
    _channels: AsyncChannels

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. The client cannot be used afterwards."""
        await self._channels.close()

    def run(self, run_id: str, **options: Unpack[TrimOptions]) -> AsyncRun:
        """Return the run with this id, for use by one agent; the options apply to each of its prompts."""
        return AsyncRun(self, run_id, options)

    async def trim(
        self, run_id: str, prompt: Prompt, *, format: Format = "openai_chat", **options: Unpack[TrimOptions]
    ) -> Trimmed[Prompt]:
        """Trim a prompt; return it in the shape in which it was given.

        Args:
            run_id: names one agent invocation; 1 to 256 bytes.
            prompt: a request body as bytes or text, or as a mapping, or its list of messages; mappings and lists
                may contain the message objects of the openai and anthropic SDKs.
            format: the provider's format.
            **options: see `TrimOptions`.

        Raises:
            TypeError, ValueError: an option is unknown or has a wrong value.
            ClientError: the sidecar did not trim it, and the client does not fail open.
        """
        return await self._drive(self._engine.trim(run_id, prompt, format, options))

    async def retrieve(
        self, run_id: str, stash_id: str, selection: Selection = None, *, page_tokens: int = 0, offset: int = 0
    ) -> Retrieved:
        """Fetch an original, or `Lines`, `Bytes` or a `Pattern` of it, in pages.

        Raises:
            ClientError: the call failed. This method and those below raise it whether or not the client fails open,
                as there is no substitute for their answers.
        """
        more = {"page_tokens": page_tokens, "offset": offset} | selected(selection)
        return read(Retrieved, await self._answer("RetrieveContent", run_id=run_id, stash_id=stash_id, **more))

    async def search(self, run_id: str, query: str, **options: Unpack[SearchOptions]) -> Found:
        """Search the run's history; return the best passages."""
        return read(Found, await self._answer("SearchHistory", run_id=run_id, query=query, **options))

    async def create_tasks(
        self,
        run_id: str,
        items: Iterable[str],
        *,
        mode: Literal["replace", "append"] = "replace",
        request_id: str = "",
    ) -> tuple[Task, ...]:
        """Create tasks; return all tasks of the run. An empty `request_id` is replaced by a random one."""
        named = request_id or token_hex(8)
        answer = await self._answer("CreateTasks", run_id=run_id, items=items, mode=mode, request_id=named)
        return read(TaskList, answer).tasks

    async def update_task(self, run_id: str, task_id: int, status: Status, *, request_id: str = "") -> tuple[Task, ...]:
        """Set a task's status; return all tasks of the run."""
        named = request_id or token_hex(8)
        answer = await self._answer("UpdateTask", run_id=run_id, id=task_id, status=status, request_id=named)
        return read(TaskList, answer).tasks

    async def list_tasks(self, run_id: str) -> tuple[Task, ...]:
        """Return all tasks of the run."""
        return read(TaskList, await self._answer("ListTasks", run_id=run_id)).tasks

    async def list_tools(self, format: Format | Literal[""] = "openai_chat") -> Tools:
        """Return the sidecar's tools for the model. They never change, so they are fetched once for each format."""
        return await self._drive(self._engine.list_tools(format))

    async def call_tool(
        self, run_id: str, name: str, arguments: str | Mapping[str, Any], *, request_id: str = ""
    ) -> ToolAnswer:
        """Run one of the sidecar's tools as the model called it; pass the answer's `content` to the model unchanged."""
        return await self._drive(self._engine.call_tool(run_id, name, arguments, request_id))

    async def restore_secrets(self, run_id: str, calls: Iterable[tuple[str, str]]) -> tuple[Restored, ...]:
        """Put values in place of masks in arguments of tool calls that are about to be executed, each in JSON.

        The history must keep the calls as the model wrote them. `complete` does both.

        Args:
            run_id: the run.
            calls: each call's tool name and arguments.
        """
        return await self._drive(self._engine.restore_secrets(run_id, calls))

    async def report_usage(self, run_id: str, **usage: Unpack[Usage]) -> UsageLearned:
        """Report the provider's token counts for a prompt, or that it refused the prompt as too long."""
        return await self._drive(self._engine.report_usage(run_id, usage))

    async def get_run(self, run_id: str) -> RunFigures:
        """Return the run's figures."""
        return read(RunFigures, (await self._answer("GetRun", run_id=run_id)).run)

    async def end_run(self, run_id: str) -> Ended:
        """End the run: the sidecar and this client forget it at once."""
        self._engine.forget(run_id)
        return read(Ended, await self._answer("EndRun", run_id=run_id))

    async def end_runs(self) -> int:
        """End all runs of this client's caller: client and sidecar forget them. Return how many there were."""
        self._engine.forget_all()
        return int((await self._answer("EndRuns")).ended)

    async def _answer(self, method: str, /, **values: Any) -> Any:
        """Call a method with these fields of its request."""
        return await self._call(Rpc(method, make(f"{method}Request", **values)))

    async def _drive(self, steps: Steps[Result], create: Create | None = None) -> Result:
        """Perform the steps of a use case, and return its result."""
        try:
            step = next(steps)
            while True:
                try:
                    work = self._call(step) if isinstance(step, Rpc) else ask(create, step)
                    answer = await work
                except Exception as error:  # noqa: BLE001  # the use case decides how to handle it
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as ended:
            result: Result = ended.value
            return result

    async def _call(self, rpc: Rpc) -> Any:
        path, request, response = methods()[rpc.method]
        stub: Any = self._channels.current().unary_unary(
            path, request_serializer=request.SerializeToString, response_deserializer=response.FromString
        )
        with self._breaker.call():
            metadata = self.options.metadata(rpc.run_id)
            until = time.monotonic() + self.options.deadline
            try:
                return await stub(rpc.request, timeout=self.options.deadline, metadata=metadata)
            except grpc.RpcError as error:
                if not answer_was_cut_off(error):
                    raise from_rpc(error) from None
            # Once more: the sidecar of the first call is gone, so a proxy takes another one.
            try:
                return await stub(rpc.request, timeout=max(until - time.monotonic(), 0), metadata=metadata)
            except grpc.RpcError as error:
                raise from_rpc(error) from None


class AsyncRun(BaseRun):
    """One run of a client. As a context manager it ends the run on exit."""

    def __init__(self, client: AsyncClient, run_id: str, options: TrimOptions) -> None:
        super().__init__(client._engine, run_id, options)  # noqa: SLF001  # a run is a part of its client
        self.client = client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.client.end_run(self.id)
        except ClientError:
            if not self.client.options.fail_open:
                raise

    async def trim(
        self, prompt: Prompt, *, format: Format = "openai_chat", **options: Unpack[TrimOptions]
    ) -> Trimmed[Prompt]:
        """Trim a prompt, as the client's `trim` does; options given here override the run's."""
        steps = self._engine.trim(self.id, prompt, format, self.options | options)
        return await self.client._drive(self._watched(prompt, steps))  # noqa: SLF001  # as above

    async def openai_chat(self, **keywords: Any) -> dict[str, Any]:
        """Return the keyword arguments of `chat.completions.create` with the messages trimmed."""
        return await self._adapted("openai_chat", keywords)

    async def openai_responses(self, **keywords: Any) -> dict[str, Any]:
        """Return the keyword arguments of `responses.create` with the input trimmed."""
        return await self._adapted("openai_responses", keywords)

    async def anthropic_messages(self, **keywords: Any) -> dict[str, Any]:
        """Return the keyword arguments of `messages.create` with the messages trimmed."""
        return await self._adapted("anthropic_messages", keywords)

    async def report(self, response: Any) -> UsageLearned | None:
        """Report the provider's response to the run's last prompt: its token counts, or that the prompt was too long.

        Args:
            response: the SDK's response; or the provider's refusal, as an SDK's exception or its text. An exception
                with another cause is reported as a failed call, which saves nothing. After a refusal, the next prompt
                that the client makes without the sidecar is shorter.

        Returns:
            What the sidecar learned, or None if there was nothing to report, or the sidecar did not answer, which
            is counted in `unreported`.

        Raises:
            ValueError: no prompt of this run was sent yet.
            ClientError: the call failed, and the client does not fail open.
        """
        usage = self._usage(response)
        if not usage:
            return None
        try:
            return await self.client.report_usage(self.id, **usage)
        except ClientError:
            if not self.client.options.fail_open:
                raise
            self._engine.not_reported()
            return None

    async def tools(self, format: Format = "openai_chat") -> list[dict[str, Any]]:
        """Return the definitions of the sidecar's tools, for the model's `tools`; none if the call fails open."""
        try:
            tools = await self.client.list_tools(format)
        except ClientError:
            if not self.client.options.fail_open:
                raise
            return []
        definitions: list[dict[str, Any]] = json.loads(tools.tools_json)
        return definitions

    async def restore_secrets(self, calls: Iterable[ModelCall | tuple[str, str]]) -> tuple[Restored, ...]:
        """Put values in place of masks in arguments of tool calls, as the client's `restore_secrets` does."""
        asked = [(call.name, call.arguments) if isinstance(call, ModelCall) else call for call in calls]
        return await self.client.restore_secrets(self.id, asked)

    @overload
    async def complete(
        self, format: Format, create: Create, /, *, stream: Literal[False] = False, **keywords: Any
    ) -> Completion: ...

    @overload
    async def complete(
        self, format: Format, create: Create, /, *, stream: Literal[True], **keywords: Any
    ) -> AsyncStreamed: ...

    async def complete(self, format: Format, create: Create, /, **keywords: Any) -> Any:
        """Call the model until it answers or calls one of the agent's tools. The sidecar answers its tools' calls.

        Args:
            format: the provider's format.
            create: the SDK's function. openai's `chat.completions.parse` accepts strict tools only, so it is called
                without the sidecar's tools, and the model cannot recall.
            **keywords: its arguments. The sidecar's tools are added to `tools`. With `stream=True` the model's
                events are returned as they arrive, without those of the sidecar's tools.

        Raises:
            ClientError: a call of the sidecar failed, and the client does not fail open.
            Exception: any error of `create`.
        """
        api = self._chosen(format)
        work = Continuation(api, self.id, keywords, self.options, self._watched, only_strict(format, create))
        if keywords.get("stream"):
            return AsyncStreamed(self.client, stream_complete(self._engine, work), create)
        return await self.client._drive(complete(self._engine, work), create)  # noqa: SLF001  # as above

    async def _adapted(self, format: Format, keywords: Mapping[str, Any]) -> dict[str, Any]:
        self._chosen(format)
        steps = self._engine.trim_keywords(self.id, keywords, format, self.options)
        trimmed = await self.client._drive(self._watched(keywords, steps))  # noqa: SLF001  # as above
        prompt: dict[str, Any] = trimmed.prompt
        return prompt


class AsyncStreamed:
    """The events of `complete` with `stream=True`: iterate over it, once. `close` ends it early."""

    def __init__(self, client: AsyncClient, steps: Streaming, create: Create) -> None:
        self._client = client
        self._steps = steps
        self._create = create
        self._stream: Any = None
        self._completion: Completion | None = None
        self._events = self._driven()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._events

    @property
    def completion(self) -> Completion:
        """The result, once all events were read; its `response` is a dict, except for the format `openai_responses`.

        Raises:
            RuntimeError: not all events were read.
        """
        if self._completion is None:
            raise RuntimeError("the stream has not ended: read all of its events first")
        return self._completion

    async def close(self) -> None:
        """Close the provider's stream."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await release(stream)

    async def _driven(self) -> AsyncIterator[Any]:
        try:
            step = next(self._steps)
            while True:
                if isinstance(step, Emit):
                    yield step.event
                    step = self._steps.send(None)
                    continue
                try:
                    answer = await self._performed(step)
                except Exception as error:  # noqa: BLE001  # the use case decides how to handle it
                    step = self._steps.throw(error)
                else:
                    step = self._steps.send(answer)
        except StopIteration as ended:
            self._completion = ended.value
        finally:
            await self.close()

    async def _performed(self, step: Any) -> Any:
        if isinstance(step, Next):
            return await advance(step.stream)
        if isinstance(step, Rpc):
            return await self._client._call(step)  # noqa: SLF001  # a part of the client
        await self.close()
        self._stream = await ask(self._create, step)
        return self._stream
