"""The figures agree with what agents saw: a counter is the sum of the answers' own facts, to the last token."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import grpc
import pytest

from prompt_sidecar.engine.steps import own_state
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.tool_calls import CREATE_TASKS, RECALL, SEARCH, UPDATE_TASK
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.catalog import Metric
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.trim.entries import AT_FIRST_SIGHT
from prompt_sidecar.v1 import (
    policy_pb2,
    retrieve_pb2,
    run_pb2,
    search_pb2,
    task_pb2,
    tool_pb2,
    trim_pb2,
    usage_pb2,
)
from tests.doors.grpc.serving import Serving, failure
from tests.telemetry.watched import Figures, messages, prompt, prompt_of, watched


def _by_label(figures: Figures, metric: Metric, label: str) -> dict[str, float]:
    """A counter by one of its labels, without what is at zero."""
    found = {value: figures.of(metric, **{label: value}) for value in metric.labels[label]}
    return {value: count for value, count in found.items() if count}


def test_prompts_and_their_tokens() -> None:
    """Tokens before and after, the sidecar's own, kept and rewritten ones, and sizes by kind are the answers' sums."""
    sums: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    with watched() as server:
        for run_id in ("one", "two"):
            for iterations in range(1, 25):
                answer = server.served.stub.TrimPrompt(prompt(iterations, run_id=run_id, model="gpt-4o"))
                tokens, cache = answer.tokens, answer.cache
                sums.update(before=tokens.before, after=tokens.after, own=tokens.own_text, prompts=1)
                sums.update(kept=cache.kept_prefix_tokens, rewritten=cache.rewritten_tokens)
                sums.update(trimmed=bool(answer.trims), crossings=len(answer.crossed_percent))
                for kind in answer.history_size.kinds:
                    name = trim_pb2.SizeKind.Name(kind.kind).removeprefix("SIZE_KIND_").lower()
                    kinds[f"{name} before"] += kind.tokens_sent
                    kinds[f"{name} after"] += kind.tokens_returned
        figures = server.scrape()
    assert sums["trimmed"] > 10
    assert {"before": sums["before"], "after": sums["after"]} == _by_label(figures, catalog.PROMPT_TOKENS, "state")
    assert {"kept": sums["kept"], "rewritten": sums["rewritten"]} == _by_label(figures, catalog.PREFIX_TOKENS, "state")
    assert sums["own"] == figures.of(catalog.OWN_TEXT_TOKENS)
    outcomes = {"trimmed": sums["trimmed"], "untouched": sums["prompts"] - sums["trimmed"]}
    assert outcomes == _by_label(figures, catalog.PROMPTS, "outcome")
    assert sums["prompts"] == figures.of(catalog.PROMPTS, format="openai_chat", model="gpt-4o")
    assert 2 * sums["prompts"] == figures.of(catalog.PROMPT_SIZE)
    assert sums["prompts"] == figures.of(catalog.WINDOW_SHARE)
    assert sums["crossings"] == figures.of(catalog.WINDOW_CROSSINGS)
    found = {
        f"{kind} {state}": figures.of(catalog.HISTORY_TOKENS, kind=kind, state=state)
        for kind in catalog.HISTORY_TOKENS.labels["kind"]
        for state in ("before", "after")
    }
    assert {name: count for name, count in kinds.items() if count} == {name: n for name, n in found.items() if n}
    assert 2 == figures.of(catalog.RUNS_STARTED) == figures.of(catalog.RUNS_ACTIVE)


def test_tools_are_distinguished() -> None:
    """What each tool brought counts once, whatever is sent again; repeats, trims and recalls by the same labels."""
    sent = messages(24)
    for number in range(0, 24, 3):
        sent[1 + 2 * number]["tool_calls"][0]["function"]["name"] = "search"
    again = [dict(each) for each in sent[1:3]]
    with watched(TelemetryOptions(tools=("search", "read_file"))) as server:
        stub = server.served.stub
        for end in (*range(3, len(sent) + 1, 2), len(sent)):
            stub.TrimPrompt(prompt_of(sent[:end]))
        answer = stub.TrimPrompt(prompt_of([*sent, *again]))
        results = [each for each in answer.trims if each.kind == trim_pb2.ITEM_KIND_RESULT]
        read = next(each for each in results if each.message_index // 2 % 3 != 1)  # not of every third iteration
        page = stub.RetrieveContent(retrieve_pb2.RetrieveContentRequest(run_id="run", stash_id=read.stash_id))
        figures = server.scrape()
    metric = catalog.TOOL_TOKENS
    assert {"first": 24, "repeated": 1} == _by_label(figures, catalog.TOOL_RESULTS, "seen")
    assert (9, 16) == tuple(figures.of(catalog.TOOL_RESULTS, tool=tool) for tool in ("search", "read_file"))
    assert 1 == figures.of(catalog.TOOL_RESULTS, tool="search", seen="repeated")
    assert 25 == figures.of(catalog.TOOL_RESULT_SIZE)
    assert figures.of(metric, tool="search", flow="brought") < figures.of(metric, tool="read_file", flow="brought")
    assert results
    assert sum(each.tokens_saved for each in results) == figures.of(metric, flow="trimmed")
    assert 0 < figures.of(metric, flow="trimmed") < figures.of(metric, flow="brought")
    assert page.content_tokens == figures.of(metric, tool="read_file", flow="recalled") > 0
    kinds = {trim_pb2.SizeKind.Name(each.kind): each for each in answer.history_size.kinds}
    assert kinds["SIZE_KIND_RESULTS"].tokens_sent >= figures.of(metric, flow="brought") > 0


def test_trims_are_counted_once() -> None:
    """However many prompts an item stays trimmed in, trim and tokens count once: as the last answer has them."""
    with watched() as server:
        for iterations in range(1, 30):
            answer = server.served.stub.TrimPrompt(prompt(iterations))
        figures = server.scrape()
    assert answer.trims
    assert sum(trim.tokens_saved for trim in answer.trims) == figures.of(catalog.TRIMMED_TOKENS)
    words = Counter(trim_pb2.TrimReason.Name(trim.reason).removeprefix("TRIM_REASON_").lower() for trim in answer.trims)
    assert words.keys() == _by_label(figures, catalog.TRIMS, "reason").keys()
    assert figures.of(catalog.TRIMS) >= len(answer.trims)
    assert figures.of(catalog.ADVERTISED) >= len(answer.stash_entries) > 0
    assert answer.cache.batch_points == figures.of(catalog.CACHE_BREAKS, cause="batch_point")
    assert 0 == figures.of(catalog.CACHE_BREAKS, cause="agent")
    _agree(figures, "window", answer.cache.batch_points)


def test_cuts_for_a_ceiling_are_distinguished() -> None:
    """A prompt whose window has room is cut for its ceiling; what was condensed or capped is counted beside."""
    policy = policy_pb2.Policy(ceiling_tokens=2_000)
    with watched() as server:
        for iterations in range(1, 30):
            server.served.stub.TrimPrompt(prompt(iterations, context_window=100_000, policy=policy))
        run = server.served.stub.GetRun(run_pb2.GetRunRequest(run_id="run")).run
        figures = server.scrape()
    assert run.ceiling_cuts > 0
    _agree(figures, "ceiling", run.ceiling_cuts)


def _agree(figures: Figures, aim: str, cuts: int) -> None:
    """All cuts were for one aim, and what they and first sight took out is all that was taken out."""
    assert cuts == figures.of(catalog.CUTS) == figures.of(catalog.CUTS, aim=aim)
    first = sum(figures.of(catalog.TRIMMED_TOKENS, reason=reason) for reason in AT_FIRST_SIGHT)
    assert figures.of(catalog.TRIMMED_TOKENS) - first == figures.of(catalog.CUT_TOKENS, aim=aim) > 0
    assert figures.of(catalog.CUT_TOKENS) == figures.of(catalog.CUT_TOKENS, aim=aim)


def test_an_agent_that_changes_its_history_breaks_the_cache() -> None:
    """Such a break is distinguished from those that the sidecar makes; a longer prompt is none."""
    sent = messages(5)
    changed = [{"role": "user", "content": "Another task."}, *sent[1:]]
    with watched() as server:
        for each in (sent, sent + messages(1)[1:], changed, changed, [{"role": "system", "content": "New."}, *changed]):
            server.served.stub.TrimPrompt(prompt_of(each, context_window=100_000))
        figures = server.scrape()
    assert {"agent": 2} == _by_label(figures, catalog.CACHE_BREAKS, "cause")


def test_prompts_that_change_nothing_count_nowhere_else() -> None:
    """Dry runs and side calls have a counter of their own."""
    with watched() as server:
        server.served.stub.TrimPrompt(prompt(9))
        before = server.scrape()
        for _ in range(3):
            server.served.stub.TrimPrompt(prompt(30, dry_run=True))
        server.served.stub.TrimPrompt(prompt(9, side_call=True))
        figures = server.scrape()
    assert {"dry_run": 3, "side_call": 1} == _by_label(figures, catalog.PROMPTS_ASIDE, "mode")
    for metric in (catalog.PROMPTS, catalog.PROMPT_TOKENS, catalog.TRIMS, catalog.PREFIX_TOKENS, catalog.PROMPT_SIZE):
        assert before.of(metric) == figures.of(metric)


def test_refused_prompts_and_the_bounds_that_refused_them() -> None:
    """An error counts as a refused prompt; where a bound was reached its name is reported."""
    with watched(limits=Limits(run_messages=10)) as server:
        stub = server.served.stub
        assert "TOO_LARGE" == failure(lambda: stub.TrimPrompt(prompt(20))).reason
        assert "TOO_LARGE" == failure(lambda: stub.TrimPrompt(prompt(4, accept_bytes=1_024))).reason
        assert "INVALID_JSON" == failure(lambda: stub.TrimPrompt(prompt_of({"messages": 1}))).reason
        channel = server.served.channel
        assert "INVALID_REQUEST" == failure(lambda: _raw(channel, "TrimPrompt", b"\xff")).reason
        figures = server.scrape()
    assert {"refused": 4} == _by_label(figures, catalog.PROMPTS, "outcome")
    assert 1 == figures.of(catalog.PROMPTS, format="other")
    assert {"limits.run_messages": 1, "accept_bytes": 1} == _by_label(figures, catalog.BOUND_HITS, "bound")
    assert 2 == figures.of(catalog.RPC_DURATION, **{"rpc.response.status_code": "INVALID_ARGUMENT"})


def test_a_prompt_that_stays_too_large() -> None:
    """It counts as over its budget, with what kept it there."""
    with watched() as server:
        answer = server.served.stub.TrimPrompt(
            prompt_of([{"role": "user", "content": "word " * 2_000}], context_window=500)
        )
        figures = server.scrape()
    assert not answer.fits
    assert {"over_budget": 1} == _by_label(figures, catalog.PROMPTS, "outcome")
    assert {"protected_text": 1} == _by_label(figures, catalog.UNFIT, "reason")


def test_windows_that_nobody_set() -> None:
    """Each prompt counts whose answer says that its window was assumed; not one whose window or model is known."""
    with watched() as server:
        answers = [
            server.served.stub.TrimPrompt(prompt(2, run_id=model or "none", model=model, context_window=window))
            for model, window in (
                ("a-new-model", 0),
                ("a-new-model", 0),
                ("", 0),
                ("a-new-model", 8_000),
                ("gpt-4o", 0),
            )
        ]
        server.served.stub.TrimPrompt(prompt(2, model="a-new-model", context_window=0, dry_run=True))
        figures = server.scrape()
    assert [True, True, True, False, False] == [answer.tokens.window_assumed for answer in answers]
    assert 3 == figures.of(catalog.WINDOWS_ASSUMED)
    assert {"openai_chat": 3} == _by_label(figures, catalog.WINDOWS_ASSUMED, "format")


def test_messages_that_parsers_read_differently_count_once() -> None:
    """Half a character, or a duplicate key, counts when its message is new, and not in every later prompt."""
    twice = '{"role":"user","content":"a","content":"b"}'
    half = '{"role":"user","content":"cut \\ud83d"}'
    plain = '{"role":"user","content":"more"}'
    with watched() as server:
        for sent in ([twice], [twice, half], [twice, half, plain]):
            request = prompt_of([])
            request.json.body = f"[{','.join(sent)}]".encode()
            answer = server.served.stub.TrimPrompt(request)
            assert all(each.encode() in answer.json_body for each in sent)
        figures = server.scrape()
    assert 2 == figures.of(catalog.AMBIGUOUS_MESSAGES)


def test_time_and_memory_are_counted() -> None:
    """The phases of a prompt, its wait for a thread, and what its run keeps besides its originals."""
    with watched() as server:
        before = server.scrape()
        server.served.stub.TrimPrompt(prompt(40))
        server.served.stub.SearchHistory(search_pb2.SearchHistoryRequest(run_id="run", query="log"))
        figures = server.scrape()
    assert set(catalog.TRIM_TIME.labels["phase"]) == set(_by_label(figures, catalog.TRIM_TIME, "phase"))
    assert figures.of(catalog.QUEUE_WAIT) > before.of(catalog.QUEUE_WAIT)
    for metric in (catalog.MEMORY_SIZE, catalog.HISTORY_SIZE, catalog.INDEX_SIZE):
        assert figures.of(metric) > before.of(metric)
    assert Limits().memory_bytes == figures.of(catalog.MEMORY_LIMIT)


def test_what_is_kept_beside_runs() -> None:
    """What is kept of answers for the next ones, and of reports; each buffer has its series from the start."""
    with watched() as server:
        before = server.scrape()
        answer = server.served.stub.TrimPrompt(prompt(40))
        report = usage_pb2.ReportUsageRequest(run_id="run", model="m", input_tokens=answer.tokens.after)
        server.served.stub.ReportUsage(report)
        figures = server.scrape()
    assert {} == _by_label(before, catalog.BUFFERS_SIZE, "buffer")
    kept = set(_by_label(figures, catalog.BUFFERS_SIZE, "buffer"))
    # On a busy machine gRPC may not have said yet that the client has taken its answer.
    assert {"answer_parts", "calibration"} == kept - {"untaken_answers"}


def test_texts_of_ours_that_are_forgotten_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past so many the oldest passes as ordinary text when it comes back."""
    monkeypatch.setattr(own_state, "OWN_TEXTS_REMEMBERED", 4)
    with watched() as server:
        for iterations in range(1, 30):
            server.served.stub.TrimPrompt(prompt(iterations))
        assert server.scrape().of(catalog.BOUND_HITS, bound="own_text.recognised") > 3


def test_retrievals_and_searches_by_whoever_asked() -> None:
    """Programs and models are distinguished; what was not there counts too."""
    with watched() as server:
        stub = server.served.stub
        for iterations in range(1, 25):
            answer = stub.TrimPrompt(prompt(iterations))
        known = answer.trims[0].stash_id
        for run_id, stash_id in (("run", known), ("run", "AAAAAAAAAA"), ("none", known)):
            stub.RetrieveContent(retrieve_pb2.RetrieveContentRequest(run_id=run_id, stash_id=stash_id))
        for run_id, query in (("run", "module_3"), ("run", "xylophone"), ("none", "module")):
            found = stub.SearchHistory(search_pb2.SearchHistoryRequest(run_id=run_id, query=query))
            snippets = len(found.snippets) or 0
        for name, arguments in (
            (RECALL, {"id": known}),
            (RECALL, {"id": "BBBBBBBBBB"}),
            (RECALL, {}),
            (SEARCH, {"query": "module_4"}),
            ("made_up", {}),
        ):
            _tool(server.served, name, arguments)
        for _ in range(3):
            _tool(server.served, RECALL, {"id": known})
        figures = server.scrape()
    assert 0 == snippets
    by_rpc = {outcome: figures.of(catalog.RETRIEVALS, outcome=outcome, via="rpc") for outcome in ("hit", "not_found")}
    assert {"hit": 1, "not_found": 1} == by_rpc
    assert {"hit": 4, "not_found": 2, "run_unknown": 1} == _by_label(figures, catalog.RETRIEVALS, "outcome")
    assert {"found": 2, "nothing_found": 1, "run_unknown": 1} == _by_label(figures, catalog.SEARCHES, "outcome")
    assert 3 == figures.of(catalog.SEARCH_DURATION)
    assert {"ok": 5, "invalid_arguments": 1, "unknown_tool": 1, "repeated": 1} == _by_label(
        figures, catalog.TOOL_CALLS, "outcome"
    )
    assert 1 == figures.of(catalog.TOOL_CALLS, tool="other")
    assert 1 == figures.of(catalog.BOUND_HITS, bound="recall.repeats")


def test_tasks_are_counted_by_who_made_them() -> None:
    """Created and completed ones, by programs and by the model, and those that a run ended with."""
    with watched() as server:
        stub = server.served.stub
        stub.CreateTasks(task_pb2.CreateTasksRequest(run_id="run", items=["a", "b", "c"]))
        for _ in range(2):
            stub.UpdateTask(task_pb2.UpdateTaskRequest(run_id="run", id=1, status=task_pb2.TASK_STATUS_COMPLETED))
        _tool(server.served, CREATE_TASKS, {"tasks": ["d"], "mode": "append"})
        _tool(server.served, UPDATE_TASK, {"id": 2, "status": "completed"})
        ended = stub.EndRun(run_pb2.EndRunRequest(run_id="run"))
        failure(lambda: stub.CreateTasks(task_pb2.CreateTasksRequest(run_id="x", items=["a"] * 51)))
        figures = server.scrape()
    unfinished = len(ended.run.unfinished_tasks)
    assert {"created": 4, "completed": 2} == _by_label(figures, catalog.TASKS, "event")
    assert unfinished == figures.of(catalog.UNFINISHED_TASKS) > 0
    assert {"tasks.count": 1} == _by_label(figures, catalog.BOUND_HITS, "bound")
    assert {"ended": 1} == _by_label(figures, catalog.RUNS_FORGOTTEN, "cause")
    assert 0 == figures.of(catalog.RUNS_ACTIVE)


def test_what_providers_report_is_counted() -> None:
    """What the provider counted, what its cache made of the prefix, and what it refused."""
    with watched() as server:
        stub = server.served.stub
        real = 0
        for iterations in range(10, 14):
            answer = stub.TrimPrompt(prompt(iterations, model="gpt-4o"))
            real += answer.tokens.after + 7
            usage = stub.ReportUsage(
                usage_pb2.ReportUsageRequest(
                    run_id="run", input_tokens=answer.tokens.after + 7, cached_tokens=100, output_tokens=11
                )
            )
        stub.ReportUsage(usage_pb2.ReportUsageRequest(run_id="run", input_tokens=1))  # on the same prompt
        stub.TrimPrompt(prompt(14, model="gpt-4o"))
        refusal = usage_pb2.PromptRefusal(message="prompt is too long: 9000 tokens > 8000 maximum")
        stub.ReportUsage(usage_pb2.ReportUsageRequest(run_id="run", refusal=refusal))
        figures = server.scrape()
    assert usage.real_tokens
    assert {"recorded": 5, "repeated": 1} == _by_label(figures, catalog.USAGE_REPORTS, "outcome")
    sums = _by_label(figures, catalog.REPORTED_TOKENS, "kind")
    assert (real, 400, 44) == (sums["input"], sums["cached"], sums["output"])
    assert 4 == figures.of(catalog.ESTIMATE_RATIO, model="gpt-4o")
    assert {"named": 1} == _by_label(figures, catalog.PROVIDER_REFUSALS, "limit")


def test_losses_are_those_of_the_runs() -> None:
    """What a budget evicts counts by cause and by bound, as the run's own figures tell."""
    with watched(limits=Limits(stash_bytes=4_000, run_stash_bytes=3_000)) as server:
        stub = server.served.stub
        for iterations in range(1, 40):
            stub.TrimPrompt(prompt(iterations))
        run = stub.GetRun(run_pb2.GetRunRequest(run_id="run")).run
        figures = server.scrape()
    assert run.stash.evicted > 0
    assert run.stash.evicted == figures.of(catalog.STASH_LOSSES) - run.stash.expired
    assert run.stash.evicted == figures.of(catalog.BOUND_HITS, bound="limits.run_stash_bytes")
    assert run.stash.entries == figures.of(catalog.STASH_ENTRIES)
    assert run.stash.original_bytes == figures.of(catalog.STASH_SIZE, state="original")
    assert 4_000 == figures.of(catalog.STASH_LIMIT)


def test_runs_that_are_one_too_many() -> None:
    """The one that goes is counted, by cause and by bound; those started less those gone are active."""
    with watched(limits=Limits(runs=3)) as server:
        for number in range(8):
            server.served.stub.TrimPrompt(prompt(1, run_id=f"run {number}"))
        figures = server.scrape()
    assert (8, 3) == (figures.of(catalog.RUNS_STARTED), figures.of(catalog.RUNS_ACTIVE))
    assert {"too_many": 5} == _by_label(figures, catalog.RUNS_FORGOTTEN, "cause")
    assert {"limits.runs": 5} == _by_label(figures, catalog.BOUND_HITS, "bound")


@pytest.mark.parametrize("marks", [(0.99, 0.45), (0.98, 0.44), (0.95, 0.42), (0.90, 0.40), (0.80, 0.50)])
def test_given_up_memory_makes_no_news(marks: tuple[float, float]) -> None:
    """A run that forgot its caches decides all of it once more; its trims and ids count once all the same."""
    tight = Limits(memory_bytes=250_000)

    def counted(limits: Limits) -> dict[str, float]:
        with watched(limits=limits) as server:
            for iterations in range(1, 25):
                for run_id in ("one", "two"):
                    sent = prompt_of(messages(iterations) + messages(1)[1:], run_id=run_id)
                    sent.policy.preset = policy_pb2.PRESET_CACHE_FIRST
                    sent.policy.fit_high, sent.policy.fit_low = marks
                    server.served.stub.TrimPrompt(sent)
            figures = server.scrape()
        assert (limits == tight) == (figures.of(catalog.BOUND_HITS, bound="limits.memory_bytes") > 0)
        metrics = (catalog.TRIMS, catalog.TRIMMED_TOKENS, catalog.ADVERTISED)
        return {metric.name: figures.of(metric) for metric in metrics}

    assert counted(Limits()) == counted(tight)


def test_repeated_calls_by_what_was_left_of_the_older_result() -> None:
    """The model asks again for what it still has, or for what was trimmed: the second is what trimming costs."""
    long = messages(12)
    again = long[3:5]
    with watched() as server:
        server.served.stub.TrimPrompt(prompt_of(messages(2), run_id="whole"))
        server.served.stub.TrimPrompt(prompt_of([*messages(2), *messages(2)[1:3]], run_id="whole"))
        trimmed = server.served.stub.TrimPrompt(prompt_of(long))
        server.served.stub.TrimPrompt(prompt_of([*long, *again]))
        server.served.stub.TrimPrompt(prompt_of([*long, *again]))
        figures = server.scrape()
    assert 4 in {trim.message_index for trim in trimmed.trims}
    assert {"whole": 1, "trimmed": 1} == _by_label(figures, catalog.REPEATED_CALLS, "older")


def _tool(served: Serving, name: str, arguments: dict[str, Any]) -> tool_pb2.CallToolResponse:
    asked = tool_pb2.CallToolRequest(run_id="run", name=name, arguments_json=json.dumps(arguments))
    return served.stub.CallTool(asked)


def _raw(channel: grpc.Channel, method: str, raw: bytes) -> object:
    call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
        f"/prompt_sidecar.v1.SidecarService/{method}"
    )
    return call(raw)
