"""The common base of both clients: options, counters, and the state of a run's last prompt."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from prompt_sidecar.client.arguments import TrimOptions, Usage
from prompt_sidecar.client.breaker import CallBreaker
from prompt_sidecar.client.engine import Engine, Steps
from prompt_sidecar.client.errors import ClientError
from prompt_sidecar.client.facts import Trimmed
from prompt_sidecar.client.model_calls import refuses_thinking, too_long, usage_of
from prompt_sidecar.client.options import (
    DEFAULT_DEADLINE,
    DEFAULT_FALLBACK_BYTES,
    DEFAULT_HISTORY_BYTES,
    DEFAULT_MESSAGE_BYTES,
    DEFAULT_TARGET,
    Options,
    Tls,
)
from prompt_sidecar.providers.refusals import MOST_CHARACTERS
from prompt_sidecar.providers.sdk import SdkApi
from prompt_sidecar.providers.table import SDKS


class Base:
    """A client without I/O. `Options` documents the arguments and the reasons for their defaults."""

    _make_channels: ClassVar[type[Any]]

    def __init__(
        self,
        target: str = DEFAULT_TARGET,
        *,
        deadline: float = DEFAULT_DEADLINE,
        fail_open: bool = True,
        token: str = "",
        tls: Tls | None = None,
        max_message_bytes: int = DEFAULT_MESSAGE_BYTES,
        trace_context: Callable[[], Mapping[str, str]] | None = None,
        fallback_bytes: int = DEFAULT_FALLBACK_BYTES,
        history_bytes: int = DEFAULT_HISTORY_BYTES,
        fail_open_guard: bool = False,
        fail_open_masked: bool = False,
        masking_required: bool = False,
        by_run: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = Options(
            target,
            deadline,
            fail_open,
            token,
            tls,
            max_message_bytes,
            trace_context,
            fallback_bytes,
            history_bytes,
            fail_open_guard,
            fail_open_masked,
            masking_required,
            by_run,
            clock,
        )
        self._engine = Engine(self.options)
        self._breaker = CallBreaker(clock)
        self._channels: Any = self._make_channels(self.options)

    @property
    def trimmed(self) -> int:
        """Number of prompts that the sidecar answered."""
        return self._engine.trimmed

    @property
    def untrimmed(self) -> int:
        """Number of prompts that were sent without the sidecar, as it did not answer or refused them."""
        return sum(self._engine.untrimmed.values())

    @property
    def untrimmed_by_reason(self) -> Mapping[str, int]:
        """The same number by reason: the reason of the sidecar's error, or a gRPC status code."""
        return self._engine.untrimmed

    @property
    def unreported(self) -> int:
        """Number of usage reports that did not reach the sidecar."""
        return self._engine.unreported

    @property
    def fallbacks(self) -> Mapping[str, int]:
        """Number of prompts that were sent without the sidecar, by kind: `last_prompt`, `left_out` or `as_given`."""
        return self._engine.fallbacks

    @property
    def prompts_forgotten(self) -> int:
        """Number of runs whose last prompt was evicted because `fallback_bytes` was reached."""
        return self._engine.prompts_forgotten

    @property
    def sent_new_only(self) -> int:
        """Number of prompts of which only the messages since the last one were sent."""
        return self._engine.sent_new_only

    @property
    def sent_again_whole(self) -> int:
        """Number of prompts that were sent whole after that, as the sidecar did not know the messages before."""
        return self._engine.sent_again_whole

    @property
    def histories_forgotten(self) -> int:
        """Number of runs whose sent messages were forgotten because `history_bytes` was reached."""
        return self._engine.histories_forgotten

    @property
    def circuit(self) -> str:
        """`closed`: calls are made; `open`: none are, as the sidecar did not answer; `half_open`: one call tries."""
        return self._breaker.state


class BaseRun:
    """A run without I/O: its id, and the options of its prompts. For one agent; not thread-safe."""

    def __init__(self, engine: Engine, run_id: str, options: TrimOptions) -> None:
        engine.check(run_id, options)
        self._engine = engine
        self.id = run_id
        self.options = options
        self.last: Trimmed[Any] | None = None
        """The last prompt: trimmed, or made without the sidecar (`fallback`). If it is neither, the sidecar refused it,
        the client does not fail open, and the prompt must not be sent."""
        self._api: SdkApi | None = None

    def _chosen(self, format: str) -> SdkApi:
        try:
            self._api = SDKS[format]
        except KeyError:
            raise ValueError(f"format is {format!r}; adapters accept {', '.join(SDKS)}") from None
        return self._api

    def _usage(self, response: Any) -> Usage:
        """Return the usage to report for a response or a refusal; empty if there is none."""
        last = self.last
        if last is None:
            raise ValueError("no prompt of this run was sent yet, so there is nothing to report")
        usage: Usage
        if isinstance(response, BaseException) and refuses_thinking(response):
            self._engine.thinking_refused(self.id)
            return {}
        if isinstance(response, BaseException | str):
            refusal = response if isinstance(response, str) else too_long(response)
            if not refusal:
                return {"failed": True, "revision": last.revision} if last.trimmed and response else {}
            self.last = replace(last, refused=True)
            self._engine.refused(self.id)
            usage = {"refusal": {"message": refusal[:MOST_CHARACTERS]}}
        elif self._api is None:
            raise ValueError(
                "no prompt of this run was made by openai_chat, openai_responses or anthropic_messages: "
                "use client.report_usage"
            )
        else:
            usage = usage_of(self._api, response)
            if usage.get("input_tokens") is None:
                return {}
        return {**usage, "revision": last.revision} if last.trimmed else {}

    def _watched(self, prompt: Any, steps: Steps[Trimmed[Any]]) -> Steps[Trimmed[Any]]:
        """Run the steps that trim a prompt, and keep their result as `last`."""
        try:
            trimmed = yield from steps
        except ClientError as error:
            self.last = Trimmed(prompt, reason=error.reason)
            raise
        self.last = trimmed
        return trimmed
