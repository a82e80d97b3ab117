"""The content of the pages: the table of runs, one run, and both as JSON.

Names of callers and runs come from agents, and ids of recalls from models: they are shortened, invisible characters are
replaced, and the template engine escapes them, as all values.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib import resources
from operator import attrgetter
from typing import Any, Final, Protocol
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from prompt_sidecar.doors.admin.curve import HEIGHT, WIDTH, curve
from prompt_sidecar.facts.journals import (
    HandledCount,
    ItemEntry,
    PromptEntry,
    RecallEntry,
    RunJournal,
    RunSummary,
)
from prompt_sidecar.facts.money import OWN_CURRENCY
from prompt_sidecar.facts.untrimmed import MISSED
from prompt_sidecar.providers.models import known_family

LOOKED_AT: Final = 1_000
"""Runs that are read for a table, the latest ones: the table shows the largest of them."""
FOUND_AMONG: Final = 100_000
"""Runs that are searched for one id or key, the latest ones: ten times the default of limits.runs, searched in a tenth
of a second."""
ROWS: Final = 100
"""Rows of a table of runs."""
CUT_ROWS: Final = 200
"""Rows of each table of one run, the newest."""
NAME_CHARACTERS: Final = 200
"""Characters of a caller's or run's name that are shown; an agent may choose a name of any length."""
_RUN = re.compile(r"/runs/([0-9a-f]{24})(\.json)?")
_ITEM = re.compile(r"/runs/([0-9a-f]{24})/items/([A-Za-z0-9]{1,64})(\.json)?")
_HTML: Final = "text/html; charset=utf-8"
_JSON: Final = "application/json"
_PLAIN: Final = "text/plain; charset=utf-8"
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


class PageSources(Protocol):
    """The pages' data source."""

    def summaries(self, most: int) -> Sequence[RunSummary]:
        """Return the latest runs, the newest first."""
        ...

    def summaries_of(self, run_id: str, among: int, most: int) -> Sequence[RunSummary]:
        """Return the runs with this id `among` the latest runs."""
        ...

    def handled_by_door(self) -> Sequence[HandledCount]:
        """Return what was done about all requests, the most frequent first."""
        ...

    def journal(self, key: str, most: int) -> RunJournal | None:
        """Return the journal of a run, or None if it is not known."""
        ...


@dataclass(frozen=True, slots=True)
class PageResponse:
    """The response to a request."""

    status: str
    kind: str
    body: bytes
    headers: Sequence[tuple[str, str]] = ()

    @classmethod
    def plain(cls, status: str, sentence: str, *headers: tuple[str, str]) -> PageResponse:
        """Return a response with one sentence, mostly about why there is no page."""
        return cls(status, _PLAIN, f"{sentence}\n".encode(), headers)

    @classmethod
    def leading(cls, place: str) -> PageResponse:
        """Return a redirect to another page."""
        return cls.plain("303 See Other", "see there", ("Location", place))


@dataclass(frozen=True, slots=True)
class Order:
    """A sort order of the table: figures in descending, names in alphabetical order."""

    name: str
    label: str
    of: Callable[[RunSummary], Any]
    ascending: bool = False


def _cost(run: RunSummary) -> tuple[float, float, int]:
    return sum(each.cost for each in run.spending.models), run.cost or 0.0, run.returned_total


def _saved(run: RunSummary) -> float:
    return sum(each.estimated_saved for each in run.spending.models)


ORDERS: Final[Mapping[str, Order]] = {
    order.name: order
    for order in (
        Order("last_seen", "last seen", attrgetter("last_seen")),
        Order("cost", "largest cost", _cost),
        Order("saved", "most saved (estimate)", _saved),
        Order("prompts", "most prompts", attrgetter("prompts")),
        Order("after", "largest last prompt", attrgetter("after")),
        Order("sent", "most tokens sent", attrgetter("sent_total")),
        Order("returned", "most tokens returned", attrgetter("returned_total")),
        Order("trims", "most trims", attrgetter("trimmed")),
        Order("breaks", "most cache breaks", attrgetter("breaks")),
        Order("recalls", "most recalls", lambda run: run.recalls + run.searches),
        Order("failed", "most failed recalls", attrgetter("failed_recalls")),
        Order("unfit", "most prompts too large", attrgetter("unfit")),
        Order("refused", "most refusals", attrgetter("refused")),
        Order("findings", "most findings", attrgetter("findings")),
        Order("missed", "most missed", attrgetter("missed")),
        Order("run", "run", attrgetter("run_id"), ascending=True),
        Order("caller", "caller", attrgetter("caller"), ascending=True),
        Order("model", "model", attrgetter("model"), ascending=True),
    )
}
"""Sort orders by name; the first is the default."""


def _models(run: RunSummary) -> set[str]:
    """Return the names of a run's models: in its prompts, at its provider, and in the labels of metrics."""
    models = {run.model, *(each.model for each in run.spending.models)}
    return models | {known_family(model) or "" for model in models}


CHOSEN_BY: Final[Mapping[str, Callable[[RunSummary], set[str]]]] = {
    "caller": lambda run: {run.caller},
    "model": _models,
}
"""Fields by which a query may filter runs, besides the run's id."""
ANY_OTHER: Final = "other"
"""The label on dashboards of all callers and models without a label of their own: it cannot filter runs."""


class Pages:
    """Renders the pages."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        """`now` returns seconds since the epoch."""
        self._now = now
        self._style = resources.files(__package__).joinpath("pages", "page.css").read_bytes()
        self._templates = Environment(
            loader=PackageLoader("prompt_sidecar.doors.admin", "pages"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "count": _count,
            "share": _share,
            "moment": _moment,
            "words": _words,
            "money": _money,
        }
        self._templates.filters |= {"cost": partial(_sums, "cost"), "saved": partial(_sums, "estimated_saved")}

    def answer(self, path: str, query: Mapping[str, str], shown: PageSources) -> PageResponse:
        """Return the response for a path; `query` may have `sort`, `caller`, `model`, and a run's id as `run`."""
        if path == "/":
            return PageResponse.leading("runs")
        if path == "/style.css":
            return PageResponse("200 OK", "text/css; charset=utf-8", self._style)
        if path in {"/runs", "/runs.json"}:
            return self._runs(query, shown, as_json=path.endswith(".json"))
        found = _RUN.fullmatch(path) or _ITEM.fullmatch(path)
        if found is None:
            return PageResponse.plain(
                "404 Not Found", "there are /runs, /runs/KEY, /runs/KEY/items/ID, and each with .json"
            )
        journal = shown.journal(found[1], FOUND_AMONG)
        if journal is None:
            return PageResponse.plain(
                "404 Not Found", f"this run is not among the {FOUND_AMONG:,} that were seen last here"
            )
        if found.re is _ITEM:
            return self._item(journal, found[2], as_json=bool(found[3]))
        return self._run(journal, as_json=bool(found[2]))

    def _runs(self, query: Mapping[str, str], shown: PageSources, *, as_json: bool) -> PageResponse:
        wanted = query.get("run", "")
        lines = shown.summaries_of(wanted, FOUND_AMONG, LOOKED_AT) if wanted else shown.summaries(LOOKED_AT)
        if wanted and len(lines) == 1 and not as_json:
            return PageResponse.leading(f"runs/{lines[0].key}")
        order = ORDERS.get(query.get("sort", ""), next(iter(ORDERS.values())))
        chosen = {name: query[name] for name in CHOSEN_BY if query.get(name, ANY_OTHER) != ANY_OTHER}
        lines = [line for line in lines if all(value in CHOSEN_BY[name](line) for name, value in chosen.items())]
        ordered = sorted(lines, key=order.of, reverse=not order.ascending)
        rows = [_shown(line) for line in ordered[:ROWS]]
        handled = shown.handled_by_door()
        if as_json:
            overview = {"looked_at": len(lines), "sort": order.name, "runs": [asdict(row) for row in rows]}
            return _json(overview | {"handled": [asdict(each) for each in handled]})
        kept = chosen | ({"run": wanted} if wanted else {})
        return self._page(
            "runs.html.jinja",
            runs=rows,
            looked_at=len(lines),
            wanted=_readable(wanted),
            chosen={name: _readable(value) for name, value in chosen.items()},
            same=urlencode({"sort": order.name, **kept}),
            order=order,
            orders=ORDERS,
            to={each.name: urlencode({"sort": each.name, **kept}) for each in ORDERS.values()},
            of={
                row.key: {name: urlencode({name: getattr(line, name), "sort": order.name}) for name in CHOSEN_BY}
                for row, line in zip(rows, ordered, strict=False)
            },
            priced=any(row.spending.models or row.spending.unpriced for row in rows),
            handled=handled,
        )

    def _run(self, journal: RunJournal, *, as_json: bool) -> PageResponse:
        caller = journal.summary.caller
        journal = replace(
            journal,
            summary=_shown(journal.summary),
            recalls=[replace(each, stash_id=_readable(each.stash_id)) for each in journal.recalls],
        )
        if as_json:
            return _json(asdict(journal))
        items = _items(journal)
        changed = [each for each in journal.prompts if each.is_cut or each.cache_break is not None]
        found = [each for each in journal.prompts if each.findings]
        return self._page(
            "run.html.jinja",
            run=journal.summary,
            journal=journal,
            curve=curve(journal.prompts, journal.recalls),
            width=WIDTH,
            height=HEIGHT,
            changed=changed[: -CUT_ROWS - 1 : -1],
            recalls=journal.recalls[: -CUT_ROWS - 1 : -1],
            found=found[: -CUT_ROWS - 1 : -1],
            observed=any(each.observed_only for each in journal.prompts),
            missed=MISSED,
            items=items[:CUT_ROWS],
            known={line.item.stash_id for line in items},
            caller=urlencode({"caller": caller}),
        )

    def _item(self, journal: RunJournal, stash_id: str, *, as_json: bool) -> PageResponse:
        """Render an item's history: when and why it was trimmed, how it was recalled, what the model did next."""
        steps = timeline(journal, stash_id)
        if not steps:
            return PageResponse.plain(
                "404 Not Found", "nothing is known of this item, or its entries are not kept any more"
            )
        if as_json:
            return _json({"run": journal.summary.key, "stash_id": stash_id, "steps": [asdict(each) for each in steps]})
        item = next((each.item for each in steps if each.item is not None), None)
        return self._page(
            "item.html.jinja", run=_shown(journal.summary), stash_id=stash_id, item=item, steps=steps, rpc=_METHODS
        )

    def _page(self, name: str, **values: object) -> PageResponse:
        now = self._now()
        made = self._templates.get_template(name).render(ago=partial(_ago, now), now=now, **values)
        return PageResponse("200 OK", _HTML, made.encode(errors="replace"))


@dataclass(frozen=True, slots=True)
class ItemEvent:
    """One event in the history of an item."""

    at: float
    iteration: int
    item: ItemEntry | None = None
    """How it was trimmed, for such an event."""
    recall: RecallEntry | None = None
    """How it was recalled, for such an event."""
    then: Sequence[str] | None = None
    """The tools that the model called next, by the next prompt; None if there was no further prompt."""


_METHODS: Final = frozenset({"RetrieveContent", "SearchHistory"})
"""Methods that programs call, not models."""


def timeline(journal: RunJournal, stash_id: str) -> Sequence[ItemEvent]:
    """Return the events of an item, the earliest first."""
    steps = [
        ItemEvent(prompt.at, prompt.iteration, item)
        for prompt in journal.prompts
        for item in prompt.items
        if item.stash_id == stash_id
    ]
    steps += [
        ItemEvent(each.at, each.iteration, recall=each, then=_after(journal.prompts, each.at))
        for each in journal.recalls
        if each.stash_id == stash_id
    ]
    return sorted(steps, key=lambda step: (step.at, step.recall is not None))


def _after(prompts: Sequence[PromptEntry], at: float) -> Sequence[str] | None:
    """Return the tools that the model called after a time, by the next prompt that contains results."""
    later = [each for each in prompts if each.at > at]
    return next((each.tools for each in later if each.tools), () if later else None)


@dataclass(frozen=True, slots=True)
class ItemLine:
    """An item of a run in one line: its last trim, and how often it was recalled."""

    item: ItemEntry
    iteration: int
    recalls: int
    failed: int


def _items(journal: RunJournal) -> Sequence[ItemLine]:
    """Return the items in a journal's entries, the most often recalled first, then those trimmed by most."""
    recalls, failed = Counter[str](), Counter[str]()
    for each in journal.recalls:
        recalls[each.stash_id] += 1
        failed[each.stash_id] += each.failed
    last = {item.stash_id: (item, prompt.iteration) for prompt in journal.prompts for item in prompt.items}
    lines = (ItemLine(item, at, recalls[key], failed[key]) for key, (item, at) in last.items())
    return sorted(lines, key=lambda line: (-line.recalls, -line.item.size, line.item.stash_id))


def _json(value: object) -> PageResponse:
    return PageResponse("200 OK", _JSON, json.dumps(value).encode() + b"\n")


def _shown(run: RunSummary) -> RunSummary:
    models = [replace(each, model=_readable(each.model)) for each in run.spending.models]
    spending = replace(run.spending, models=models)
    return replace(
        run,
        caller=_readable(run.caller),
        run_id=_readable(run.run_id),
        model=_readable(run.model),
        spending=spending,
    )


def _money(amount: float, currency: str) -> str:
    unit = "" if currency == OWN_CURRENCY else f" {currency}"
    return f"{amount:,.4f}{unit}"


def _sums(figure: str, run: RunSummary) -> str:
    """Return a figure of a run's models, added up by currency."""
    currencies = dict.fromkeys(each.currency for each in run.spending.models)
    sums = (
        _money(sum(getattr(each, figure) for each in run.spending.models if each.currency == currency), currency)
        for currency in currencies
    )
    return ", ".join(sums) or "–"


def _readable(text: str) -> str:
    """Return an untrusted text, shortened, without characters that are invisible or change the text's direction."""
    plain = "".join(character if character.isprintable() else "�" for character in text[: NAME_CHARACTERS + 1])
    return plain if len(plain) <= NAME_CHARACTERS else plain[: NAME_CHARACTERS - 1] + "…"


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "–"


def _words(name: str) -> str:
    """Return an identifier as words."""
    return name.replace("_", " ").lower()


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _ago(now: float, seconds: float) -> str:
    """Return how long ago something was, in one unit."""
    passed = max(int(now - seconds), 0)
    for unit, size in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if passed >= size:
            return f"{passed // size} {unit} ago"
    return f"{passed} s ago"
