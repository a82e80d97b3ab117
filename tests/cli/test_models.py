"""`prompt-sidecar models`: what is known of a name, and from where; what there is in all; how old it is."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

import pytest

from prompt_sidecar.cli.commands import main
from prompt_sidecar.config.explain import age
from prompt_sidecar.providers import catalogue

SETTINGS = """
[limits]
default_window = 99_000

[models."prod-chat"]
like = "gpt-5"
most_output = 9_000

[models.local]
window = 65_536
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    """Path of a settings file with two models."""
    path = tmp_path / "sidecar.toml"
    path.write_text(SETTINGS)
    return str(path)


def test_each_fact_has_its_source(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A fact of a table names the table and its file, one of the catalogue its row, and through which like."""
    assert 0 == main(["models", "azure/prod-chat", "local", "openai/gpt-4o-2024-08-06", "--config", config])
    chat, local, known = (each.splitlines() for each in capsys.readouterr().out.split("\n\n"))
    row = 'row gpt-5 of the catalogue, by models."prod-chat".like'
    assert ["window", "400,000", "tokens", "#", *row.split()] == chat[1].split()
    assert ["most", "input", "272,000", "tokens", "#", *row.split()] == chat[2].split()
    assert f'9,000 tokens   # models."prod-chat".most_output in {config}' in chat[3]
    assert any("o200k_base, its own vocabulary" in line for line in chat)
    assert f'65,536 tokens   # models."local".window in {config}' in local[1]
    assert ["most", "output", "unknown"] == local[3].split()
    assert "128,000 tokens   # row gpt-4o of the catalogue" in known[1]
    assert any(line.startswith("  list price   input 2.5, cached 1.25, output 10; US dollars") for line in known)


def test_prices_of_long_prompts_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Each tier has a line of its own."""
    assert 0 == main(["models", "gpt-5.4"])
    assert "above 272,000 tokens of input: input 5, cached 0.5, output 22.5" in capsys.readouterr().out


def test_what_may_stand_between_messages_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """For people, as it decides nothing."""
    assert 0 == main(["models", "claude-sonnet-5-5", "gpt-5.4"])
    claude, gpt = capsys.readouterr().out.split("\n\n")
    assert "entries may be placed between other messages" in claude
    assert "entries may be placed" not in gpt


def test_an_unknown_name_is_reported(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It has the assumed window, what to do about it, and exit code 1; what cannot be printed is escaped."""
    assert 1 == main(["models", "gpt-4o", "no\x1bne", "--config", config])
    shown = capsys.readouterr().out
    assert '"no\\u001bne": not known' in shown
    assert "99,000 tokens   # assumed: limits.default_window" in shown
    assert "give the model a table [models]" in shown


def test_json_has_the_same(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For programs: one member for each name, known or not."""
    assert 1 == main(["models", "prod-chat", "none", "claude-opus-5", "--json", "--config", config])
    shown = json.loads(capsys.readouterr().out)
    assert [True, False, True] == [each["known"] for each in shown.values()]
    assert {"tokens": 9_000, "from": f'models."prod-chat".most_output in {config}'} == shown["prod-chat"]["most_output"]
    assert {"tokens": 99_000, "from": "assumed: limits.default_window"} == shown["none"]["window"]
    assert 1.25 == shown["prod-chat"]["list_prices"]["input"]
    assert shown["none"]["list_prices"] is None


def test_without_a_name_it_says_what_there_is(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """How many names, as of when, from what, and what the settings add."""
    assert 0 == main(["models", "--config", config])
    shown = capsys.readouterr().out
    assert f"as of {catalogue.built().day}, from {catalogue.built().sources}." in shown
    assert 'The settings say more of 2: "prod-chat", "local".' in shown
    assert 0 == main(["models", "--json"])
    counts = json.loads(capsys.readouterr().out)
    assert (len(list(catalogue.names())), []) == (counts["names"], counts["settings"])
    assert counts["names"] >= counts["windows"] > counts["most_inputs"] > 0


def test_unusable_settings_end_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Settings that cannot be used end it with exit code 2, as they do the server."""
    assert 2 == main(["models", "gpt-4o", "--set", "limits.default_window=1"])
    assert "limits.default_window" in capsys.readouterr().err


def test_the_catalogue_says_how_old_it_is() -> None:
    """By the day of its first line; a clock that is behind makes it new."""
    day = date.fromisoformat(catalogue.built().day)
    assert f"is 40 days old (built on {day})" in " ".join(age(day + timedelta(40)))
    assert "is 0 days old" in " ".join(age(day - timedelta(3)))
