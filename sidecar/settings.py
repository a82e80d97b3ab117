"""Every setting: its default, the reason for it, and what is accepted; read from a file, the environment and flags.

A setting has one name, such as `server.listen`. In the TOML file it is the key `listen` of the table `[server]`, in the
environment `PROMPT_SIDECAR_SERVER__LISTEN`, on the command line `--set server.listen=…`. A later source wins: default,
file, environment, flag. A source that names no setting, or gives one a value that it cannot have, stops the start with
a message that says so; all such faults are reported at once.

Names and defaults come from the structs that the parts take: ServerOptions, Limits, Policy. The tables below add what a
source may say and one line on what it is for, so that messages, the example file and `check-config` say the same.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from sidecar.errors import InvalidPolicy
from sidecar.run.limits import Limits
from sidecar.server.options import ServerOptions, is_loopback
from sidecar.setting_readers import (
    GIB,
    KIB,
    MIB,
    Reader,
    address,
    byte_count,
    choice,
    number,
    seconds,
    secret,
    text,
    whole,
)
from sidecar.trim.policy import BOUNDS, DEFAULT_PRESET, PRESETS, FitStage, NotePlace, Policy, preset

PREFIX = "PROMPT_SIDECAR_"
CONFIG_VARIABLE = PREFIX + "CONFIG"
_NOT_SETTINGS = frozenset({CONFIG_VARIABLE, PREFIX + "DATA"})
"""Variables with the prefix that are no settings: the file's own, and the one that the tests find their data with."""
_KUBERNETES = re.compile(PREFIX + r"(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
"""Kubernetes sets these in every pod beside a Service that is named prompt-sidecar; they are not ours to judge."""


class SettingsError(Exception):
    """The settings cannot be used; `problems` has one line for each fault. No secret is ever in them."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def _setting(default: object, reader: Reader, reason: str) -> Any:
    return field(default=default, metadata={"reader": reader, "reason": reason})


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How the server logs, on stderr. Never text of a prompt."""

    format: str = _setting("text", choice("text", "json"), "One line for each event, for people or for machines.")
    level: str = _setting("info", choice("debug", "info", "warning", "error"), "The least severe event that is logged.")


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """How tokens are counted."""

    counter: str = _setting(
        "auto",
        choice("auto", "tiktoken"),
        "auto: long texts by the extra `fast`, where it is installed and counts as tiktoken does. The same for all "
        "replicas.",
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, read and checked."""

    key: bytes = _setting(
        b"",
        secret(),
        "Secret from which stash ids and revisions are made, the same for all replicas. Empty: random for the process, "
        "and ids change over a restart.",
    )
    server: ServerOptions = field(default_factory=ServerOptions)
    log: LogSettings = field(default_factory=LogSettings)
    tokens: TokenSettings = field(default_factory=TokenSettings)
    limits: Limits = field(default_factory=Limits)
    preset: str = DEFAULT_PRESET
    policy_overrides: Mapping[str, object] = field(default_factory=dict)
    """The policy's fields that a source sets, over the preset."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Setting name → where its value comes from, for those that are not at their default."""

    @property
    def policy(self) -> Policy:
        """The configured policy: the preset with its overrides."""
        return preset(self.preset).override(self.policy_overrides)


@dataclass(frozen=True, slots=True)
class Row:
    """One setting as the sources and the messages see it."""

    name: str
    default: object
    reader: Reader
    reason: str

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return PREFIX + self.name.upper().replace(".", "__")


_SERVER: Mapping[str, tuple[Reader, str]] = {
    "listen": (address(), "TCP address; empty: none; port 0: a free one. Beyond loopback it needs authentication."),
    "socket": (text(107), "Path of a unix socket, mode 0600; empty: none. 107 bytes is what Linux allows."),
    "workers": (whole(1, 256), "Threads that run calls."),
    "max_calls": (whole(1, 100_000), "Calls running or waiting; past it a call is refused."),
    "max_message_bytes": (byte_count(1 * KIB, 2 * GIB - 1), "Bytes of one request or answer."),
    "grace": (seconds(0, 3_600), "How long calls in flight get to finish at a stop."),
    "sweep_interval": (seconds(0.01, 3_600), "Time between slices of housekeeping."),
    "tls_certificate": (text(4_096), "File of the server's certificate chain, PEM; empty: no TLS."),
    "tls_key": (text(4_096), "File of the certificate's private key, PEM."),
    "client_ca": (text(4_096), "File of the authorities that clients' certificates must come from, PEM; empty: none."),
    "tokens_file": (text(4_096), "File of bearer tokens, one name:token a line, mode 0600; empty: none."),
}

_LIMITS: Mapping[str, tuple[Reader, str]] = {
    "stash_bytes": (byte_count(1 * MIB, 1024 * GIB), "Originals of all runs together, as held; fits a small pod."),
    "run_stash_bytes": (byte_count(64 * KIB, 1024 * GIB), "Originals of one run, as held; at most stash_bytes."),
    "time_to_live": (seconds(1, 30 * 86_400), "How long an original is kept after it was last received or retrieved."),
    "runs": (whole(1, 10_000_000), "Runs remembered; past it the one idle for longest is forgotten."),
    "run_messages": (whole(10, 10_000_000), "Messages in one prompt."),
    "page_tokens": (whole(100, 1_000_000), "Tokens of one page of a retrieval."),
    "default_window": (whole(256, 100_000_000), "Tokens of a window where neither the agent nor the model tells."),
    "run_items": (whole(10, 10_000_000), "Items in one prompt."),
    "memory_bytes": (byte_count(MIB, 1024 * GIB), "What all runs keep beside the originals, estimated."),
    "revision_bytes": (byte_count(0, 64 * MIB), "Bytes of a revision; past it the state is left out."),
}

_POLICY: Mapping[str, str] = {
    "fit_stage": "What happens above the high-water mark.",
    "cap_text_bytes": "Text of one tool result before it is elided at first sight.",
    "cap_media_bytes": "Encoded images in one tool result.",
    "cap_head_share": "Share of a capped result's kept bytes that goes to its head.",
    "age_keep_iterations": "Newest iterations that are not clipped.",
    "fit_high": "High-water mark, a share of the limit.",
    "fit_low": "Low-water mark, a share of the limit.",
    "fit_head_share": "As cap_head_share, for results elided to fit.",
    "fit_residue_high": "Share of the limit that the remains of clipped iterations may take.",
    "fit_residue_low": "Share of the limit that dropping old iterations goes down to.",
    "own_text_max_tokens": "Room for the sidecar's own text; 4 % of the limit is the other bound.",
    "note_max_tokens": "Tokens that the note may take.",
    "note_place": "Where the note stands.",
    "registry_share": "Share of the limit that the registry may take.",
}


def _policy_reader(name: str) -> Reader:
    if name in BOUNDS:
        low, high = BOUNDS[name]
        if name.endswith("_bytes"):
            return byte_count(int(low), int(high))
        return whole(low, int(high)) if isinstance(low, int) else number(low, high)
    return choice(*(FitStage if name == "fit_stage" else NotePlace))


def _rows() -> Iterator[Row]:
    for struct, prefix in ((Settings, ""), (LogSettings, "log."), (TokenSettings, "tokens.")):
        for entry in fields(struct):
            if "reader" in entry.metadata:
                yield Row(prefix + entry.name, entry.default, entry.metadata["reader"], entry.metadata["reason"])
    for prefix, core, table in (("server.", ServerOptions, _SERVER), ("limits.", Limits, _LIMITS)):
        for entry in fields(core):
            reader, reason = table[entry.name]
            yield Row(prefix + entry.name, entry.default, reader, reason)
    yield Row("policy.preset", DEFAULT_PRESET, choice(*PRESETS), "The values that the other policy fields start from.")
    for entry in fields(Policy):
        yield Row("policy." + entry.name, None, _policy_reader(entry.name), _POLICY[entry.name])


ROWS: Mapping[str, Row] = {row.name: row for row in _rows()}
"""Every setting by name. The default of a policy field is None: the preset's."""


def load(
    environment: Mapping[str, str], *, config: str | None = None, flags: Mapping[str, str] | None = None
) -> Settings:
    """Read the settings from their defaults, a file, the environment and flags, each overriding those before it.

    Args:
        environment: the process's variables.
        config: path of the TOML file; None: the one that PROMPT_SIDECAR_CONFIG names, if any.
        flags: setting name → text, from the command line.

    Raises:
        SettingsError: a source names no setting, a value is not accepted, or settings do not go together.
    """
    problems: list[str] = []
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    path = config if config is not None else environment.get(CONFIG_VARIABLE, "")
    given = [*_from_file(path, problems)] if path else []
    given += [*_from_environment(environment, problems), *_from_flags(flags or {}, problems)]
    for row, shown, value in given:
        try:
            values[row.name] = row.reader.read(value)
            sources[row.name] = shown
        except ValueError:
            said = "" if row.reader.secret else f" is {json.dumps(value, default=str)};"
            problems.append(f"{shown}{said or ' is not usable;'} it may be {row.reader.accepted}")
    settings = _build(values, sources, problems)
    if settings is None or problems:
        raise SettingsError(problems)
    return settings


def _from_file(path: str, problems: list[str]) -> Iterator[tuple[Row, str, object]]:
    try:
        tree = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        problems.append(f"the settings file {path} cannot be read: {error.strerror}")
        return
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        where = error if isinstance(error, tomllib.TOMLDecodeError) else "it is not UTF-8"
        problems.append(f"the settings file {path} is not TOML: {where}")
        return
    for name, value in _leaves(tree, ""):
        if name in ROWS:
            yield ROWS[name], f"{name} in {path}", value
        else:
            problems.append(f"{name} in {path} is not a setting{_nearest(name, ROWS)}")


def _leaves(tree: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _from_environment(environment: Mapping[str, str], problems: list[str]) -> Iterator[tuple[Row, str, object]]:
    variables = {row.variable: row for row in ROWS.values()}
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name in _NOT_SETTINGS or _KUBERNETES.fullmatch(name):
            continue
        if name in variables:
            yield variables[name], name, environment[name]
        else:
            problems.append(f"{name} is not a setting's variable{_nearest(name, variables)}")


def _from_flags(flags: Mapping[str, str], problems: list[str]) -> Iterator[tuple[Row, str, object]]:
    for name, value in flags.items():
        if name not in ROWS:
            problems.append(f"--set {name} is not a setting{_nearest(name, ROWS)}")
        elif ROWS[name].reader.secret:
            problems.append(f"--set {name} would show a secret to every process; set {ROWS[name].variable} instead")
        else:
            yield ROWS[name], f"--set {name}", value


def _nearest(name: str, known: Mapping[str, object]) -> str:
    plain = {other.removeprefix(PREFIX): other for other in known}
    close = difflib.get_close_matches(name.removeprefix(PREFIX), plain, n=1, cutoff=0.7)
    return f"; did you mean {plain[close[0]]}?" if close else "; `check-config --example` lists all"


def _build(values: Mapping[str, object], sources: Mapping[str, str], problems: list[str]) -> Settings | None:
    def table(prefix: str) -> dict[str, Any]:
        return {name[len(prefix) :]: value for name, value in values.items() if name.startswith(prefix)}

    policy = table("policy.")
    chosen = str(policy.pop("preset", DEFAULT_PRESET))
    settings = Settings(
        key=hashlib.sha256(str(values["key"]).encode()).digest() if values.get("key") else b"",
        server=ServerOptions(**table("server.")),
        log=LogSettings(**table("log.")),
        tokens=TokenSettings(**table("tokens.")),
        limits=Limits(**table("limits.")),
        preset=chosen,
        policy_overrides=policy,
        sources=sources,
    )
    problems.extend(_conflicts(settings))
    return settings


def _conflicts(settings: Settings) -> Iterator[str]:
    """What no setting says by itself, but two together."""
    server = settings.server
    if not server.listen and not server.socket:
        yield "server.listen and server.socket are both empty; set at least one of them"
    if bool(server.tls_certificate) != bool(server.tls_key):
        yield "server.tls_certificate and server.tls_key belong together; set both, or none"
    if server.client_ca and not server.tls_certificate:
        yield "server.client_ca needs server.tls_certificate and server.tls_key: clients prove themselves in TLS"
    if server.listen and not is_loopback(server.listen) and not (server.client_ca or server.tokens_file):
        yield (
            f"server.listen is {server.listen}, which other machines can reach, and nobody is authenticated; "
            "set server.client_ca (with TLS) or server.tokens_file, or listen on 127.0.0.1 or a unix socket"
        )
    if settings.limits.run_stash_bytes > settings.limits.stash_bytes:
        yield (
            f"limits.run_stash_bytes is {settings.limits.run_stash_bytes}; "
            f"it may be at most limits.stash_bytes, {settings.limits.stash_bytes}"
        )
    try:
        settings.policy  # noqa: B018  # reading it checks it
    except InvalidPolicy as error:
        yield f"{error.field}: {error.message}"


def table(settings: Settings) -> Sequence[tuple[str, str, str]]:
    """Return name, value and source of every setting in force; a secret's value is masked."""
    policy = settings.policy
    values: dict[str, object] = {"key": settings.key, "policy.preset": settings.preset}
    structs = (
        ("server.", settings.server),
        ("log.", settings.log),
        ("tokens.", settings.tokens),
        ("limits.", settings.limits),
        ("policy.", policy),
    )
    for prefix, struct in structs:
        values.update({prefix + entry.name: getattr(struct, entry.name) for entry in fields(struct)})
    preset_source = f"preset {settings.preset}"
    return [
        (name, row.reader.show(values[name]), settings.sources.get(name) or _origin(row, preset_source))
        for name, row in ROWS.items()
    ]


def _origin(row: Row, preset_source: str) -> str:
    return preset_source if row.default is None else "default"


def example() -> str:
    """Return a TOML file that explains every setting; each line is a comment, so that it changes nothing as it is."""
    lines = [
        "# Settings of the prompt sidecar. Every line shows a default; remove the # of those to change.",
        "# The environment overrides this file: PROMPT_SIDECAR_SERVER__LISTEN for `listen` of [server].",
    ]
    section = ""
    for name, row in ROWS.items():
        prefix, _, key = name.rpartition(".")
        if prefix != section:
            section = prefix
            lines += ["", f"[{section}]"]
        shown = row.reader.show(_PRESET_VALUES[key] if row.default is None else row.default)
        told = textwrap.wrap(f"{row.reason} It may be {row.reader.accepted}.", 116)
        lines += ["", *(f"# {line}" for line in told), f"# {key} = {shown}"]
    return "\n".join(lines) + "\n"


_PRESET_VALUES: Mapping[str, object] = {
    entry.name: getattr(PRESETS[DEFAULT_PRESET], entry.name) for entry in fields(Policy)
}
