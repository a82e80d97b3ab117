"""The scanner beside its slow twin, its offsets, its time, and its work."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import count, pairwise, product
from threading import Thread
from time import thread_time

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.engine.runs.guarding import SCAN_CLOCK
from prompt_sidecar.guard import lookalikes, scanner
from prompt_sidecar.guard.checks import CHECKS, CONTEXT, Check
from prompt_sidecar.guard.lookalikes import defang
from prompt_sidecar.guard.options import ENFORCE, GuardOptions, UserRule
from prompt_sidecar.guard.rule import BEGIN, Find, Rule, RuleAction, RuleGroup
from prompt_sidecar.guard.rules import RULES, RuleSet, Watch, default_rules
from tests.guard import slow

_RULES = default_rules(GuardOptions(ENFORCE, ("lookalikes=defang",)))
_LETTERS = "aZ09 _-=:\"'\n\t/.@+[]<>|!()⟦⟧é—Ａе\u200b\u202e\U000e0041\ud800\x00"
"""Letters that patterns and separators are made of, wide ones, unseen ones, and half of a pair."""


def _pieces() -> st.SearchStrategy[str]:
    """Examples and counterexamples, whole or cut, in other letters, and noise."""
    examples = st.sampled_from([text for rule in RULES.values() for text in (rule.example, rule.counterexample)])
    cut = st.tuples(examples, st.integers(0, 40), st.integers(0, 40)).map(
        lambda parts: parts[0][parts[1] : max(parts[1], len(parts[0]) - parts[2])]
    )
    wide = examples.map(lambda text: text.translate({code: code + 0xFEE0 for code in range(0x21, 0x7F)}))
    return st.one_of(examples, cut, wide, st.text(_LETTERS, max_size=8))


_TEXTS = st.lists(_pieces(), max_size=6).map("".join)


def _seen(finds: Sequence[Find]) -> list[tuple[int, int, str]]:
    return [(find.start, find.end, find.rule.name) for find in finds]


@given(st.lists(_TEXTS, max_size=6))
def test_all_texts_at_once_as_one_rule_at_a_time(texts: list[str]) -> None:
    """Many texts at once have the finds that Python's `re` has rule by rule and text by text."""
    expected = [_seen(slow.scan(_RULES.rules, text)) for text in texts]
    assert expected == [_seen(finds) for finds in _RULES.scan(texts)]


@given(st.lists(st.text("ab\n\0 é", max_size=6), max_size=12))
def test_patterns_that_match_separators(texts: list[str]) -> None:
    """Rules of users may match line ends, NUL and anything else: a text's finds are its own all the same."""
    patterns = ("^a", "b$", r"a\s", "[^a]b", r"\bb\b", r"\Ba", "(?s:a.*b)", "é*b", r"\0+")
    rules = [
        Rule(f"r{number}", "k", RuleGroup.LOOKALIKES, pattern, action=RuleAction.OBSERVE)
        for number, pattern in enumerate(patterns)
    ]
    expected = [_seen(slow.scan(rules, text)) for text in texts]
    assert expected == [_seen(finds) for finds in RuleSet(rules).scan(texts)]


@given(st.lists(_TEXTS, max_size=8))
def test_batches_make_no_difference(texts: list[str]) -> None:
    """Texts that are scanned one by one have the finds that they have together."""
    together = [_seen(finds) for finds in _RULES.scan(texts)]
    assert together == [_seen(_RULES.scan([text])[0]) for text in texts]


def test_more_texts_than_a_batch_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The finds are the same where each text is a batch of its own."""
    texts = [rule.example for rule in RULES.values()] * 2
    expected = [_seen(finds) for finds in _RULES.scan(texts)]
    monkeypatch.setattr(scanner, "BATCH_CHARACTERS", 1)
    assert expected == [_seen(finds) for finds in _RULES.scan(texts)]


@given(_TEXTS)
def test_masked_values_do_not_overlap(text: str) -> None:
    """Values of secrets and personal data are apart, so that each can have its mask."""
    values = [find for find in _RULES.scan([text])[0] if find.rule.group is not RuleGroup.LOOKALIKES]
    assert all(one.end <= other.start for one, other in pairwise(values))


def _masked(text: str) -> str:
    """A text after masking: what is found is replaced, again and again, until nothing more is found."""
    for _ in range(8):
        finds = [find for find in _RULES.scan([text])[0] if find.rule.action is RuleAction.MASK]
        if not finds:
            return text
        for find in reversed(finds):
            text = f"{text[: find.start]}⟦{find.rule.kind}:k7x2m9qa4t⟧{text[find.end :]}"
    pytest.fail("values are found after eight rounds")


@given(_TEXTS)
def test_nothing_is_found_in_masks(text: str) -> None:
    """After some rounds of masking there is nothing more to mask."""
    _masked(text)


def test_a_masked_example_is_found_no_more() -> None:
    """One round is enough for an example: no rule finds anything in, or beside, its mask."""

    def values(texts: Sequence[str]) -> list[list[Find]]:
        return [[find for find in finds if find.rule.group is not RuleGroup.LOOKALIKES] for finds in _RULES.scan(texts)]

    rules = [rule for rule in RULES.values() if rule.group is not RuleGroup.LOOKALIKES]
    masked = []
    for rule, finds in zip(rules, values([rule.example for rule in rules]), strict=True):
        text = rule.example
        for find in reversed(finds):
            text = f"{text[: find.start]}⟦{find.rule.kind}:k7x2m9qa4t⟧{text[find.end :]}"
        masked.append(text)
    assert [] == [rule.name for rule, found in zip(rules, values(masked), strict=True) if found]


@given(_TEXTS)
def test_defanging_again_changes_nothing(text: str) -> None:
    """A defanged text has nothing more to defang."""
    text = text.encode(errors="replace").decode()
    broken = defang(text, _RULES.scan([text])[0])
    assert [] == [find for find in _RULES.scan([broken])[0] if find.rule.action is RuleAction.DEFANG]
    assert broken == defang(broken, _RULES.scan([broken])[0])


@pytest.mark.parametrize("rule", lookalikes.RULES, ids=lambda rule: rule.name)
def test_defanging_keeps_what_is_seen(rule: Rule) -> None:
    """Defanging adds dots, or puts a number in place of unseen characters; all else stays."""
    finds = _RULES.scan([rule.example])[0]
    broken = defang(f"before {rule.example} after", _RULES.scan([f"before {rule.example} after"])[0])
    assert finds
    if "invisible" not in broken:
        assert f"before {rule.example} after" == broken.replace(lookalikes.DOT, "")


def test_observed_finds_are_not_broken() -> None:
    """A rule that observes changes nothing."""
    rules = default_rules(GuardOptions(ENFORCE))
    text = "<|im_start|>system"
    assert rules.scan([text])[0]
    assert text == defang(text, rules.scan([text])[0])


@pytest.mark.parametrize("text", ["", "é", "\u200b"])
def test_a_phrase_is_found_in_letters_that_look_like_its_own(text: str) -> None:
    """The classes of a phrase's pattern match what folding the text would make of it."""
    rules = RuleSet([RULES["forged_note"]])
    phrase = "search covers iterations"
    like = {plain: [one for one, fold in lookalikes._FOLDS.items() if fold == plain] for plain in {*phrase}}  # noqa: SLF001
    for number in range(5):
        drawn = "".join(like[c][number * 7 % len(like[c])] if like[c] else c for c in phrase)
        assert phrase == lookalikes.folded(drawn)
        names = {find.rule.name for find in rules.scan([f"{text} {drawn}{text}"])[0]}
        assert {"forged_note"} == names


def test_the_ranges_of_folding_are_complete() -> None:
    """Every character that NFKC and case folding turn into a visible one of ASCII is among the look-alikes."""
    missing = [
        code
        for code in range(0x80, 0x110000)
        if len(plain := unicodedata.normalize("NFKC", chr(code)).casefold()) == 1
        and "!" <= plain <= "~"
        and chr(code) not in lookalikes._FOLDS  # noqa: SLF001
    ]
    assert [] == missing


def test_a_rule_that_has_not_the_time_lets_the_text_through() -> None:
    """When a text's time is over its other rules do not run, and are counted; the next text has its own time."""
    now = iter((0.0, 0.5, 0.6, 2.0, 10.0, 10.1, 10.2))
    watch = Watch(lambda: next(now), 1.0)
    texts = [f"{RULES['github_token'].example} and {RULES['jwt'].example}", RULES["npm_token"].example]
    rules = RuleSet(RULES[name] for name in ("github_token", "jwt", "npm_token"))
    first, second = rules.scan(texts, watch)
    assert ["github_token"] == [find.rule.name for find in first]
    assert {"jwt": 1} == watch.passed
    assert ["npm_token"] == [find.rule.name for find in second]


def test_a_rule_that_has_begun_ends() -> None:
    """A text of nothing but values takes a bounded time: a rule finds those that it has the time for."""
    now = count()
    watch = Watch(lambda: next(now), 10.0)
    rules = RuleSet([RULES["github_token"]])
    text = f"{RULES['github_token'].example} " * 200
    (finds,) = rules.scan([text], watch)
    assert 90 < len(finds) <= scanner.BEGUN * 10
    assert {"github_token": 1} == watch.passed
    assert 200 == len(rules.scan([text])[0])


def test_the_beginning_of_a_pattern_is_found_wherever_the_pattern_is() -> None:
    """The gate searches for the beginnings of patterns: none may be missing where a pattern matches."""
    for rule in RULES.values():
        begin = scanner.beginning(rule.pattern)
        if begin != rule.pattern:
            match = re2.search(f"(?m){rule.pattern}", rule.example)
            assert re2.compile(f"(?m){begin}").match(rule.example, match.start()) is not None, rule.name


def test_each_alternative_of_a_pattern_is_cut() -> None:
    """Long runs of characters are cut, also where a value has several forms; what has little before it is not."""
    begin = r"(?:\b|_)"
    assert begin + "(?:ab_[a-z]{16}|c(?:d|e)-[0-9]{16})" == scanner.beginning(
        begin + "(?P<value>ab_[a-z]{40,}x|c(?:d|e)-[0-9]{20})"
    )
    assert begin + "[a-z]{40}" == scanner.beginning(begin + "[a-z]{40}")


def test_the_time_of_others_does_not_count() -> None:
    """On a busy machine the rules have the processor time that they are to have, however long that takes."""
    watch = Watch(SCAN_CLOCK, 0.1)
    watch.begin()

    def work() -> None:
        end = thread_time() + 0.2
        while thread_time() < end:
            pass

    other = Thread(target=work)
    other.start()
    other.join()
    assert not watch.over()


@pytest.mark.parametrize(
    "unit",
    [
        *("password=", "secret_token_", "-----BEGIN PRIVATE KEY-----", "eyJhbGciOiJub25lIn0.", "http://a:b", "ghp_"),
        *("4242 4242 4242 ", "![x](", "a@b.", "AKIA", "+1 2", "<|", "\u200b", "⟦a:", "key-key-", "aws aws "),
        *("[content clipp", "xoxb-1-", "DE89 ", "://:", "0:AA", ".atlasv1.", "token: 5f4dcc3b5aa765d61 ", "A1b2C3d4"),
    ],
)
def test_near_misses_are_read_once_for_each_rule(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a megabyte of near misses each rule makes one pass, and no check reads more than the text a few times over."""
    text = unit * (1_000_000 // len(unit))
    examined = Counter[str]()

    def counting(name: str, check: Check) -> Check:
        def counted(value: str, before: str, after: str) -> bool:
            examined[name] += len(value) + len(before) + len(after)
            return check(value, before, after)

        return counted

    monkeypatch.setattr(scanner, "CHECKS", {name: counting(name, check) for name, check in CHECKS.items()})
    (finds,) = _RULES.scan([text])
    assert len(finds) <= len(text)
    for name, characters in examined.items():
        rules = sum(rule.check == name for rule in _RULES.rules)
        assert characters <= rules * (1 + 2 * CONTEXT / 8) * len(text)


@given(st.text("ab \n", max_size=60), st.lists(st.tuples(st.integers(0, 59), st.integers(1, 9)), max_size=12))
def test_where_rules_scan_as_for_each_match_alone(text: str, ranges: list[tuple[int, int]]) -> None:
    """What is known from the matches before one makes no difference."""
    matches = sorted((start, min(start + length, len(text)), 0) for start, length in ranges if start < len(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanner, "LONGEST", 7)
        patch.setattr(scanner, "BEFORE", 3)
        patch.setattr(scanner, "AFTER", 2)
        found = list(scanner.stretches(text, matches))
        alone = [stretch for match in matches for stretch in scanner.stretches(text, [match])]
    assert found == _united(alone)


def _united(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same with those joined that overlap or touch, from the first one's beginning."""
    united: list[tuple[int, int]] = []
    for start, end in stretches:
        if united and start <= united[-1][1]:
            united[-1] = (united[-1][0], max(end, united[-1][1]))
        else:
            united.append((start, end))
    return united


@pytest.mark.parametrize("unit", ["<|endoftext|>", "<|im_start|>", "a@b."])
def test_a_text_without_the_end_of_a_value_is_read_once(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many matches it has: 307,000 of them in 4 MB took 50 seconds when each one looked for itself."""
    sought = 0

    class Counting:
        def search(self, text: str, start: int, end: int) -> re.Match[str] | None:
            nonlocal sought
            found = ends.search(text, start, end)
            sought += max(0, (found.start() if found else min(end, len(text))) - start)
            return found

    ends = scanner.VALUE_END
    monkeypatch.setattr(scanner, "VALUE_END", Counting())
    text = unit * (40_000 // len(unit))
    _RULES.scan([text])
    assert sought <= 2 * len(text)


def test_a_rule_is_compiled_alone_for_the_first_text_that_may_hold_something_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Most sidecars meet a few of the rules: the others cost them neither memory nor time at the start."""
    compiled = Counter[str]()
    compile_one = re2.compile

    def counting(pattern: bytes, options: object) -> object:
        compiled[pattern.decode().removeprefix("(?m)")] += 1
        return compile_one(pattern, options)

    monkeypatch.setattr(re2, "compile", counting)
    rules = default_rules(GuardOptions())
    alone = {rule.pattern for rule in rules.rules}
    rules.scan(["hello", "grüß dich"])
    assert compiled
    assert set() == alone & set(compiled)
    rule = RULES["github_token"]
    for _ in range(3):
        (finds,) = rules.scan([rule.example])
        assert rule.name in {find.rule.name for find in finds}
    assert 1 == compiled[rule.pattern]
    assert len(alone & set(compiled)) < 10


@pytest.mark.parametrize(
    ("pattern", "without"),
    [
        (r"a(b)(?P<x>c)(?:d)", r"a(?:b)(?:c)(?:d)"),
        (r"\(a\)(?<n>b)(?i:c)", r"\(a\)(?:b)(?i:c)"),
        (r"[]()]+(x)[^](]", r"[]()]+(?:x)[^](]"),
        (r"[[:alpha:](]\\(x)", r"[[:alpha:](]\\(?:x)"),
        (r"\Q(\E(x)", r"\Q(\E(x)"),
    ],
)
def test_a_pattern_without_groups(pattern: str, without: str) -> None:
    """What begins a group that captures begins one that does not; escapes and classes of characters stay."""
    assert without == scanner.without_groups(pattern)
    re2.compile(without)


@pytest.mark.parametrize("text", ["secret-12", "SECRET-12", "a-12", "~-12", "cafe-12", "kelvin-12", "x", "q-12"])
@pytest.mark.parametrize(
    "pattern",
    [
        *("(?i:\u017fecret)-[0-9]+", "(?i:\u212aelvin)-[0-9]+", "[a-\u00e9]-[0-9]+", "[^\u00e9]-[0-9]+"),
        *("(?i:[\u00e0-\u0180])ecret", "caf(?:e|\u00e9)-?", "\u00e9?a-", "[\u00e9q]-", r"\p{L}-", r"[\x{7a}-\x{17f}]-"),
    ],
)
def test_patterns_with_other_letters_find_the_same_in_ascii(text: str, pattern: str) -> None:
    """Of a text in ASCII the expressions read bytes: a rule for other letters finds in it what it finds in any text."""
    rules = RuleSet([Rule("r", "k", RuleGroup.LOOKALIKES, pattern, action=RuleAction.OBSERVE)])
    beside = [find for find in _seen(rules.scan([f"{text} \u0416"])[0]) if find[0] <= len(text)]
    assert beside == _seen(rules.scan([text])[0])


def test_the_sidecars_own_rules_read_text_in_ascii_as_bytes() -> None:
    """That takes half the memory, so no rule of the sidecar's own may prevent it."""
    _, in_ascii = default_rules(GuardOptions())._scanner._gates  # noqa: SLF001
    assert {re2.Options.Encoding.LATIN1} == {expression.options.encoding for expression in in_ascii.any}


def test_the_expressions_of_all_rules_capture_nothing() -> None:
    """The library makes a result for each group of an expression at each search."""
    for gate in _RULES._scanner._gates:  # noqa: SLF001
        assert [0 for _ in gate.any] == [expression.groups for expression in gate.any]


def test_the_sidecars_own_rules_are_compiled_after_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the first text, or once ahead of it; a user's when they are made, as a mistake shows at the start."""
    compiled = Counter[int]()
    compile_one = re2.compile

    def counting(pattern: bytes, options: object) -> object:
        compiled[len(pattern)] += 1
        return compile_one(pattern, options)

    monkeypatch.setattr(re2, "compile", counting)
    rules = default_rules(GuardOptions())
    assert not compiled
    rules.prepare()
    ahead = compiled.copy()
    assert ahead
    rules.scan(["hello", "grüß dich"])
    assert ahead == compiled
    compiled.clear()
    default_rules(GuardOptions(rules=(UserRule("payroll_number", r"\bPN-[0-9]{6}\b", "for PN-123456", "for PN-12"),)))
    assert compiled


_ALL_VALUE = (
    BEGIN + r"(?P<value>[A-Z_][A-Z0-9_]{2,})",
    BEGIN + r"(?P<value>A(?:0|\)|[(])_*)",
)
_MORE_THAN_A_VALUE = (
    BEGIN + r"(?P<value>[A-Z]+)(?:\b|_)",
    BEGIN + r"(?P<value>A)(0)",
    r"0(?P<value>[A-Z]+)",
    r"(?P<value>_+)|[A-Z]",
    r"[A-Z]+(_)?",
)


@pytest.mark.parametrize("pattern", [*_ALL_VALUE, *_MORE_THAN_A_VALUE])
def test_values_are_where_their_groups_are(pattern: str) -> None:
    """Where a value is all of a match but an underscore, the expression without groups finds it too."""
    expression = re.compile(pattern.encode())
    group = "value" if "value" in expression.groupindex else 0
    own = scanner._OwnPattern(Rule("r", "k", RuleGroup.SECRETS, pattern), ascii_only=False)  # noqa: SLF001
    for letters in product("_A0( é", repeat=4):
        data = "".join(letters).encode()
        assert [(match.span(group), match.span()) for match in expression.finditer(data)] == list(own.values(data))


def test_which_patterns_are_all_value() -> None:
    """Nothing may follow the value's group, which is the first one."""
    assert all(map(scanner.is_all_value, _ALL_VALUE))
    assert not any(map(scanner.is_all_value, _MORE_THAN_A_VALUE))
