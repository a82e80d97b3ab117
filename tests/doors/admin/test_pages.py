"""The pages show what happened in a run, escape what agents chose, and hold no text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from prompt_sidecar.doors.admin.site import LOOKED_AT, NAME_CHARACTERS, ORDERS, ROWS
from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.facts.known_models import Models
from prompt_sidecar.facts.money import Money
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.facts.untrimmed import Handled, Through, Untrimmed
from prompt_sidecar.facts.usage_calls import UsageCall
from prompt_sidecar.trim.presets import preset
from tests.doors.admin.serving import Served, served
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, ROOM, send
from tests.promises.engine import CALLER, Engine
from tests.report.pages import elements
from tests.trim.test_protected_leaves import LIMIT as LITTLE
from tests.trim.test_protected_leaves import prompt

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}"
BIDI = "left\u202eright"
LONG = "n" * 5_000


def busy() -> Engine:
    """Runs: one with cuts, recalls and a refusal, one with a hostile name, two with odd ones, and one that is idle."""
    engine = Engine(limit=LIMIT, policy=ROOM, journal_entries=100)
    for name, iterations in (("idle", 1), (HOSTILE, 2), (BIDI, 1), (LONG, 1), ("busy", 12)):
        engine.run_id = name
        engine.clock.now += 1
        answers = [send(engine, OPENAI_CHAT, number) for number in range(iterations + 1)]
    engine.retrieve(answers[-1].trimmed.trims[0].stash_id)
    engine.retrieve(HOSTILE)
    engine.search("unused name")
    with pytest.raises(InvalidJson):
        engine.trim(OPENAI_CHAT, b"{")
    for why in (None, Untrimmed.NO_NEED, Untrimmed.UNREADABLE):
        engine.runs.handled(Handled(Through.HTTP, why, 1, RecallOffer.OFFERED, CALLER, "busy"))
    engine.runs.handled(Handled(Through.ENVOY, Untrimmed.UNKNOWN_PATH, run_id="never seen"))
    return engine


@pytest.fixture(scope="module")
def site() -> Iterator[Served]:
    """The pages of these runs."""
    with served(busy()) as found:
        yield found


def key_of(site: Served, run_id: str) -> str:
    """The key of a run's page."""
    listed = json.loads(site.get("/runs.json").text)["runs"]
    return str(next(each["key"] for each in listed if each["run_id"] == run_id))


def test_the_table_leads_to_each_run(site: Served) -> None:
    """Every run is a row with a link that works."""
    page = site.get("/runs")
    assert (200, "text/html; charset=utf-8") == (page.status, page.headers["content-type"])
    links = re.findall(r'<a href="(runs/[0-9a-f]{24})">', page.text)
    assert 5 == len(set(links))
    assert [200] * 5 == [site.get(f"/{link}").status for link in links]
    assert [200] * 5 == [site.get(f"/{link}.json").status for link in links]


def test_pages_tell_what_a_run_cost() -> None:
    """By the provider's counts; what was saved is called an estimate, and calls without a price are counted."""
    rules = Rules(CallerRules(preset("cache_first")), money=Money(None, Models()))
    engine = Engine(limit=LIMIT, policy=ROOM, journal_entries=100, model="gpt-5.4", rules=rules)
    for iterations, model in enumerate(("", "", "who-knows")):
        size = send(engine, OPENAI_CHAT, iterations).tokens.after
        call = UsageCall(CALLER, engine.run_id, model, size, 0, output_tokens=1_000_000)
        engine.runs.report_usage(call)
    with served(engine) as found:
        listed = found.get("/runs?sort=saved").text
        key = key_of(found, engine.run_id)
        page = found.get(f"/runs/{key}").text
        spending = json.loads(found.get(f"/runs/{key}.json").text)["summary"]["spending"]
    (cost,) = spending["models"]
    assert (2, "gpt-5.4", "USD", 1) == (cost["calls"], cost["model"], cost["currency"], spending["unpriced"])
    assert 30 < cost["cost"] < 31
    for text in (listed, page):
        assert f"{cost['cost']:,.4f} USD" in text
    assert "1 unpriced" in listed
    assert "an estimate" in page
    assert "Saved (estimate)" in listed


def test_a_page_says_what_happened(site: Served) -> None:
    """Figures, the curve, cuts, recalls with their outcome, and refusals."""
    key = key_of(site, "busy")
    page = site.get(f"/runs/{key}").text
    shown = json.loads(site.get(f"/runs/{key}.json").text)
    assert 13 == len(shown["prompts"]) == shown["summary"]["prompts"]
    assert 1 == page.count("<svg")
    for path in ("sent", "returned", "limit"):
        (line,) = re.findall(rf'<path class="{path}" d="M([^"]+)"', page)
        assert 13 == len(line.split("L"))
    cuts = re.search(r'<path class="cut" d="([^"]*)"', page)
    assert cuts
    assert sum(each["cache_break"] == "batch_point" for each in shown["prompts"]) == cuts[1].count("M") > 0
    assert shown["recalls"][0]["stash_id"] in page
    assert ["hit", "not_found", "found"] == [each["outcome"] for each in shown["recalls"]]
    assert {"INVALID_JSON": 1} == shown["refusals"]
    assert "invalid json: 1" in page
    assert "clipped (fit, " in page


def test_pages_say_why_requests_were_not_trimmed(site: Served) -> None:
    """A run's page that of its own, the first page that of all; what should have been trimmed stands out."""
    shown = json.loads(site.get(f"/runs/{key_of(site, 'busy')}.json").text)
    assert {"no_need": 1, "trimmed": 1, "unreadable": 1} == shown["requests"]["handled"]
    assert 1 == shown["summary"]["missed"]
    page = site.get(f"/runs/{key_of(site, 'busy')}").text
    assert "not trimmed: <code>unreadable</code>; recall: <code>offered</code>" in page
    assert '<li class="bad"><code>unreadable</code>: 1</li>' in page
    assert "<li><code>no_need</code>: 1</li>" in page

    rows = {(each["door"], each["outcome"]): each for each in json.loads(site.get("/runs.json").text)["handled"]}
    assert {("http", "trimmed"), ("http", "no_need"), ("http", "unreadable"), ("envoy", "unknown_path")} == rows.keys()
    assert (1, True) == (rows["envoy", "unknown_path"]["count"], rows["envoy", "unknown_path"]["missed"])
    listed = site.get("/runs").text
    assert '<th scope="row" class="bad"><code>unknown_path</code></th>' in listed
    assert '<th scope="row"><code>trimmed</code></th>' in listed


def test_a_ceiling_is_named_where_it_makes_the_cuts() -> None:
    """With its tokens, and how many cuts it made."""
    engine = Engine(limit=10 * LIMIT, policy={**ROOM, "ceiling_tokens": LIMIT}, journal_entries=100, run_id="dear")
    for number in range(12):
        send(engine, OPENAI_CHAT, number)
    cuts = engine.figures().ceiling_cuts
    with served(engine) as site:
        page = site.get(f"/runs/{key_of(site, 'dear')}").text
    assert 0 < cuts
    assert f"<dt>Trimmed to policy.ceiling_tokens</dt><dd>{LIMIT:,} <small>{cuts} cuts</small></dd>" in page


def test_what_the_protected_text_leaves_is_named_where_it_is_little() -> None:
    """With its tokens, and of how many."""
    engine = Engine(limit=LITTLE, journal_entries=100, run_id="little")
    for turns in range(1, 40, 3):
        answer = engine.trim(OPENAI_CHAT, prompt(turns, LITTLE * 2 // 3))
    left = answer.tokens.protected_leaves
    assert left is not None
    with served(engine) as site:
        page = site.get(f"/runs/{key_of(site, 'little')}").text
    assert f'<dt>Left by the protected text</dt><dd class="bad">{left:,} <small>of {LITTLE:,}: ' in page


def test_what_agents_chose_is_text(site: Served) -> None:
    """Names and ids add no element and no attribute, are cut, and cannot turn the direction of what follows."""
    key = key_of(site, HOSTILE)
    pages = [site.get("/runs").text, site.get(f"/runs/{key}").text, site.get(f"/runs/{key_of(site, 'busy')}").text]
    pages.append(site.get("/runs?run=%3Cscript%3Ealert(3)%3C/script%3E").text)
    for page in pages:
        found = elements(page)
        assert {"script", "img", "style"}.isdisjoint(each.tag for each in found)
        assert [] == [name for each in found for name in each.attributes if name.startswith("on") or name == "style"]
        assert "\u202e" not in page
        assert LONG not in page
    assert "&lt;script&gt;alert(1)" in pages[0]
    assert "{{7*7}}" in pages[0]
    assert "n" * (NAME_CHARACTERS - 1) + "…" in pages[0]
    assert HOSTILE[:60] in {each["run_id"][:60] for each in json.loads(site.get("/runs.json").text)["runs"]}


def test_no_page_holds_text(site: Served) -> None:
    """No message, argument or query."""
    paths = ["/runs", "/runs.json", *(f"/runs/{key_of(site, 'busy')}{end}" for end in ("", ".json"))]
    for path in paths:
        assert not re.search(r"module_|unused|Find the bug|careful", site.get(path).text), path


def test_the_table_is_sorted_as_asked(site: Served) -> None:
    """By each order the largest is first; an unknown order is the first one's."""
    for sort in (*ORDERS, "nonsense"):
        first = json.loads(site.get(f"/runs.json?sort={sort}").text)["runs"][0]["run_id"]
        if sort == "run":
            assert HOSTILE == first
        elif sort not in {"findings", "model", "caller", "unfit"}:  # in which all are equal
            assert "busy" == first, sort
    lines = json.loads(site.get("/runs.json").text)["runs"]
    assert sorted((each["last_seen"] for each in lines), reverse=True) == [each["last_seen"] for each in lines]


def test_runs_are_chosen_by_caller_and_model(site: Served) -> None:
    """As a board's panel links to them; what boards call `other` chooses nothing, as no run can be told by it."""

    def found(query: str) -> list[str]:
        return [each["run_id"] for each in json.loads(site.get(f"/runs.json?{query}").text)["runs"]]

    assert 5 == len(found(f"caller={CALLER}")) == len(found("caller=other&model=other"))
    assert [] == found("caller=nobody") == found(f"caller={CALLER}&model=gpt-x")
    page = site.get(f"/runs?caller={CALLER}&sort=cost").text
    assert f"Runs of caller <b><bdi>{CALLER}</bdi></b>" in page
    assert f"sort=recalls&amp;caller={CALLER}" in page, "an order keeps the choice"
    assert "has not seen such a run" in site.get("/runs?caller=%3Cscript%3E").text


def test_a_run_that_was_refused_at_its_first_prompt_is_shown() -> None:
    """With its caller, model and reason, and a page; once a prompt is answered its refusals are in its journal."""
    engine = Engine(limit=LIMIT, policy=ROOM, journal_entries=10, run_id="turned away", model="gpt-5.4")
    with served(engine) as site:
        for _ in range(2):
            with pytest.raises(InvalidJson):
                engine.trim(OPENAI_CHAT, b"{")
        (line,) = json.loads(site.get("/runs.json?sort=refused&model=gpt-5.4").text)["runs"]
        assert ("turned away", CALLER, "gpt-5.4", 2, 0) == tuple(
            line[name] for name in ("run_id", "caller", "model", "refused", "prompts")
        )
        assert "invalid json: 2" in site.get(f"/runs/{line['key']}").text
        assert 303 == site.get("/runs?run=turned+away").status
        send(engine, OPENAI_CHAT, 0)
        (after,) = json.loads(site.get("/runs.json").text)["runs"]
        assert (line["key"], 2, 1) == (after["key"], after["refused"], after["prompts"])


def test_an_item_has_a_timeline(site: Served) -> None:
    """Tool, size, when and why it was trimmed, when and by what it was asked for, and what the model did then."""
    engine = Engine(limit=LIMIT, policy=ROOM, journal_entries=100, run_id="followed")
    for number in range(13):
        answer = send(engine, OPENAI_CHAT, number)
    trim = next(each for each in answer.trimmed.trims if each.kind == "result")
    engine.clock.now += 1
    engine.call("recall_elided_content", {"id": trim.stash_id})
    engine.retrieve(trim.stash_id)
    engine.clock.now += 1
    send(engine, OPENAI_CHAT, 13)
    with served(engine) as here:
        key = key_of(here, "followed")
        assert f'href="{key}/items/{trim.stash_id}"' in here.get(f"/runs/{key}").text
        page = here.get(f"/runs/{key}/items/{trim.stash_id}").text
        steps = json.loads(here.get(f"/runs/{key}/items/{trim.stash_id}.json").text)["steps"]
        assert 404 == here.get(f"/runs/{key}/items/nothing").status
    trimmed = [each["item"] for each in steps if each["item"]]
    assert trimmed
    assert all(each["tool"] and each["size"] and each["first"] for each in trimmed)
    recalled = [
        (each["recall"]["by"], each["recall"]["outcome"], bool(each["then"])) for each in steps if each["recall"]
    ]
    assert [("recall_elided_content", "hit", True), ("RetrieveContent", "hit", True)] == recalled
    for text in (
        "the model asked for it by <code>recall_elided_content</code>",
        "a program asked for it by <code>RetrieveContent</code>",
        f"Then the model called <code>{trimmed[0]['tool']}</code>",
        f"{trimmed[0]['action']} for the reason {trimmed[0]['reason']}",
    ):
        assert text in page
    assert 404 == site.get(f"/runs/{key_of(site, 'idle')}/items/{trim.stash_id}").status


def test_the_agent_s_changes_are_reported_where_there_are_some(site: Served) -> None:
    """A legend of what did not happen would make a reader look for it."""
    page = site.get(f"/runs/{key_of(site, 'busy')}").text
    assert "cut by the sidecar" in page
    assert "changed by the agent" not in page


def test_failed_recalls_are_counted(site: Served) -> None:
    """Of an id that is none; a search that finds nothing is none."""
    lines = {each["run_id"]: each for each in json.loads(site.get("/runs.json?sort=failed").text)["runs"]}
    assert (2, 1) == (lines["busy"]["recalls"], lines["busy"]["failed_recalls"])


def test_a_run_is_found_by_its_id(site: Served) -> None:
    """As boards and traces know it: one leads to its page, none says so."""
    found = site.get("/runs?run=busy")
    assert (303, f"runs/{key_of(site, 'busy')}") == (found.status, found.headers["location"])
    assert "has not seen such a run" in site.get("/runs?run=never").text


def test_of_many_runs_the_largest_are_shown() -> None:
    """The table is bounded, and is of the largest of all that were looked at."""
    engine = Engine(limit=LIMIT, journal_entries=1)
    for number in range(ROWS + 20):
        engine.run_id = f"run-{number}"
        engine.clock.now += 1
        send(engine, OPENAI_CHAT, 2 if number == 0 else 0)
    with served(engine) as site:
        shown = json.loads(site.get("/runs.json?sort=cost").text)
    assert (ROWS, ROWS + 20) == (len(shown["runs"]), shown["looked_at"])
    assert "run-0" == shown["runs"][0]["run_id"]


def test_a_run_is_found_behind_those_of_the_table() -> None:
    """A link from a span leads to its run, however many were seen since; the table says how many it was made of."""
    engine = Engine(limit=LIMIT, policy=ROOM, journal_entries=10)
    for number in range(LOOKED_AT + 1):
        engine.run_id = f"run-{number}"
        send(engine, OPENAI_CHAT, 0)
    with served(engine) as site:
        found = site.get("/runs?run=run-0")
        page = site.get(f"/{found.headers['location']}") if found.status == 303 else found
        table = site.get("/runs").text
    assert (303, 200) == (found.status, page.status)
    assert "run-0" in page.text
    assert "100 of the 1,000 runs that were seen last" in table


def test_pages_of_nothing() -> None:
    """Without runs there is a table that says so; a run with one prompt has no curve."""
    engine = Engine(limit=LIMIT, journal_entries=1)
    with served(engine) as site:
        assert "no run yet" in site.get("/runs").text
        send(engine, OPENAI_CHAT, 0)
        assert "A curve needs two prompts" in site.get(f"/runs/{key_of(site, engine.run_id)}").text


def test_other_paths_are_not_found(site: Served) -> None:
    """Files, keys that are none, and runs that are gone."""
    for path in ("/metrics", "/runs/", "/runs/../x", "/pages/page.css", f"/runs/{'0' * 24}", "/runs/" + "0" * 25):
        assert 404 == site.get(path).status, path
    assert 200 == site.get("/style.css").status
    assert (303, "runs") == (site.get("/").status, site.get("/").headers["location"])
