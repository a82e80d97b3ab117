"""The command line: serve, wrap, probe, doctor, presets, models, check-config, replay, mcp, guard, condense.

Each command imports its modules when it runs: `probe` is started every few seconds by some orchestrators, and must not
load the tokenizer.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NoReturn

from prompt_sidecar.cli.arguments import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, PROGRAM, SHORT, parsed

if TYPE_CHECKING:
    from prompt_sidecar.config.settings import Settings
    from prompt_sidecar.guard.ceilings import Price
    from prompt_sidecar.report.command import Files
    from prompt_sidecar.report.transcripts.model import Transcript

_STDOUT, _STDERR = 1, 2
"""File descriptors."""
_INSTALL = "pip install '.[server]' in a checkout of prompt-sidecar"
_INSTALL_REPORT = "pip install '.[server,report]' in a checkout of prompt-sidecar"
"""Without the extra only the client is installed. The package is on no package index yet."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    _open_standard_streams()
    _prepare_output()
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()  # inside, so that a failure can still be reported
    except BrokenPipeError:
        _drop_output()  # the reader of our output has ended, as with `| head`
        return EXIT_OK
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (RuntimeError, MemoryError) as error:
        if not _is_for_want_of_memory(error):
            raise
        print(f"{PROGRAM}: {_TOO_LITTLE}", file=sys.stderr)
        _leave(EXIT_FAILED)  # a server started by replay may never end
    except OSError as error:
        _drop_output()
        where = f"{error.filename}: " if error.filename else ""
        print(f"{PROGRAM}: {where}{error.strerror or error}", file=sys.stderr)
        return EXIT_FAILED


def _run(arguments: Sequence[str] | None) -> int:
    asked = parsed(arguments)
    try:
        return _COMMANDS[asked.command](asked)
    except _CommandRefused as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return EXIT_USAGE
    except ImportError as error:
        if (error.name or "prompt_sidecar").split(".")[0] == "prompt_sidecar":
            raise
        print(f"{PROGRAM}: this command needs the server ({error}): {_INSTALL}", file=sys.stderr)
        return EXIT_USAGE


def _prepare_output() -> None:
    """Make streams escape characters that their encoding lacks, in a form that TOML and JSON understand."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Discard further output: the interpreter would try to write again at its end, and print an error."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_standard_streams() -> None:
    """Open closed ones of descriptors 0 to 2 on the null device.

    Otherwise the next socket gets that number, and a library's output on standard error is sent to a peer.
    """
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(opened)
    if sys.__stdout__ is None:
        sys.stdout = open(_STDOUT, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - open to the end
    if sys.__stderr__ is None:
        sys.stderr = open(_STDERR, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - open to the end


class _CommandRefused(Exception):
    """The request cannot be fulfilled; the message says why."""


def _settings(
    asked: Namespace,
    more: Mapping[str, tuple[str, str]] | None = None,
    *,
    conflicts: bool = True,
    read_files: bool = True,
) -> Settings:
    """Load the settings; `more`: overriding values with their sources; `conflicts`, `read_files`: as for `load`."""
    from prompt_sidecar.config.settings import SETTINGS, SettingsError, load, nearest

    flags: dict[str, str] = {}
    for item in asked.set:
        name, equals, value = item.partition("=")
        if not equals:
            raise _CommandRefused(f"--set {item}: write --set NAME=VALUE{'' if name in SETTINGS else nearest(name)}")
        flags[name] = value
    short: dict[str, str] = {}
    for flag, (name, _, _) in SHORT.items():
        value = getattr(asked, flag.removeprefix("--").replace("-", "_"))
        if value is not None:
            flags[name], short[name] = value, flag
    for name, (value, source) in (more or {}).items():
        flags[name], short[name] = value, source
    try:
        return load(
            os.environ, config=asked.config, flags=flags, short=short, conflicts=conflicts, read_files=read_files
        )
    except SettingsError as error:
        raise _unusable(error.problems) from None


def _unusable(problems: Sequence[str]) -> _CommandRefused:
    return _CommandRefused("\n  ".join(["these settings cannot be used:", *problems]))


def _serve(asked: Namespace) -> int:
    settings = _settings(asked)
    listening = _listen(settings)
    try:
        with _start_errors():
            _begin_loading(settings)
            from prompt_sidecar.app import serve

            serve(settings, listening)
    except (_CommandRefused, ImportError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is
        # Running threads would keep the process alive for ever, and it would not be restarted.
        if _is_for_want_of_memory(error):
            print(f"{PROGRAM}: {_TOO_LITTLE}", file=sys.stderr)
        else:
            traceback.print_exc()
        _leave(EXIT_FAILED)
    # All output is written by now. The interpreter's own end would free every object of every run one by one (26 s for
    # two thousand runs), and wait for threads that work on calls whose callers have left.
    _leave(EXIT_OK)


def _listen(settings: Settings) -> socket.socket | None:
    """Bind the HTTP door's address before slow imports, so that agents wait; return None if it is not set."""
    from prompt_sidecar.process.starting import StartError, listening_socket

    try:
        http = settings.http
        return listening_socket("http.listen", http.listen, http.held_connections) if http.listen else None
    except StartError as error:
        raise _CommandRefused(str(error)) from None


def _begin_loading(settings: Settings) -> None:
    """Load the vocabulary in a thread during the imports that follow, while the tokenizer releases the interpreter.

    Not if address space is limited: native code without memory ends the process, before a message can say which limit
    to raise.
    """
    import resource

    limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    if settings.tokens.counter != "tiktoken" and not limited:
        from prompt_sidecar.tokens.encodings import ESTIMATE
        from prompt_sidecar.tokens.fast import begin_loading

        begin_loading(ESTIMATE)


def _is_for_want_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, means that no memory or thread is available."""
    from prompt_sidecar.calls.pool import NO_THREAD

    while error is not None:
        if isinstance(error, MemoryError) or str(error) == NO_THREAD:
            return True
        error = error.__cause__ or error.__context__
    return False


_TOO_LITTLE: Final = (
    "the system gives this process no more memory or threads: raise the container's limits of memory and processes, "
    "or those of the shell (ulimit -v, ulimit -u)"
)


def _leave(code: int) -> NoReturn:
    """End the process now."""
    with contextlib.suppress(OSError, ValueError):  # nobody reads them any more
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _wrap(asked: Namespace) -> int:
    settings = _settings(asked)
    from prompt_sidecar.cli.agents import UpstreamError, chosen, unheard, upstreams
    from prompt_sidecar.cli.wrap import WrapError, found, new_log, run, settled

    try:
        program = found(asked.agent)
        ways = list(upstreams(os.environ, chosen(settings)))
        given = {f"http.{each.provider}_upstream": (each.address, each.variable) for each in ways if each.variable}
        settings = settled(_settings(asked, given))
        log, path = new_log(asked.log)
        with log, _start_errors():
            _begin_loading(settings)
            print(f"{PROGRAM}: logs to {path}", file=sys.stderr)
            ended = run(settings, ways, [program, *asked.arguments], log, os.environ)
    except (WrapError, UpstreamError) as error:
        raise _CommandRefused(str(error)) from None
    lines = [] if ended.summary is None else [*ended.summary.lines()]
    if ended.summary is not None and not ended.summary.requests:
        lines += filter(None, [unheard(asked.agent)])
    seconds = f"{int(ended.seconds // 60)} min {int(ended.seconds % 60)} s"
    for line in (f"{asked.agent} has ended after {seconds}, with code {ended.code}", *lines, f"log       {path}"):
        print(f"{PROGRAM}: {line}", file=sys.stderr)
    _leave(ended.code)


def _probe(asked: Namespace) -> int:
    address = asked.address or _own_address(asked)
    from prompt_sidecar.cli.probe import probe

    found = probe(address, asked.timeout)
    print(f"{address}: {found.words}", file=sys.stdout if found.answered else sys.stderr)
    return EXIT_OK if found.serves else EXIT_FAILED


def _doctor(asked: Namespace) -> int:
    import json

    settings = _settings(asked)
    from prompt_sidecar.cli.doctor import Severity, as_json, examine
    from prompt_sidecar.process.cgroups import memory_limit

    findings = examine(settings, os.environ, memory_limit())
    problems = sum(each.level is Severity.PROBLEM for each in findings)
    if asked.json:
        print(json.dumps(as_json(findings), indent=2))
    else:
        print(*(each.line for each in findings), sep="\n")
        print("no problem" if not problems else "1 problem" if problems == 1 else f"{problems} problems")
    return EXIT_FAILED if problems else EXIT_OK


def _own_address(asked: Namespace) -> str:
    """Return the address at which a server with these settings can be reached from its own machine."""
    server = _settings(asked, conflicts=False).server  # the server has checked them; a probe does not get its key
    if server.socket:
        from prompt_sidecar.doors.grpc.unix_socket import target

        return target(server.socket)
    if not server.listen:
        raise _CommandRefused(
            "server.listen and server.socket are empty, so there is no gRPC to ask; name an --address, or set "
            "server.health_listen and ask it for /readyz"
        )
    if server.tls_certificate:
        raise _CommandRefused("the server speaks TLS on TCP; give it a unix socket too (server.socket) and probe that")
    host, _, port = server.listen.rpartition(":")
    return {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host) + ":" + port  # noqa: S104  # it is translated


def _presets(asked: Namespace) -> int:
    from prompt_sidecar.cli.preset_table import as_json, in_full, side_by_side
    from prompt_sidecar.errors import InvalidPolicy
    from prompt_sidecar.trim.presets import preset

    try:
        if asked.name:
            preset(asked.name)
    except InvalidPolicy as error:
        raise _CommandRefused(error.message) from None
    print(as_json(asked.name) if asked.json else in_full(asked.name) if asked.name else side_by_side())
    return EXIT_OK


def _models(asked: Namespace) -> int:
    from prompt_sidecar.cli.models_shown import show

    shown, whole = show(asked.names, _settings(asked), as_json=asked.json)
    print(shown)
    return EXIT_OK if whole else EXIT_FAILED


def _check_config(asked: Namespace) -> int:
    from datetime import UTC, datetime

    from prompt_sidecar.config.explain import age, report, rules_of_files
    from prompt_sidecar.config.reference import example
    from prompt_sidecar.config.settings import table
    from prompt_sidecar.config.startable import obstacles, store_problem

    if asked.example:
        print(example(), end="")
        return EXIT_OK
    settings = _settings(asked, read_files=not asked.no_files)
    if not asked.no_files and (found := obstacles(settings)):
        raise _unusable(found)
    if not asked.no_files and settings.store.url and (problem := store_problem(settings.store)):
        raise _unusable([f"store.url: the store cannot be used ({problem}); --no-files asks neither it nor files"])
    rows = table(settings)
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, source in rows:
        print(f"{name:<{widths[0]}} = {value:<{widths[1]}}  # {source}")
    # As comments, so that the output can still be read as TOML.
    of_files = () if asked.no_files else rules_of_files(settings)
    for line in ("", *report(settings), *of_files, "", *age(datetime.now(UTC).date())):
        print(f"# {line}".rstrip())
    return EXIT_OK


def _replay(asked: Namespace) -> int:
    from prompt_sidecar.report.command import Files, ReportError
    from prompt_sidecar.report.replay import ReplayError, ReplayFailed, read_limit
    from prompt_sidecar.report.transcripts.model import TranscriptError
    from prompt_sidecar.report.transcripts.reading import read_transcripts

    if not asked.runs and not asked.find:
        raise _CommandRefused("replay needs a RUN: a transcript or a folder of them, or --find; see replay --help")
    settings = _settings(asked)
    try:
        limit = read_limit(asked.limit)
        files = Files.of(asked.runs, find=asked.find)
        single = len(files.named) == 1 and not files.found and asked.html is None and not asked.json
        held = read_transcripts(files.named[0], asked.format) if single else []
        if len(held) == 1:
            return _replay_one(asked, settings, limit, held[0])
        return _report(asked, settings, limit, files)
    except (ReplayError, ReportError, TranscriptError) as error:
        raise _CommandRefused(str(error)) from None
    except ReplayFailed as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return EXIT_FAILED


def _replay_one(asked: Namespace, settings: Settings, limit: float, run: Transcript) -> int:
    from functools import partial

    from prompt_sidecar.errors import SidecarError
    from prompt_sidecar.facts.known_models import Models
    from prompt_sidecar.facts.money import Money
    from prompt_sidecar.guard.ceilings import CeilingPrices
    from prompt_sidecar.report.figures import ReportRequest
    from prompt_sidecar.report.head import headed
    from prompt_sidecar.report.measuring import measure, settings_for_replay, size
    from prompt_sidecar.report.prices import RelativePrices
    from prompt_sidecar.report.replay import Plan, ReplayFailed, replay, show
    from prompt_sidecar.tokens.loading import lazy_counter

    model = asked.model or run.model
    counter = lazy_counter(fast=settings.tokens.counter != "tiktoken", report=lambda _: None)
    own = settings_for_replay(settings)
    wanted = ReportRequest(
        limit,
        [asked.preset or settings.preset],
        RelativePrices(asked.price_cached, asked.price_written),
        _prices(asked, settings),
        asked.model,
        asked.window,
    )
    try:
        figures = measure(run, wanted, own, counter)
        run, _ = headed(run, partial(size, run, model, wanted, own, counter))
    except SidecarError as error:
        raise ReplayFailed(f"a prompt was refused: {error.message}") from None
    plan = Plan(
        run=run,
        limit=figures.limit,
        preset=asked.preset or "",
        model=asked.model,
        timeout=asked.timeout,
        prices=RelativePrices(asked.price_cached, asked.price_written),
        money=Money(CeilingPrices(wanted.money), Models(settings.models), settings.currency),
        window=figures.window,
        figures=figures,
    )
    # In any case the client ends before its server: otherwise gRPC would log that its connection is lost.
    with _server(asked.address, settings) as address, contextlib.closing(replay(plan, address)) as turns:
        show(turns, plan, counter, as_json=asked.json is not None, out=sys.stdout, progress=sys.stderr)
    return EXIT_OK


def _mcp(asked: Namespace) -> int:
    ca, key, certificate = (_pem(asked, name) for name in ("ca", "key", "certificate"))
    try:
        from prompt_sidecar.client.options import DEFAULT_TARGET, Tls
        from prompt_sidecar.mcp.options import McpOptions
        from prompt_sidecar.mcp.serving import run
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "prompt_sidecar":
            raise
        raise _CommandRefused(
            f"this command needs the extra mcp ({error}): pip install '.[mcp]' in a checkout"
        ) from None
    try:
        run(
            McpOptions(
                target=asked.target or os.environ.get("PROMPT_SIDECAR_TARGET") or DEFAULT_TARGET,
                run=asked.run or os.environ.get("PROMPT_SIDECAR_RUN", ""),
                token=os.environ.get("PROMPT_SIDECAR_TOKEN", ""),
                tls=Tls(ca, key, certificate) if ca or key or certificate else None,
                listen=asked.listen,
                hosts=tuple(asked.allow_host),
            )
        )
    except (OSError, ValueError) as error:
        raise _CommandRefused(str(error)) from None
    return EXIT_OK


def _pem(asked: Namespace, name: str) -> bytes | None:
    """Return the contents of a TLS file of `mcp`, or None if it is not given."""
    from prompt_sidecar.files import read_file

    file = getattr(asked, f"tls_{name}")
    try:
        return read_file(file) if file else None
    except OSError as error:
        raise _CommandRefused(f"--tls-{name} {file} cannot be read: {error.strerror}") from None


def _report(asked: Namespace, settings: Settings, limit: float, files: Files) -> int:
    from pathlib import Path

    from prompt_sidecar.report.command import Outputs, report
    from prompt_sidecar.report.figures import ReportRequest
    from prompt_sidecar.report.prices import RelativePrices
    from prompt_sidecar.report.work import Measurement
    from prompt_sidecar.trim.presets import PRESETS

    if asked.address is not None:
        raise _CommandRefused("--address is for one run alone: a report is made in this process")
    if asked.json == "":
        raise _CommandRefused("a report of several runs goes to a file: --json FILE")
    first = settings.preset
    wanted = ReportRequest(
        limit=limit,
        presets=[first, *(name for name in PRESETS if name != first)],
        prices=RelativePrices(asked.price_cached, asked.price_written),
        money=_prices(asked, settings),
        model=asked.model,
        window=asked.window,
    )
    outputs = Outputs(Path(asked.html) if asked.html else None, Path(asked.json) if asked.json else None)
    try:
        whole = report(files, Measurement(wanted, settings, asked.format), outputs, sys.stdout, sys.stderr)
    except ImportError as error:
        if (error.name or "") not in {"jinja2", "vl_convert"}:
            raise
        raise _CommandRefused(f"--html needs the extra `report` ({error}): {_INSTALL_REPORT}") from None
    return EXIT_OK if whole else EXIT_FAILED


def _prices(asked: Namespace, settings: Settings) -> Mapping[str, Price]:
    """Return prices in a currency by model: that of the flag for all, or else those in the settings."""
    from prompt_sidecar.guard.ceilings import ANY_MODEL

    return {ANY_MODEL: asked.prices} if asked.prices else settings.prices


def _guard(asked: Namespace) -> int:
    from prompt_sidecar.cli.guard_files import GuardError, chosen, list_rules, look
    from prompt_sidecar.guard.rule_files import described

    settings = _settings(asked)
    try:
        rules = chosen(settings.guard, asked.only)
        if asked.rules:
            list_rules(rules, as_json=asked.json, out=sys.stdout)
            for path in settings.guard.rule_files:
                sys.stderr.writelines(f"{line}\n" for line in described(path))
            return EXIT_OK
        if not asked.files:
            raise _CommandRefused("guard needs a FILE, - for the standard input, or --rules")
        found = look(rules, asked.files, as_json=asked.json, out=sys.stdout, progress=sys.stderr)
    except GuardError as error:
        raise _CommandRefused(str(error)) from None
    return EXIT_FAILED if asked.fail and found else EXIT_OK


def _condense(asked: Namespace) -> int:
    from prompt_sidecar.cli.condensed_file import show
    from prompt_sidecar.files import read_file
    from prompt_sidecar.tokens.loading import lazy_counter
    from prompt_sidecar.trim.condense.calls import call_of

    raw = sys.stdin.buffer.read() if asked.file == "-" else read_file(asked.file)
    counter = lazy_counter(fast=True, report=lambda _: None)
    show(
        raw.decode(errors="replace"),
        None if asked.tool is None else call_of(asked.tool, asked.arguments),
        asked.level,
        lambda text: counter.count(text, "o200k_base"),
        fetch_tools=asked.fetch_tool,
        out=sys.stdout,
        progress=sys.stderr,
    )
    return EXIT_OK


@contextlib.contextmanager
def _server(address: str | None, settings: Settings) -> Iterator[str]:
    """Yield the address of a running server: the given one, or one that runs as long as the context."""
    if address is not None:
        yield address
        return
    from prompt_sidecar.app import start

    with _start_errors():
        server = start(_apart(settings), {"OTEL_SDK_DISABLED": "true"})
    try:
        yield server.addresses[0]
    finally:
        server.stop(0)


def _apart(settings: Settings) -> Settings:
    """Return settings for a server that only a replay reaches: nothing is exposed, shared or pushed."""
    from prompt_sidecar.calls.options import ServerOptions
    from prompt_sidecar.doors.admin.options import AdminOptions
    from prompt_sidecar.doors.envoy.options import EnvoyOptions
    from prompt_sidecar.doors.http.options import HttpOptions
    from prompt_sidecar.store.options import StoreOptions

    return replace(
        settings,
        server=ServerOptions(listen="127.0.0.1:0", max_message_bytes=settings.server.max_message_bytes),
        http=HttpOptions(),
        envoy=EnvoyOptions(),
        admin=AdminOptions(),
        store=StoreOptions(),
        telemetry=replace(settings.telemetry, metrics_listen=""),
    )


@contextlib.contextmanager
def _start_errors() -> Iterator[None]:
    """Turn errors at the start of a server into a message and exit code 2."""
    from prompt_sidecar.calls.tokens import TokensError
    from prompt_sidecar.process.starting import StartError
    from prompt_sidecar.tokens.vocabulary import VocabularyError

    try:
        yield
    except (StartError, TokensError, VocabularyError) as error:
        raise _CommandRefused(str(error)) from None


_COMMANDS: Final[Mapping[str, Callable[[Namespace], int]]] = {
    "serve": _serve,
    "wrap": _wrap,
    "probe": _probe,
    "doctor": _doctor,
    "presets": _presets,
    "models": _models,
    "check-config": _check_config,
    "replay": _replay,
    "mcp": _mcp,
    "guard": _guard,
    "condense": _condense,
}
