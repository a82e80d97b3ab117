"""Files of rules in the format of gitleaks and betterleaks."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.cli.commands import main
from prompt_sidecar.config.settings import SettingsError, load
from prompt_sidecar.guard import rule_files
from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.guard.rule_files import RuleFileError, read
from prompt_sidecar.guard.rules import RULES, RuleSet, default_rules
from prompt_sidecar.guard.scanner import Scanner

_FILE = r"""
title = "made up"

[allowlist]
paths = ['''\.lock$''']
regexes = ['''^acme_demo''']
stopwords = ["sample"]

[[rules]]
id = "acme-api-key"
description = "A key of Acme"
regex = '''\b(acme_[a-z0-9]{20})(?:[\x60'"\s;]|\\[nr]|\z)'''
entropy = 3
keywords = ["acme_"]

[[rules]]
id = "Borg.password"
regex = '''(?i)[\w.-]{0,50}?(?:borg)(?:[ \t\w.-]{0,20})[\s'"]{0,3}(?:=|:)[\s'"]{0,5}(?P<kind>v[12])-([a-z0-9]{8,})'''
secretGroup = 2
keywords = ["borg"]
  [[rules.allowlists]]
  condition = "AND"
  regexes = ['''^0''']
  stopwords = ["000"]
  [[rules.allowlists]]
  condition = "AND"
  paths = ['''test''']
  regexes = ['''.''']
  [[rules.allowlists]]
  regexTarget = "line"
  regexes = ['''do not use''']
  [[rules.allowlists]]
  regexTarget = "match"
  regexes = ['''v1-''']

[[rules]]
id = "either"
regex = '''either=(?:<([a-z]{4})>|\(([a-z]{4})\))'''
keywords = ["either"]

[[rules]]
id = "corp"
regex = '''\b(corp_[a-z0-9]{20})|corpo:[0-9]{24}'''
keywords = ["corp"]

[[rules]]
id = "jwt"
regex = '''jaywt-[0-9]{6}'''

[[rules]]
id = "file-only"
path = '''\.p12$'''

[[rules]]
id = "of-yaml"
regex = '''x-[0-9]{9}'''
path = '''\.ya?ml$'''

[[rules]]
id = "part"
regex = '''id-[0-9]{9}'''
skipReport = true

[[rules]]
id = "large"
regex = '''large[a-z]{0,900}x[a-z]{0,900}y[a-z]{0,900}z[a-z]{0,900}'''

[[rules]]
id = "empty"
regex = '''y*'''
"""
_KEY = "acme_" + "q7k2v9z4r8w3m6x1t5p0"
_FILTERS = r"""
filter = '''(matchesAny(finding["secret"], [`^zz`, "^yy\"y"]) || containsAny(finding["secret"], ["forbidden"]))'''
[[rules]]
id = "one"
regex = '''one-([a-z\"]{8,})'''
keywords = ["one-"]
filter = '''entropy(finding["secret"]) <= 2.0
|| filter.matchesAny(finding["match"], [
  `ende$`,
])
'''
[[rules]]
id = "two"
regex = '''two-([a-z]{8,})'''
keywords = ["two-"]
filter = '''
entropy(finding["secret"]) < 1.5 || !matchesAny(finding["secret"], ["[0-9]"])
'''
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """The path of a file with the rules above."""
    return _written(tmp_path, _FILE)


def _written(folder: Path, text: str) -> str:
    file = folder / "rules.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def _found(rules: RuleSet, text: str) -> list[tuple[str, str]]:
    return [(find.rule.name, text[find.start : find.end]) for find in rules.scan([text])[0]]


def _options(path: str) -> GuardOptions:
    return GuardOptions(ENFORCE, rule_files=(path,))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"use {_KEY}\nnow", [("acme_api_key", _KEY)]),
        (_KEY, [("acme_api_key", _KEY)]),
        (f"é {_KEY}\n", [("acme_api_key", _KEY)]),
        ("use acme_aaaaaaaaaaaaaaaaaaaa now", []),  # too little entropy
        ("use acme_demo7k2v9z4r8w3m6x1 now", []),  # on the list of the file
        ("use acme_sample2v9z4r8w3m6x1 now", []),
        ("my_borg_thing: 'v2-hunterman'", [("borg_password", "hunterman")]),
        ("my_borg_thing: 'v2-0unterman'", [("borg_password", "0unterman")]),
        ("my_borg_thing: 'v2-000terman'", []),  # both conditions
        ("my_borg_thing: 'v2-hunterman' # do not use", []),
        ("my_borg_thing: 'v1-hunterman'", []),
        ("either=<abcd> either=(efgh)", [("either", "abcd"), ("either", "efgh")]),
        (f"corp_{_KEY[5:]}, corpo:{'1234' * 6}", [("corp", "corp_" + _KEY[5:]), ("corp", "corpo:" + "1234" * 6)]),
        ("jaywt-123456", [("jwt_2", "jaywt-123456")]),
        ("x-123456789 id-123456789", []),
    ],
)
def test_a_rule_of_a_file_finds(text: str, found: list[tuple[str, str]]) -> None:
    """A rule finds the values of its group but those that conditions of the file and its own leave out."""
    assert found == _found(_rules(), text)


def test_rules_that_are_left_out_are_listed(path: str) -> None:
    """Rules that are not for prompts, or too large, are left out, each with the reason."""
    file = read(path)
    assert ["acme_api_key", "borg_password", "either", "corp", "jwt"] == [rule.name for rule in file.rules]
    assert ["empty", "file-only", "large", "of-yaml", "part"] == sorted(file.left_out)
    assert "instructions" in file.left_out["large"]
    sentences = list(rule_files.described(path))
    assert sentences[0].endswith("adds 5 rules to the guard's own.")
    assert "Left out, as they are for files of some names: of-yaml." in sentences


def test_filters_are_understood_as_far_as_they_go(tmp_path: Path) -> None:
    """Entropy and lists of values are taken from betterleaks' filters; a rule with more of them is named."""
    path = _written(tmp_path, _FILTERS)
    rules = default_rules(_options(path))
    for text, found in (
        ("one-abcdefgh", ["one"]),
        ("one-aaaabbbb", []),
        ("one-abcdefghende", []),
        ("one-zzabcdefgh", []),
        ('one-yy"yabcdefgh', []),
        ("one-xforbiddenx", []),
        ("two-abcdefgh", ["two"]),
        ("two-aaaaaaaa", []),
    ):
        assert found == [name for name, _ in _found(rules, text)], text
    assert ["two"] == read(path).ignored


def test_a_file_that_extends_another(tmp_path: Path) -> None:
    """The other file is not read, and a sentence says so."""
    path = _written(tmp_path, "[extend]\nuseDefault = true\n[[rules]]\nid = 'a'\nregex = 'ab'\n")
    assert "The file that it extends is not read" in [*rule_files.described(path)][-1]


def test_an_action_turns_a_rule_of_a_file_off(path: str) -> None:
    """`guard.actions` names rules of files as others, and a misspelled one is refused."""
    rules = default_rules(replace(_options(path), actions=("acme_api_key=off",)))
    assert "acme_api_key" not in {rule.name for rule in rules.rules}
    environment = {"PROMPT_SIDECAR_GUARD__RULE_FILES": path, "PROMPT_SIDECAR_GUARD__ACTIONS": "acme_api_kee=off"}
    with pytest.raises(SettingsError, match="did you mean acme_api_key"):
        load(environment)
    assert (path,) == load({**environment, "PROMPT_SIDECAR_GUARD__ACTIONS": "acme_api_key=off"}).guard.rule_files


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[rules", "not TOML"),
        ("title = 'x'", "has no [[rules]]"),
        ("rules = 3", "has no [[rules]]"),
        ("[[rules]]\nid = 'a'\nregex = '(?=a)'", "no RE2 expression, in the rule a"),
        ("[[rules]]\nid = 'a'\nregex = 3", "whose regex is no text"),
        ("[[rules]]\nid = 'a'\nregex = 'ab'\nsecretGroup = 'x'", "secretGroup"),
        ("[[rules]]\nid = 'a'\nregex = '(a)b'\nsecretGroup = 2", "1 groups and secretGroup 2"),
        ("[[rules]]\nid = 'a'\nregex = 'ab'\nentropy = 'x'", "entropy"),
        ("[[rules]]\nid = 'a'\nregex = 'ab'\nkeywords = [3]", "keywords"),
        ("[allowlist]\nregexes = ['(']\n[[rules]]\nid = 'a'\nregex = 'ab'", "no secrets by a pattern"),
        ("[[rules]]\nid = 'a'\nregex = 'ab'\n" * (rule_files.FILE_RULES + 1), "2,001 rules"),
        ("#" * (rule_files.FILE_BYTES + 1), "4,194,304 bytes"),
    ],
)
def test_a_bad_file_stops_the_start(tmp_path: Path, text: str, words: str) -> None:
    """What is wrong with a file is said with its name, and the start ends."""
    path = _written(tmp_path, text)
    with pytest.raises(RuleFileError) as raised:
        read(path)
    assert words in str(raised.value)
    with pytest.raises(SettingsError, match=r"guard\.rule_files") as refused:
        load({"PROMPT_SIDECAR_GUARD__RULE_FILES": path})
    assert path in str(refused.value)


def test_patterns_that_are_too_large_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pattern may be small enough, and all of them not."""
    path = _written(tmp_path, "[[rules]]\nid = 'a'\nregex = 'x[a-z]{0,900}y'\n" * 3)
    monkeypatch.setattr(rule_files, "FILE_INSTRUCTIONS", 2_000)
    with pytest.raises(RuleFileError, match="more than 2,000 instructions together"):
        read(path)


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    """So does a path where nothing is."""
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        load({"PROMPT_SIDECAR_GUARD__RULE_FILES": str(tmp_path / "none.toml")})


def test_settings_of_another_machine_need_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    """`check-config --no-files` reads no file, so an action may be for a rule of one."""
    settings = ["--set", "guard.rule_files=/nowhere/rules.toml", "--set", "guard.actions=acme_api_key=off"]
    assert 0 == main(["check-config", "--no-files", *settings])
    assert 2 == main(["check-config", *settings])
    assert "/nowhere/rules.toml cannot be read" in capsys.readouterr().err


def test_files_change_the_digest(path: str) -> None:
    """Replicas with other files have another digest; without files it is that of the rules alone."""
    with_file, without = default_rules(_options(path)), default_rules(GuardOptions(ENFORCE))
    assert with_file.digest != without.digest
    assert len(without.rules) + 5 == len(with_file.rules)
    assert set(RULES) < {rule.name for rule in with_file.rules}


def test_the_command_finds_and_explains(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`prompt-sidecar guard` finds by rules of files; with --rules, and in check-config, it says what was left out."""
    log = tmp_path / "a.log"
    log.write_text(f"key {_KEY} used\n", encoding="utf-8")
    settings = ["--set", f"guard.rule_files={path}"]
    assert 1 == main(["guard", *settings, "--fail", str(log)])
    printed = capsys.readouterr().out
    assert "acme_api_key (mask)" in printed
    assert _KEY not in printed
    assert 0 == main(["guard", *settings, "--rules", "--json"])
    both = capsys.readouterr()
    assert "acme_api_key" in {json.loads(line)["name"] for line in both.out.splitlines()}
    assert "Left out" in both.err
    assert 0 == main(["check-config", *settings])
    assert "adds 5 rules" in capsys.readouterr().out


@given(
    st.lists(
        st.sampled_from([_KEY, "borg", "_x: '", "v2-", "abcdefgh1", " ", "\n", "=", "é", "sample", "0"]), max_size=30
    )
)
def test_keywords_find_what_patterns_find(parts: list[str]) -> None:
    """A rule that is looked for by its keywords finds what it finds when it is looked for by its pattern."""
    text = "".join(parts)
    by_keywords, by_patterns = (
        [(find.start, find.end, find.rule.name) for find in scanner.scan([text])[0]] for scanner in _scanners()
    )
    assert by_keywords == by_patterns


@cache
def _rules() -> RuleSet:
    """The sidecar's rules, with those of the file above."""
    with TemporaryDirectory() as folder:
        return default_rules(_options(_written(Path(folder), _FILE)))


@cache
def _scanners() -> tuple[Scanner, Scanner]:
    """Scanners of the rules of the file above that have keywords, and of the same without."""
    with TemporaryDirectory() as folder:
        rules = [rule for rule in read(_written(Path(folder), _FILE)).rules if rule.keywords]
    assert {"borg_password", "either", "corp"} == {rule.name for rule in rules}
    return Scanner(rules), Scanner([replace(rule, keywords="") for rule in rules])
