"""An agent of a few lines, as a program: `turns` talks to its model until that calls no tool; `wait` waits for signals.

It ends with exit code 7. While it waits it prints each signal's name, and the size of its terminal where that changes;
the second SIGINT, or a SIGTERM, ends it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
from typing import Any

CODE = 7


def turns() -> None:
    """Run the model's tool until it is done; a result has 3 kB."""
    address = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    head = {"content-type": "application/json", "authorization": "Bearer key"}
    tool = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}
    messages: list[Any] = [{"role": "user", "content": "go"}]
    calls: list[Any] = [None]
    while calls:
        body = json.dumps({"model": "next", "messages": messages, "tools": [tool]}).encode()
        with urllib.request.urlopen(urllib.request.Request(address, body, head)) as answer:
            message = json.load(answer)["choices"][0]["message"]
        messages.append(message)
        calls = message.get("tool_calls") or []
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": f"line of {call['id']}\n" * 200} for call in calls
        ]


def wait() -> None:
    """Take one signal after another: a handler could be called just before a wait began, which would miss it."""
    awaited = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    interrupted = 0
    print(f"waiting as {os.getpid()} at {os.environ['OPENAI_BASE_URL']}, a terminal: {sys.stdin.isatty()}", flush=True)
    while True:
        number = signal.sigwait(awaited)
        size = f" {os.get_terminal_size().lines} lines" if number == signal.SIGWINCH else ""
        print(f"{signal.Signals(number).name}{size}", flush=True)
        interrupted += number == signal.SIGINT
        if number == signal.SIGTERM or interrupted > 1:
            os._exit(CODE)


if __name__ == "__main__":
    {"turns": turns, "wait": wait}[sys.argv[1]]()
    sys.exit(CODE)
