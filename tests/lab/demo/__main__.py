"""`make demo`: start the server, send a run through it, show each iteration, check everything, say what came of it."""

from __future__ import annotations

import secrets
import sys
import sysconfig
import time
from functools import partial
from pathlib import Path

import grpc
from rich.console import Console

from tests.lab.demo import closing, stranger
from tests.lab.demo.agent import Agent, Exchange, offered
from tests.lab.demo.base_url import base_url
from tests.lab.demo.checks import Check, Findings, check_exchange
from tests.lab.demo.investigation import LONG_FILE, Call
from tests.lab.demo.script import Notes, script
from tests.lab.demo.summary import Outcome, print_summary
from tests.lab.demo.table import row, screen
from tests.lab.demo.tools import Tools
from tests.lab.harness.processes import NotStarted
from tests.lab.harness.servers import Server, sidecar
from tests.lab.harness.tables import INTERRUPTED

NEIGHBOUR_FILE = "inspect.py"
"""What another agent reads at the same time; over the cap, so that it is elided at once."""


def main() -> int:
    """Run the demo; return the exit code: 0 if every check has passed."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a tick must not fail a run in a locale without one
    tools = Tools(Path(sysconfig.get_paths()["stdlib"]))
    if not (tools.root / LONG_FILE).is_file():
        return _sorry(f"the demo reads the source of the standard library, and {LONG_FILE} is not in {tools.root}")
    servers: list[Server] = []
    start = partial(_start, servers, secrets.token_hex(32))
    try:
        console = Console(highlight=False)
        passed = _demo(console, tools, start)
        return 0 if base_url(console, tools) and passed else 1
    except NotStarted as error:
        return _sorry(str(error))
    except grpc.RpcError as error:
        return _sorry(f"a call failed: {error}\n{servers[-1].last_words}")
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        for server in servers:
            server.kill()


def _demo(console: Console, tools: Tools, start: partial[Server]) -> bool:
    started = time.perf_counter()
    server = start()
    console.print(f"prompt-sidecar serves on {server.address}, process {server.process.pid}")
    neighbour = _neighbour(server, tools)
    neighbour_id = closing.labelled(neighbour)
    agent = Agent(server.stub, f"investigation-{secrets.token_hex(4)}", tools, offered(server.stub))
    found, notes = Findings(), Notes()
    exchanges: list[Exchange] = []
    with screen(console) as shown:
        for exchange in agent.run(script(neighbour_id, notes)):
            before = exchanges[-1] if exchanges else None
            exchanges.append(exchange)
            shown.show(row(exchange, before, len(exchanges)))
            check_exchange(found, exchange, before, (stranger.MADE_UP_ID, neighbour_id), len(exchanges))
    console.print("\nthe run is over; all that it was given is compared with what it had sent …")
    closing.check_offered(found, agent, exchanges)
    closing.check_recall(found, agent, notes, neighbour_id)
    closing.check_search(found, agent, notes)
    closing.check_unrecorded(found, agent, exchanges)
    closing.check_tasks(found, agent)
    closing.check_forged_was_trimmed(found, exchanges[-1])
    originals = closing.check_originals(found, agent, exchanges)
    closing.check_figures(found, agent, exchanges)
    closing.check_forgotten(found, agent, exchanges[-1], neighbour, neighbour_id)
    console.print("the run is ended; the server is killed, and another takes its place …")
    server = closing.check_crash(found, agent, notes, exchanges[-1], server, start)
    found.equal(Check.STOPPED, "exit code", 0, server.stop())
    print_summary(console, Outcome(exchanges, agent, notes, originals, time.perf_counter() - started), found)
    return found.passed


def _neighbour(server: Server, tools: Tools) -> Agent:
    """Another agent at its first tool result: its run shares the server and nothing else."""
    agent = Agent(server.stub, f"neighbour-{secrets.token_hex(4)}", tools, ())
    closing.begin_neighbour(agent)
    read = Call("read_file", {"path": NEIGHBOUR_FILE})
    function = {"name": read.name, "arguments": read.text}
    agent.history += [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "a", "content": tools.call(read.name, read.arguments)},
    ]
    return agent


def _start(servers: list[Server], key: str) -> Server:
    server = sidecar({"KEY": key})
    servers.append(server)
    return server


def _sorry(why: str) -> int:
    print(why, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
