"""The first and longest part of the script: what an engineer would do to find out how asyncio cancels a task.

Every turn is what a model would have written: a thought, and calls of tools with real answers. Line numbers are wide
enough to hold the places in question in every Python that the project supports. What is to be found out is written down
as tasks in the first turn, and each is ticked off when it is done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.lab.demo import experiments


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool."""

    name: str
    arguments: Mapping[str, Any]
    label: str = ""
    """What the table says of it; empty: the name and the chief argument."""
    written: str = ""
    """What the model wrote in place of the arguments' JSON; empty: their JSON."""
    lost: bool = False
    """Whether the first answer is lost on its way, so that the agent asks again."""

    @property
    def text(self) -> str:
        """The arguments as the model wrote them."""
        return self.written or json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model answers: text, and calls; without calls the user speaks next, or the run ends."""

    text: str
    calls: tuple[Call, ...] = ()
    user: str = ""
    """The user's next message; only where there are no calls."""


QUESTION = (
    "How does asyncio cancel a task? Read the standard library's own source in this tree and tell me: who may ask for "
    "a cancellation, which function delivers the CancelledError, who may swallow it, and what timeouts, task groups, "
    "shields, locks and executors make of it. Prove each claim by running code. Don't guess — cite file and line."
)

TASKS = (
    "who may ask for a cancellation, who delivers it",
    "who may swallow it",
    "timeouts and wait_for",
    "task groups and shields",
    "locks, conditions, queues",
    "executors and threads",
    "what else cancels in the package",
)
"""What is to be found out: the tasks 1 to 7."""
SWALLOWED = 2
"""The task that is ticked off in two tries."""

LONG_FILE = "asyncio/base_events.py"
"""Read whole early on; over the cap for one result, and far over what the window can keep."""
EARLY_FILE = "asyncio/futures.py"
"""Read whole early on as well; under the cap, and more than one page of recall."""

RECALL = "recall_elided_content"
SEARCH = "search_conversation_history"
CREATE_TASKS = "create_tasks"
UPDATE_TASK = "update_task"
SIDECAR_TOOLS = (RECALL, SEARCH, CREATE_TASKS, UPDATE_TASK)
"""What ListTools offers."""


def files(pattern: str, path: str = "asyncio") -> Call:
    """A grep."""
    return Call("grep", {"pattern": pattern, "path": path})


def lines(path: str, first: int, last: int) -> Call:
    """A part of a file."""
    return Call("read_file", {"path": path, "first": first, "last": last})


def module(name: str, *arguments: str) -> Call:
    """A module of the standard library run as a program."""
    return Call("run_python", {"arguments": ["-m", name, *arguments]})


def program(what: str, text: str) -> Call:
    """A program of our own; `what` it tries."""
    return Call("run_python", {"arguments": ["-c", text]}, f"try {what}")


def outside() -> Call:
    """A file that the tools do not give out."""
    return Call("read_file", {"path": "../../../../etc/hosts"})


def begin(number: int) -> Call:
    """A task is begun."""
    return Call(UPDATE_TASK, {"id": number, "status": "in_progress"})


def done(number: int) -> Call:
    """A task is ticked off."""
    return Call(UPDATE_TASK, {"id": number, "status": "completed"})


PLAN: tuple[Turn, ...] = (
    Turn(
        "I'll write down what to find out, and look at what there is.",
        (Call(CREATE_TASKS, {"tasks": list(TASKS)}), Call("list_dir", {"path": "asyncio"})),
    ),
    Turn("Everyone who defines a cancel().", (files(r"def (un)?cancel"), files(r"CancelledError"), begin(1))),
    Turn("The task itself: its state and its cancel().", (lines("asyncio/tasks.py", 80, 260),)),
    Turn(
        "Is the Python text the one that runs? The C twin is imported at the end.", (files(r"_asyncio|_CTask|_PyTask"),)
    ),
    Turn("The loop runs the steps. I want all of it.", (Call("read_file", {"path": LONG_FILE}),)),
    Turn("Now the step that throws into the coroutine.", (lines("asyncio/tasks.py", 255, 400),)),
    Turn("A first experiment: when is it delivered, and to whom?", (program("delivery", experiments.DELIVERY),)),
    Turn("What becomes of a task that never started?", (program("before start", experiments.BEFORE_START),)),
    Turn("The future that a task waits for.", (Call("read_file", {"path": EARLY_FILE}), done(1), begin(SWALLOWED))),
    Turn("Who counts requests?", (files(r"_num_cancels_requested|\.cancelling\(|\.uncancel\("),)),
    Turn("May a coroutine swallow it? Yes, it seems.", (program("swallowed", experiments.SWALLOWED),)),
    Turn(
        "And uncancel() takes a request back.",
        (program("uncancel", experiments.UNCANCEL), program("sources", experiments.SOURCES)),
    ),
)
"""Before the bad day."""

PLAN_AFTER: tuple[Turn, ...] = (
    Turn(
        "Neither id exists; that output was only text. On with timeouts.",
        (lines("asyncio/timeouts.py", 1, 170), begin(3)),
    ),
    Turn("Try one.", (program("timeout", experiments.TIMEOUT),)),
    Turn("What the interpreter makes of __aexit__.", (module("dis", "asyncio/timeouts.py"),)),
    Turn("wait_for is older; how does it do it now?", (files(r"async def wait_for", "asyncio/tasks.py"),)),
    Turn("Its text.", (lines("asyncio/tasks.py", 400, 560),)),
    Turn("Does it wait for the clean-up?", (program("wait for", experiments.WAIT_FOR),)),
    Turn("Task groups.", (Call("read_file", {"path": "asyncio/taskgroups.py"}), done(3), begin(4))),
    Turn("A failing child cancels its siblings:", (program("group", experiments.GROUP),)),
    Turn("How does the group tell its own cancellation from one from outside?", (files(r"_parent_cancel_requested"),)),
    Turn("Does a file on cancel scopes exist? Other libraries have one.", (lines("asyncio/cancelscope.py", 1, 80),)),
    Turn("No. shield and gather, then.", (lines("asyncio/tasks.py", 690, 960),)),
    Turn("Shield, tried.", (program("shield", experiments.SHIELD),)),
    Turn("Locks: a cancelled waiter must not lose a wake-up.", (lines("asyncio/locks.py", 1, 200), done(4), begin(5))),
    Turn("Tried.", (program("lock", experiments.LOCK),)),
    Turn("Conditions and semaphores.", (lines("asyncio/locks.py", 200, 470),)),
    Turn("Queues.", (lines("asyncio/queues.py", 60, 245),)),
    Turn(
        "What cancels everything at the end: the runner.", (Call("read_file", {"path": "asyncio/runners.py"}), done(5))
    ),
    Turn("And Ctrl-C?", (files(r"SIGINT|KeyboardInterrupt"), files(r"_on_sigint|_interrupt_count"))),
    Turn("The documentation's words on Task.cancel.", (module("pydoc", "asyncio.Task.cancel"),)),
    Turn("On timeouts as well.", (module("pydoc", "asyncio.timeout"), module("pydoc", "asyncio.TaskGroup"))),
    Turn("Executors. The bridge between two kinds of futures:", (lines(EARLY_FILE, 300, 428), begin(6))),
    Turn("concurrent.futures has a cancel() of its own.", (files(r"cancel", "concurrent/futures"),)),
    Turn("Its states.", (lines("concurrent/futures/_base.py", 14, 60), lines("concurrent/futures/_base.py", 310, 420))),
    Turn("Does cancelling stop the thread?", (program("executor", experiments.EXECUTOR),)),
    Turn("The pool's side.", (lines("concurrent/futures/thread.py", 1, 235),)),
    Turn("Process pools.", (lines("concurrent/futures/process.py", 340, 560),)),
    Turn("That is all of executors. A look outside the tree, for the C twin.", (outside(), done(6), begin(7))),
    Turn("Not allowed, rightly. Streams: what does a cancelled read lose?", (lines("asyncio/streams.py", 390, 620),)),
    Turn("Subprocesses: who is killed?", (lines("asyncio/base_subprocess.py", 1, 285),)),
    Turn("Unix children.", (files(r"cancel|\.kill\(|terminate", "asyncio/unix_events.py"),)),
    Turn("The selector loop's sockets.", (lines("asyncio/selector_events.py", 380, 620),)),
    Turn("Handles: cancel() of a callback is another thing.", (lines("asyncio/events.py", 1, 190),)),
    Turn("When are cancelled timers swept?", (files(r"_timer_cancelled_count|_MIN_CANCELLED|_cancelled"),)),
    Turn("Happy eyeballs cancels the losers.", (Call("read_file", {"path": "asyncio/staggered.py"}),)),
    Turn("Async generators when the loop ends.", (files(r"shutdown_asyncgens|aclose|athrow"),)),
    Turn("Async context managers see it as an exception.", (files(r"CancelledError|GeneratorExit", "contextlib.py"),)),
    Turn("contextlib's __aexit__.", (lines("contextlib.py", 130, 330),)),
    Turn("Where does BaseException come in?", (Call("read_file", {"path": "asyncio/exceptions.py"}),)),
    Turn("Who catches BaseException in the package?", (files(r"except BaseException|except \(SystemExit|except:"),)),
    Turn("to_thread.", (Call("read_file", {"path": "asyncio/threads.py"}), files(r"copy_context", "asyncio"))),
    Turn("TLS: does shutdown survive a cancellation?", (lines("asyncio/sslproto.py", 540, 760),)),
    Turn("Test helpers use it too.", (lines("unittest/async_case.py", 1, 160),)),
    Turn("How is a coroutine thrown into, below?", (files(r"\.throw\(|\.send\(", "asyncio"),)),
    Turn(
        "The tokens of the exceptions' file, to be sure of the lines.", (module("tokenize", "asyncio/exceptions.py"),)
    ),
    Turn("Eager tasks, if this version has them.", (files(r"eager", "asyncio"),)),
    Turn(
        "Debug mode: what does it say of a swallowed cancellation?", (files(r"get_debug|_debug", "asyncio/tasks.py"),)
    ),
    Turn("The outline of the tasks module, for the write-up.", (module("pyclbr", "asyncio/tasks.py"), done(7))),
)
"""After it."""

ANSWER = (
    "Anyone who holds the task may ask: Task.cancel() in asyncio/tasks.py counts the request and cancels the future "
    "that the task waits for, or remembers it for the next step. The step delivers: it throws CancelledError into the "
    "coroutine. The coroutine may swallow it (I ran one that did, three times); uncancel() takes a request back, which "
    "is how timeouts and task groups tell their own cancellation from one from outside. shield protects the inner "
    "task, a cancelled lock waiter passes its wake-up on, and a thread is never stopped."
)
"""Ends the investigation."""
