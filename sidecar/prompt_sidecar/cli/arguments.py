"""The command line's arguments and help: commands, accepted values, and examples.

An invalid argument ends the program with one line that has the argument, the value and what would be accepted.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from prompt_sidecar.guard.ceilings import Price

PROGRAM: Final = "prompt-sidecar"
EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
"""The command ran with a negative result: not serving, or it could not do its work."""
EXIT_USAGE: Final = 2
"""The command cannot run: a bad flag, setting or file."""
EXIT_INTERRUPTED: Final = 130
"""Ctrl-C: 128 plus the signal's number, as shells do."""

_HIGHEST_PRICE: Final = 1_000.0
"""Highest price of plain input tokens; a price of a million tokens instead of one is a mistake."""
_LONGEST_WAIT: Final = 86_400.0
_LARGEST_WINDOW: Final = 100_000_000

_SOURCES: Final = """\
A setting comes from, the last one winning: its default; the TOML file of --config or PROMPT_SIDECAR_CONFIG; the
environment (PROMPT_SIDECAR_ and the setting's name in capitals, with two underscores for the dot:
PROMPT_SIDECAR_LIMITS__TIME_TO_LIVE=2h); the command line. `check-config --example` explains every setting.
"""
_CODES: Final = "exit codes: 0 done, 1 failed or not serving, 2 bad flag, setting or file, 130 Ctrl-C\n"
_EXAMPLES: Final = f"""\
examples:
  prompt-sidecar wrap claude
      try it: Claude Code behind a sidecar of its own, in this terminal, and what that saved
  prompt-sidecar serve --http 127.0.0.1:7780
      be a proxy for providers too: an agent sets OPENAI_BASE_URL=http://127.0.0.1:7780/v1 or
      ANTHROPIC_BASE_URL=http://127.0.0.1:7780, and nothing else (Codex: openai_base_url in its config.toml)
  prompt-sidecar probe
      ask the server that runs with these settings whether it serves
  prompt-sidecar doctor --http 127.0.0.1:7780
      see what keeps agents from it, or it from its work
  prompt-sidecar check-config --example > prompt-sidecar.toml
      write a settings file with every setting, its default and what it is for; use it with --config
  prompt-sidecar presets
      see what each preset is for, and its knobs side by side
  prompt-sidecar models gpt-5 our-deployment
      see which window the sidecar takes these models to have, and from where it is known
  prompt-sidecar replay --find --html report.html
      see what trimming would save in your sessions of Claude Code and Codex, on one page
  prompt-sidecar mcp --run run-1
      give the tools to a model in an MCP host, over stdio
  prompt-sidecar guard transcripts/*.jsonl.gz
      see in which lines of transcripts or logs the guard finds secrets, personal data and look-alikes

`prompt-sidecar COMMAND --help` has more examples, and all flags with their defaults.
{_CODES}"""

_SERVE: Final = """\
Runs the server until SIGTERM or Ctrl-C, and logs on stderr; "ready" is logged once it serves. SIGHUP has it read tokens
and TLS files again. What keeps it from starting is one line, with exit code 2.
"""
_SERVE_EXAMPLES: Final = f"""\
examples:
  prompt-sidecar serve
      gRPC on 127.0.0.1:7717, metrics on 127.0.0.1:9464
  prompt-sidecar serve --http 127.0.0.1:7780
      a proxy for providers too: an agent sets OPENAI_BASE_URL=http://127.0.0.1:7780/v1 or
      ANTHROPIC_BASE_URL=http://127.0.0.1:7780, and nothing else (Codex: openai_base_url in its config.toml)
  prompt-sidecar serve --socket /run/agent/sidecar.sock --listen ''
      a unix socket only
  prompt-sidecar serve --set limits.time_to_live=2h --set policy.cap_text_bytes=32KiB
      with single settings changed

{_SOURCES}exit codes: 0 it was stopped, 2 bad flag, setting or file, or an address is taken
"""
_WRAP: Final = """\
Runs an agent behind a sidecar of its own, in this terminal: starts one on a free port of loopback, tells the agent in
its own way to call it, and says at the end what was saved, recalled and found. Nothing is left running. The agent's
exit code is kept. It knows claude, codex, opencode, gemini, qwen and aider; any other program is given the variables of
all base URLs. A base URL that is set already is where the sidecar sends requests on.
"""
_WRAP_EXAMPLES: Final = f"""\
examples:
  prompt-sidecar wrap claude
      Claude Code as usual, in this terminal
  prompt-sidecar wrap codex -- exec 'Fix the failing test'
      what comes after -- is the agent's own
  prompt-sidecar wrap --set guard.mode=enforce --log sidecar.log python -- agent.py
      a program of your own, with a setting changed

The settings are the usual ones, but for addresses, tokens and TLS: the sidecar listens on loopback alone.
{_SOURCES}exit codes: 0 and others: the agent's; 128 and the number of a signal; 2 bad flag, setting or program
"""
_PROBE: Final = """\
Asks a running server for its health over gRPC, without TLS. Without --address it is the server that has the same
settings, on this machine: its unix socket if it has one, else its TCP address.
"""
_PROBE_EXAMPLES: Final = f"""\
examples:
  prompt-sidecar probe
      the server on 127.0.0.1:7717
  prompt-sidecar probe --address unix:/run/agent/sidecar.sock --timeout 0.5
      a server on a unix socket, which has half a second to answer

{_SOURCES}exit codes: 0 it serves, 1 it does not, or does not answer, 2 bad flag, setting or address
"""
_DOCTOR: Final = """\
Says what is wrong between agents and a running sidecar, in a sentence each, with what to do: its doors and readiness,
its version and clock, what its metrics show, providers, store and collector, and the variables that agents started here
would have. Give it the settings that the sidecar runs with. Nothing is sent to a provider: a connection to its port is
all.
"""
_DOCTOR_EXAMPLES: Final = f"""\
examples:
  prompt-sidecar doctor --http 127.0.0.1:7780
      the sidecar that was started with serve --http 127.0.0.1:7780
  prompt-sidecar doctor --config prompt-sidecar.toml --json
      the same for programs: a list of level (ok, note, problem), about, found and advice

{_SOURCES}exit codes: 0 no problem, 1 a problem, 2 bad flag or setting
"""
_PRESETS_EXAMPLES: Final = """\
examples:
  prompt-sidecar presets
      all presets side by side
  prompt-sidecar presets lean
      what lean is for, and the reason of every value
  prompt-sidecar presets lean --json
      the same for programs
exit codes: 0 done, 2 no such preset
"""
_MODELS: Final = """\
Shows what is known of the models that agents call by these names (window, most input, most output, vocabulary, list
price), and from where: a row of the catalogue, or a table [models."NAME"] of the settings. Without a NAME it says how
many there are, and when and from what the catalogue was built. Nothing is asked of a provider. Costs go by [prices] in
the settings; the list prices are shown alone.
"""
_MODELS_EXAMPLES: Final = f"""\
examples:
  prompt-sidecar models openrouter/anthropic/claude-sonnet-4.5 azure/gpt-5 'claude-sonnet-4-5[1m]'
      names as agents send them
  prompt-sidecar models our-deployment --config prompt-sidecar.toml
      what a table [models."our-deployment"] of a settings file makes of it
  prompt-sidecar models gpt-5 --json
      the same for programs

{_SOURCES}exit codes: 0 all names are known, 1 one is not, 2 bad flag, setting or file
"""
_CHECK: Final = """\
Prints the settings in force as TOML, each with its source; then, as comments, what the policy does to a prompt,
warnings, and how old the catalogue of models is. Secrets are not shown. What `serve` would refuse is told, a line each:
settings; and once these can be used, files, folders and extras that they need on this machine. Only whether an address
is free shows at the start.
"""
_CHECK_EXAMPLES: Final = f"""\
examples:
  prompt-sidecar check-config --config prompt-sidecar.toml
      before a restart: can this file be used?
  prompt-sidecar check-config --preset lean
      what a preset does to a prompt in plain words, and what makes little sense together
  prompt-sidecar check-config --example > prompt-sidecar.toml
      a settings file with every setting, its default and what it is for

{_SOURCES}exit codes: 0 the settings can be used, 2 they cannot
"""
_REPLAY: Final = """\
Sends recorded runs through the sidecar and shows what trimming does and saves. RUN is a transcript, or a folder of
them: a session file of Claude Code or Codex, a log of requests to OpenAI, Anthropic and others (JSONL of bodies, or of
pairs with the answers), the AI SDK's messages, or {"format": …, "messages": […]}; gzipped or not. One run alone is sent
through a server of its own, and shown turn by turn. With --html, --json FILE, --find, a folder or several runs, a
report is made of all of them. No model is called, and nothing leaves the machine.
"""
_REPLAY_EXAMPLES: Final = f"""\
examples:
  prompt-sidecar replay --find --html report.html
      your sessions of Claude Code and Codex, on one page
  prompt-sidecar replay run.json.gz --limit 30%
      one run, turn by turn
  prompt-sidecar replay sessions/ --html report.html --json report.json --limit 100000
      a folder, as a page and as figures

{_SOURCES}exit codes: 0 done, 1 a file or a call failed, 2 bad flag, setting or file
"""
_MCP: Final = """\
Serves the sidecar's tools (recall, search, tasks) to a host of the Model Context Protocol, and relays each call to the
sidecar over gRPC. Over stdio the run comes from --run or PROMPT_SIDECAR_RUN, the credential from PROMPT_SIDECAR_TOKEN;
over HTTP both come from the request's headers x-prompt-sidecar-run and authorization.
"""
_MCP_EXAMPLES: Final = """\
examples:
  prompt-sidecar mcp --run run-1
      as a host starts it: requests on stdin, answers on stdout
  prompt-sidecar mcp --listen 127.0.0.1:7790
      one process for several hosts, at http://127.0.0.1:7790/mcp
exit codes: 0 the host has ended it, 2 bad flag or file, or the address is taken
"""
_GUARD: Final = """\
Looks for secrets, personal data and look-alikes in transcripts, logs and other files: plain text, JSON or JSON lines,
gzipped or not; - is the standard input. Prints file, line, rule, and what is done about such a find where guard.mode
is enforce; never what was found. Rules and actions are those of the settings.
"""
_GUARD_EXAMPLES: Final = f"""\
examples:
  prompt-sidecar guard ~/.agent/sessions/*.jsonl
      every line with a find, and a summary by rule
  prompt-sidecar guard --only secrets --fail build.log
      for a check in continuous integration: exit code 1 if a secret is in the log
  kubectl logs agent | prompt-sidecar guard -
      what an agent has printed
  prompt-sidecar guard --set guard.actions=email=mask --rules
      the rules and what they do, with a changed action

{_SOURCES}exit codes: 0 done, 1 something was found and --fail was given, 2 bad flag, setting or file
"""
_CONDENSE: Final = """\
Prints what would be sent of a tool result that is seen for the first time, and on stderr what each reduction took and
whether that can be read back from the text. FILE holds the result; - is the standard input. No setting is read.
"""
_CONDENSE_EXAMPLES: Final = """\
examples:
  prompt-sidecar condense build.log --tool bash --arguments '{"command": "make"}' --level safe
      the output of a command, with the tests that passed counted
  gh pr list --json number,title | prompt-sidecar condense - --tool list_pull_requests
      what a tool answers in JSON
exit codes: 0 done, changed or not, 1 the file cannot be read, 2 bad flag
"""


SHORT: Final[Mapping[str, tuple[str, str, str]]] = {
    "--listen": ("server.listen", "HOST:PORT", "TCP address; empty: none (server.listen; default: 127.0.0.1:7717)"),
    "--http": (
        "http.listen",
        "HOST:PORT",
        "TCP address of the HTTP door, the base URL of agents (http.listen; default: none)",
    ),
    "--socket": ("server.socket", "PATH", "unix socket (server.socket; default: none)"),
    "--ext-proc": ("envoy.listen", "HOST:PORT", "external processor for Envoy (envoy.listen; default: none)"),
    "--metrics": (
        "telemetry.metrics_listen",
        "HOST:PORT",
        "TCP address of /metrics; empty: none (telemetry.metrics_listen; default: 127.0.0.1:9464)",
    ),
    "--preset": (
        "policy.preset",
        "NAME",
        "cache_first, lean, cap_only or fit_only (policy.preset; default: cache_first)",
    ),
}
"""Settings with their own flag: its name, its argument, and its purpose."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line each."""

    def error(self, message: str) -> NoReturn:
        """End the program with an error: the arguments are invalid."""
        self.exit(EXIT_USAGE, f"{PROGRAM}: {message}; see {self.prog} --help\n")


WRAP: Final = "wrap"
_END: Final = "--"


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the arguments, by default those of the process; `command` is the command's name.

    Raises:
        SystemExit: help or version was requested, or the arguments are invalid.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] != [WRAP]:
        return _parser().parse_args(words)
    end = words.index(_END) if _END in words else len(words)
    parser = _parser()
    asked, unread = parser.parse_known_args(words[:end])
    if not asked.agent:
        parser.error(f"{WRAP} needs an AGENT, as in {PROGRAM} {WRAP} claude")
    if strays := [*asked.strays, *unread]:
        own = shlex.join([asked.agent, _END, *strays, *words[end + 1 :]])
        parser.error(f"{strays[0]}: what is the agent's own comes after --, as in {PROGRAM} {WRAP} {own}")
    asked.arguments = words[end + 1 :]
    return asked


def _parser() -> Parser:
    parser = Parser(
        prog=PROGRAM,
        description="Trims an LLM agent's outgoing prompts so that they fit, and keeps what it took out within reach.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and stop")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", dest="command")

    def command(name: str, what: str, description: str, examples: str) -> Parser:
        return commands.add_parser(
            name,
            help=what,
            description=description,
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    _add_settings(command("serve", "run the server until SIGTERM or Ctrl-C", _SERVE, _SERVE_EXAMPLES))
    _add_wrap(command(WRAP, "run an agent behind a sidecar of its own, in this terminal", _WRAP, _WRAP_EXAMPLES))
    _add_probe(
        command("probe", "ask a running server whether it serves; exit code 0 or 1", _PROBE, _PROBE_EXAMPLES),
    )
    doctor = command("doctor", "say what is wrong between agents and a running sidecar", _DOCTOR, _DOCTOR_EXAMPLES)
    doctor.add_argument("--json", action="store_true", help="print a JSON array")
    _add_settings(doctor)
    what = "show what each preset is for, and its knobs side by side"
    _add_presets(
        command(
            "presets",
            what,
            "Shows what each preset is for, and its knobs side by side; or one of them with all its reasons.",
            _PRESETS_EXAMPLES,
        )
    )
    what = "show what is known of models: windows, and from where"
    _add_models(command("models", what, _MODELS, _MODELS_EXAMPLES))
    what = "say whether settings can be used, which are in force, and what the policy does"
    check = command("check-config", what, _CHECK, _CHECK_EXAMPLES)
    check.add_argument("--example", action="store_true", help="print a settings file that explains every setting")
    check.add_argument(
        "--no-files",
        action="store_true",
        help="do not look at files, folders and extras that the settings need, as for settings of another machine",
    )
    _add_settings(check)
    what = "send recorded runs through the sidecar, and show what trimming does and saves"
    _add_replay(command("replay", what, _REPLAY, _REPLAY_EXAMPLES))
    _add_mcp(command("mcp", "serve the model's tools over the Model Context Protocol", _MCP, _MCP_EXAMPLES))
    what = "show what the guard's rules find in files: line and rule, never the value"
    _add_guard(command("guard", what, _GUARD, _GUARD_EXAMPLES))
    what = "show what condensing makes of a tool result, and what cannot be read back"
    _add_condense(command("condense", what, _CONDENSE, _CONDENSE_EXAMPLES))
    return parser


def _add_settings(parser: Parser) -> None:
    """Add the flags of the settings; the help of those with a short form has their defaults."""
    group = parser.add_argument_group("settings")
    group.add_argument("--config", metavar="FILE", help="TOML file of settings (also PROMPT_SIDECAR_CONFIG)")
    for flag, (_, metavar, what) in SHORT.items():
        group.add_argument(flag, metavar=metavar, help=what)
    group.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="any other setting; may be given many times"
    )


def _add_probe(probe: Parser) -> None:
    probe.add_argument(
        "--address",
        type=_address,
        help="host:port or unix:/path; without it, the address that the settings say, the socket first",
    )
    probe.add_argument("--timeout", type=_wait, default=2.0, metavar="SECONDS", help="wait this long (default: 2)")
    _add_settings(probe)


def _add_wrap(wrap: Parser) -> None:
    wrap.usage = f"{PROGRAM} {WRAP} [flags] AGENT [-- ARGUMENT ...]"
    wrap.add_argument(
        "agent", nargs="?", default="", metavar="AGENT", help="the agent's program, by its name on the PATH or its file"
    )
    wrap.add_argument("strays", nargs="*", help=argparse.SUPPRESS)
    wrap.add_argument(
        "--log", default="", metavar="FILE", help="where the sidecar logs, at its end (default: a new temporary file)"
    )
    _add_settings(wrap)


def _add_presets(presets: Parser) -> None:
    presets.add_argument(
        "name", nargs="?", default="", metavar="NAME", help="a preset, to have the reason of every value"
    )
    presets.add_argument("--json", action="store_true", help="print a JSON object")


def _add_models(models: Parser) -> None:
    models.add_argument("names", nargs="*", metavar="NAME", help="a model's name, as an agent sends it")
    models.add_argument("--json", action="store_true", help="print a JSON object")
    _add_settings(models)


def _add_replay(replay: Parser) -> None:
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
    replay.add_argument(
        "--address",
        type=_address,
        help="a running server, host:port or unix:/path; without it, one is started. Not for a report",
    )
    replay.add_argument(
        "--limit",
        default="window",
        help="tokens that a prompt may have, or a share such as 30%% of what the run's largest prompt has above system "
        "text and tools (default: window, all that the model takes; 30%% where that is not known)",
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
        help="the messages' format, if the file does not say and it cannot be seen: openai_chat, gemini_contents "
        "and so on",
    )
    replay.add_argument(
        "--model", default="", help="the model, where the file names none; it chooses the vocabulary and the prices"
    )
    replay.add_argument("--timeout", type=_wait, default=60.0, metavar="SECONDS", help="of one call (default: 60)")
    replay.add_argument(
        "--prices",
        type=_money,
        metavar="INPUT,CACHED,WRITTEN,OUTPUT",
        help="of a million tokens in a currency of yours; CACHED and WRITTEN may be empty, for INPUT (default: the "
        'settings table [prices."MODEL"], else the list prices of the catalogue in USD)',
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
    _add_settings(replay)


def _add_mcp(parser: Parser) -> None:
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


def _add_guard(guard: Parser) -> None:
    guard.add_argument("files", nargs="*", metavar="FILE", help="a file to look through; - is the standard input")
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
    _add_settings(guard)


def _add_condense(condense: Parser) -> None:
    condense.add_argument("file", metavar="FILE", help="the result; - is the standard input")
    condense.add_argument(
        "--tool", metavar="NAME", help="the tool (default: not known, as where the call is not there)"
    )
    condense.add_argument("--arguments", default="{}", metavar="JSON", help="the call's arguments (default: none)")
    condense.add_argument(
        "--level", choices=("exact", "safe", "full"), default="exact", help="how much may go (default: exact)"
    )
    condense.add_argument(
        "--fetch-tool",
        action="append",
        default=[],
        metavar="NAME",
        help="a tool whose results are pages; may be given many times",
    )


def _number(text: str, read: Callable[[str], float], accepted: str, within: Callable[[float], bool]) -> float:
    try:
        value = read(text)
    except ValueError:
        value = math.nan
    if not within(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not {accepted}")
    return value


def _wait(text: str) -> float:
    accepted = f"a time in seconds, above 0 and up to {_LONGEST_WAIT:,.0f}"
    return _number(text, float, accepted, lambda value: 0 < value <= _LONGEST_WAIT)


def _price(text: str) -> float:
    accepted = f"a price in plain input tokens from 0 to {_HIGHEST_PRICE:,.0f}"
    return _number(text, float, accepted, lambda value: 0 <= value <= _HIGHEST_PRICE)


def _window(text: str) -> int:
    accepted = f"a whole number of tokens from 1 to {_LARGEST_WINDOW:,}"
    return int(_number(text, int, accepted, lambda value: 0 < value <= _LARGEST_WINDOW))


def _address(text: str) -> str:
    """Return an address in gRPC's spelling."""
    from prompt_sidecar.values import split_address

    if text.startswith("unix:") and text != "unix:":
        return text
    try:
        split_address(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not host:port, such as 127.0.0.1:7717, or unix:/path") from None
    return text


def _money(text: str) -> Price:
    from prompt_sidecar.report.prices import HIGHEST, read_price

    try:
        return read_price(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not four prices of a million tokens from 0 to {HIGHEST:,.0f}, such as 3,0.3,3.75,15"
        ) from None


class _Version(argparse.Action):
    """Prints the version; looking it up is slow, so it is done only here."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib import metadata

        try:
            version = metadata.version("prompt-sidecar")
        except metadata.PackageNotFoundError:
            version = "not installed as a package"
        print(f"{PROGRAM} {version}")
        parser.exit(EXIT_OK)
