"""The real program where memory is short, and at its end."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import orjson
import pytest

from prompt_sidecar.cli.arguments import EXIT_FAILED, EXIT_USAGE
from prompt_sidecar.v1 import retrieve_pb2, service_pb2_grpc, trim_pb2
from tests.cli.running import PATIENCE, Program, environment, program

READY = r"ready: listening on (\S+)"
ADDRESS_SPACE = 850_000_000
"""Bytes: with these about half of the prompts are refused; with 0.75 GB seven of nine, with 1 GB two."""
CODES = {"OK", "RESOURCE_EXHAUSTED"}


def _prompt(number: int) -> trim_pb2.TrimPromptRequest:
    """A prompt of its own: 8 MB in one text, 25,000 small messages, or 8 MB in long ones."""
    kinds = (
        [f"word {number} " * 800_000],
        [f"small {number} {each}" for each in range(25_000)],
        [f"{number} {each} " * 500 for each in range(1_000)],
    )
    messages = [{"role": "user", "content": text} for text in kinds[number % 3]]
    return trim_pb2.TrimPromptRequest(
        run_id=f"run-{number}",
        json=trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=orjson.dumps(messages)),
        accept_bytes=1 << 26,
    )


def _limited(address_space: int) -> list[str]:
    """A server that may use so many bytes of addresses."""
    limited = (
        "import resource, runpy, sys; "
        f"resource.setrlimit(resource.RLIMIT_AS, ({address_space}, {address_space})); "
        "sys.argv[0] = 'prompt_sidecar'; runpy.run_module('prompt_sidecar', run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-c", limited, "serve", "--listen", "127.0.0.1:0"]


def _ends_or_is_ready(command: list[str]) -> None:
    """It is ready, or ends by itself and says what to raise; it neither waits for ever nor shows a traceback."""
    with subprocess.Popen(
        command, env=environment() | {"PYTHONMALLOC": "malloc"}, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        patience = threading.Timer(PATIENCE, process.kill)
        patience.start()
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line)
            if re.search(READY, line):
                process.kill()
                break
        else:
            assert process.wait() in {EXIT_FAILED, EXIT_USAGE}, lines
            assert "raise the" in lines[-1]
            assert "Traceback" not in "".join(lines)
        process.communicate()
        patience.cancel()


@pytest.mark.parametrize("megabytes", [100, 300, 450, 499, 520, 600])
def test_too_few_addresses_to_start(megabytes: int) -> None:
    """What a start needs least is asked for before anything is begun."""
    _ends_or_is_ready(_limited(megabytes * 1_000_000))


@pytest.mark.parametrize("threads", range(0, 24, 2))
def test_too_few_threads_to_start(threads: int) -> None:
    """Whichever thread is the first that the system lets not begin."""
    _ends_or_is_ready([sys.executable, "-c", _failing(threads), "serve", "--listen", "127.0.0.1:0"])


def _failing(threads: int) -> str:
    """A program whose system lets so many threads begin."""
    return (
        "import itertools, runpy, sys, threading\n"
        "start, started = threading.Thread.start, itertools.count()\n"
        "def failing(thread):\n"
        f'    if next(started) >= {threads}: raise RuntimeError("can\'t start new thread")\n'
        "    start(thread)\n"
        "threading.Thread.start = failing\n"
        "sys.argv[0] = 'prompt_sidecar'; runpy.run_module('prompt_sidecar', run_name='__main__', alter_sys=True)"
    )


@pytest.mark.parametrize("threads", [0, 5, 9])
def test_too_few_threads_for_a_replay(tmp_path: Path, threads: int) -> None:
    """A replay, which begins a server of its own, says what to raise, and ends."""
    run = tmp_path / "run.json"
    run.write_text('[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]')
    done = subprocess.run(
        [sys.executable, "-c", _failing(threads), "replay", str(run)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert EXIT_FAILED == done.returncode
    assert "raise the" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_under_an_address_limit_prompts_are_refused_and_nothing_breaks() -> None:
    """More prompts at once than there is memory for: some are answered, the others RESOURCE_EXHAUSTED, none else."""
    with subprocess.Popen(_limited(ADDRESS_SPACE), env=environment(), stderr=subprocess.PIPE, text=True) as process:
        served = Program(process)
        try:
            address = served.wait_for(READY)[1].rstrip(",")
            with grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)]) as channel:
                stub = service_pb2_grpc.SidecarServiceStub(channel)

                def send(number: int) -> str:
                    call = stub.TrimPrompt.future(_prompt(number), timeout=PATIENCE)
                    return str(call.code().name)

                with ThreadPoolExecutor(6) as pool:
                    codes = Counter(pool.map(send, range(9)))
                assert set(codes) == CODES
                small = trim_pb2.TrimPromptRequest(
                    run_id="small",
                    json=trim_pb2.JsonPrompt(
                        format=trim_pb2.FORMAT_OPENAI_CHAT, body=b'[{"role":"user","content":"hello"}]'
                    ),
                )
                assert stub.TrimPrompt(small, timeout=PATIENCE).fits
                asked = retrieve_pb2.RetrieveContentRequest(run_id="small", stash_id="none")
                found = stub.RetrieveContent(asked, timeout=PATIENCE)
                assert retrieve_pb2.RETRIEVE_OUTCOME_NOT_FOUND == found.outcome
            process.send_signal(signal.SIGTERM)
            assert 0 == served.end()
            assert "stopped" in served.lines[-1]
        finally:
            process.kill()


def test_the_end_does_not_wait_for_the_interpreter() -> None:
    """Once all is said, the process goes: what the interpreter does at its end, such as freeing runs, is left out."""
    code = (
        "import atexit, sys; from prompt_sidecar.cli.commands import main; "
        "atexit.register(print, 'torn down', file=sys.stderr); sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        served = Program(process)
        try:
            served.wait_for(READY)
            process.send_signal(signal.SIGTERM)
            assert 0 == served.end()
        finally:
            process.kill()
    assert "stopped" in served.lines[-1]


def test_a_server_that_loaded_one_vocabulary_says_so() -> None:
    """At the start the default one is loaded and no other."""
    with program("--listen", "127.0.0.1:0") as served:
        served.wait_for(READY)
        served.process.send_signal(signal.SIGTERM)
        assert 0 == served.end()
    lines = [line for line in served.lines if "tokens of" in line]
    assert 1 == len(lines)
    assert "o200k_base" in lines[0]
