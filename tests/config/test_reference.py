"""The example file and the pages on settings and policy say what the declarations say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.config.reference import GROUPS, example, sections
from prompt_sidecar.config.settings import SETTINGS, Settings, load
from prompt_sidecar.facts.limits import Limits, RecallLimits
from prompt_sidecar.recall.found import SearchLimits
from prompt_sidecar.trim.policy import KNOBS
from tests.config import policy_page, settings_page
from tests.config.settings_page import BLOCK, ELSEWHERE, TITLES, remade


def _file(folder: Path, text: str) -> str:
    path = folder / "sidecar.toml"
    path.write_text(text)
    return str(path)


def test_every_knob_stands_in_one_group() -> None:
    """A knob whose name no stage's prefix fits would be missing from tables and documents."""
    assert sorted(KNOBS) == sorted(name for group in GROUPS for name in group.knobs)


def test_the_example_file_explains_every_setting(tmp_path: Path) -> None:
    """Every setting stands in it; as it is it changes nothing; uncommented it gives the defaults again."""
    text = example()
    assert Settings() == load({}, config=_file(tmp_path, text))
    lines = [line.removeprefix("# ") for line in text.splitlines()]
    wanted = [line for line in lines if line.startswith("[") or (" = " in line and line.split(" = ")[0].isidentifier())]
    settings = load({}, config=_file(tmp_path, "\n".join(line for line in wanted if not line.startswith("key"))))
    assert Settings().policy == settings.policy
    assert (ServerOptions(), Limits()) == (settings.server, settings.limits)
    assert (RecallLimits(), SearchLimits()) == (settings.recall, settings.search)
    assert len(SETTINGS) - 1 == len(settings.sources)
    assert max(map(len, text.splitlines())) <= 120


def test_the_example_file_is_up_to_date() -> None:
    """The committed example is what `check-config --example` prints."""
    committed = Path(__file__).parents[2] / "deploy" / "prompt-sidecar.example.toml"
    assert example() == committed.read_text()


def test_advanced_settings_stand_apart_in_the_example() -> None:
    """In each table they follow a line that says so."""
    text = example()
    for table, settings in sections().items():
        if any(each.advanced for each in settings.values()):
            start = text.index(f"[{table}]\n")
            apart = text.index(f"# Advanced settings of [{table}]")
            for key, each in settings.items():
                assert each.advanced == (text.index(f"\n# {key} = ", start) > apart), key


@pytest.mark.parametrize(
    ("path", "blocks", "module"),
    [
        (settings_page.PAGE, settings_page.BLOCKS, "tests.config.settings_page"),
        (policy_page.PAGE, policy_page.BLOCKS, "tests.config.policy_page"),
    ],
    ids=["settings", "policy"],
)
def test_pages_are_current(path: Path, blocks: Mapping[str, Callable[[], Iterator[str]]], module: str) -> None:
    """The generated blocks of docs/settings.md and docs/policy.md are what the declarations make; none is missing."""
    page = path.read_text(encoding="utf-8")
    assert sorted(blocks) == sorted(found[2] for found in BLOCK.finditer(page))
    assert page == remade(page, blocks), f"run python -m {module}"


def test_every_setting_stands_on_a_page() -> None:
    """Once: on the page of settings, or with the policy's knobs."""
    assert set(TITLES) == set(sections())
    settings = settings_page.PAGE.read_text(encoding="utf-8")
    policy = policy_page.PAGE.read_text(encoding="utf-8")
    for name in SETTINGS:
        table, _, key = name.rpartition(".")
        page, shown = (policy, key) if table == ELSEWHERE else (settings, name)
        if name != "policy.preset":
            assert 1 == page.count(f"\n| `{shown}` | {SETTINGS[name].what} |"), name
