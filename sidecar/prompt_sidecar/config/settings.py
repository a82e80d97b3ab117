"""Settings: what can be set, and how it is read from a file, the environment and flags, and checked.

A setting has one name, such as `server.listen`. In the TOML file it is the key `listen` of the table `[server]`, in the
environment `PROMPT_SIDECAR_SERVER__LISTEN`, on the command line `--set server.listen=…`. A later source wins: default,
file, environment, flag. An unknown setting, or a value that is not accepted, stops the start with a message; all such
faults are reported at once.

Some tables may occur several times, with the same keys: `[prices."MODEL"]`, `[models."NAME"]`, `[callers."NAME"]`. They
are read from the file only. A caller's table contains settings of other tables, and overrides them for that caller.

Each setting is declared in the module that uses it, by a field of the dataclasses that `Settings` consists of.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, cast, get_type_hints
from urllib.parse import urlsplit

from prompt_sidecar.calls import caller_names
from prompt_sidecar.calls.caller_names import ACCEPTED, IDENTITY_CHARACTERS, MOST_IDENTITIES
from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.refusals import LINES
from prompt_sidecar.doors.admin.options import AdminOptions
from prompt_sidecar.doors.envoy.options import EnvoyOptions
from prompt_sidecar.doors.http.options import HttpOptions
from prompt_sidecar.errors import InvalidPolicy
from prompt_sidecar.facts.known_models import ModelFacts
from prompt_sidecar.facts.known_models import faults as model_faults
from prompt_sidecar.facts.limits import Limits, RecallLimits
from prompt_sidecar.files import read_file
from prompt_sidecar.guard.ceilings import Ceilings, Price
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.providers.table import PROVIDERS
from prompt_sidecar.recall.found import SearchLimits
from prompt_sidecar.store.options import StoreOptions
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.trim.policy import KNOBS, Policy
from prompt_sidecar.trim.presets import DEFAULT_PRESET, PRESETS, preset
from prompt_sidecar.values import (
    Setting,
    Tables,
    choice,
    declared,
    declared_tables,
    is_loopback,
    secret,
    secrets,
    setting,
    tables,
    text,
    texts,
    whole,
)

PREFIX: Final = "PROMPT_SIDECAR_"
CONFIG_VARIABLE: Final = PREFIX + "CONFIG"
_NOT_SETTINGS = frozenset({CONFIG_VARIABLE, *(PREFIX + name for name in ("DATA", "RUN", "TARGET", "TOKEN"))})
"""Variables with the prefix that are not settings: the file's path, the tests' data folder, and those of the MCP
process."""
_CREDENTIALS = re.compile(r"//[^\s\"]*@")
"""User and password in a URL, which no setting accepts, and which messages must not show."""
_QUERY = re.compile(r"(://[^\s\"?]*)\?[^\s\"]*")
"""The query of a URL, which may contain a password too."""
_SHOWN_CHARACTERS = 200
"""Characters of a value in a message; a file's content in place of its path would fill the terminal."""
MOST_PROBLEMS: Final = 50
"""Faults that are listed: more than a reader fixes at once. Each costs milliseconds, as an unknown name is compared
with all names."""
DEEPEST: Final = 16
"""Nesting of tables and arrays in a settings file: four times that of any setting."""
_DEEP_KEY: Final = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}""")
"""A hundred names joined by dots: no setting has so many, and for keys tomllib takes quadratic time."""
_NAMES = re.compile(r"\w+(?:\.\w+)*")
"""Text that may be a setting's name in a message."""
_KUBERNETES = re.compile(PREFIX + r"(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
"""Kubernetes sets these in every pod next to a Service that is named prompt-sidecar."""


class SettingsError(Exception):
    """The settings cannot be used; `problems` has one line for each fault. It never contains a secret."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How the server logs, on stderr. The log never contains text of a prompt."""

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
    previous_keys: tuple[bytes, ...] = setting(
        (),
        secrets(8, 16),
        "Keys that were `key` before, the newest first. Runs that began with one keep it; ids, answers of tools, "
        "revisions, masks and what the store holds are still accepted that were made with one.",
        "A key is replaced once in months, and its predecessor is needed for as long as runs last.",
    )
    mode: str = setting(
        "active",
        choice("active", "observe"),
        "active, or observe: every prompt is returned as it was sent, and its answer says what would have been done.",
        "Who installs the sidecar wants its work; observe shows it before it is relied on.",
    )
    server: ServerOptions = field(default_factory=ServerOptions)
    http: HttpOptions = field(default_factory=HttpOptions)
    envoy: EnvoyOptions = field(default_factory=EnvoyOptions)
    log: LogSettings = field(default_factory=LogSettings)
    tokens: TokenSettings = field(default_factory=TokenSettings)
    limits: Limits = field(default_factory=Limits)
    recall: RecallLimits = field(default_factory=RecallLimits)
    search: SearchLimits = field(default_factory=SearchLimits)
    guard: GuardOptions = field(default_factory=GuardOptions)
    store: StoreOptions = field(default_factory=StoreOptions)
    telemetry: TelemetryOptions = field(default_factory=TelemetryOptions)
    admin: AdminOptions = field(default_factory=AdminOptions)
    ceilings: Ceilings = field(default_factory=Ceilings)
    currency: str = setting(
        "",
        text(3),
        "Currency of [prices], as in ISO 4217, for the figures of cost. With USD, the catalogue's list prices hold for "
        "models that [prices] lacks; empty, or another one: these have no price. Without [prices] all prices are the "
        "catalogue's, in USD.",
        "A sum of two currencies is none.",
    )
    prices: Mapping[str, Price] = tables(
        Price,
        "Prices of a model, for ceilings on cost and the figures of runs, in place of the catalogue's. A name fits "
        'all models whose names begin with it; the longest that fits is taken, and "*" fits all others.',
        '[prices."gpt-5"]\ninput = 1.25\noutput = 10.0\ncached = 0.125',
        named=True,
        most=1_000,
    )
    models: Mapping[str, ModelFacts] = tables(
        ModelFacts,
        "What is known of a model, over the catalogue (docs/windows.md): of one of this morning, a local one, or a "
        "deployment with a name of its own. The same for all replicas, as it decides. It is read at the start alone.",
        '[models."prod-chat"]\nlike = "gpt-5"\n[models."qwen-on-our-gpu"]\nwindow = 65_536',
        named=True,
        most=1_000,
    )
    callers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Settings that differ for a caller, by caller and name."""
    preset: str = setting(
        DEFAULT_PRESET,
        choice(*PRESETS),
        "The preset, whose values the other policy fields start from.",
        "It keeps the provider's prompt cache warm; docs/policy.md helps to choose.",
    )
    policy_overrides: Mapping[str, object] = field(default_factory=dict)
    """The policy's fields that a source sets, overriding the preset."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Setting name → the source of its value, for settings that are not at their default."""

    @property
    def policy(self) -> Policy:
        """Return the configured policy: the preset with its overrides."""
        return preset(self.preset).override(self.policy_overrides)

    @property
    def identities(self) -> Mapping[str, Sequence[str]]:
        """Return each caller's identities, for callers with configured ones."""
        return {
            name: cast("Sequence[str]", own["identities"]) for name, own in self.callers.items() if "identities" in own
        }

    def of_caller(self, caller: str) -> Settings:
        """Return the settings for a caller: those in its `[callers."…"]` table override the others.

        Raises:
            InvalidPolicy: the caller's policy contradicts itself.
        """
        own = self.callers.get(caller)
        if not own:
            return self
        changed = {name: replace(getattr(self, name), **_within(own, f"{name}.")) for name in _TABLES}
        policy = _within(own, "policy.")
        named = str(policy.pop("preset", self.preset))
        settings = replace(self, preset=named, policy_overrides={**self.policy_overrides, **policy}, **changed)
        settings.policy  # noqa: B018 - reading it checks it
        return settings


_TABLES: Final[Mapping[str, type[Any]]] = {
    name: kind for name, kind in get_type_hints(Settings).items() if isinstance(kind, type) and is_dataclass(kind)
}
"""The tables of the settings file except the policy's, with the class that each is read into."""

SETTINGS: Final[Mapping[str, Setting]] = {
    "key": declared(Settings)["key"],
    "previous_keys": declared(Settings)["previous_keys"],
    "mode": declared(Settings)["mode"],
    **{f"{table}.{name}": each for table, struct in _TABLES.items() for name, each in declared(struct).items()},
    "policy.preset": declared(Settings)["preset"],
    **{f"policy.{name}": knob for name, knob in KNOBS.items()},
}
"""Every setting by name. The default of a policy's field is that of the default preset."""

IDENTITIES: Final = Setting(
    (),
    texts(MOST_IDENTITIES, IDENTITY_CHARACTERS),
    f"what the caller may be, through any door: {ACCEPTED}. The digest is that of an API key for the provider.",
    "",
    advanced=False,
)
OF_CALLERS: Final = ("policy.", "ceilings.", "guard.")
"""Tables whose settings may differ for a caller."""
NOT_OF_CALLERS: Final = frozenset(
    {"ceilings.callers", "guard.rule_files", "guard.vault_bytes", "guard.run_vault_bytes"}
)
"""Settings in these tables that apply to all callers together."""
TABLES: Final[Mapping[str, Tables]] = {
    **declared_tables(Settings),
    **{f"{table}.{name}": each for table, struct in _TABLES.items() for name, each in declared_tables(struct).items()},
    "callers": Tables(
        {
            "identities": IDENTITIES,
            **{n: each for n, each in SETTINGS.items() if n.startswith(OF_CALLERS) and n not in NOT_OF_CALLERS},
        },
        "Settings of [policy], [ceilings] and [guard] that are other ones for a caller. Its name is the one that the "
        "sidecar gives it: token:NAME of server.tokens_file, mtls:SUBJECT, unix, or local; or any name, with "
        f"`identities`: {IDENTITIES.what}",
        '[callers."token:nightly"]\nceilings.run_model_calls = 200\nceilings.run_model_calls_action = "refuse"\n'
        'policy.preset = "lean"',
        named=True,
        most=10_000,
        make=dict,
        made_of_others=True,
    ),
}
"""The tables that may occur several times, by name."""


_GROUPS: Final = frozenset(name.rpartition(".")[0] for name in (*SETTINGS, *TABLES))
"""Tables that may be empty; any other empty table is reported as an unknown setting."""


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.upper().replace(".", "__")


def load(
    environment: Mapping[str, str],
    *,
    config: str | None = None,
    flags: Mapping[str, str] | None = None,
    short: Mapping[str, str] | None = None,
    conflicts: bool = True,
    read_files: bool = True,
) -> Settings:
    """Read the settings from their defaults, a file, the environment and flags, each overriding those before it.

    Args:
        environment: the process's environment variables.
        config: path of the TOML file; None: the one that PROMPT_SIDECAR_CONFIG names, if any.
        flags: setting name → text, from the command line.
        short: setting name → its own flag, for settings that were not given by --set.
        conflicts: whether contradictory settings are refused; not for a program that needs only some.
        read_files: whether files of rules are read, which may be on another machine.

    Raises:
        SettingsError: a setting is unknown, a value is not accepted, or settings contradict each other.
    """
    problems: list[str] = []
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    path = config if config is not None else environment.get(CONFIG_VARIABLE, "")
    tree = _tree(path, problems) if path else {}
    several = _several(tree, path, sources, problems)
    given = [*_from_tree(tree, path, problems)]
    given += [*_from_environment(environment, problems), *_from_flags(flags or {}, short or {}, problems)]
    for name, shown, value in given:
        _read(name, SETTINGS[name], (shown, value), values, sources, problems)
    settings = _build(values, several, sources)
    unread = {name for name, _, _ in given} - values.keys()
    # A setting without a usable value has its default here; a conflict with that default is not reported.
    found = _conflicts(settings, read_files=read_files) if conflicts else ()
    problems += [each for each in found if unread.isdisjoint(_NAMES.findall(each))]
    if problems:
        raise SettingsError(problems)
    return settings


def _read(  # noqa: PLR0917 - what is read, and where it goes
    name: str,
    declared: Setting,
    given: tuple[str, object],
    values: dict[str, object],
    sources: dict[str, str],
    problems: list[str],
) -> None:
    """Read one value, given with its place in the source."""
    kind, (shown, value) = declared.kind, given
    try:
        values[name] = kind.read(value)
        sources[name] = shown
    except ValueError:
        problem = "is not usable" if kind.secret else f"is {_shown(value)}"
        problems.append(f"{shown} {problem}; it must be {kind.accepted}{kind.spelling}")


def _shown(value: object) -> str:
    """Return an unusable value for a message."""
    text = _QUERY.sub(r"\1?…", _CREDENTIALS.sub("//…@", json.dumps(value, default=str)))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _tree(path: str, problems: list[str]) -> dict[str, object]:
    """Return the file's content."""
    try:
        text = read_file(path).decode()
        if _DEEP_KEY.search(text):
            problems.append(_too_deep(path))
            return {}
        tree = tomllib.loads(text)
    except OSError as error:
        problems.append(f"the settings file {path} cannot be read: {error.strerror}")
    except RecursionError:
        problems.append(_too_deep(path))
    except UnicodeDecodeError:
        problems.append(f"the settings file {path} is not TOML: it is not UTF-8")
    except ValueError as error:  # a number of thousands of digits does not raise TOMLDecodeError
        problems.append(f"the settings file {path} is not TOML: {error}")
    else:
        if not _nests_deeper(tree, DEEPEST):
            return tree
        problems.append(_too_deep(path))
    return {}


def _too_deep(path: str) -> str:
    return f"the settings file {path} nests tables or arrays deeper than any setting"


def _nests_deeper(tree: object, most: int) -> bool:
    """Whether tables or arrays are nested in more than `most` levels."""
    level = [tree]
    for _ in range(most + 1):
        level = [
            inner
            for each in level
            if isinstance(each, (dict, list))
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return bool(level)


def _from_tree(tree: Mapping[str, object], path: str, problems: list[str]) -> Iterator[tuple[str, str, object]]:
    """Yield name, place and value of each setting in the file."""
    for name, value in _leaves(tree, ""):
        if len(problems) >= MOST_PROBLEMS:
            problems.append(f"the settings file {path} may have more faults")
            return
        if name in SETTINGS:
            yield name, f"{name} in {path}", value
        elif name in _GROUPS:
            problems.append(f"{name} in {path} is {_shown(value)}; it must be a table, [{name}]")
        else:
            problems.append(f"{name} in {path} is not a setting{nearest(name)}")


def _several(
    tree: dict[str, object], path: str, sources: dict[str, str], problems: list[str]
) -> Mapping[str, Mapping[str, object] | Sequence[object]]:
    """Take the repeated tables out of the tree; return the values that they are read into."""
    found: dict[str, Mapping[str, object] | Sequence[object]] = {}
    for name, kind in TABLES.items():
        given = _taken(tree, name)
        if given is None:
            continue
        if kind.named and isinstance(given, dict):
            listed = [(f"{name}.{json.dumps(label, ensure_ascii=False)}", label, each) for label, each in given.items()]
        elif not kind.named and isinstance(given, list):
            listed = [(f"{name}[{index}]", str(index), each) for index, each in enumerate(given)]
        else:
            listed = []
        if not listed or not all(isinstance(each, dict) for _, _, each in listed):
            problems.append(f"{name} in {path} must be tables such as {kind.example.splitlines()[0]}")
            continue
        if len(listed) > kind.most:
            problems.append(f"{name} in {path} has {len(listed):,} tables; it may have at most {kind.most:,}")
            continue
        made = {
            label: _one(kind, shown, each, path, sources, problems)
            for shown, label, each in listed
            if len(problems) < MOST_PROBLEMS
        }
        usable = {label: each for label, each in made.items() if each is not None}
        found[name] = usable if kind.named else tuple(usable.values())
    return found


def _one(  # noqa: PLR0917 - what is read, and where it goes
    kind: Tables, shown: str, given: Mapping[str, object], path: str, sources: dict[str, str], problems: list[str]
) -> object:
    """Read one of several tables; None if it cannot be used, and `problems` has a line that says why."""
    values: dict[str, object] = {}
    before = len(problems)
    for key, value in _leaves(given, ""):
        if len(problems) >= MOST_PROBLEMS:
            return None
        place = f"{shown}.{key} in {path}"
        if key not in kind.settings:
            problems.append(f"{place} is not a setting there{nearest(key, among=kind.settings)}")
            continue
        own: dict[str, str] = {}
        _read(key, kind.settings[key], (place, value), values, own, problems)
        sources.update({f"{shown}.{name}": source for name, source in own.items()})
    for key, each in kind.settings.items():
        if each.required and key not in values and len(problems) == before:
            problems.append(f"{shown} in {path} has no {key}; it must be {each.kind.accepted}")
    if len(problems) > before:
        return None
    try:
        return kind.make(values)
    except ValueError as error:
        problems.append(f"{shown} in {path}: {error}")
        return None


def _taken(tree: dict[str, object], name: str) -> object:
    """Take the value with a dotted name out of a tree; None if there is none."""
    *parents, last = name.split(".")
    inside: object = tree
    for parent in parents:
        inside = inside.get(parent) if isinstance(inside, dict) else None
    return inside.pop(last, None) if isinstance(inside, dict) else None


def _leaves(tree: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in tree.items():
        if isinstance(value, dict) and (value or f"{prefix}{name}" in _GROUPS):
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


def _from_flags(
    flags: Mapping[str, str], short: Mapping[str, str], problems: list[str]
) -> Iterator[tuple[str, str, object]]:
    for name, value in flags.items():
        if name not in SETTINGS:
            problems.append(f"--set {name} is not a setting{nearest(name)}")
        elif SETTINGS[name].kind.secret:
            problems.append(f"--set {name} would show a secret to every process; set {variable(name)} instead")
        else:
            yield name, short.get(name, f"--set {name}"), value


def nearest(name: str, spelled: Callable[[str], str] = str, among: Mapping[str, Setting] | None = None) -> str:
    """Return the setting that a wrong name may mean, for the end of a message.

    Names are compared as a whole, and without their table: many users remember `max_calls`, but not its table.

    Args:
        name: the wrong name, or a variable's.
        spelled: how the message writes a setting's name.
        among: the settings allowed at that place; None for all.
    """
    import difflib  # only needed for misspelt names

    known = SETTINGS if among is None else among
    plain = name.removeprefix(PREFIX).lower().replace("__", ".").replace("-", "_")
    close = difflib.get_close_matches(plain, known, n=1, cutoff=0.7)
    if not close:
        ends = dict.fromkeys(each.rpartition(".")[2] for each in known)
        likely = difflib.get_close_matches(plain.rpartition(".")[2], ends, n=1, cutoff=0.8)
        close = [each for each in known if each.rpartition(".")[2] in likely]
    if not close:
        return "; `check-config --example` lists all"
    return f"; did you mean {' or '.join(map(spelled, close))}?"


def _within(values: Mapping[str, object], prefix: str) -> dict[str, Any]:
    return {name[len(prefix) :]: value for name, value in values.items() if name.startswith(prefix)}


def _build(
    values: Mapping[str, object],
    several: Mapping[str, Mapping[str, object] | Sequence[object]],
    sources: Mapping[str, str],
) -> Settings:
    policy = _within(values, "policy.")
    plain = {name: values[name] for name in ("mode",) if name in values}
    return Settings(
        key=_key(values["key"]) if values.get("key") else b"",
        previous_keys=tuple(map(_key, cast("Sequence[object]", values.get("previous_keys", ())))),
        preset=str(policy.pop("preset", DEFAULT_PRESET)),
        policy_overrides=policy,
        sources=sources,
        **{
            name: struct(**_within(values, f"{name}."), **_within(several, f"{name}."))
            for name, struct in _TABLES.items()
        },
        **{name: each for name, each in several.items() if "." not in name},  # type: ignore[arg-type]
        **plain,  # type: ignore[arg-type]
    )


def readable_secrets(settings: Settings) -> Sequence[str]:
    """Return files with secrets that users other than their owner can read, each with its setting."""
    found: list[str] = []
    held = [(name, settings.sources.get(name, "").partition(" in ")[2]) for name in ("key", "previous_keys")]
    held.append(("store.password_file", settings.store.password_file))
    for name, path in held:
        with suppress(OSError, ValueError):
            if path and Path(path).stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                found.append(f"{path} ({name})")
    return found


def _key(text: object) -> bytes:
    return hashlib.sha256(str(text).encode()).digest()


def _conflicts(settings: Settings, *, read_files: bool) -> Iterator[str]:
    """Yield faults of combined settings, each of which is valid alone."""
    server = settings.server
    if not (server.listen or server.socket or settings.http.listen or settings.envoy.listen):
        yield "server.listen, server.socket, http.listen and envoy.listen are all empty; set at least one of them"
    if bool(server.tls_certificate) != bool(server.tls_key):
        yield "server.tls_certificate and server.tls_key belong together; set both, or none"
    if server.client_ca and not server.tls_certificate:
        yield "server.client_ca needs server.tls_certificate and server.tls_key: clients prove themselves in TLS"
    for name, own in (("server.listen", " or a unix socket"), ("http.listen", ""), ("envoy.listen", "")):
        listen = attrgetter(name)(settings)
        proven = server.client_ca or server.tokens_file or server.unauthenticated
        if listen and not is_loopback(listen) and not proven:
            yield (
                f"{name} is {listen}, which other machines can reach, and nobody is authenticated; "
                f"set server.client_ca (with TLS) or server.tokens_file, or listen on 127.0.0.1{own}; "
                "server.unauthenticated is for where something outside decides who connects"
            )
    if server.unauthenticated and (server.client_ca or server.tokens_file):
        yield "server.unauthenticated goes with neither server.client_ca nor server.tokens_file; leave one out"
    yield from _store_conflicts(settings.store)
    if settings.store.vault and not any(settings.of_caller(each).guard.restore for each in ("", *settings.callers)):
        yield (
            "store.vault is set and guard.restore names no pair of a tool and a kind of value, for any caller: no "
            "value may be given back, so none would be kept; set guard.restore"
        )
    yield from _http_conflicts(settings.http)
    admin = settings.admin
    if admin.listen and not is_loopback(admin.listen) and not admin.tokens_file:
        yield (
            f"admin.listen is {admin.listen}, which other machines can reach, and nobody is authenticated; "
            "set admin.tokens_file, or listen on 127.0.0.1"
        )
    if settings.previous_keys and not settings.key:
        yield "previous_keys is set and key is not; set key: its predecessors are of use only with a key that lasts"
    if settings.store.url and not settings.key:
        yield (
            "store.url is set and key is not; set key, the same for all replicas: what is stored is encrypted with it, "
            "and without it no other process could read it"
        )
    if settings.store.cluster and urlsplit(settings.store.url).path.strip("/") not in {"", "0"}:
        yield (
            "store.cluster is set, and store.url names a database or a socket; a cluster has the database 0 alone: "
            "give the address of a node, such as valkey://host:6379"
        )
    for name, most in (
        ("limits.run_stash_bytes", "limits.stash_bytes"),
        ("limits.original_bytes", "limits.run_stash_bytes"),
        ("search.index_bytes", "limits.memory_bytes"),
        ("search.snippet_tokens", "search.total_tokens"),
    ):
        value, highest = attrgetter(name)(settings), attrgetter(most)(settings)
        if value > highest:
            yield f"{name} is {value}; it may be at most {most}, {highest}"
    if settings.guard != GuardOptions():
        # Built-in rules are known to be valid, and RE2 takes a while to load.
        from prompt_sidecar.guard.rules import faults

        yield from faults(settings.guard, read_files=read_files)
    try:
        settings.policy  # noqa: B018  # reading it checks it
    except InvalidPolicy as error:
        yield f"{error.field}: {error.message}"
    yield from model_faults(settings.models)
    yield from _caller_conflicts(settings)


def _caller_conflicts(settings: Settings) -> Iterator[str]:
    for name, wrong in caller_names.faults(settings.identities):
        yield f"callers.{json.dumps(name, ensure_ascii=False)}.{wrong}"
    for caller in ("", *settings.callers):
        at = f"callers.{json.dumps(caller, ensure_ascii=False)}." if caller else ""
        try:
            settings.of_caller(caller)
        except InvalidPolicy as error:
            if caller:
                yield f"{at}{error.field}: {error.message}"


def _store_conflicts(store: StoreOptions) -> Iterator[str]:
    if bool(store.tls_certificate) != bool(store.tls_key):
        yield "store.tls_certificate and store.tls_key belong together; set both, or none"
    if (store.tls_ca or store.tls_certificate) and not store.uses_tls:
        yield "store.tls_ca and store.tls_certificate need a store.url with TLS, valkeys:// or rediss://"
    if store.sentinels and (
        store.cluster or not store.url or store.url.startswith("unix:") or ":" in store.sentinel_name
    ):
        yield (
            "store.sentinels needs a store.url with the name by which they know the primary and without a port, such "
            "as valkey://mymaster/0, and no store.cluster"
        )
    if store.sentinel_password_file and not store.sentinels:
        yield "store.sentinel_password_file needs store.sentinels"
    if store.vault and not store.url:
        yield "store.vault needs store.url, with which everything in the store is encrypted by key"
    if store.required and not store.url:
        yield "store.required needs store.url: there is no store to wait for"


def _http_conflicts(http: HttpOptions) -> Iterator[str]:
    for name in (f"{provider}_upstream" for provider in PROVIDERS):
        address = urlsplit(found := getattr(http, name, ""))
        if address.scheme == "http" and not is_loopback(f"[{address.hostname}]:0"):
            yield f"http.{name} is {found}; it must be https, as credentials travel there"


def table(settings: Settings) -> Sequence[tuple[str, str, str]]:
    """Return name, value and source of every setting in force; secrets are masked."""
    unset = {name: f"preset {settings.preset}" if name.startswith("policy.") else "default" for name in SETTINGS}
    unset["policy.preset"] = "default"
    values = {name: attrgetter(name)(settings) for name in SETTINGS if name != "policy.preset"}
    values["policy.preset"] = settings.preset
    rows = [
        (name, each.kind.show(values[name]), settings.sources.get(name, unset[name])) for name, each in SETTINGS.items()
    ]
    for name, several in TABLES.items():
        rows += _rows_of(name, several, attrgetter(name)(settings), settings.sources)
    return rows


def _rows_of(name: str, kind: Tables, held: Any, sources: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of tables that may be repeated."""
    if kind.named:
        for label, each in held.items():
            shown = f"{name}.{json.dumps(label, ensure_ascii=False)}"
            for key, value in _values_of(kind, each).items():
                yield f"{shown}.{key}", kind.settings[key].kind.show(value), sources.get(f"{shown}.{key}", "default")
        return
    if held:
        inline = (
            ", ".join(f"{key} = {kind.settings[key].kind.show(value)}" for key, value in _values_of(kind, each).items())
            for each in held
        )
        source = next((place for key, place in sources.items() if key.startswith(f"{name}[")), "default")
        yield name, f"[{', '.join(f'{{{each}}}' for each in inline)}]", source.rpartition(" in ")[2]


def _values_of(kind: Tables, held: Any) -> Mapping[str, Any]:
    """Return the values of one repeated table, by key."""
    return held if isinstance(held, Mapping) else {key: getattr(held, key) for key in kind.settings}
