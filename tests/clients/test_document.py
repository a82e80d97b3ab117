"""docs/clients.md tells what the agents do: its code is theirs, and so is its service config."""

from __future__ import annotations

import re

import pytest

from tests.clients.languages import DOCUMENT, LANGUAGES, ROOT, Language

FENCES = {"node": "ts", "go": "go", "cpp": "cpp", "java": "java"}
SOURCES = {"node": "agent.ts", "go": "agent.go", "cpp": "agent.cc", "java": "Agent.java", "python": "agent.py"}
LINES = 240
"""An agent is an example: who reads it wants to be done in a minute or two. Go and Java take the most room."""


def blocks(fence: str) -> list[str]:
    """The document's blocks of a kind."""
    return re.findall(rf"(?ms)^```{fence}\n(.*?)^```$", DOCUMENT.read_text())


def source(language: str) -> str:
    """An agent's code."""
    return (ROOT / "tests" / "clients" / language / SOURCES[language]).read_text()


def plain(code: str) -> str:
    """Code without what stands before each line, as the document does not indent what a class does."""
    return "\n".join(line.strip() for line in code.strip().splitlines())


@pytest.mark.parametrize("language", FENCES)
def test_code_is_quoted_from_the_agent(language: str) -> None:
    """Every block of code stands in the agent that CI has run, word for word."""
    quoted = blocks(FENCES[language])
    assert 4 <= len(quoted)  # connect, trim, call, report at least
    whole = plain(source(language))
    assert [] == [block for block in quoted if plain(block) not in whole]


def test_the_service_config_is_that_of_the_agents() -> None:
    """The JSON in the document is what the agents that write it as JSON are given."""
    (config,) = blocks("json")
    for language in ("go", "cpp"):
        assert re.sub(r"\s", "", config) in re.sub(r"\s", "", source(language))


def test_each_shell_block_is_run() -> None:
    """There is no shell command in the document beside those that the tests build and run with."""
    run = [language.block(title) for language in LANGUAGES for title in ("Build", "Run") if titled(language, title)]
    assert run == blocks("sh")


def titled(language: Language, title: str) -> bool:
    """Whether a language has such a block."""
    return title == "Run" or language.builds


@pytest.mark.parametrize("language", SOURCES)
def test_an_agent_is_short(language: str) -> None:
    """It can be read at one go."""
    assert len(source(language).splitlines()) <= LINES


def test_no_npm_package_is_pinned_by_address() -> None:
    """The pins of the npm packages hold versions and hashes, and no registry's address."""
    pins = (ROOT / "tests" / "clients" / "node" / "npm-shrinkwrap.json").read_text()
    assert '"resolved"' not in pins
    assert pins.count('"integrity"') == pins.count('"node_modules/')
