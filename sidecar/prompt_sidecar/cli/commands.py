"""The command line: serve, probe, presets, check-config, replay.

Each command imports what it needs when it runs: `probe` is started every few seconds by some orchestrators, and must
not pay for the tokenizer.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prompt_sidecar.config.settings import Settings

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
_INSTALL = "pip install '.[server]' in a checkout of prompt-sidecar"
"""Without the extra there is the client alone. It is on no package index yet."""

_EXAMPLES = """\
examples:
  prompt-sidecar serve
      listen on 127.0.0.1:7717 with the defaults
  prompt-sidecar serve --socket /run/agent/sidecar.sock --listen ''
      listen on a unix socket only
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

A setting comes from, the last one winning: its default, the file of --config or PROMPT_SIDECAR_CONFIG, the environment
(PROMPT_SIDECAR_ and the setting's name in capitals, with two underscores for the dot), the command line.
exit codes: 0 done, 1 failed or not serving, 2 bad flag, setting or file
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
        help="send a recorded run through a server, turn by turn, and show what trimming does",
        description=(
            'FILE holds {"format": …, "messages": […]}, or a bare array of messages; JSON, gzipped or not. The prompt '
            "of a turn is the messages before an assistant message; the last turn sends them all."
        ),
    )
    _add_settings(replay)
    replay.add_argument("file", metavar="FILE")
    replay.add_argument("--address", help="a running server; without it, one is started for the replay")
    replay.add_argument(
        "--limit",
        default="30%",
        help="tokens that a prompt may have, or a share of the run's last prompt (default: 30%%)",
    )
    replay.add_argument(
        "--format",
        help="the messages' format, if the file does not say and it cannot be seen: openai_chat, gemini and so on",
    )
    replay.add_argument("--model", default="", help="the model that the prompts are for; it chooses the vocabulary")
    replay.add_argument("--timeout", type=_positive, default=60.0, metavar="SECONDS", help="of one call (default: 60)")
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
    replay.add_argument("--json", action="store_true", help="print one JSON object a turn, and one for the whole")
    replay.set_defaults(command=_replay)
    return parser


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings (also PROMPT_SIDECAR_CONFIG)")
    parser.add_argument("--listen", metavar="HOST:PORT", help="TCP address; empty: none (server.listen)")
    parser.add_argument("--socket", metavar="PATH", help="unix socket (server.socket)")
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
    named = (("server.listen", asked.listen), ("server.socket", asked.socket), ("policy.preset", asked.preset))
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
    from prompt_sidecar.cli.replay import Plan, Prices, ReplayError, ReplayFailed, read_limit, read_run, replay, show

    settings = _settings(asked)
    try:
        run = read_run(asked.file, asked.format)
        plan = Plan(run, read_limit(asked.limit), asked.preset or "", asked.model, asked.timeout)
        with _server(asked.address, settings) as address:
            turns, prices = replay(plan, address), Prices(asked.price_cached, asked.price_written)
            show(turns, len(run.prompts), prices, as_json=asked.json, out=sys.stdout, progress=sys.stderr)
    except ReplayError as error:
        raise _Refused(str(error)) from None
    except ReplayFailed as error:
        print(f"prompt-sidecar: {error}", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


@contextlib.contextmanager
def _server(address: str | None, settings: Settings) -> Iterator[str]:
    """The address of a running server: the one given, or of one that lives as long as the context."""
    if address is not None:
        yield address
        return
    from prompt_sidecar.app import start

    here = replace(settings.server, listen="127.0.0.1:0", socket="", tls_certificate="", tls_key="", client_ca="")
    unwatched = replace(settings.telemetry, metrics_listen="")
    with _start_errors():
        server = start(replace(settings, server=replace(here, tokens_file=""), telemetry=unwatched))
    try:
        yield server.addresses[0]
    finally:
        server.stop(0)


@contextlib.contextmanager
def _start_errors() -> Iterator[None]:
    """Turn what keeps a server from starting into a message and exit code 2."""
    from prompt_sidecar.server.callers import TokensError
    from prompt_sidecar.server.identity import StartError
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
