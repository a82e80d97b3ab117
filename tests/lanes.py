"""Which tests `make test` and `make test-all` run, and what they take less of.

`make test-all`, which continuous integration runs, has every test. Where the cases of one take more than
`MOST_SECONDS_OF_ALL` together, as many run as take that, evenly spread, and one in any case; in the places of
`EACH_VALUE` as many as are needed to have each value of each parameter once. `make test-cases` runs every case.

`make test` has to end within minutes on two cores, so that it runs before each commit. Four rules, in this order:

1. What needs more than a checkout and its packages (other languages, an image, real agents, frameworks in environments
   of their own, a browser), and what takes more than 0.7 s of processor time a case, is left out: `THOROUGH`.
   `make planted` shows that what stays still catches a fault in each promise.
2. Of a test with many cases in one of the places in `SAMPLED`, as many run as are needed to have each value of each
   parameter once, or as many as the table says, evenly spread.
3. A test of which one case takes more than `LONGEST_CASE` of processor time is left out too, unless a place in
   `THOROUGH` says that it stays. Of one whose cases take more than `MOST_SECONDS` together as many run as take that,
   evenly spread, and one in any case. What a case takes was measured: `costs.py`.
4. A property tries a quarter of its examples, the first ones of those that `make test-all` tries.

A place is the beginning of a test's id. The marker of a test that is left out is `thorough`, so that
`pytest -m thorough` runs these alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final

import pytest
from hypothesis import is_hypothesis_test

from tests.costs import costs

EXAMPLES_SHARE: Final = 4
"""A property tries one of so many of its examples, and at least `LEAST_EXAMPLES`."""
LEAST_EXAMPLES: Final = 4
LONGEST_CASE: Final = 0.7
"""Seconds of processor time. Some six hundred tests take more: 40 minutes together, of each one case."""
MOST_SECONDS: Final = 0.4
"""Seconds of processor time that the cases of one test may take. Most tests take some milliseconds."""
MOST_SECONDS_OF_ALL: Final = 3.0
"""Seconds of processor time that the cases of one test may take in `make test-all`. Without this bound it takes more
than an hour on two slow cores, a half of it in tests with many cases."""
EACH_VALUE: Final = (
    "tests/conformance/test_conformance.py",
    "tests/dashboards/test_alerts_by_door.py",
    "tests/doors/http/test_sdks.py",
    "tests/promises/test_every_format.py",
)
"""Places where `make test-all` tries each value of each parameter: each format, each alert at some door."""
EACH: Final = 0
"""Cases of a test in `SAMPLED`: as many as each value of each parameter needs."""

STAYS: Final = ""
"""In `THOROUGH`: a place that stays, within one that is left out."""
_DATA: Final = "replays recorded runs, which a checkout has not got"
_FRAMEWORK: Final = "needs a framework's environment: make integrations"
_NODE: Final = "needs Node.js and its packages"
_KILLED: Final = "kills and starts processes, over and over"
_WAITS: Final = "waits for seconds, as what it tries is a wait"
_PROGRAM: Final = "tries a program that measures, not the product"
_SECONDS: Final = "takes seconds of processor time"
_STARTS: Final = "starts the program for each test, a second of processor time; some of them stay"

THOROUGH: Final[Mapping[str, str]] = {
    "tests/doors/admin/test_browser.py": "needs a browser",
    "tests/agents/": "needs real agents",
    "tests/agents/test_table.py": STAYS,
    "tests/cli/": _STARTS,
    "tests/cli/test_agents.py": STAYS,
    "tests/cli/test_commands.py": STAYS,
    "tests/cli/test_commands.py::test_a_reader_that_goes_away": _SECONDS,
    "tests/cli/test_commands.py::test_files_that_never_end_are_reported": _WAITS,
    "tests/cli/test_doctor.py": STAYS,
    "tests/cli/test_doctor.py::test_a_sidecar_that_runs": _STARTS,
    "tests/cli/test_presets.py": STAYS,
    "tests/cli/test_process.py::test_a_signal_drains": STAYS,
    "tests/cli/test_process.py::test_listening_to_the_world_needs_authentication": STAYS,
    "tests/cli/test_wrap.py::test_an_agent_s_run": STAYS,
    "tests/cli/test_wrap.py::test_the_terminal_is_the_agent_s": STAYS,
    "tests/cli/test_wrap_summary.py": STAYS,
    "tests/client/test_agent.py": _STARTS,
    "tests/client/test_agent.py::test_over_tcp": STAYS,
    "tests/client/test_alone.py::test_an_installation": "installs the client into an environment of its own",
    "tests/client/test_by_run.py": _SECONDS,
    "tests/client/test_killed.py": _KILLED,
    "tests/client/test_killed.py::test_the_run_ends_normally": STAYS,
    "tests/clients/test_agents.py": "needs the toolchains of five languages",
    "tests/clients/test_languages.py": "needs the toolchains of five languages",
    "tests/clients/test_settings.py::test_deadline_retries_and_sizes": _SECONDS,
    "tests/conformance/": STAYS,
    "tests/conformance/test_conformance.py::test_recorded": _DATA,
    "tests/conformance/test_conformance.py::test_invented_blocks": _SECONDS,
    "tests/conformance/test_conformance.py::test_what_forces_nothing": _SECONDS,
    "tests/conformance/test_reasoning.py::test_a_sidecar_that_is_killed": _KILLED,
    "tests/conformance/test_reasoning.py::test_recorded_runs": _DATA,
    "tests/dashboards/test_promtool.py": "needs promtool",
    "tests/dashboards/test_rules.py::test_the_rules_do_what_they_promise": "needs promtool",
    "tests/deploy/test_agent.py::test_it_shows": _SECONDS,
    "tests/deploy/test_built_image.py": "builds the image",
    "tests/deploy/test_chart.py": "needs Helm's package, which it installs",
    "tests/deploy/test_crds.py": _NODE,
    "tests/deploy/test_release.py::test_a_release_from_its_beginning_to_its_end": "installs packages from an index",
    "tests/docs/test_go.py": "needs Go",
    "tests/docs/test_integration.py::test_the_figures": _DATA,
    "tests/docs/test_log_lines.py::test_a_quoted_line_is_logged": _SECONDS,
    "tests/docs/test_site.py": "builds the site: make docs",
    "tests/doors/envoy/test_load.py": _SECONDS,
    "tests/doors/envoy/test_masked.py": "starts Envoy for each test, a second of processor time; some stay",
    "tests/doors/envoy/test_masked.py::test_tools_get_values_that_no_provider_sees": STAYS,
    "tests/doors/envoy/test_masked_killed.py": _KILLED,
    "tests/doors/envoy/test_recipe.py": _SECONDS,
    "tests/doors/envoy/test_replicas.py": _SECONDS,
    "tests/doors/envoy/test_through_envoy.py": "starts Envoy for each test, a second of processor time; one stays",
    "tests/doors/envoy/test_through_envoy.py::test_what_cannot_be_trimmed": STAYS,
    "tests/guard/test_recorded.py": _DATA,
    "tests/guard/test_recorded_rules.py": _DATA,
    "tests/doors/http/test_habits.py::test_sixty_calls_of_an_agent_with_a_habit": _SECONDS,
    "tests/doors/http/test_killed.py": _KILLED,
    "tests/doors/http/test_node_sdks.py": _NODE,
    "tests/doors/http/test_real_agents.py": "needs real agents",
    "tests/doors/http/test_reasons.py::test_a_socket_that_passes": STAYS,
    "tests/doors/http/test_response_sockets.py::test_an_agent_that_takes_nothing": _WAITS,
    "tests/doors/http/test_response_sockets.py::test_one_that_is_open_for_too_long": _WAITS,
    "tests/doors/http/test_unread.py::test_json_as_some_programs_write_it": _SECONDS,
    "tests/doors/http/test_websockets.py::test_a_side_that_is_not_read_is_not_lost": _WAITS,
    "tests/doors/http/test_websockets.py::test_a_silent_agent_is_pinged": _WAITS,
    "tests/doors/http/test_websockets.py::test_a_silent_provider_is_pinged": _WAITS,
    "tests/doors/http/test_websockets.py::test_an_agent_that_takes_no_messages": _WAITS,
    "tests/doors/http/test_websockets.py::test_sides_that_answer_pings_may_be_silent": _WAITS,
    "tests/integrations/test_ai_sdk.py": _NODE,
    "tests/integrations/test_boto3.py": _FRAMEWORK,
    "tests/integrations/test_google_genai.py": _FRAMEWORK,
    "tests/integrations/test_langchain.py": _FRAMEWORK,
    "tests/integrations/test_litellm.py": _FRAMEWORK,
    "tests/integrations/test_mcp.py": _FRAMEWORK,
    "tests/integrations/test_mcp_telemetry.py": _FRAMEWORK,
    "tests/integrations/test_openai_agents.py": _FRAMEWORK,
    "tests/integrations/test_pydantic_ai.py": _FRAMEWORK,
    "tests/lab/": _PROGRAM,
    "tests/lab/conformance/": STAYS,
    "tests/lab/demo/": STAYS,
    "tests/lab/fuzz/": STAYS,
    "tests/lab/fuzz/test_fuzz.py::test_over_a_socket": _SECONDS,
    "tests/lab/fuzz/test_fuzz.py::test_mixed_histories": _SECONDS,
    "tests/lab/planted/": STAYS,
    "tests/promises/test_ageing.py::test_a_long_run_plateaus": _SECONDS,
    "tests/promises/test_ageing.py::test_a_recorded_run_plateaus": _DATA,
    "tests/promises/test_ageing.py::test_growth_has_an_end_below_the_marks": _SECONDS,
    "tests/promises/test_injections.py": _DATA,
    "tests/promises/test_recorded.py": _DATA,
    "tests/providers/test_made_up.py": _STARTS,
    "tests/real/": "needs Prometheus or a collector",
    "tests/recall/test_recorded.py": _DATA,
    "tests/recall/test_search_bounds.py::test_thousands_of_large_passages": _SECONDS,
    "tests/report/test_bills.py::test_replay_agrees": _DATA,
    "tests/report/test_command.py": _STARTS,
    "tests/report/test_page.py": "needs a browser",
    "tests/report/test_replay.py": _STARTS,
    "tests/repo/test_changes.py": "makes changes in copies of the code, and the stubs again",
    "tests/repo/test_changes.py::test_a_model": STAYS,
    "tests/repo/test_changes.py::test_a_setting": STAYS,
    "tests/repo/test_independence.py::test_a_worker_that_is_done": _SECONDS,
    "tests/repo/test_time_limit.py": _WAITS,
    "tests/repo/test_wheel.py": "builds the package",
    "tests/store/test_hops.py::test_every_routing": _SECONDS,
    "tests/store/test_clustered.py": "starts the servers of a cluster",
    "tests/store/test_faults.py::test_an_acknowledged_edit_waits_for_replicas": _WAITS,
    "tests/store/test_first_reads.py::test_first_reads_of_many_runs_at_once": _SECONDS,
    "tests/store/test_killed.py": _KILLED,
    "tests/store/test_rotated.py::test_a_key_is_replaced_under_load": _SECONDS,
    "tests/store/test_simulation.py::test_thousands_of_histories": _SECONDS,
    "tests/store/test_stalled.py::test_a_run_is_not_reported_as_unknown_while_the_store_cannot_be_asked": _WAITS,
    "tests/store/test_stalled.py::test_a_stall_costs_a_killed_server": _KILLED,
    "tests/store/test_tasks.py::test_an_answer_over_grpc_says_what_is_not_shared": _KILLED,
    "tests/store/test_watched.py": "starts the servers of a failover",
    "tests/store/test_watched.py::test_settings_that_do_not_go_together": STAYS,
    "tests/store/test_taken_over.py::test_real_servers": _SECONDS,
    "tests/telemetry/test_cardinality.py::test_ten_thousand_runs_and_a_thousand_names": _SECONDS,
    "tests/telemetry/test_collector.py::test_a_collector_that_is_not_there": _WAITS,
    "tests/telemetry/test_figures.py::test_prompts_that_change_nothing": STAYS,
    "tests/telemetry/test_figures.py::test_trims_are_counted_once": STAYS,
    "tests/telemetry/test_pipeline.py::test_a_stop_does_not_wait_for_a_dead_collector": _WAITS,
    "tests/tokens/test_count.py::test_recorded_texts": _DATA,
    "tests/trim/condense/test_recorded.py": _DATA,
    "tests/engine/steps/test_long_texts.py::test_long_texts_are_treated_as_short_ones": _SECONDS,
    "tests/engine/steps/test_long_texts.py::test_a_text_is_copied_once_at_a_time": _SECONDS,
    "tests/engine/steps/test_ambiguous.py::test_many_texts_with_half_a_character": _SECONDS,
    "tests/doors/http/test_unread.py::test_a_large_body_holds_nobody_up": _SECONDS,
    "tests/store/test_unusable.py::test_a_required_store_is_waited_for": _WAITS,
}
"""Places that are left out, and why."""

SAMPLED: Final[Mapping[str, int]] = {
    "tests/guard/test_switching.py": EACH,
    "tests/cli/test_commands.py::test_serve_and_check_config_say_the_same": 1,
    "tests/cli/test_process.py::test_a_signal_drains": 1,
    "tests/client/test_fallback.py::test_prompts_of_no_shape": 6,
    "tests/client/test_guard.py::test_a_run_with_masks_is_never_failed_open": 1,
    "tests/client/test_killed.py::test_the_run_ends_normally": 1,
    "tests/client/test_streaming.py::test_recall_inside_a_stream": 2,
    "tests/dashboards/test_alerts_by_door.py": 6,
    "tests/doors/envoy/test_through_envoy.py": 1,
    "tests/doors/envoy/test_masks_stay.py::test_answers_beyond_their_bound": 2,
    "tests/doors/http/test_hostile_requests.py": 1,
    "tests/doors/http/test_reasons.py::test_each_answer_says_why_its_request_was_not_trimmed": 9,
    "tests/doors/http/test_sdks.py::test_sixty_calls_with_tools_in_an_item": 1,
    "tests/doors/http/test_sdks.py::test_sixty_calls_over_the_limit": 1,
    "tests/doors/http/test_habits.py::test_a_hidden_turn_is_found": 30,
    "tests/doors/http/test_path_recall.py::test_sixty_calls_over_the_limit": 2,
    "tests/doors/http/test_bound_thinking.py::test_sixty_calls_over_the_limit": 1,
    "tests/answers/test_restored_answers.py::test_an_event_that_fails_is_taken_back": 4,
    "tests/conformance/test_reasoning.py": 4,
    "tests/conformance/test_conformance.py": 4,
    "tests/lab/fuzz/": 6,
    "tests/promises/": EACH,
    "tests/promises/test_ageing.py": 1,
    "tests/promises/test_disturbance.py": 1,
    "tests/promises/test_synthetic.py": 1,
    "tests/prompt/test_structure.py": 3,
    "tests/repo/test_layers.py": 5,
    "tests/engine/runs/": EACH,
    "tests/engine/runs/test_bad_input.py": 14,
    "tests/engine/runs/test_interrupted.py::test_nothing_is_guarded_twice": 3,
    "tests/engine/runs/test_wrong_format.py": 24,
    "tests/store/": EACH,
    "tests/store/test_bounded.py": 1,
    "tests/store/test_ending_all.py": 1,
    "tests/store/test_hidden_turns.py": 6,
    "tests/store/test_hops.py": 1,
    "tests/store/test_taken_over.py": 6,
    "tests/store/test_taken_over.py::test_each_search_gets_further": 1,
    "tests/telemetry/test_money_of_failed_calls.py": 1,
    "tests/telemetry/test_figures.py::test_given_up_memory_makes_no_news": 1,
    "tests/trim/condense/test_condensing.py::test_time_is_linear": 12,
    "tests/trim/test_growth.py": 8,
    "tests/engine/steps/": EACH,
    "tests/engine/steps/test_ambiguous.py": 18,
    "tests/engine/steps/test_parts.py": 2,
    "tests/engine/steps/test_unfinished.py::test_every_beginning_of_a_run": 6,
    "tests/engine/steps/test_whole.py": 8,
    "tests/engine/steps/test_prefix.py": 4,
    "tests/engine/steps/test_lean.py": 4,
    "tests/doors/envoy/test_masked.py::test_tools_get_values_that_no_provider_sees": 1,
    "tests/guard/test_scanner.py::test_near_misses_are_read_once_for_each_rule": 6,
    "tests/doors/http/test_guarded.py::test_tools_get_values_that_no_provider_sees": 4,
    "tests/doors/http/test_sdks.py::test_what_left_the_prompt_is_recalled_however_often": 1,
    "tests/integrations/test_masked.py": 2,
    "tests/integrations/test_httpx_masks.py::test_calls_get_values_in_asyncio": 1,
    "tests/integrations/test_httpx.py::test_an_agent_that_only_has_another_transport": 2,
    "tests/doors/grpc/test_waiting.py::test_a_call_that_waits": 2,
    "tests/doors/grpc/test_own_pool.py::test_a_hidden_name_costs_no_start": 2,
}
"""Places where a test runs some of its cases, and how many."""


def place_of(test: str, places: Iterable[str]) -> str | None:
    """The place that a test is in, the longest that fits; None: in none."""
    if not test.startswith(tuple(places)):
        return None
    return max((place for place in places if test.startswith(place)), key=len)


def some_of_each(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The cases that `make test-all` runs, some of each test, and those that it leaves out."""
    by_test: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        by_test[item.nodeid.partition("[")[0]].append(item)
    left = set[pytest.Item]()
    for test in costs().keys() & by_test.keys():
        cases, most = by_test[test], max(1, int(MOST_SECONDS_OF_ALL / costs()[test]))
        if len(cases) > most:
            each = covering(cases) if test.startswith(EACH_VALUE) else []
            left.update(set(cases) - set(each if len(each) > most else spread(cases, most)))
    return [item for item in items if item not in left], [item for item in items if item in left]


def chosen(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests that `make test` runs, and those that it leaves out, which get the marker `thorough`."""
    left = {item for item in items if item.get_closest_marker("thorough")}
    by_test: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        name = item.nodeid
        if (place := place_of(name, THOROUGH)) is not None and THOROUGH[place] != STAYS:
            left.add(item)
        elif (place := place_of(name, SAMPLED)) is not None:
            by_test[name.partition("[")[0], SAMPLED[place]].append(item)
    for (_, most), cases in by_test.items():
        left.update(set(cases) - set(spread(cases, most) if most else covering(cases)))
    costly: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item not in left and (test := item.nodeid.partition("[")[0]) in costs():
            costly[test].append(item)
    for test, cases in costly.items():
        seconds = costs()[test] / (EXAMPLES_SHARE if is_hypothesis_test(getattr(cases[0], "obj", None)) else 1)
        most = max(1, int(MOST_SECONDS / seconds)) if seconds <= LONGEST_CASE or place_of(test, THOROUGH) else 0
        left.update(set(cases) - set(spread(cases, most)))
    for item in left:
        item.add_marker("thorough")
    return [item for item in items if item not in left], [item for item in items if item in left]


def left_whole(file: str) -> bool:
    """Whether no test of a file, named as in a test's id, stays in `make test`: then it is not even read."""
    place = place_of(f"{file}::", THOROUGH)
    left = place is not None and "::" not in place and THOROUGH[place] != STAYS
    return left and not any(each.startswith(f"{file}::") and why == STAYS for each, why in THOROUGH.items())


def spread(cases: Sequence[pytest.Item], most: int) -> list[pytest.Item]:
    """So many of the cases, evenly spread, the first and the last among them."""
    if len(cases) <= most:
        return list(cases)
    return [cases[round(number * (len(cases) - 1) / max(most - 1, 1))] for number in range(most)]


def covering(cases: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Cases that have each value of each parameter at least once; of those with equally many new values the first."""
    values = {item: _values(item) for item in cases}
    wanted = set[tuple[str, Hashable]]().union(*values.values())
    taken: list[pytest.Item] = []
    while wanted:
        best = max(cases, key=lambda item: len(values[item] & wanted))
        taken.append(best)
        wanted -= values[best]
    return taken or list(cases[:1])


def _values(item: pytest.Item) -> set[tuple[str, Hashable]]:
    """The values of a case's parameters. Cases of one test share them, so each is known by its identity."""
    spec = getattr(item, "callspec", None)
    return set() if spec is None else {(name, id(value)) for name, value in spec.params.items()}


def examples(usual: int) -> int:
    """How many examples a property tries."""
    return max(min(usual, LEAST_EXAMPLES), usual // EXAMPLES_SHARE)
