"""`python -m tests.lab.guard_eval`: what the guard's rules find, what they miss, and what they find for nothing.

Values of each kind are drawn from their forms and planted in recorded runs; a value is found if masks would cover all
of it; of detect-secrets, which reports lines, if it reports its line. What is found elsewhere in these texts, in lock
files, ids and encoded data, and in the runs, is false. Rules were tuned on one half of the runs and of others' test
sets; figures are of the other half.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.guard.rules import RuleGroup, default_rules
from tests.lab.guard_eval import material
from tests.lab.guard_eval.material import MEMBERS, drawn, negatives, planted
from tests.lab.guard_eval.measuring import DetectSecrets, Finder, Guard, Span
from tests.lab.harness.environments import Unavailable
from tests.lab.harness.figures import wilson
from tests.lab.harness.prompts import leaves
from tests.lab.harness.tables import console, options, sorry, table
from tests.oracle.data import ENVIRONMENT, document, lines, present

_WIDTH: Final = 140
TUNED_ON: Final = ("pi-large", "cc-entire-cli", "codex-git-sync", "swe-pandas-53652")
"""Runs on which rules were tuned; the others are held out."""
_PLACEHOLDER: Final = ("xxxxx", "example", "zzzzz")
"""What fixtures write in place of a key, which the rules leave alone on purpose."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; it asserts no figure."""
    asked = _arguments(arguments)
    runs = list(present("runs/*.json.gz"))
    if not runs:
        return sorry("guard-eval", f"no recorded data; {ENVIRONMENT} names the folder that holds it", 2)
    to = console(_WIDTH)
    finders: list[Finder] = [Guard()]
    if not asked.alone:
        try:
            finders.append(DetectSecrets())
        except Unavailable as error:
            to.print(f"without detect-secrets: {error}\n")
    held_out = {path.name: _texts(path) for path in runs if not path.name.startswith(TUNED_ON)}
    to.print(_planted(finders, [text for texts in held_out.values() for text in texts], asked.each))
    sorts = {**{name: [text] for name, text in negatives(1).items()}, **held_out}
    sorts |= {f"{path.name} (tuned on)": _texts(path) for path in runs if path.name.startswith(TUNED_ON)}
    to.print(_false(finders, sorts))
    to.print(_behind_names(runs, asked.each))
    sets: list[material.Fixture] = []
    if asked.detect_secrets:
        sets += material.detect_secrets(asked.detect_secrets)
    if asked.gitleaks:
        sets += material.gitleaks(asked.gitleaks)
    if sets:
        to.print(_fixtures(finders, sets))
    for path in present("injections/agentdojo-payloads.jsonl.gz"):
        to.print(_injections(path))
    return 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = options("python -m tests.lab.guard_eval", __doc__)
    add = partial(parser.add_argument, metavar="FOLDER", type=Path)
    parser.add_argument("--each", type=int, default=60, metavar="N", help="values of each kind to plant (default: 60)")
    parser.add_argument("--alone", action="store_true", help="without detect-secrets beside it")
    add("--detect-secrets", help="a checkout of Yelp/detect-secrets, for its test sets")
    add("--gitleaks", help="a checkout of gitleaks/gitleaks, for the texts beside its rules")
    return parser.parse_args(arguments)


def _planted(finders: Sequence[Finder], hosts: Sequence[str], each: int) -> Table:
    cases = list(planted([host for host in hosts if 200 <= len(host)], each, 1))
    headings = ["kind", *(heading for finder in finders for heading in (finder.name, "95 %"))]
    made = table(f"Values planted in held-out runs, {each} of each kind: the share that is found", headings)
    by_finder = []
    for finder in finders:
        found = finder.find([case.text for case in cases])
        hits = Counter(
            case.kind
            for case, spans in zip(cases, found, strict=True)
            if _covers(spans, case.start, case.end)
            or (finder.by_line and any(_touches(span, case.start, case.end) for span in spans))
        )
        false = sum(
            not _touches(span, case.start, case.end) for case, spans in zip(cases, found, strict=True) for span in spans
        )
        by_finder.append((hits, false))
    for kind in dict.fromkeys(case.kind for case in cases):
        row = [part for hits, _ in by_finder for part in _share(hits[kind], each)]
        made.add_row(kind, *row)
    made.add_section()
    recall = [part for hits, _ in by_finder for part in _share(hits.total(), len(cases))]
    made.add_row("recall", *recall)
    precision = [part for hits, false in by_finder for part in _share(hits.total(), hits.total() + false)]
    made.add_row("precision", *precision)
    return made


def _false(finders: Sequence[Finder], sorts: Mapping[str, Sequence[str]]) -> Table:
    headings = ("text", "MB", *(part for finder in finders for part in (finder.name, "a MB")))
    made = table("Texts without secrets: finds that would be masked", headings)
    rules: dict[str, Counter[str]] = defaultdict(Counter)
    for name, texts in sorts.items():
        size = sum(len(text.encode(errors="replace")) for text in texts) / 1e6
        row = [name, f"{size:.2f}"]
        for finder in finders:
            spans = [span for found in finder.find(texts) for span in found]
            rules[finder.name].update(span[2] for span in spans)
            row += [f"{len(spans):,}", f"{len(spans) / size:,.1f}"]
        made.add_row(*row)
    made.caption = "; ".join(
        f"{name}: {', '.join(f'{rule} {number:,}' for rule, number in found.most_common(6)) or 'none'}"
        for name, found in rules.items()
    )
    return made


def _behind_names(runs: Sequence[Path], each: int) -> Table:
    """Strings of structured data that the guard also looks at behind the names of their members."""
    rules = default_rules(GuardOptions(ENFORCE))
    headings = ("run", "strings", "behind the name of a secret", "found by that")
    made = table("Strings of structured data behind the names of their members", headings)
    for path in runs:
        members = list(dict.fromkeys(_members(document(path))))
        named = [member for member in members if rules.names(member[0])]
        alone = rules.scan([text for _, text in named])
        found = [len(behind) > len(finds) for behind, finds in zip(rules.scan_named(named), alone, strict=True)]
        made.add_row(path.name, f"{len(members):,}", f"{len(named):,}", str(sum(found)))
    values = [(name, value) for name in MEMBERS for value in drawn("named_secret", each, 1)]
    hits = sum(any(find.start == 0 for find in finds) for finds in rules.scan_named(values))
    share, interval = _share(hits, len(values))
    made.caption = f"passwords as members with {len(MEMBERS)} names: found {share} ({interval})"
    return made


def _members(value: Any, of: str = "") -> Iterator[tuple[str, str]]:
    """The strings of a decoded value, each with the name of its member."""
    if isinstance(value, str):
        yield of, value
    elif isinstance(value, list):
        for each in value:
            yield from _members(each, of)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _members(each, name)


def _fixtures(finders: Sequence[Finder], sets: Sequence[material.Fixture]) -> Table:
    names = [f"{finder.name} found" for finder in finders]
    title = "Test sets that others wrote, the held-out half (in brackets: the half tuned on)"
    made = table(title, ["set", "texts with a secret", *names, "without", *names])
    found = [[bool(spans) for spans in finder.find([each.text for each in sets])] for finder in finders]
    missed: Counter[str] = Counter()

    def shares(source: str, *, secret: bool) -> Iterator[str]:
        of = {
            held: [
                index
                for index, each in enumerate(sets)
                if each.source == source and each.secret is secret and each.held_out is held
                and not (secret and any(word in each.text.lower() for word in _PLACEHOLDER))
            ]
            for held in (True, False)
        }  # fmt: skip
        yield f"{len(of[True])} ({len(of[False])})"
        for number, hits in enumerate(found):
            held, tuned = (sum(hits[index] for index in of[half]) for half in (True, False))
            low, high = wilson(held, len(of[True]))
            yield f"{held} [{low:.0%}-{high:.0%}] ({tuned})"
            if secret and not number:
                missed.update(f"{source}/{sets[index].kind}" for index in of[True] if not hits[index])

    for source in dict.fromkeys(each.source for each in sets):
        made.add_row(source, *shares(source, secret=True), *shares(source, secret=False))
    made.caption = "missed: " + ", ".join(f"{kind} {number}" for kind, number in missed.most_common())
    return made


def _injections(path: Path) -> Table:
    """Which look-alikes stand in rendered prompt injections, by attack."""
    rows = lines(path)
    rules = default_rules()
    found = rules.scan([row["payload"] for row in rows])
    title = f"{len(rows)} rendered prompt injections: the share in which a rule for look-alikes finds something"
    made = table(title, ("attack", "payloads", "found", "rules"), left=range(4))
    by_attack: dict[str, list[set[str]]] = defaultdict(list)
    for row, finds in zip(rows, found, strict=True):
        by_attack[row["attack"]].append({find.rule.name for find in finds if find.rule.group is RuleGroup.LOOKALIKES})
    for attack, names in by_attack.items():
        counted = Counter(name for each in names for name in each)
        hits = sum(map(bool, names))
        made.add_row(
            attack, str(len(names)), f"{hits} ({hits / len(names):.0%})", ", ".join(map(_times, counted.items()))
        )
    total = sum(bool(names) for each in by_attack.values() for names in each)
    made.caption = f"in all {total} of {len(rows)}; the rest are plain sentences, which no rule is for"
    return made


def _times(counted: tuple[str, int]) -> str:
    return f"{counted[0]} {counted[1]}"


def _covers(spans: Sequence[Span], start: int, end: int) -> bool:
    """Whether spans together cover a range."""
    for first, last, _ in sorted(spans):
        if first <= start < last:
            start = last
    return start >= end


def _touches(span: Span, start: int, end: int) -> bool:
    return span[0] < end and start < span[1]


def _share(hits: int, of: int) -> tuple[str, str]:
    low, high = wilson(hits, of)
    return f"{hits}/{of} {hits / max(of, 1):.1%}", f"{low:.1%}-{high:.1%}"


def _texts(path: Path) -> Sequence[str]:
    """The different texts of a run, in their order."""
    return list(dict.fromkeys(leaves(document(path))))


if __name__ == "__main__":
    sys.exit(main())
