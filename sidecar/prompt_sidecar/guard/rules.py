"""Rule sets: what the guard looks for, with the actions that are in force.

    rules = default_rules(options)
    for text, finds in zip(texts, rules.scan(texts)):
        ...

A rule set is made once and shared by all threads. It is compiled for the first text or ahead of it, with rules of
users when it is made, so that a mistake in them shows at the start.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from prompt_sidecar.guard import kinds, lookalikes, rule_files, scanner
from prompt_sidecar.guard.checks import GENERATION
from prompt_sidecar.guard.options import AUDIT, GuardOptions, UserRule
from prompt_sidecar.guard.rule import Find, Rule, RuleAction, RuleGroup
from prompt_sidecar.guard.scanner import Scanner, Watch

__all__ = ["Find", "Rule", "RuleAction", "RuleGroup", "RuleSet", "Watch", "default_rules", "faults"]

RULES: Final[Mapping[str, Rule]] = {rule.name: rule for rule in (*kinds.RULES, *lookalikes.RULES)}
"""Every rule that comes with the sidecar, by its name."""


class RuleSet:
    """Rules with their actions. Those that are off are not in it."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules: Sequence[Rule] = tuple(rule for rule in rules if rule.action is not RuleAction.OFF)
        described = [
            [rule.name, rule.kind, rule.group, rule.pattern, rule.check, rule.action, rule.names, *_conditions(rule)]
            for rule in self.rules
        ]
        self.digest: bytes = hashlib.sha256(json.dumps([GENERATION, *described]).encode()).digest()[:16]
        """Digest of everything that decides what is found and what is done about it: 16 bytes."""
        self._scanner = Scanner(self.rules)
        names = [f"(?:{rule.names})" for rule in self.rules if rule.names]
        self._names = re.compile(f"(?:{'|'.join(names)})$", re.ASCII) if names else None

    def prepare(self) -> None:
        """Compile the rules. Raises ValueError if a pattern is not an RE2 expression, or is too large."""
        self._scanner.prepare()

    @property
    def changes_text(self) -> bool:
        """Whether any rule does more than observe: masks, defangs or refuses."""
        return any(rule.action is not RuleAction.OBSERVE for rule in self.rules)

    def scan(self, texts: Sequence[str], watch: Watch | None = None) -> Sequence[Sequence[Find]]:
        """Return the finds in each text, in characters of the text, by place.

        Values of secrets and personal data do not overlap each other. Look-alikes may overlap anything; break them
        (`lookalikes.defang`) after masking, by another scan of the masked text.

        Args:
            texts: decoded texts.
            watch: limits the time for each text and counts rules that were skipped; None: no limit.
        """
        return self._scanner.scan(texts, watch)

    def names(self, name: str) -> bool:
        """Whether a rule scans a string of structured data after this name of its member."""
        return self._names is not None and self._names.search(name[-_NAME_END:]) is not None

    def scan_named(self, named: Sequence[tuple[str, str]], watch: Watch | None = None) -> Sequence[Sequence[Find]]:
        """Return the finds of rules for names in each text after its member's name, in characters of the text."""
        labels = [f"{name[-_NAME_END:]}: " for name, _ in named]
        texts = [label + text for label, (_, text) in zip(labels, named, strict=True)]
        return [
            [
                Find(find.start - len(label), find.end - len(label), find.rule)
                for find in finds
                if find.rule.names and find.start >= len(label)
            ]
            for label, finds in zip(labels, self._scanner.scan(texts, watch), strict=True)
        ]


def default_rules(options: GuardOptions | None = None) -> RuleSet:
    """Return the rules of the sidecar, of the user and of files, with the actions that are in force.

    Under `audit` finds that would be masked or defanged are observed. `faults` reports errors in the options.

    Raises ValueError if a user's pattern is not an RE2 expression, or is too large, or a file is not one of rules.
    """
    options = options or GuardOptions()
    actions = _chosen_actions(options)
    rules = [*RULES.values(), *map(_own, options.rules)]
    rules += _of_files(options, [rule.name for rule in rules])
    made = RuleSet(replace(rule, action=_in_force(rule, actions, options.mode)) for rule in rules)
    if options.rules or options.rule_files:
        made.prepare()
    return made


def faults(options: GuardOptions, *, read_files: bool = True) -> Iterator[str]:
    """Yield what is wrong with the rules and actions of the settings, a line for each fault.

    `read_files`: whether files of rules are read; if not, an action may be for a rule of one.
    """
    names = [rule.name for rule in options.rules]
    for user in options.rules:
        for fault in _faults(user):
            yield f"guard.rules: the rule {user.name} {fault}"
        if user.name in RULES or names.count(user.name) > 1:
            yield f"guard.rules: there are two rules with the name {user.name}"
    known = {**RULES, **{rule.name: _own(rule) for rule in options.rules}}
    sound = []
    for path in options.rule_files if read_files else ():
        try:
            rule_files.read(path)
            sound.append(path)
        except rule_files.RuleFileError as error:
            yield f"guard.rule_files: {path} {error}"
    if sound:
        known.update((rule.name, rule) for rule in _of_files(replace(options, rule_files=sound), [*known]))
    for name, action in _chosen_actions(options).items():
        of = [rule for rule in known.values() if name in {rule.name, rule.group}]
        if not of and len(sound) < len(options.rule_files):
            continue  # it may be a rule of a file that is not known
        if not of:
            import difflib  # only a misspelled name needs it

            close = difflib.get_close_matches(name, [*known, *RuleGroup], n=1)
            meant = f"did you mean {close[0]}?" if close else "`prompt-sidecar guard --rules` lists all"
            yield f"guard.actions names {name}, which is neither a rule nor a group; {meant}"
        elif action in _ONLY and not any(rule.group in _ONLY[action] for rule in of):
            yield f"guard.actions has {name}={action}; {action} is for {' and '.join(_ONLY[action])}"


def _of_files(options: GuardOptions, taken: Iterable[str]) -> Iterator[Rule]:
    return rule_files.named_apart(map(rule_files.read, options.rule_files), taken)


def _conditions(rule: Rule) -> Sequence[object]:
    """Return what only rules of files have, for the digest."""
    own = [rule.keywords, rule.any_group, rule.entropy, rule.exclusions]
    return own if any(own) else []


def _own(user: UserRule) -> Rule:
    group = RuleGroup(user.group)
    default = RuleAction.OBSERVE if group is RuleGroup.LOOKALIKES else RuleAction.MASK
    action = RuleAction(user.action) if user.action else default
    return Rule(
        user.name, user.kind or user.name, group, user.pattern, user.check, action, user.example, user.counterexample
    )


def _faults(user: UserRule) -> Iterator[str]:
    """Yield what is wrong with one rule of a user, each as text to follow its name."""
    rule = _own(user)
    if not _NAME.fullmatch(rule.name) or not _NAME.fullmatch(rule.kind):
        yield "must have a name and a kind of 1 to 40 lower-case letters, digits and underscores"
    if rule.action in _ONLY and rule.group not in _ONLY[rule.action]:
        yield f"has the action {rule.action}, which is for {' and '.join(_ONLY[rule.action])}"
    unusable = _UNUSABLE.search(_ESCAPED_BACKSLASH.sub("", rule.pattern))
    if unusable is not None:
        yield f"has {unusable[0]} in its pattern; many texts are searched at once: use ^ and $, and whole characters"
        return
    try:
        instructions = scanner.size(rule.pattern)
    except ValueError as error:
        yield f"has a pattern that is no RE2 expression: {error}"
        return
    if instructions > scanner.MOST_INSTRUCTIONS:
        yield f"has a pattern of {instructions:,} instructions; accepted: {scanner.MOST_INSTRUCTIONS:,}"
        return
    if scanner.matches_nothing(rule.pattern):
        yield "has a pattern that matches the empty text"
        return
    example, counterexample = Scanner([replace(rule, action=RuleAction.OBSERVE)]).scan(
        [rule.example, rule.counterexample]
    )
    if not example:
        yield "finds nothing in its example"
    if counterexample:
        yield "finds something in its counterexample"


_NAME_END: Final = 64
"""Characters of a member's name that are scanned, from its end: as many as checks see before a value."""
_NAME: Final = re.compile(r"[a-z0-9_]{1,40}")
_ESCAPED_BACKSLASH: Final = re.compile(r"\\\\")
_UNUSABLE: Final = re.compile(r"\\[ACz]|\(\?[A-Za-z]*-[A-Za-z]*m")
_ONLY: Final[Mapping[RuleAction, Sequence[RuleGroup]]] = {
    RuleAction.MASK: (RuleGroup.SECRETS, RuleGroup.PERSONAL),
    RuleAction.DEFANG: (RuleGroup.LOOKALIKES,),
}
"""What each action can be applied to: a mask represents a value, and a broken value is useless."""


def _chosen_actions(options: GuardOptions) -> Mapping[str, RuleAction]:
    return {name: RuleAction(action) for name, _, action in (each.partition("=") for each in options.actions)}


def _in_force(rule: Rule, actions: Mapping[str, RuleAction], mode: str) -> RuleAction:
    action = actions.get(rule.name) or actions.get(rule.group) or rule.action
    return RuleAction.OBSERVE if mode == AUDIT and action is not RuleAction.OFF else action
