"""How agents are configured to use the sidecar's HTTP door: one row for each, for the command `wrap`.

Every program gets the variables of all providers' base URLs (`BaseUrl` in `providers/`). An agent's other needs are in
`AGENTS`. Texts there may contain these variables as `${OPENAI_BASE_URL}`, which is replaced by the value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from string import Template
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from prompt_sidecar.providers.api import Provider
from prompt_sidecar.providers.table import PROVIDERS

if TYPE_CHECKING:
    from prompt_sidecar.config.settings import Settings


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """An agent's needs in addition to the base URLs."""

    program: str
    """The program's name on the PATH."""
    arguments: tuple[str, ...] = ()
    """Arguments before the user's."""
    base_url: str = ""
    """The variable of its provider's base URL."""
    first_party: Mapping[str, str] = field(default_factory=dict)
    """Variables that are only correct if that provider's upstream is the provider itself; the user's values take
    precedence."""
    merged: Mapping[str, str] = field(default_factory=dict)
    """Variables with a JSON object, into which ours is merged."""
    unheard: str = ""
    """What its user may have to change if none of its requests arrived; empty if nothing is known."""


AGENTS: Final[Mapping[str, AgentSetup]] = {
    agent.program: agent
    for agent in (
        # Behind a base URL it leaves out tool search, unless ENABLE_TOOL_SEARCH says that tool_reference blocks are
        # forwarded (code.claude.com/docs/en/env-vars, ANTHROPIC_BASE_URL), and assumes a window of 200k. The variable
        # that keeps the window of 1M is not documented: the program reads it (2.1.332), and other proxies set it
        # (github.com/JuliusBrussee/caveman, pull request 866; github.com/condense-chat/dense, pull request 26). With it
        # the system prompt begins with a line whose digits (cch) differ at each call; the third variable leaves
        # that out (code.claude.com/docs/en/llm-gateway): thinking is bound to what precedes it.
        AgentSetup(
            "claude",
            base_url="ANTHROPIC_BASE_URL",
            first_party={
                "ENABLE_TOOL_SEARCH": "true",
                "_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL": "1",
                "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
            },
        ),
        # Its built-in provider reads its configuration, and no variable (developers.openai.com/codex/config-reference).
        AgentSetup("codex", arguments=("-c", 'openai_base_url="${OPENAI_BASE_URL}"')),
        # Its providers' base URLs contain the version. This variable overrides all files (opencode.ai/docs/config).
        AgentSetup(
            "opencode",
            merged={
                "OPENCODE_CONFIG_CONTENT": '{"provider": {"openai": {"options": {"baseURL": "${OPENAI_BASE_URL}"}}, '
                '"anthropic": {"options": {"baseURL": "${ANTHROPIC_BASE_URL}/v1"}}, '
                '"google": {"options": {"baseURL": "${GOOGLE_GEMINI_BASE_URL}/v1beta"}}}}'
            },
        ),
        # It accepts only http URLs of loopback (its pull request 25357). With a base URL it assumes a gateway's
        # authentication and, without a terminal, ends with "Invalid auth method selected.", unless a setting says that
        # it has an API key. No variable or option does. Its system defaults and system settings, whose paths are
        # variables, are read only if root owns file and folder (0.61.0), so the setting is left to the user.
        AgentSetup(
            "gemini",
            unheard='Gemini CLI needs "security": {"auth": {"selectedType": "gemini-api-key"}} in its settings.json, '
            "and GEMINI_API_KEY",
        ),
        # They read only the variables; named here so that the help can list them.
        AgentSetup("qwen"),
        AgentSetup("aider"),
    )
}
"""Agents by their program's name. Any other program gets only the base URLs."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where the door sends a provider's requests, and the path that its base URLs have after the door's address."""

    provider: Provider
    address: str
    paths: Mapping[str, str]
    """Paths by variable."""
    variable: str = ""
    """The user's variable with the address; empty if there is none."""

    @property
    def is_own(self) -> bool:
        """Whether the upstream is the provider itself."""
        return self.address == self.provider.upstream


class UpstreamError(Exception):
    """The environment has no usable upstream; the message says what to change."""


def chosen(settings: Settings) -> dict[str, str]:
    """Return the upstreams that differ from the settings' defaults, by the provider's name."""
    names = {provider.name: f"{provider.name}_upstream" for provider in PROVIDERS}
    return {
        provider: getattr(settings.http, name) for provider, name in names.items() if f"http.{name}" in settings.sources
    }


def upstreams(environment: Mapping[str, str], settled: Mapping[str, str]) -> Iterator[Upstream]:
    """Yield each provider's upstream: from the settings, else the user's own base URL, else the provider itself.

    A path in the user's base URL is kept in the agent's base URL, so that the door forwards it.

    Args:
        environment: the user's environment variables.
        settled: the upstreams in the settings, by the provider's name.

    Raises:
        UpstreamError: two variables disagree, or one is not a URL.
    """
    for provider in PROVIDERS:
        usual = {each.variable: each.path for each in provider.base_urls}
        given = {name: environment[name].strip().rstrip("/") for name in usual if environment.get(name, "").strip()}
        if not given or provider.name in settled:
            yield Upstream(provider, settled.get(provider.name, provider.upstream), usual)
            continue
        origins = {_origin(name, value): name for name, value in given.items()}
        if len(origins) > 1:
            several = " and ".join(sorted(given))
            raise UpstreamError(f"{several} name different upstreams; unset one, or set http.{provider}_upstream")
        (origin,) = origins
        paths = {name: urlsplit(value).path for name, value in given.items()}
        yield Upstream(provider, origin, usual | paths, origins[origin])


def _origin(name: str, value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise UpstreamError(f"{name} is set to no URL; accepted: one such as https://gateway.example/v1; or unset it")
    return f"{parts.scheme}://{parts.netloc}"


def unheard(program: str) -> str:
    """Return what an agent's user may have to change if none of its requests arrived; empty if nothing is known."""
    return AGENTS.get(PurePath(program).name, AgentSetup("")).unheard


def command(
    door: str, words: Sequence[str], environment: Mapping[str, str], found: Sequence[Upstream]
) -> tuple[list[str], dict[str, str]]:
    """Return the command that runs an agent behind a door, and its variables.

    Args:
        door: the door's address.
        words: the program and its arguments.
        environment: the user's environment variables.
        found: the result of `upstreams` for them.
    """
    base_urls = {name: door + path for each in found for name, path in each.paths.items()}
    agent = AGENTS.get(PurePath(words[0]).name, AgentSetup(""))
    changed = dict(base_urls)
    if any(each.is_own and agent.base_url in each.paths for each in found):
        changed |= {name: value for name, value in agent.first_party.items() if name not in environment}
    for name, text in agent.merged.items():
        changed[name] = _merged(environment.get(name, ""), Template(text).substitute(base_urls))
    before = [Template(each).substitute(base_urls) for each in agent.arguments]
    return [words[0], *before, *words[1:]], {**environment, **changed, **_near(environment)}


def _merged(given: str, ours: str) -> str:
    """Merge one JSON object into another; a given value that is not an object is replaced."""
    try:
        first = json.loads(given) if given else {}
    except ValueError:
        first = {}
    return json.dumps(_joined(first, json.loads(ours)) if isinstance(first, dict) else json.loads(ours))


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    both = {name: _joined(first[name], second[name]) for name in second if _are_objects(first.get(name), second[name])}
    return {**first, **second, **both}


def _are_objects(*values: object) -> bool:
    return all(isinstance(each, dict) for each in values)


_PROXIES: Final = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
_NEAR: Final = "127.0.0.1"


def _near(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables that keep proxies from being used between the agent and the door."""
    if not any(environment.get(name) for name in _PROXIES):
        return {}
    names = ("no_proxy", "NO_PROXY")
    return {name: ",".join(filter(None, (environment.get(name, ""), _NEAR))) for name in names}
