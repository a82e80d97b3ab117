"""How agents are told where the sidecar is: `cli/agents.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from prompt_sidecar.cli.agents import AGENTS, UpstreamError, command, upstreams
from prompt_sidecar.providers.table import PROVIDERS

DOOR = "http://127.0.0.1:7780"
FIRST_PARTY = AGENTS["claude"].first_party


def environment_of(
    words: list[str], environment: Mapping[str, str], settled: Mapping[str, str] | None = None
) -> tuple[list[str], dict[str, str]]:
    """The command, and the variables that differ from the user's."""
    found = list(upstreams(environment, settled or {}))
    made, variables = command(DOOR, words, environment, found)
    return made, {name: value for name, value in variables.items() if environment.get(name) != value}


def test_any_program_is_given_all_base_urls() -> None:
    """Also one that nobody has heard of; what it had beside them stays."""
    made, changed = environment_of(["agent", "-x"], {"HOME": "/home/a"})
    assert ["agent", "-x"] == made
    assert {
        "OPENAI_BASE_URL": f"{DOOR}/v1",
        "OPENAI_API_BASE": f"{DOOR}/v1",
        "ANTHROPIC_BASE_URL": DOOR,
        "ANTHROPIC_API_BASE": DOOR,
        "GOOGLE_GEMINI_BASE_URL": DOOR,
    } == changed


@pytest.mark.parametrize("program", AGENTS)
def test_each_agent_has_its_base_urls(program: str) -> None:
    """Whatever its row adds, by its name or its file."""
    for words in ([program, "go"], [f"/usr/bin/{program}", "go"]):
        made, changed = environment_of(words, {})
        assert [words[0], *made[1:-1], "go"] == made
        assert f"{DOOR}/v1" == changed["OPENAI_BASE_URL"]


def test_codex_is_set_by_its_configuration() -> None:
    """It reads no variable."""
    made, _ = environment_of(["codex", "exec", "go"], {})
    assert ["codex", "-c", f'openai_base_url="{DOOR}/v1"', "exec", "go"] == made


def test_claude_code_keeps_what_it_has_at_its_own_provider() -> None:
    """Tool search and the window of 1M; the user's own word goes before."""
    assert FIRST_PARTY.items() <= environment_of(["claude"], {})[1].items()
    _, changed = environment_of(["claude"], {"ENABLE_TOOL_SEARCH": "false"})
    assert "ENABLE_TOOL_SEARCH" not in changed


@pytest.mark.parametrize(
    ("environment", "settled"),
    [({"ANTHROPIC_BASE_URL": "https://gateway.example"}, {}), ({}, {"anthropic": "https://gateway.example"})],
    ids=["its variable", "a setting"],
)
def test_claude_code_gets_no_false_information(environment: Mapping[str, str], settled: Mapping[str, str]) -> None:
    """Behind somebody else's gateway it stays as careful as it is."""
    assert FIRST_PARTY.keys().isdisjoint(environment_of(["claude"], environment, settled)[1])


def test_opencode_s_own_configuration_stays() -> None:
    """Only base URLs change, in the variable that wins over all files."""
    given = {"theme": "dark", "provider": {"openai": {"options": {"apiKey": "k", "baseURL": "https://a.example"}}}}
    _, changed = environment_of(["opencode"], {"OPENCODE_CONFIG_CONTENT": json.dumps(given)})
    found = json.loads(changed["OPENCODE_CONFIG_CONTENT"])
    assert "dark" == found["theme"]
    assert {"apiKey": "k", "baseURL": f"{DOOR}/v1"} == found["provider"]["openai"]["options"]
    assert f"{DOOR}/v1" == found["provider"]["anthropic"]["options"]["baseURL"]


@pytest.mark.parametrize("given", ["not json", "[1]", "3"])
def test_opencode_s_configuration_that_cannot_be_read(given: str) -> None:
    """Ours stands in its place."""
    _, changed = environment_of(["opencode"], {"OPENCODE_CONFIG_CONTENT": given})
    assert {"provider"} == set(json.loads(changed["OPENCODE_CONFIG_CONTENT"]))


def test_a_base_url_of_the_user_s_is_the_upstream() -> None:
    """Its path stays in what the agent is given, as the door sends paths on as they are."""
    environment = {"OPENAI_BASE_URL": "https://gateway.example/openai/v4/"}
    found = {each.provider.name: each for each in upstreams(environment, {})}
    assert "https://gateway.example" == found["openai"].address
    assert "OPENAI_BASE_URL" == found["openai"].variable
    assert "https://api.anthropic.com" == found["anthropic"].address
    assert f"{DOOR}/openai/v4" == environment_of(["agent"], environment)[1]["OPENAI_BASE_URL"]


def test_a_setting_goes_before_a_variable() -> None:
    """The upstream is what the settings say, and the path is the usual one."""
    environment = {"OPENAI_BASE_URL": "https://gateway.example/openai/v4"}
    (found,) = (
        each for each in upstreams(environment, {"openai": "https://a.example"}) if each.provider.name == "openai"
    )
    assert "https://a.example" == found.address
    assert f"{DOOR}/v1" == environment_of(["agent"], environment, {"openai": "https://a.example"})[1]["OPENAI_BASE_URL"]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"OPENAI_BASE_URL": "gateway:80"}, "OPENAI_BASE_URL is set to no URL; accepted: one such as https://"),
        (
            {"OPENAI_BASE_URL": "https://a.example/v1", "OPENAI_API_BASE": "https://b.example/v1"},
            "OPENAI_API_BASE and OPENAI_BASE_URL name different upstreams; unset one, or set http.openai_upstream",
        ),
    ],
    ids=["no URL", "two"],
)
def test_variables_that_name_no_upstream(environment: Mapping[str, str], message: str) -> None:
    """The error names them, says what to do, and does not show what they hold."""
    with pytest.raises(UpstreamError, match=message):
        list(upstreams(environment, {}))


def test_no_proxy_comes_between() -> None:
    """A user's proxy is for other machines; who has none is given no such variable."""
    _, changed = environment_of(["agent"], {"HTTP_PROXY": "http://proxy.example", "no_proxy": "a.example"})
    assert "a.example,127.0.0.1" == changed["no_proxy"]
    assert "127.0.0.1" == changed["NO_PROXY"]
    assert "no_proxy" not in environment_of(["agent"], {})[1]


def test_variables_are_one_provider_s() -> None:
    """No two providers are told by the same variable."""
    names = [each.variable for provider in PROVIDERS for each in provider.base_urls]
    assert len(names) == len(set(names))
