"""docs/clients.md tells what the agents do: its code is theirs, and so is its service config."""

from __future__ import annotations

import re

import pytest

from tests.clients.languages import DOCUMENT, LANGUAGES, ROOT, Language

FENCES = {"node": "ts", "connect": "ts", "go": "go", "cpp": "cpp", "java": "java"}
SOURCES = {
    "node": "agent.ts",
    "connect": "agent.ts",
    "go": "agent.go",
    "cpp": "agent.cc",
    "java": "Agent.java",
    "python": "agent.py",
}
LINES = 268
"""An agent is an example: who reads it wants to be done in a minute or two. Go takes the most room."""


def blocks(fence: str, text: str) -> list[str]:
    """The blocks of a kind in a text."""
    return re.findall(rf"(?ms)^```{fence}\n(.*?)^```$", text)


def source(language: str) -> str:
    """An agent's code."""
    return (ROOT / "tests" / "clients" / language / SOURCES[language]).read_text()


def plain(code: str) -> str:
    """Code without what stands before each line, as the document does not indent what a class does."""
    return "\n".join(line.strip() for line in code.strip().splitlines())


@pytest.mark.parametrize("language", [each for each in LANGUAGES if each.name in FENCES], ids=lambda each: each.name)
def test_code_is_quoted_from_the_agent(language: Language) -> None:
    """Every block of code stands in the agent that CI has run, word for word."""
    quoted = blocks(FENCES[language.name], language.section)
    assert 4 <= len(quoted)  # connect, trim, call, report at least
    whole = plain(source(language.name))
    assert [] == [block for block in quoted if plain(block) not in whole]


@pytest.mark.parametrize("fence", sorted({*FENCES.values()}))
def test_all_code_stands_in_its_section(fence: str) -> None:
    """No block of code stands outside the sections that are compared with the agents."""
    in_sections = [
        block
        for language in LANGUAGES
        if FENCES.get(language.name) == fence
        for block in blocks(fence, language.section)
    ]
    assert in_sections == blocks(fence, DOCUMENT.read_text())


def test_the_service_config_is_that_of_the_agents() -> None:
    """The JSON in the document is what the agents that write it as JSON are given."""
    (config,) = blocks("json", DOCUMENT.read_text())
    for language in ("go", "cpp"):
        assert re.sub(r"\s", "", config) in re.sub(r"\s", "", source(language))


def test_each_shell_block_is_run() -> None:
    """There is no shell command in the document beside those that the tests build and run with."""
    run = [language.block(title) for language in LANGUAGES for title in ("Build", "Run") if titled(language, title)]
    assert run == blocks("sh", DOCUMENT.read_text())


def titled(language: Language, title: str) -> bool:
    """Whether a language has such a block."""
    return title == "Run" or language.builds


@pytest.mark.parametrize("language", SOURCES)
def test_an_agent_is_short(language: str) -> None:
    """It can be read at one go."""
    assert len(source(language).splitlines()) <= LINES


@pytest.mark.parametrize("folder", ["node", "connect"])
def test_no_npm_package_is_pinned_by_address(folder: str) -> None:
    """The pins of the npm packages hold versions and hashes, and no registry's address."""
    pins = (ROOT / "tests" / "clients" / folder / "npm-shrinkwrap.json").read_text()
    assert '"resolved"' not in pins
    assert pins.count('"integrity"') == pins.count('"node_modules/')
