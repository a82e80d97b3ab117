"""The command line: serve, probe, presets, check-config, replay, mcp, guard.

Each command imports what it needs when it runs: `probe` is started every few seconds by some orchestrators, and must
not pay for the tokenizer.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prompt_sidecar.cli.report.command import Files
    from prompt_sidecar.cli.transcripts.model import Transcript
    from prompt_sidecar.config.settings import Settings
    from prompt_sidecar.guard.ceilings import Price

EXIT_OK = 0
EXIT_FAILED = 1
"""The command ran and its answer is no: not serving, or it could not do its work."""
EXIT_USAGE = 2
"""What was asked for cannot be: a bad flag, setting or file."""

EXIT_INTERRUPTED = 130
"""Ctrl-C: 128 and the signal's number, as shells count."""

_HIGHEST_PRICE = 1_000.0
"""Plain input tokens; a price of a million tokens in place of one is a mistake."""
_LONGEST_WAIT = 86_400.0
_LARGEST_WINDOW = 100_000_000
_INSTALL = "pip install '.[server]' in a checkout of prompt-sidecar"
_INSTALL_REPORT = "pip install '.[server,report]' in a checkout of prompt-sidecar"
"""Without the extra there is the client alone. It is on no package index yet."""

_EXAMPLES = """\
examples:
  prompt-sidecar serve
      listen on 127.0.0.1:7717 with the defaults
  prompt-sidecar serve --socket /run/agent/sidecar.sock --listen ''
      listen on a unix socket only
  prompt-sidecar serve --http 127.0.0.1:7780
      be a proxy for providers too: an agent sets OPENAI_BASE_URL=http://127.0.0.1:7780/v1 or
      ANTHROPIC_BASE_URL=http://127.0.0.1:7780, and nothing else
  prompt-sidecar serve --set limits.time_to_live=2h --set policy.cap_text_bytes=32KiB
      change single settings; PROMPT_SIDECAR_LIMITS__TIME_TO_LIVE=2h in the environment does the same
  prompt-sidecar check-config --example > prompt-sidecar.toml
      write a settings file with every setting, its default and what it is for; use it with --config
  prompt-sidecar presets
      see what each preset is for, and its knobs side by side; with a preset's name, the reason of every value
  prompt-sidecar check-config --preset lean
      see all settings in force, what they do to a prompt in plain words, and what makes little sense together
  prompt-sidecar probe
      ask the server that runs with these settings whether it serves, for an exec probe
  prompt-sidecar replay run.json.gz --limit 30%
      see what trimming would do to a recorded run
  prompt-sidecar mcp --run run-1
      give the tools to a model in an MCP host, over stdio
  prompt-sidecar replay --find --html report.html
      the same for the sessions of Claude Code and Codex in your home, on one page
  prompt-sidecar guard transcripts/*.jsonl.gz
      see in which lines of transcripts or logs the guard finds secrets, personal data and look-alikes

A setting comes from, the last one winning: its default, the file of --config or PROMPT_SIDECAR_CONFIG, the environment
(PROMPT_SIDECAR_ and the setting's name in capitals, with two underscores for the dot), the command line.
exit codes: 0 done, 1 failed or not serving, 2 bad flag, setting or file
"""

_GUARD = """\
Looks for secrets, personal data and look-alikes in transcripts, logs and other files: plain text, JSON or JSON lines,
gzipped or not; - is the standard input. Prints file, line, rule, and what is done about such a find where guard.mode
is enforce; never what was found. Rules and actions are those of the settings.
"""
_GUARD_EXAMPLES = """\
examples:
  prompt-sidecar guard ~/.agent/sessions/*.jsonl
      every line with a find, and a summary by rule
  prompt-sidecar guard --only secrets --fail build.log
      for a check in continuous integration: exit code 1 if a secret is in the log
  kubectl logs agent | prompt-sidecar guard -
      what an agent has printed
  prompt-sidecar guard --set guard.actions=email=mask --rules
      the rules and what they do, with a changed action
exit codes: 0 done, 1 something was found and --fail was given, 2 bad flag, setting or file
"""


_MCP = """\
Serves the sidecar's tools (recall, search, tasks) to a host of the Model Context Protocol, and relays each call to the
sidecar over gRPC. Over stdio the run comes from --run or PROMPT_SIDECAR_RUN, the credential from PROMPT_SIDECAR_TOKEN;
over HTTP both come from the request's headers x-prompt-sidecar-run and authorization.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = asked.command
    try:
        return command(asked)
    except _Refused as error:
        print(f"prompt-sidecar: {error}", file=sys.stderr)
        return EXIT_USAGE
    except ImportError as error:
        if (error.name or "prompt_sidecar").split(".")[0] == "prompt_sidecar":
            raise
        print(f"prompt-sidecar: this command needs the server ({error}): {_INSTALL}", file=sys.stderr)
        return EXIT_USAGE
    except BrokenPipeError:
        # The reader of our output has gone, as with `| head`. Python would complain once more while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


class _Refused(Exception):
    """What was asked for cannot be; the message says why."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="prompt-sidecar",
        description="Trims an LLM agent's outgoing prompts so that they fit, and keeps what it took out within reach.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and stop")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="run the server until SIGTERM or Ctrl-C")
    _add_settings(serve)
    serve.set_defaults(command=_serve)

    probe = commands.add_parser(
        "probe",
        help="ask a running server whether it serves; exit code 0 or 1",
        description="Asks a running server for its health. Exit code 0: it serves. 1: it does not, or does not answer.",
    )
    _add_settings(probe)
    probe.add_argument(
        "--address", help="host:port or unix:/path; without it, the address that the settings say, the socket first"
    )
    probe.add_argument("--timeout", type=_positive, default=2.0, metavar="SECONDS", help="wait this long (default: 2)")
    probe.set_defaults(command=_probe)

    presets = commands.add_parser(
        "presets",
        help="show what each preset is for, and its knobs side by side",
        description="Shows what each preset is for, and its knobs side by side; or one of them with all its reasons.",
    )
    presets.add_argument(
        "name", nargs="?", default="", metavar="NAME", help="a preset, to have the reason of every value"
    )
    presets.add_argument("--json", action="store_true", help="print a JSON object")
    presets.set_defaults(command=_presets)

    check = commands.add_parser(
        "check-config",
        help="print the settings in force, where each comes from, and what the policy does",
        description="Prints the settings in force as TOML, each with its source; then, as comments, what the policy "
        "does to a prompt, and warnings. Exit code 2: they cannot be used.",
    )
    _add_settings(check)
    check.add_argument("--example", action="store_true", help="print a settings file that explains every setting")
    check.set_defaults(command=_check_config)

    replay = commands.add_parser(
        "replay",
        help="send recorded runs through the sidecar, and show what trimming does and saves",
        description=(
            "RUN is a transcript, or a folder of them: a session file of Claude Code or Codex, a log of requests to "
            "OpenAI, Anthropic and others (JSONL of bodies, or of pairs with the answers), the AI SDK's messages, or "
            '{"format": …, "messages": […]}; gzipped or not. One run alone is sent through a server, and shown turn by '
            "turn. With --html, --json FILE, --find, a folder or several runs, a report is made of all of them."
        ),
    )
    _add_settings(replay)
    replay.add_argument("runs", metavar="RUN", nargs="*", help="a transcript, or a folder of transcripts")
    replay.add_argument(
        "--find", action="store_true", help="the sessions that Claude Code and Codex keep in your home directory"
    )
    replay.add_argument(
        "--html", metavar="FILE", help="write a report to this page, which needs nothing from elsewhere"
    )
    replay.add_argument(
        "--json",
        metavar="FILE",
        nargs="?",
        const="",
        help="write the report's figures to this file; without FILE, print one JSON object a turn, and one for the run",
    )
    replay.add_argument("--address", help="a running server; without it, one is started. Not for a report")
    replay.add_argument(
        "--limit",
        default="30%",
        help="tokens that a prompt may have, or a share of the run's largest prompt (default: 30%%)",
    )
    replay.add_argument(
        "--window",
        type=_window,
        default=0,
        metavar="TOKENS",
        help="the model's window, beyond which untrimmed prompts are refused (default: as known by the model's name)",
    )
    replay.add_argument(
        "--format",
        help="the messages' format, if the file does not say and it cannot be seen: openai_chat, gemini and so on",
    )
    replay.add_argument(
        "--model", default="", help="the model, where the file names none; it chooses the vocabulary and the prices"
    )
    replay.add_argument("--timeout", type=_positive, default=60.0, metavar="SECONDS", help="of one call (default: 60)")
    replay.add_argument(
        "--prices",
        type=_money,
        metavar="INPUT,CACHED,WRITTEN,OUTPUT",
        help="of a million tokens in a currency of yours, to see money too; CACHED and WRITTEN may be empty, for INPUT "
        '(default: the settings table [prices."MODEL"])',
    )
    for name, price, what in (
        ("cached", 0.1, "that the provider's cache holds"),
        ("written", 1.25, "that it does not"),
    ):
        replay.add_argument(
            f"--price-{name}",
            type=_price,
            default=price,
            metavar="PRICE",
            help=f"of a token {what}, in plain input tokens (default: {price})",
        )
    replay.set_defaults(command=_replay)
    _add_mcp(
        commands.add_parser("mcp", help="serve the model's tools over the Model Context Protocol", description=_MCP)
    )
    _add_guard(
        commands.add_parser(
            "guard",
            help="show what the guard's rules find in files: line and rule, never the value",
            description=_GUARD,
            epilog=_GUARD_EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    return parser


def _add_mcp(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", help="the sidecar (PROMPT_SIDECAR_TARGET; default: 127.0.0.1:7717)")
    parser.add_argument("--run", help="the run whose content is recalled, over stdio (PROMPT_SIDECAR_RUN)")
    parser.add_argument(
        "--listen", default="", metavar="HOST:PORT", help="serve streamable HTTP at /mcp there, in place of stdio"
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name beyond loopback that HTTP requests may call this process by; may be given many times",
    )
    for name, what in (
        ("ca", "authorities of the sidecar's certificate; with it the connection is encrypted"),
        ("certificate", "the caller's certificate chain"),
        ("key", "its private key"),
    ):
        parser.add_argument(f"--tls-{name}", default="", metavar="FILE", help=f"{what}, PEM")
    parser.set_defaults(command=_mcp)


def _add_guard(guard: argparse.ArgumentParser) -> None:
    _add_settings(guard)
    guard.add_argument("files", nargs="*", metavar="FILE")
    guard.add_argument("--rules", action="store_true", help="list the rules with their actions, and stop")
    guard.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="apply this rule or group (secrets, personal, lookalikes) alone; may be given many times",
    )
    guard.add_argument("--fail", action="store_true", help="exit with 1 if anything was found")
    guard.add_argument("--json", action="store_true", help="print a JSON object for each line and rule, then a summary")
    guard.set_defaults(command=_guard)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings (also PROMPT_SIDECAR_CONFIG)")
    parser.add_argument("--listen", metavar="HOST:PORT", help="TCP address; empty: none (server.listen)")
    parser.add_argument(
        "--http", metavar="HOST:PORT", help="TCP address of the HTTP door, the base URL of agents (http.listen)"
    )
    parser.add_argument("--socket", metavar="PATH", help="unix socket (server.socket)")
    parser.add_argument(
        "--ext-proc", metavar="HOST:PORT", help="external processor for Envoy; empty: none (envoy.listen)"
    )
    parser.add_argument("--preset", metavar="NAME", help="cache_first, lean, cap_only or fit_only (policy.preset)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="any other setting; may be given many times"
    )


def _settings(asked: argparse.Namespace) -> Settings:
    from prompt_sidecar.config.settings import SETTINGS, SettingsError, load, nearest

    flags: dict[str, str] = {}
    for item in asked.set:
        name, equals, value = item.partition("=")
        if not equals:
            raise _Refused(f"--set {item}: write --set NAME=VALUE{'' if name in SETTINGS else nearest(name)}")
        flags[name] = value
    named = (
        ("server.listen", asked.listen),
        ("server.socket", asked.socket),
        ("http.listen", asked.http),
        ("envoy.listen", asked.ext_proc),
        ("policy.preset", asked.preset),
    )
    flags.update({name: value for name, value in named if value is not None})
    try:
        return load(os.environ, config=asked.config, flags=flags)
    except SettingsError as error:
        raise _Refused("\n  ".join(["these settings cannot be used:", *error.problems])) from None


def _serve(asked: argparse.Namespace) -> int:
    settings = _settings(asked)
    with _start_errors():
        from prompt_sidecar.app import serve

        serve(settings)
    # All is said and sent by now. The interpreter's own end would free every object of every run one by one (26 s for
    # two thousand runs), and wait for threads that still work on calls nobody waits for.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_OK)


def _probe(asked: argparse.Namespace) -> int:
    address = asked.address or _own_address(asked)
    from prompt_sidecar.cli.probe import probe

    found = probe(address, asked.timeout)
    print(f"{address}: {found.words}", file=sys.stdout if found.answered else sys.stderr)
    return EXIT_OK if found.serves else EXIT_FAILED


def _own_address(asked: argparse.Namespace) -> str:
    """Where a server with these settings can be reached from its own machine."""
    server = _settings(asked).server
    if server.socket:
        return f"unix:{server.socket}"
    if server.tls_certificate:
        raise _Refused("the server speaks TLS on TCP; give it a unix socket too (server.socket) and probe that")
    host, _, port = server.listen.rpartition(":")
    return {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host) + ":" + port  # noqa: S104  # it is translated


def _presets(asked: argparse.Namespace) -> int:
    from prompt_sidecar.cli.preset_table import as_json, in_full, side_by_side
    from prompt_sidecar.errors import InvalidPolicy
    from prompt_sidecar.trim.presets import preset

    try:
        if asked.name:
            preset(asked.name)
    except InvalidPolicy as error:
        raise _Refused(error.message) from None
    print(as_json(asked.name) if asked.json else in_full(asked.name) if asked.name else side_by_side())
    return EXIT_OK


def _check_config(asked: argparse.Namespace) -> int:
    from prompt_sidecar.config.explain import report
    from prompt_sidecar.config.reference import example
    from prompt_sidecar.config.settings import table

    if asked.example:
        print(example(), end="")
        return EXIT_OK
    settings = _settings(asked)
    rows = table(settings)
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, source in rows:
        print(f"{name:<{widths[0]}} = {value:<{widths[1]}}  # {source}")
    # As comments, so that the whole can still be read as TOML.
    for line in ("", *report(settings)):
        print(f"# {line}".rstrip())
    return EXIT_OK


def _replay(asked: argparse.Namespace) -> int:
    from prompt_sidecar.cli.replay import ReplayError, ReplayFailed, read_limit
    from prompt_sidecar.cli.report.command import Files, ReportError
    from prompt_sidecar.cli.transcripts.model import TranscriptError
    from prompt_sidecar.cli.transcripts.reading import read_transcripts

    if not asked.runs and not asked.find:
        raise _Refused("replay needs a RUN: a transcript or a folder of them, or --find; see replay --help")
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
        raise _Refused(str(error)) from None
    except ReplayFailed as error:
        print(f"prompt-sidecar: {error}", file=sys.stderr)
        return EXIT_FAILED


def _replay_one(asked: argparse.Namespace, settings: Settings, limit: float, run: Transcript) -> int:
    from prompt_sidecar.cli.replay import Plan, replay, show
    from prompt_sidecar.cli.report.prices import RelativePrices
    from prompt_sidecar.guard.ceilings import Prices
    from prompt_sidecar.tokens.loading import lazy_counter
    from prompt_sidecar.tokens.models import known_window

    model = asked.model or run.model
    plan = Plan(
        run=run,
        limit=limit,
        preset=asked.preset or "",
        model=asked.model,
        timeout=asked.timeout,
        prices=RelativePrices(asked.price_cached, asked.price_written),
        money=Prices(_prices(asked, settings)).of(model),
        window=asked.window or known_window(model) or 0,
    )
    counter = lazy_counter(fast=settings.tokens.counter != "tiktoken", report=lambda _: None)
    with _server(asked.address, settings) as address:
        show(replay(plan, address), plan, counter, as_json=asked.json is not None, out=sys.stdout, progress=sys.stderr)
    return EXIT_OK


def _mcp(asked: argparse.Namespace) -> int:
    try:
        from prompt_sidecar.client.options import DEFAULT_TARGET, Tls
        from prompt_sidecar.mcp.options import McpOptions
        from prompt_sidecar.mcp.serving import run
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "prompt_sidecar":
            raise
        raise _Refused(f"this command needs the extra mcp ({error}): pip install '.[mcp]' in a checkout") from None
    files = (asked.tls_ca, asked.tls_key, asked.tls_certificate)
    try:
        ca, key, certificate = (Path(file).read_bytes() if file else None for file in files)
        run(
            McpOptions(
                target=asked.target or os.environ.get("PROMPT_SIDECAR_TARGET") or DEFAULT_TARGET,
                run=asked.run or os.environ.get("PROMPT_SIDECAR_RUN", ""),
                token=os.environ.get("PROMPT_SIDECAR_TOKEN", ""),
                tls=Tls(ca, key, certificate) if any(files) else None,
                listen=asked.listen,
                hosts=tuple(asked.allow_host),
            )
        )
    except (OSError, ValueError) as error:
        raise _Refused(str(error)) from None
    return EXIT_OK


def _report(asked: argparse.Namespace, settings: Settings, limit: float, files: Files) -> int:
    from pathlib import Path

    from prompt_sidecar.cli.report.command import Outputs, report
    from prompt_sidecar.cli.report.figures import Asked
    from prompt_sidecar.cli.report.prices import RelativePrices
    from prompt_sidecar.cli.report.work import Job
    from prompt_sidecar.trim.presets import PRESETS

    if asked.address is not None:
        raise _Refused("--address is for one run alone: a report is made in this process")
    if asked.json == "":
        raise _Refused("a report of several runs goes to a file: --json FILE")
    first = settings.preset
    wanted = Asked(
        limit=limit,
        presets=[first, *(name for name in PRESETS if name != first)],
        prices=RelativePrices(asked.price_cached, asked.price_written),
        money=_prices(asked, settings),
        model=asked.model,
        window=asked.window,
    )
    outputs = Outputs(Path(asked.html) if asked.html else None, Path(asked.json) if asked.json else None)
    try:
        whole = report(files, Job(wanted, settings, asked.format), outputs, sys.stdout, sys.stderr)
    except ImportError as error:
        if (error.name or "") not in {"jinja2", "vl_convert"}:
            raise
        raise _Refused(f"--html needs the extra `report` ({error}): {_INSTALL_REPORT}") from None
    return EXIT_OK if whole else EXIT_FAILED


def _prices(asked: argparse.Namespace, settings: Settings) -> Mapping[str, Price]:
    """Prices in a currency by model: those of the flag for all, else those of the settings."""
    from prompt_sidecar.guard.ceilings import ANY_MODEL

    return {ANY_MODEL: asked.prices} if asked.prices else settings.prices


def _guard(asked: argparse.Namespace) -> int:
    from prompt_sidecar.cli.guard_files import GuardError, chosen, list_rules, look

    settings = _settings(asked)
    try:
        rules = chosen(settings.guard, asked.only)
        if asked.rules:
            list_rules(rules, as_json=asked.json, out=sys.stdout)
            return EXIT_OK
        if not asked.files:
            raise _Refused("guard needs a FILE, - for the standard input, or --rules")
        found = look(rules, asked.files, as_json=asked.json, out=sys.stdout, progress=sys.stderr)
    except GuardError as error:
        raise _Refused(str(error)) from None
    return EXIT_FAILED if asked.fail and found else EXIT_OK


@contextlib.contextmanager
def _server(address: str | None, settings: Settings) -> Iterator[str]:
    """The address of a running server: the one given, or of one that lives as long as the context."""
    if address is not None:
        yield address
        return
    from prompt_sidecar.app import start
    from prompt_sidecar.http.options import HttpOptions

    here = replace(settings.server, listen="127.0.0.1:0", socket="", tls_certificate="", tls_key="", client_ca="")
    unwatched = replace(settings.telemetry, metrics_listen="", otlp_endpoint="")
    settings = replace(settings, envoy=replace(settings.envoy, listen=""))
    with _start_errors():
        server = start(replace(settings, server=replace(here, tokens_file=""), http=HttpOptions(), telemetry=unwatched))
    try:
        yield server.addresses[0]
    finally:
        server.stop(0)


@contextlib.contextmanager
def _start_errors() -> Iterator[None]:
    """Turn what keeps a server from starting into a message and exit code 2."""
    from prompt_sidecar.serving.starting import StartError
    from prompt_sidecar.serving.tokens import TokensError
    from prompt_sidecar.tokens.vocabulary import VocabularyError

    try:
        yield
    except (StartError, TokensError, VocabularyError) as error:
        raise _Refused(str(error)) from None


def _price(text: str) -> float:
    value = float(text)
    if not 0 <= value <= _HIGHEST_PRICE:
        raise ValueError(text)
    return value


def _money(text: str) -> Price:
    from prompt_sidecar.cli.report.prices import read_price

    return read_price(text)


def _window(text: str) -> int:
    value = int(text)
    if not 0 < value <= _LARGEST_WINDOW:
        raise ValueError(text)
    return value


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value <= _LONGEST_WAIT:
        raise ValueError(text)
    return value


class _Version(argparse.Action):
    """Prints the version; finding it takes a while, so it is looked up only here."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib import metadata

        try:
            version = metadata.version("prompt-sidecar")
        except metadata.PackageNotFoundError:
            version = "not installed as a package"
        print(f"prompt-sidecar {version}")
        parser.exit(EXIT_OK)
