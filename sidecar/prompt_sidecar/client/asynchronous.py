"""The client for asyncio, and one run of it: the twin of `blocking.py`, which a test compares."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from types import TracebackType
from typing import Any, Literal, Self, Unpack

import grpc
import grpc.aio

from prompt_sidecar.client.arguments import Format, Prompt, SearchOptions, Selection, Status, TrimOptions, Usage
from prompt_sidecar.client.base import Base, BaseRun
from prompt_sidecar.client.dialects import only_strict
from prompt_sidecar.client.engine import Ask, Result, Rpc, Steps
from prompt_sidecar.client.errors import ClientError, from_rpc
from prompt_sidecar.client.facts import (
    Ended,
    Found,
    Retrieved,
    RunFigures,
    Task,
    ToolAnswer,
    Tools,
    Trimmed,
    UsageLearned,
)
from prompt_sidecar.client.loop import Completion, Work, complete
from prompt_sidecar.client.schema import methods

Create = Callable[..., Any]
"""An SDK's coroutine that calls the model, such as `openai.AsyncOpenAI().chat.completions.create`."""


class AsyncClient(Base):
    """A client of the sidecar for asyncio. A context manager.

    It connects at its first call. A connection belongs to an event loop: in another one, as by a second `asyncio.run`,
    the client makes another.
    """

    @cached_property
    def _channels(self) -> dict[asyncio.AbstractEventLoop, grpc.aio.Channel]:
        return {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Give the connection back. The client cannot be used any more."""
        self._closed = True
        # Those of other loops end with them: in their own alone they could be closed.
        channel = self._channels.pop(asyncio.get_running_loop(), None)
        if channel is not None:
            await channel.close()

    def run(self, run_id: str, **options: Unpack[TrimOptions]) -> AsyncRun:
        """Return the run of this id, for one agent's use; the options go with each of its prompts."""
        return AsyncRun(self, run_id, options)

    async def trim(
        self, run_id: str, prompt: Prompt, *, format: Format = "openai_chat", **options: Unpack[TrimOptions]
    ) -> Trimmed[Prompt]:
        """Trim a prompt; return it in the shape that it was given in.

        Args:
            run_id: names one agent invocation; 1 to 256 bytes.
            prompt: a request body as bytes or text, or as a mapping, or its list of messages; mappings and lists may
                hold the message objects of the openai and anthropic SDKs.
            format: the provider's.
            **options: see `TrimOptions`.

        Raises:
            TypeError, ValueError: an option is not known or has a wrong value.
            ClientError: the sidecar did not trim it, and the client does not fail open.
        """
        return await self._drive(self._engine.trim(run_id, prompt, format, options))

    async def retrieve(
        self, run_id: str, stash_id: str, selection: Selection = None, *, page_tokens: int = 0, offset: int = 0
    ) -> Retrieved:
        """Fetch an original: whole, or `Lines`, `Bytes` or a `Pattern` of it, in pages.

        Raises:
            ClientError: as do all methods below, whether or not the client fails open: nothing stands in for an answer.
        """
        return await self._drive(self._engine.retrieve(run_id, stash_id, selection, page_tokens, offset))

    async def search(self, run_id: str, query: str, **options: Unpack[SearchOptions]) -> Found:
        """Find passages of the run's history by their words."""
        return await self._drive(self._engine.search(run_id, query, options))

    async def create_tasks(
        self,
        run_id: str,
        items: Iterable[str],
        *,
        mode: Literal["replace", "append"] = "replace",
        request_id: str = "",
    ) -> tuple[Task, ...]:
        """Write down what the run is to do; return all tasks. Without a `request_id` it gets one of its own."""
        return await self._drive(self._engine.create_tasks(run_id, items, mode, request_id))

    async def update_task(self, run_id: str, task_id: int, status: Status, *, request_id: str = "") -> tuple[Task, ...]:
        """Say where a task stands; return all tasks."""
        return await self._drive(self._engine.update_task(run_id, task_id, status, request_id))

    async def list_tasks(self, run_id: str) -> tuple[Task, ...]:
        """List the run's tasks."""
        return await self._drive(self._engine.list_tasks(run_id))

    async def list_tools(self, format: Format | Literal[""] = "openai_chat") -> Tools:
        """Return the tools that a model can be given; asked for once, as they do not change."""
        return await self._drive(self._engine.list_tools(format))

    async def call_tool(
        self, run_id: str, name: str, arguments: str | Mapping[str, Any], *, request_id: str = ""
    ) -> ToolAnswer:
        """Have the sidecar run one of its tools as the model called it; hand `content` back unchanged."""
        return await self._drive(self._engine.call_tool(run_id, name, arguments, request_id))

    async def report_usage(self, run_id: str, **usage: Unpack[Usage]) -> UsageLearned:
        """Tell what the provider counted for a prompt, or that it refused it as too long."""
        return await self._drive(self._engine.report_usage(run_id, usage))

    async def get_run(self, run_id: str) -> RunFigures:
        """Return the run's figures."""
        return await self._drive(self._engine.get_run(run_id))

    async def end_run(self, run_id: str) -> Ended:
        """Forget the run now, here and there."""
        return await self._drive(self._engine.end_run(run_id))

    async def _drive(self, steps: Steps[Result], create: Create | None = None) -> Result:
        """Do what a use case asks for, step by step."""
        try:
            step = next(steps)
            while True:
                try:
                    answer = await (self._call(step) if isinstance(step, Rpc) else _ask(create, step))
                except Exception as error:  # noqa: BLE001  # the use case decides what becomes of it
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as ended:
            result: Result = ended.value
            return result

    async def _call(self, rpc: Rpc) -> Any:
        path, request, response = methods()[rpc.method]
        stub: Any = self._connected().unary_unary(
            path, request_serializer=request.SerializeToString, response_deserializer=response.FromString
        )
        with self._breaker.call():
            try:
                return await stub(rpc.request, timeout=self.options.deadline, metadata=self.options.metadata())
            except grpc.RpcError as error:
                raise from_rpc(error) from None

    def _connected(self) -> grpc.aio.Channel:
        self._check_open()
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._channels:
                for ended in [each for each in self._channels if each.is_closed()]:
                    del self._channels[ended]
                options, credentials = self.options, self.options.credentials
                self._channels[loop] = (
                    grpc.aio.insecure_channel(options.target, options.channel_arguments)
                    if credentials is None
                    else grpc.aio.secure_channel(options.target, credentials, options.channel_arguments)
                )
            return self._channels[loop]


class AsyncRun(BaseRun):
    """One run of an asyncio client. As a context manager it ends the run on its way out."""

    def __init__(self, client: AsyncClient, run_id: str, options: TrimOptions) -> None:
        super().__init__(client._engine, run_id, options)  # noqa: SLF001  # both are one thing in two handles
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
        """Trim a prompt, as `AsyncClient.trim`; options given here go before the run's."""
        steps = self._engine.trim(self.id, prompt, format, self.options | options)
        return await self.client._drive(self._watched(prompt, steps))  # noqa: SLF001  # as above

    async def openai_chat(self, **keywords: Any) -> dict[str, Any]:
        """Return the keywords of `chat.completions.create` with the messages trimmed."""
        return await self._adapted("openai_chat", keywords)

    async def openai_responses(self, **keywords: Any) -> dict[str, Any]:
        """Return the keywords of `responses.create` with the input trimmed."""
        return await self._adapted("openai_responses", keywords)

    async def anthropic_messages(self, **keywords: Any) -> dict[str, Any]:
        """Return the keywords of `messages.create` with the messages trimmed."""
        return await self._adapted("anthropic_messages", keywords)

    async def report(self, response: Any) -> UsageLearned | None:
        """Report what became of the run's last prompt: what the provider counted, or that it refused it as too long.

        Args:
            response: the SDK's response; or what the provider refused the prompt with, an SDK's exception or its text.
                An exception that tells of something else is not reported. A prompt that the client made without the
                sidecar is made shorter after a refusal.

        Returns:
            What the sidecar learned. None: there was nothing to report, or it could not be reached, which is counted in
            `unreported`.

        Raises:
            ValueError: no prompt of this run was sent yet.
            ClientError: the sidecar did not take it, and the client does not fail open.
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
        """Return the definitions of the sidecar's tools, for the call's `tools`; none if that fails open."""
        try:
            definitions: list[dict[str, Any]] = json.loads((await self.client.list_tools(format)).tools_json)
        except ClientError:
            if not self.client.options.fail_open:
                raise
            return []
        return definitions

    async def complete(self, format: Format, create: Create, /, **keywords: Any) -> Completion:
        """Call the model until it answers or wants a tool of the agent's; the sidecar's are answered on the way.

        Args:
            format: the provider's.
            create: the SDK's function. openai's `chat.completions.parse` takes strict tools only: it is called without
                the sidecar's, so that the model cannot recall.
            **keywords: what it takes. The sidecar's tools are added to its `tools`.

        Raises:
            ClientError: the sidecar did not answer, and the client does not fail open.
            Exception: what `create` raises.
        """
        dialect = self._chosen(format)
        steps = complete(
            self._engine, Work(dialect, self.id, keywords, self.options, self._watched, only_strict(format, create))
        )
        return await self.client._drive(steps, create)  # noqa: SLF001  # as above

    async def _adapted(self, format: Format, keywords: Mapping[str, Any]) -> dict[str, Any]:
        self._chosen(format)
        steps = self._engine.trim_keywords(self.id, keywords, format, self.options)
        prompt: dict[str, Any] = (await self.client._drive(self._watched(keywords, steps))).prompt  # noqa: SLF001  # as above
        return prompt


async def _ask(create: Create | None, step: Ask) -> Any:
    assert create is not None
    answer: Any = create(**step.keywords)
    return await answer if inspect.isawaitable(answer) else answer  # a function that blocks has answered already
