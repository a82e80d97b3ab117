"""Code, protos and documents use the glossary's words, not the idioms that these replace."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLEAN = (
    "*.md",
    "dashboards/**/*.py",
    "deploy/**/*.md",
    "deploy/**/*.y*ml",
    "docs/**/*.md",
    "protos/**/*.proto",
    "sidecar/prompt_sidecar/**/*.py",
)
"""Files that are checked, but for `SKIPPED`."""
SKIPPED = ("CHANGELOG.md",)
"""History, which is not written again."""
WORDS = {
    r"\b(?:a )?bounds? that bit\b|\bcan bite\b|\bwhen it bites\b": "the limit was reached",
    r"\bnot (?:said|told)\b|\bnobody (?:said|told|says|tells)\b": "unset, not reported",
    r"\bwhat is said of\b|\bis said of\b": "describe it",
    r"\bmend(?:s|ed|ing)?\b": "fix, replace",
    r"\bhalf (?:a )?character\b|\bhalves of a character\b|\bhalf one\b": "lone surrogate",
    r"\ba key twice\b|\bkey that stands twice\b": "duplicate key",
    r"\bgoes? back (?:as it came|untouched|byte)": "is returned unchanged",
    r"\banew\b": "again",
    r"\bwhoever\b": "any client, the caller",
    r"\bheld (?:to|against)\b": "compared with",
    r"(?<!def )(?<![.-])\bbeside\b": "besides, in addition to, next to",
    r"\bturns that are over\b": "finished turns",
    r"\bwhat (?:came|became) of\b|\bwhat .{1,40} came to\b": "outcome",
    r"\bstands? (?:at|in|before|after|inside|around|between|for) ": "is, is placed",
    r"\bknows? (?:of|about)\b": "contains, has",
    r"\bis dear\b|\bas dear\b": "takes longer",
    r"\blikeliest to\b|\bat his first word\b": "most likely to",
    r"\b(?:is|are|was|were) told (?:from|apart)\b|\btold apart\b|\btells? apart\b": "distinguished",
    r"\bno (?:JSON|object|string|error|text|tokenizer)\b(?= (?:is|was)\b)": "not a …",
}
"""An idiom, as a regular expression, and what to write instead."""
OWN_TEXT = (
    "The registry, which stands in ",
    "which stands in system messages only",
    "uotes stand between ",
)
"""Text for models, which is part of the behaviour and stays as it is."""


def test_idioms_are_not_used() -> None:
    """None of the checked files has an idiom that the glossary replaces."""
    found = []
    for pattern in CLEAN:
        files = sorted(file for file in ROOT.glob(pattern) if file.name not in SKIPPED)
        assert files, pattern
        for file in files:
            lines = file.read_text(encoding="utf-8").splitlines()
            for number, line in enumerate(lines, 1):
                if any(text in line for text in OWN_TEXT):
                    continue
                for words, instead in WORDS.items():
                    idiom = re.search(words, line, re.IGNORECASE)
                    if idiom is not None:
                        found.append(f"{file.relative_to(ROOT)}:{number}: {idiom[0]!r}; write: {instead}")
    assert [] == found, "\n".join(found)


def test_idioms_would_be_found() -> None:
    """The list matches the phrases for which it was made."""
    examples = ("a bound that bit", "Not said: refused", "it is decided anew", "where our text stands in the prompt")
    assert all(any(re.search(words, line, re.IGNORECASE) for words in WORDS) for line in examples)


NAMES = re.compile(r"\b(?:told|came|said)(?=_|\b)|\b(?:\w*_)(?:told|came|said)(?=_|\b)|(?:Told|Came|Said)(?![a-z])")
"""Identifiers that say how a value got here, and not what it is: write answer, reported, received, text, message …"""
PROSE = re.compile(r'"""[\s\S]*?"""|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|#[^\n]*')
"""Strings and comments, which may have these words."""


def names_in(code: str) -> list[str]:
    """The forbidden identifiers of a module, each with its line."""
    code = PROSE.sub(lambda found: "\n" * found[0].count("\n"), code)
    return [f"{code.count(chr(10), 0, each.start()) + 1}: {each[0]}" for each in NAMES.finditer(code)]


def test_names_say_what_a_value_is() -> None:
    """No identifier of code or tests is, or is made with, one of these verbs."""
    found = []
    for pattern in ("dashboards/**/*.py", "sidecar/prompt_sidecar/**/*.py", "tests/**/*.py"):
        files = sorted(file for file in ROOT.glob(pattern) if "_pb2" not in file.name)
        assert files, pattern
        for file in files:
            found += [f"{file.relative_to(ROOT)}:{each}" for each in names_in(file.read_text(encoding="utf-8"))]
    assert [] == found, "\n".join(found)


def test_names_would_be_found() -> None:
    """The expression matches the names for which it was made, and neither others nor text."""
    names = (
        "told = 1",
        "self._told",
        "f(told_with=2)",
        "def is_said(): ...",
        "came_of_another",
        "class TellsTold: ...",
    )
    assert all(map(names_in, names))
    others = ("became", "camera", "Camel", "retold", "unsaid", "# who came", '"told"', '"""As the\nuser said."""')
    assert [] == [each for each in others if names_in(each)]
