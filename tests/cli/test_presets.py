"""`prompt-sidecar presets`: the table, one preset in full, and both for programs."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

import pytest

from prompt_sidecar.cli.commands import main
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.presets import PRESETS


def _shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert 0 == main(["presets", *arguments])
    return capsys.readouterr().out


def test_the_table_has_every_knob_and_marks_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    """One line a knob, one column a preset; a star stands behind what differs from cache_first, and nowhere else."""
    shown = _shown(capsys)
    assert list(PRESETS) == shown.splitlines()[0].split()
    rows = {words[0]: words[1:] for line in shown.splitlines() if (words := line.split())}
    for field in fields(Policy):
        differing = sum(getattr(policy, field.name) != field.default for policy in PRESETS.values())
        assert (field.name, differing) == (field.name, rows[field.name].count("*"))
    assert ["oldest_first", "oldest_first", "off", "*", "largest_first", "*"] == rows["fit_stage"]
    assert ["0.44", "0.44", "(0.44)", "0.9", "*"] == rows["fit_low"]
    assert max(map(len, shown.splitlines())) <= 120


def test_each_preset_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """Under the table stands what each is for, when to choose it, and what to mind."""
    lines = _shown(capsys).splitlines()
    for name in PRESETS:
        at = max(place for place, line in enumerate(lines) if line.startswith(name + " "))
        text = "\n".join(lines[at : at + 8])
        assert "    Choose it " in text
        assert "    Mind: " in text


@pytest.mark.parametrize("name", PRESETS)
def test_one_preset_has_a_reason_for_every_value(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each knob stands with its value, and why it is that or that it changes nothing."""
    shown = _shown(capsys, name)
    lines = shown.splitlines()
    for field in fields(Policy):
        assert any(line.startswith(f"  {field.name} = ") for line in lines), field.name
    reasons = [line for line in lines if line.startswith(("      Why: ", "      It changes nothing here: "))]
    assert len(fields(Policy)) == len(reasons)


def test_json_has_the_values(capsys: pytest.CaptureFixture[str]) -> None:
    """For programs: every value of every preset, with the same words; one preset alone has the same shape."""
    shown = json.loads(_shown(capsys, "--json"))
    assert "cache_first" == shown["default"]
    for name, policy in PRESETS.items():
        values = {field: knob["value"] for field, knob in shown["presets"][name]["knobs"].items()}
        assert json.loads(json.dumps(asdict(policy))) == {field: values[field] for field in asdict(policy)}
    lean = json.loads(_shown(capsys, "lean", "--json"))
    assert {"lean": shown["presets"]["lean"]} == lean["presets"]
    assert {"value", "differs", "in_effect", "what", "why", "accepted"} == set(
        lean["presets"]["lean"]["knobs"]["fit_low"]
    )


def test_a_name_that_no_preset_has(capsys: pytest.CaptureFixture[str]) -> None:
    """It ends with exit code 2 and the names that there are."""
    assert 2 == main(["presets", "thin"])
    assert "thin is not a preset; the presets are cache_first, lean" in capsys.readouterr().err


def test_the_flag_names_every_preset(capsys: pytest.CaptureFixture[str]) -> None:
    """The help of --preset lists them all."""
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    *first, last = PRESETS
    assert f"{', '.join(first)} or {last} (policy.preset; default: " in shown
