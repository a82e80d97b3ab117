"""Settings: what can be set, and how it is read from a file, the environment and flags, and checked.

A setting has one name, such as `server.listen`. In the TOML file it is the key `listen` of the table `[server]`, in the
environment `PROMPT_SIDECAR_SERVER__LISTEN`, on the command line `--set server.listen=…`. A later source wins: default,
file, environment, flag. A source that names no setting, or gives one a value that it does not accept, stops the start
with a message that says so; all such faults are reported at once.

Each setting is declared where it is obeyed, by a field of the dataclasses that `Settings` is made of.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, get_type_hints

from prompt_sidecar.errors import InvalidPolicy
from prompt_sidecar.facts.limits import Limits, RecallLimits
from prompt_sidecar.recall.found import SearchLimits
from prompt_sidecar.server.options import ServerOptions
from prompt_sidecar.server.refusals import LINES
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.trim.policy import KNOBS, Policy
from prompt_sidecar.trim.presets import DEFAULT_PRESET, PRESETS, preset
from prompt_sidecar.values import Setting, choice, declared, is_loopback, secret, setting, whole

PREFIX: Final = "PROMPT_SIDECAR_"
CONFIG_VARIABLE: Final = PREFIX + "CONFIG"
_NOT_SETTINGS = frozenset({CONFIG_VARIABLE, PREFIX + "DATA"})
"""Variables with the prefix that are no settings: the file's own, and the one that the tests find their data with."""
_KUBERNETES = re.compile(PREFIX + r"(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
"""Kubernetes sets these in every pod next to a Service that is named prompt-sidecar."""


class SettingsError(Exception):
    """The settings cannot be used; `problems` has one line for each fault. No secret is ever in them."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How the server logs, on stderr. Never text of a prompt."""

    format: str = setting("text", choice("text", "json"), "One line for each event, for people or for machines.")
    refusals: int = setting(
        LINES,
        whole(0, 1_000_000, "lines"),
        "Lines a minute on refused calls, and as many of gRPC's own; further ones are counted in one line.",
        "60 lines of 200 bytes a minute are 17 MB a day.",
        advanced=True,
    )
    level: str = setting("info", choice("debug", "info", "warning", "error"), "The least severe event that is logged.")


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """How tokens are counted."""

    counter: str = setting(
        "auto",
        choice("auto", "tiktoken"),
        "auto: by the extra `fast`, where it is installed and counts as tiktoken does. The same for all replicas.",
        "It counts ten times as fast.",
        advanced=True,
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, read and checked."""

    key: bytes = setting(
        b"",
        secret(16),  # a shorter one can be guessed from one id
        "Secret from which stash ids and revisions are made, the same for all replicas. Empty: random for the process, "
        "so that ids change over a restart.",
    )
    server: ServerOptions = field(default_factory=ServerOptions)
    log: LogSettings = field(default_factory=LogSettings)
    tokens: TokenSettings = field(default_factory=TokenSettings)
    limits: Limits = field(default_factory=Limits)
    recall: RecallLimits = field(default_factory=RecallLimits)
    search: SearchLimits = field(default_factory=SearchLimits)
    telemetry: TelemetryOptions = field(default_factory=TelemetryOptions)
    preset: str = setting(
        DEFAULT_PRESET,
        choice(*PRESETS),
        "The preset, whose values the other policy fields start from.",
        "It keeps the provider's prompt cache warm; docs/policy.md helps to choose.",
    )
    policy_overrides: Mapping[str, object] = field(default_factory=dict)
    """The policy's fields that a source sets, over the preset."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Setting name → where its value comes from, for those that are not at their default."""

    @property
    def policy(self) -> Policy:
        """The configured policy: the preset with its overrides."""
        return preset(self.preset).override(self.policy_overrides)


_TABLES: Final[Mapping[str, type[Any]]] = {
    name: kind for name, kind in get_type_hints(Settings).items() if isinstance(kind, type) and is_dataclass(kind)
}
"""The tables of the settings file but for the policy's, with what each is read into."""

SETTINGS: Final[Mapping[str, Setting]] = {
    "key": declared(Settings)["key"],
    **{f"{table}.{name}": each for table, struct in _TABLES.items() for name, each in declared(struct).items()},
    "policy.preset": declared(Settings)["preset"],
    **{f"policy.{name}": knob for name, knob in KNOBS.items()},
}
"""Every setting by its name. The default of a policy's field is that of the default preset."""


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper().replace(".", "__")


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
    for name, shown, value in given:
        kind = SETTINGS[name].kind
        try:
            values[name] = kind.read(value)
            sources[name] = shown
        except ValueError:
            said = "is not usable" if kind.secret else f"is {json.dumps(value, default=str)}"
            problems.append(f"{shown} {said}; it must be {kind.accepted}{kind.spelling}")
    settings = _build(values, sources, problems)
    if problems:
        raise SettingsError(problems)
    return settings


def _from_file(path: str, problems: list[str]) -> Iterator[tuple[str, str, object]]:
    """Yield name, place and value of each setting in the file."""
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
        if name in SETTINGS:
            yield name, f"{name} in {path}", value
        else:
            problems.append(f"{name} in {path} is not a setting{nearest(name)}")


def _leaves(tree: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _from_environment(environment: Mapping[str, str], problems: list[str]) -> Iterator[tuple[str, str, object]]:
    names = {variable(name): name for name in SETTINGS}
    for given in sorted(environment):
        if not given.startswith(PREFIX) or given in _NOT_SETTINGS or _KUBERNETES.fullmatch(given):
            continue
        if given in names:
            yield names[given], given, environment[given]
        else:
            problems.append(f"{given} is not a setting's variable{nearest(given, variable)}")


def _from_flags(flags: Mapping[str, str], problems: list[str]) -> Iterator[tuple[str, str, object]]:
    for name, value in flags.items():
        if name not in SETTINGS:
            problems.append(f"--set {name} is not a setting{nearest(name)}")
        elif SETTINGS[name].kind.secret:
            problems.append(f"--set {name} would show a secret to every process; set {variable(name)} instead")
        else:
            yield name, f"--set {name}", value


def nearest(name: str, spelled: Callable[[str], str] = str) -> str:
    """Say which setting a wrong name may mean, for the end of a message.

    Names are compared whole, and by what follows the table: many know `max_calls` and not which table has it.

    Args:
        name: the wrong name, or a variable's.
        spelled: how the message writes a setting's name.
    """
    plain = name.removeprefix(PREFIX).lower().replace("__", ".").replace("-", "_")
    close = difflib.get_close_matches(plain, SETTINGS, n=1, cutoff=0.7)
    if not close:
        ends = dict.fromkeys(known.rpartition(".")[2] for known in SETTINGS)
        likely = difflib.get_close_matches(plain.rpartition(".")[2], ends, n=1, cutoff=0.8)
        close = [known for known in SETTINGS if known.rpartition(".")[2] in likely]
    if not close:
        return "; `check-config --example` lists all"
    return f"; did you mean {' or '.join(map(spelled, close))}?"


def _build(values: Mapping[str, object], sources: Mapping[str, str], problems: list[str]) -> Settings:
    def table(prefix: str) -> dict[str, Any]:
        return {name[len(prefix) :]: value for name, value in values.items() if name.startswith(prefix)}

    policy = table("policy.")
    settings = Settings(
        key=hashlib.sha256(str(values["key"]).encode()).digest() if values.get("key") else b"",
        preset=str(policy.pop("preset", DEFAULT_PRESET)),
        policy_overrides=policy,
        sources=sources,
        **{name: struct(**table(f"{name}.")) for name, struct in _TABLES.items()},
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
    for name, most in (
        ("limits.run_stash_bytes", "limits.stash_bytes"),
        ("search.index_bytes", "limits.memory_bytes"),
        ("search.snippet_tokens", "search.total_tokens"),
    ):
        value, highest = attrgetter(name)(settings), attrgetter(most)(settings)
        if value > highest:
            yield f"{name} is {value}; it may be at most {most}, {highest}"
    try:
        settings.policy  # noqa: B018  # reading it checks it
    except InvalidPolicy as error:
        yield f"{error.field}: {error.message}"


def table(settings: Settings) -> Sequence[tuple[str, str, str]]:
    """Return name, value and source of every setting in force; a secret's value is masked."""
    unset = {name: f"preset {settings.preset}" if name.startswith("policy.") else "default" for name in SETTINGS}
    unset["policy.preset"] = "default"
    values = {name: attrgetter(name)(settings) for name in SETTINGS if name != "policy.preset"}
    values["policy.preset"] = settings.preset
    return [
        (name, each.kind.show(values[name]), settings.sources.get(name, unset[name])) for name, each in SETTINGS.items()
    ]
