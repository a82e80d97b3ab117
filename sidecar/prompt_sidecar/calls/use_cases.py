"""The use cases as doors call them: admitted by memory, reported to telemetry.

A door translates requests into the calls of `facts/`, and answers into responses. This file has what is the same for
every door: it admits prompts by memory, reports answers and errors to telemetry, logs models whose windows had to be
assumed, and wakes the indexer after an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import wraps
from time import time_ns
from typing import Concatenate, Final, ParamSpec, TypeVar

from prompt_sidecar.answers.restoring import Restore
from prompt_sidecar.calls.assumed_windows import AssumedWindows
from prompt_sidecar.calls.memory import MemoryGate, is_out_of_memory, out_of_memory
from prompt_sidecar.calls.protected_text_log import ProtectedTextLog
from prompt_sidecar.calls.untrimmed_log import UntrimmedLog
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.errors import GuardAway, GuardUnread, InvalidJson, OutOfMemory, SidecarError, TooLarge
from prompt_sidecar.facts.figures import RunFigures
from prompt_sidecar.facts.guard_calls import (
    MaskCall,
    RestoreAnswer,
    RestoreCall,
    SendingDoor,
    ToolArguments,
    Unread,
    UnreadOutcome,
)
from prompt_sidecar.facts.log_lines import run_digest
from prompt_sidecar.facts.recall_calls import RetrieveAnswer, RetrieveCall, SearchCall
from prompt_sidecar.facts.task_calls import CreateTasksCall, Tasks, UpdateTaskCall
from prompt_sidecar.facts.tool_calls import ToolAnswer, ToolCall
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.facts.untrimmed import Handled
from prompt_sidecar.facts.usage_calls import UsageAnswer, UsageCall
from prompt_sidecar.guard.options import PASS
from prompt_sidecar.process.logs import Once, about, within
from prompt_sidecar.recall.found import SearchResult
from prompt_sidecar.telemetry.observer import Observer

Written = TypeVar("Written")
Refusal = TypeVar("Refusal", bound=SidecarError)
P = ParamSpec("P")
T = TypeVar("T")
_log: Final = logging.getLogger("prompt_sidecar.guard")

Check = Callable[[], None]
"""Called from time to time during a call; an exception from it ends the call."""


def _nothing() -> None:
    pass


def _named(arguments: Sequence[object]) -> dict[str, str]:
    """Return the call's caller and run, for lines of the log."""
    for each in arguments:
        if isinstance(run_id := getattr(each, "run_id", None), str):
            return {"run": run_digest(run_id), "caller": str(getattr(each, "caller", ""))}
    return {}


def _counted(use_case: Callable[Concatenate[UseCases, P], T]) -> Callable[Concatenate[UseCases, P], T]:
    """Wrap a use case so that its errors are counted in the same way for every door."""

    @wraps(use_case)
    def run(self: UseCases, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with within(**_named(args)):
            return counted(self, *args, **kwargs)

    def counted(self: UseCases, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return use_case(self, *args, **kwargs)
        except BaseException as error:
            if is_out_of_memory(error):
                raise self.failed(out_of_memory()) from error
            self.observer.failed(error)
            raise

    return run


class UseCases:
    """The use cases of `runs`. Thread-safe. Errors are those of `Runs`, and TooLarge where memory is short.

    Args:
        runs: all runs of the process.
        memory: admits prompts; by default it knows only the container's limit.
        observer: receives the facts of each call.
        wake: called after each answered prompt, as there may be new content to index.
    """

    def __init__(
        self,
        runs: Runs,
        memory: MemoryGate | None = None,
        observer: Observer | None = None,
        wake: Callable[[], None] = _nothing,
    ) -> None:
        self.runs = runs
        """Called directly for what needs neither memory nor telemetry."""
        self.memory = memory or MemoryGate()
        """Admits calls of all doors by memory."""
        self._wake = wake
        self._assumed = AssumedWindows()
        self._once = Once()
        self._untrimmed_log = UntrimmedLog()
        self._protected_text_log = ProtectedTextLog()
        self.observer = observer or Observer()
        """Receives the facts of each call."""

    def failed(self, error: Refusal) -> Refusal:
        """Count an error that a door is about to raise, and return it. Avoids a reference cycle of frame and error."""
        self.observer.failed(error)
        return error

    def handled(self, handled: Handled) -> None:
        """Record what was done about a forwarded request; each door calls this once per request, however it ends."""
        self.observer.handled(handled)
        self.runs.handled(handled)
        self._untrimmed_log.handled(handled)

    @_counted
    def trim(
        self,
        raw: bytes,
        read: Callable[[Check], TrimCall],
        check: Check,
        write: Callable[[TrimCall, TrimAnswer], Written],
    ) -> Written:
        """Trim a prompt, and return the result of `write` for the answer.

        Args:
            raw: the bytes received; memory for them is reserved until the answer is written.
            read: parses it into a call. It calls its argument from time to time: long calls take turns there, too.
            check: see `Check`.
            write: makes the door's response.
        """
        began = time_ns()
        call = None
        self.observer.received()
        try:
            with self.memory.admit(raw), self.runs.pace(check) as pace:
                call = read(pace)
                about(run=run_digest(call.run_id), caller=call.caller)
                answer = self.runs.trim(call, pace)
                written = write(call, answer)
        except BaseException as error:
            self.observer.refused(call, error)
            raise
        if answer.tokens.window_assumed:
            self._assumed.report(answer.model, answer.tokens.limit)
        self._protected_text_log.report(call, answer.tokens)
        self.observer.trimmed(call, answer, began)
        self._wake()
        return written

    @_counted
    def mask(self, door: SendingDoor, call: MaskCall, check: Check, *, signed: bool = False) -> bytes:
        """Mask a body that is not a prompt, and return it; the same object if it is unchanged.

        Args:
            door: the door that received it.
            call: the body.
            check: see `Check`.
            signed: whether a signature covers the body.

        Raises:
            GuardUnread: the body cannot be read, or is signed and has something to mask, and the settings refuse
                such bodies.
        """
        try:
            with self.memory.admit(call.body):
                try:
                    answer = self.runs.mask(call, check)
                except InvalidJson:
                    return self.left_unread(door, call.caller, Unread.NOT_JSON, call.body)
                except TooLarge as error:
                    if isinstance(error, OutOfMemory):
                        raise
                    return self.left_unread(door, call.caller, Unread.TOO_LARGE, call.body)
        except TooLarge:  # there is not enough memory now
            if self.runs.guarding.unread(call.caller) != PASS:
                raise
            return self.left_unread(door, call.caller, Unread.FAILED, call.body)
        if signed and answer.body is not call.body:
            return self.left_unread(door, call.caller, Unread.SIGNED, call.body)
        self.observer.masked(answer)
        return answer.body

    def left_unread(self, door: SendingDoor, caller: str, why: Unread, body: bytes = b"") -> bytes:
        """Count and log a body that the guard cannot read, and return it. Raises GuardUnread if it must not be sent."""
        refuses = self.runs.guarding.unread(caller) != PASS
        outcome = UnreadOutcome.REFUSED if refuses else UnreadOutcome.PASSED
        self.observer.unread(door, why, outcome)
        message = "requests through the %s door are %s: the guard cannot read them (%s)"
        self._once.warning(_log, message, door, outcome, why)
        if refuses:
            raise (GuardAway if why is Unread.FAILED else GuardUnread)(
                f"the guard cannot read this request ({why}), so it is not sent on (guard.unread)"
            )
        return body

    @_counted
    def retrieve(self, call: RetrieveCall, check: Check) -> RetrieveAnswer:
        """Return an original, or why there is none."""
        began = time_ns()
        answer = self.runs.recalling.retrieve(call, check, self.memory.reserve)
        self.observer.retrieved(call, answer, began)
        return answer

    @_counted
    def search(self, call: SearchCall, check: Check) -> SearchResult:
        """Search a run's history."""
        began = time_ns()
        try:
            found = self.runs.recalling.search(call, check)
        finally:
            self._wake()  # it may have left content to be indexed, even if it was ended early
        self.observer.searched(call.run_id, found, began)
        return found

    @_counted
    def create_tasks(self, call: CreateTasksCall, check: Check) -> Tasks:
        """Create tasks; return all tasks of the run."""
        return self.runs.recalling.create_tasks(call, check)

    @_counted
    def update_task(self, call: UpdateTaskCall, check: Check) -> Tasks:
        """Set a task's status; return all tasks of the run."""
        return self.runs.recalling.update_task(call, check)

    @_counted
    def list_tasks(self, caller: str, run_id: str, check: Check) -> Tasks:
        """Return all tasks of a run."""
        return self.runs.recalling.list_tasks(caller, run_id, check)

    @_counted
    def call_tool(self, call: ToolCall, check: Check) -> ToolAnswer:
        """Run one of the model's tools."""
        began = time_ns()
        try:
            answer = self.runs.recalling.call_tool(call, check, self.memory.reserve)
        finally:
            self._wake()
        self.observer.tool_called(call, answer, began)
        return answer

    @_counted
    def report_usage(self, call: UsageCall, check: Check) -> UsageAnswer:
        """Process a report on a model call."""
        answer = self.runs.report_usage(call, check)
        self.observer.reported(call, answer)
        return answer

    @_counted
    def restore(self, call: RestoreCall, check: Check) -> RestoreAnswer:
        """Restore masks in the arguments of tool calls."""
        began = time_ns()
        done = self.runs.restore(call, check)
        self.observer.restored(call, done.calls, began)
        return done

    def restores(self, caller: str, run_id: str) -> Restore:
        """Return a function that restores masks in the arguments of a run's calls in a provider's answer.

        It waits for no store, as it is used on event loops: the values of other replicas are lent while the provider
        answers.
        """

        def filled(tool: str, arguments: str) -> str:
            call = RestoreCall(caller, run_id, [ToolArguments(tool, arguments.encode())], may_wait=False)
            return self.restore(call, _nothing).calls[0].arguments.decode()

        return filled

    @_counted
    def figures(self, caller: str, run_id: str, check: Check) -> RunFigures:
        """Return a run's figures."""
        return self.runs.figures(caller, run_id, check)

    @_counted
    def end(self, caller: str, run_id: str, check: Check) -> RunFigures | None:
        """Forget a run now; return its last figures, or None if it was not known."""
        return self.runs.end(caller, run_id, check)

    @_counted
    def end_all(self, caller: str, check: Check) -> int:
        """Forget all runs of a caller now; return how many there were."""
        return self.runs.end_all(caller, check)
