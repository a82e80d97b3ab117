"""Rules of other scanners, read from files in the format of gitleaks and betterleaks.

A file is TOML, with a table `[[rules]]` for each kind of secret. Read of it are `id`, `regex` (RE2 syntax, as ours),
`secretGroup`, `entropy`, allowlists of values (`[[rules.allowlists]]`, `[[allowlists]]` and their older forms), and
betterleaks' filters as far as they compare entropy or list values. Conditions on paths, commits and requests to the
service are not for prompts and are ignored. Left out are rules for files of some names, parts of composite rules that
are not reported alone, and patterns that are too large.

    rules = read("gitleaks.toml")

The format's reference: https://github.com/gitleaks/gitleaks#configuration (November 2026).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import re2

from prompt_sidecar.files import read_file
from prompt_sidecar.guard import scanner
from prompt_sidecar.guard.rule import BEGIN, VALUE, Exclusion, Rule, RuleAction, RuleGroup

FILE_BYTES: Final = 4_194_304
"""Size of a file of rules: betterleaks' own has 0.5 MB."""
FILE_RULES: Final = 2_000
"""Rules in a file: betterleaks' own has 400."""
FILE_INSTRUCTIONS: Final = 600_000
"""Size of all patterns of a file together: those of betterleaks' own have 200,000, the sidecar's own rules 41,000."""
_NAME_CHARACTERS: Final = 48
"""Of a rule's id; a mask can show 64."""
_NO_NAME: Final = re.compile(r"[^a-z0-9]+")
_PREAMBLE: Final = re.compile(r"(?<![\\\[])\[\\w\.-\]\{0,[0-9]{1,2}\}\?(?=\(|\[)")
"""Characters before the name of a service that a pattern may match and need not: without them it finds the same."""
_END: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\z")
_UNUSABLE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\[AC]")
_PART: Final = re.compile(
    r"(?P<not>!)?\s*(?:filter\.)?(?:"
    r"entropy\(finding\[\"secret\"\]\)\s*(?P<less><=?)\s*(?P<bits>[0-9]+(?:\.[0-9]+)?)"
    r"|(?P<list>matchesAny|containsAny)\(finding\[\"(?P<target>secret|match|line)\"\],\s*"
    r"\[(?P<values>(?:[\s,]|`[^`]*`|\"(?:[^\"\\]|\\.)*\")*)\]\))\s*",
    re.DOTALL,
)
"""A condition of a filter that is understood: values for which it holds are no finds."""
_STRING: Final = re.compile(r"`([^`]*)`|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
_EITHER: Final = re.compile(r"\s*\|\|\s*")


class RuleFileError(ValueError):
    """A file cannot be read, or is not one of rules; the message says why, and follows the file's name."""


@dataclass(frozen=True, slots=True)
class RuleFile:
    """What was read from a file."""

    rules: Sequence[Rule]
    left_out: Mapping[str, str]
    """Why rules of the file are not used, by their ids."""
    ignored: Sequence[str]
    """Ids of rules that are used with fewer conditions than they have in the file, so that they find more."""
    extends: bool
    """Whether the file is in addition to another one, which is not read."""


@cache
def read(path: str) -> RuleFile:
    """Read a file of rules; once for each path, so that all runs of a process have the same rules.

    Raises:
        RuleFileError: the file cannot be read, is not TOML, has no rules or too many, or a pattern of it is not RE2's.
    """
    try:
        data = read_file(path)
    except OSError as error:
        raise RuleFileError(f"cannot be read: {error.strerror}") from None
    if len(data) > FILE_BYTES:
        raise RuleFileError(f"has more than {FILE_BYTES:,} bytes")
    try:
        tree = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise RuleFileError(f"is not TOML: {error}") from None
    given = tree.get("rules")
    if not isinstance(given, list) or not given or not all(isinstance(each, dict) for each in given):
        raise RuleFileError("has no [[rules]] as files of gitleaks and betterleaks have them")
    if len(given) > FILE_RULES:
        raise RuleFileError(f"has {len(given):,} rules; accepted: {FILE_RULES:,}")
    everywhere = _Conditions()
    for each in _listed(tree, "allowlist", "allowlists"):
        if not each.get("targetRules"):
            everywhere.add_allowlist(each)
    everywhere.add_filter(tree.get("filter", ""))
    rules: list[Rule] = []
    left_out: dict[str, str] = {}
    ignored: list[str] = []
    size = 0
    for table in given:
        name = _text(table, "id")
        reason, instructions = _unused(table)
        size += instructions
        if size > FILE_INSTRUCTIONS:
            raise RuleFileError(f"has patterns of more than {FILE_INSTRUCTIONS:,} instructions together")
        if reason:
            left_out[name] = reason
            continue
        conditions = _Conditions()
        for each in _listed(table, "allowlist", "allowlists"):
            conditions.add_allowlist(each)
        for each in _listed(tree, "allowlists"):
            if name in each.get("targetRules", ()):
                conditions.add_allowlist(each)
        conditions.add_filter(table.get("filter", ""))
        if conditions.ignored or everywhere.ignored:
            ignored.append(name)
        rules.append(_rule(table, name, conditions, everywhere))
    return RuleFile(rules, left_out, ignored, "extend" in tree)


def described(path: str) -> Iterator[str]:
    """Yield sentences about what was read from a file, for people. Raises RuleFileError as `read` does."""
    file = read(path)
    yield f"{path} adds {len(file.rules):,} rules to the guard's own."
    for reason in dict.fromkeys(file.left_out.values()):
        names = [name for name, why in file.left_out.items() if why == reason]
        yield f"Left out, as {reason}: {', '.join(names)}."
    if file.ignored:
        yield (
            "Used without conditions that are not understood, so that they may find more than their scanner: "
            f"{', '.join(file.ignored)}."
        )
    if file.extends:
        yield "The file that it extends is not read: guard.rule_files may name it too."


def named_apart(files: Iterable[RuleFile], taken: Iterable[str]) -> Iterator[Rule]:
    """Yield the rules of some files under names that are neither taken nor used twice: a number is put behind."""
    names = set(taken)
    for file in files:
        for rule in file.rules:
            name, number = rule.name, 2
            while name in names:
                name, number = f"{rule.name}_{number}", number + 1
            names.add(name)
            yield replace(rule, name=name)


class _Conditions:
    """What makes a match no find, of one rule or of all in a file."""

    def __init__(self) -> None:
        self.entropy = 0.0
        self.exclusions: list[Exclusion] = []
        self.ignored = False

    def add_allowlist(self, table: Mapping[str, Any]) -> None:
        """Add an allowlist; its paths and commits are not for prompts."""
        target = _text(table, "regexTarget", "secret") or "secret"
        patterns = [("secret" if target not in {"match", "line"} else target, _either(_texts(table, "regexes")))]
        patterns.append(("secret", _words(_texts(table, "stopwords"))))
        used = [(where, _valid(pattern)) for where, pattern in patterns if pattern]
        if _text(table, "condition", "OR").upper() == "AND":
            if used and not table.get("paths") and not table.get("commits"):
                self.exclusions.append(tuple(used))
        else:
            self.exclusions += [(each,) for each in used]

    def add_filter(self, text: object) -> None:
        """Add the conditions of betterleaks' filter that are understood; others are ignored."""
        if not isinstance(text, str) or not text.strip():
            return
        at, text = 0, text.strip()
        if text.startswith("(") and text.endswith(")"):
            text = text[1:-1].strip()
        while True:
            part = _PART.match(text, at)
            if part is None:
                self.ignored = True
                return
            self._add(part)
            either = _EITHER.match(text, part.end())
            if either is None:
                self.ignored |= part.end() < len(text)
                return
            at = either.end()

    def _add(self, part: re.Match[str]) -> None:
        if part["not"]:
            self.ignored = True
        elif part["bits"]:
            self.entropy = max(self.entropy, float(part["bits"]))
        else:
            found = [plain or _unescaped(quoted) for plain, quoted in _STRING.findall(part["values"])]
            pattern = _either(found) if part["list"] == "matchesAny" else _words(found)
            if pattern:
                self.exclusions.append(((part["target"], _valid(pattern)),))


def _unused(table: Mapping[str, Any]) -> tuple[str, int]:
    """Return why a rule is not used, empty if it is, and the size of its pattern, in instructions."""
    if not table.get("regex"):
        return "there is no pattern", 0
    if table.get("path"):
        return "they are for files of some names", 0
    if table.get("skipReport"):
        return "they are parts of others", 0
    pattern = _text(table, "regex")
    if _UNUSABLE.search(pattern):
        return r"\A and \C cannot be used where many texts are searched at once", 0
    try:
        size = scanner.size(pattern)
    except ValueError as error:
        raise RuleFileError(
            f"has a pattern that is no RE2 expression, in the rule {table.get('id')}: {error}"
        ) from None
    if size > scanner.MOST_INSTRUCTIONS:
        return f"the pattern is too large (of {size:,} instructions; accepted: {scanner.MOST_INSTRUCTIONS:,})", 0
    return "the pattern matches the empty text" if scanner.matches_nothing(pattern) else "", size


def _rule(table: Mapping[str, Any], name: str, own: _Conditions, everywhere: _Conditions) -> Rule:
    pattern = _END.sub(r"\1$", _PREAMBLE.sub("", _text(table, "regex")))
    group = table.get("secretGroup", 0)
    if not isinstance(group, int) or group < 0:
        raise RuleFileError(f"has a secretGroup that is no number, in the rule {name}")
    pattern, groups = _with_value(pattern, group)
    if group > groups:
        raise RuleFileError(f"has a pattern with {groups} groups and secretGroup {group}, in the rule {name}")
    label = _NO_NAME.sub("_", name.lower()).strip("_")[:_NAME_CHARACTERS] or "rule"
    entropy = table.get("entropy", 0)
    if not isinstance(entropy, (int, float)):
        raise RuleFileError(f"has an entropy that is no number, in the rule {name}")
    near = _near(pattern)
    return Rule(
        label,
        label,
        RuleGroup.SECRETS,
        pattern,
        action=RuleAction.MASK,
        near=near,
        keywords="" if near else _words(_texts(table, "keywords")),
        any_group=group == 0 and groups > 0,
        entropy=max(float(entropy), own.entropy, everywhere.entropy),
        exclusions=(*own.exclusions, *everywhere.exclusions),
    )


def _with_value(pattern: str, group: int) -> tuple[str, int]:
    """Return a pattern whose value is in the given group, and how many it has; of 0, it is in the only one."""
    pattern = scanner.GROUP.sub(lambda found: found[1] or "(", pattern)  # groups' own names may be ours
    groups = [found for found in scanner.GROUP.finditer(pattern) if found[1] is None]
    chosen = group or (1 if len(groups) == 1 else 0)
    if not 0 < chosen <= len(groups):
        return pattern, len(groups)
    found = groups[chosen - 1]
    return f"{pattern[: found.start()]}(?P<{VALUE}>{pattern[found.end() :]}", len(groups)


def _valid(pattern: str) -> str:
    """Return a pattern for values that are no secrets. Raises RuleFileError if it is not RE2's."""
    try:
        scanner.size(pattern)
    except ValueError as error:
        raise RuleFileError(
            f"lists values that are no secrets by a pattern that is no RE2 expression: {error}"
        ) from None
    return pattern


def _near(pattern: str) -> str:
    r"""Return the beginning of the pattern of a key with a prefix, which begins with `\b`; empty: it is none."""
    if not pattern.startswith(r"\b") or scanner.has_alternatives(pattern):
        return ""
    whole = BEGIN + pattern.removeprefix(r"\b")
    near = scanner.beginning(whole)
    return "" if near == whole else _valid(near)


def _either(patterns: Sequence[str]) -> str:
    return "|".join(f"(?:{each})" for each in patterns)


def _words(words: Sequence[str]) -> str:
    """Return a pattern for one of some words, in letters of any case."""
    return f"(?i:{'|'.join(map(re2.escape, words))})" if words else ""


def _unescaped(quoted: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)


def _listed(table: Mapping[str, Any], *names: str) -> Iterator[Mapping[str, Any]]:
    for name in names:
        each = table.get(name)
        yield from [one for one in each if isinstance(one, dict)] if isinstance(each, list) else ()
        if isinstance(each, dict):
            yield each


def _text(table: Mapping[str, Any], name: str, default: str = "") -> str:
    value = table.get(name, default)
    if not isinstance(value, str):
        raise RuleFileError(f"has a rule whose {name} is no text: {str(table.get('id'))[:80]}")
    return value


def _texts(table: Mapping[str, Any], name: str) -> Sequence[str]:
    value = table.get(name, ())
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise RuleFileError(f"has an allowlist whose {name} are no texts")
    return [each for each in value if each]
