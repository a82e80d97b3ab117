"""Settings read from a file, the environment and flags, and checked.

A setting has one name, such as `server.listen`. In the TOML file it is the key `listen` of the table `[server]`, in the
environment `PROMPT_SIDECAR_SERVER__LISTEN`, on the command line `--set server.listen=…`. A later source wins: default,
file, environment, flag. A source that names no setting, or gives one a value that it cannot have, stops the start with
a message that says so; all such faults are reported at once.

What settings there are stands in `sidecar/prompt_sidecar/config/table.py`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from prompt_sidecar.config.table import PREFIX, ROWS, LogSettings, Row, TokenSettings
from prompt_sidecar.errors import InvalidPolicy
from prompt_sidecar.facts.limits import Limits, RecallLimits
from prompt_sidecar.recall.found import SearchLimits
from prompt_sidecar.server.options import ServerOptions, is_loopback
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.trim.policy import DEFAULT_PRESET, Policy, preset

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


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, read and checked."""

    key: bytes = b""
    server: ServerOptions = field(default_factory=ServerOptions)
    log: LogSettings = field(default_factory=LogSettings)
    tokens: TokenSettings = field(default_factory=TokenSettings)
    limits: Limits = field(default_factory=Limits)
    recall: RecallLimits = field(default_factory=RecallLimits)
    search: SearchLimits = field(default_factory=SearchLimits)
    telemetry: TelemetryOptions = field(default_factory=TelemetryOptions)
    preset: str = DEFAULT_PRESET
    policy_overrides: Mapping[str, object] = field(default_factory=dict)
    """The policy's fields that a source sets, over the preset."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Setting name → where its value comes from, for those that are not at their default."""

    @property
    def policy(self) -> Policy:
        """The configured policy: the preset with its overrides."""
        return preset(self.preset).override(self.policy_overrides)


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
            problems.append(f"{name} in {path} is not a setting{nearest(name, ROWS)}")


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
            problems.append(f"{name} is not a setting's variable{nearest(name, variables)}")


def _from_flags(flags: Mapping[str, str], problems: list[str]) -> Iterator[tuple[Row, str, object]]:
    for name, value in flags.items():
        if name not in ROWS:
            problems.append(f"--set {name} is not a setting{nearest(name, ROWS)}")
        elif ROWS[name].reader.secret:
            problems.append(f"--set {name} would show a secret to every process; set {ROWS[name].variable} instead")
        else:
            yield ROWS[name], f"--set {name}", value


def nearest(name: str, known: Mapping[str, object]) -> str:
    """A half-sentence on which known name was meant, for the end of a message.

    Names are compared as they are written, and by what follows the table: many know `max_calls` and not whose it is.
    """
    plain = {_plain(other): other for other in known}
    close = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=0.7)
    if not close:
        last = _plain(name).rpartition(".")[2]
        ends: dict[str, list[str]] = {}
        for other in plain:
            ends.setdefault(other.rpartition(".")[2], []).append(other)
        close = [whole for end in difflib.get_close_matches(last, ends, n=1, cutoff=0.8) for whole in ends[end]]
    return (
        f"; did you mean {' or '.join(plain[each] for each in close)}?"
        if close
        else "; `check-config --example` lists all"
    )


def _plain(name: str) -> str:
    return name.removeprefix(PREFIX).lower().replace("__", ".").replace("-", "_")


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
        recall=RecallLimits(**table("recall.")),
        search=SearchLimits(**table("search.")),
        telemetry=TelemetryOptions(**table("telemetry.")),
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
    if settings.search.index_bytes > settings.limits.memory_bytes:
        yield (
            f"search.index_bytes is {settings.search.index_bytes}; "
            f"it may be at most limits.memory_bytes, {settings.limits.memory_bytes}"
        )
    if settings.search.snippet_tokens > settings.search.total_tokens:
        yield (
            f"search.snippet_tokens is {settings.search.snippet_tokens}; "
            f"it may be at most search.total_tokens, {settings.search.total_tokens}"
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
        ("recall.", settings.recall),
        ("search.", settings.search),
        ("telemetry.", settings.telemetry),
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
