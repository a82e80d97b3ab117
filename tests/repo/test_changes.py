"""What ARCHITECTURE.md says a change touches is enough: each is made in a copy of the code, and seen to work.

A change here is the lines that it adds, by file and by what they stand before; a program tries it in a process of its
own. Where the protos change, the copy's stubs and client are made again, as `make protos client` does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent

import pytest

from tests.doors.grpc.serving import serving

ROOT = Path(__file__).parents[2]
PACKAGE = "sidecar/prompt_sidecar"
Change = Sequence[tuple[str, str, str]]
"""What a change adds: the file, what stands behind it there (nothing: the file is new), and the text."""


def copied(into: Path, *changes: Change) -> Path:
    """Copy the code, make the changes in it, and return the copy."""
    for folder in ("sidecar", "protos", ".ci"):
        shutil.copytree(ROOT / folder, into / folder)
    for change in changes:
        for name, behind, added in change:
            path = into / name
            code = path.read_text(encoding="utf-8") if behind else ""
            assert not behind or 1 == code.count(behind), f"{name} has {behind!r} {code.count(behind)} times"
            path.write_text(code.replace(behind, added + behind) if behind else added, encoding="utf-8")
    return into


def run(copy: Path, program: str) -> None:
    """Run a program against the copy; what it asserts holds there."""
    done = subprocess.run(
        [sys.executable, "-c", dedent(program)],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(copy / "sidecar"), str(ROOT)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr


def test_a_setting_is_one_field(tmp_path: Path) -> None:
    """Every source knows it, and the example file and the page of settings tell it."""
    change = [
        (
            f"{PACKAGE}/telemetry/options.py",
            "    scrapes: int = setting(\n",
            '    made_up: int = setting(7, whole(0, 9), "Made up.", "Seven is enough.")\n',
        )
    ]
    run(
        copied(tmp_path, change),
        """
        from pathlib import Path
        from prompt_sidecar.config.reference import example
        from prompt_sidecar.config.settings import load
        from tests.config.settings_page import BLOCKS

        assert 7 == load({}).telemetry.made_up
        assert 8 == load({"PROMPT_SIDECAR_TELEMETRY__MADE_UP": "8"}).telemetry.made_up
        assert 9 == load({}, flags={"telemetry.made_up": "9"}).telemetry.made_up
        Path("made_up.toml").write_text("[telemetry]\\nmade_up = 6")
        assert 6 == load({}, config="made_up.toml").telemetry.made_up
        assert "made_up = 7" in example()
        assert any("`telemetry.made_up`" in row for row in BLOCKS["settings"]())
        """,
    )


def test_a_metric_is_a_row_and_what_counts_it(tmp_path: Path) -> None:
    """It is scraped and pushed from the start, with every value of its labels, and the page of metrics tells it."""
    change = [
        (
            f"{PACKAGE}/telemetry/catalog.py",
            "STASH_ENTRIES: Final",
            """\
MADE_UP: Final = Metric(
    "prompt_sidecar.made.up", InstrumentKind.COUNTER, "{call}", "?", {"way": ("a", "b")}
)
""",
        ),
        (
            f"{PACKAGE}/telemetry/readings.py",
            "        (catalog.STASH_ENTRIES,",
            '        (catalog.MADE_UP, {("a",): totals.runs + 1}),\n',
        ),
    ]
    run(
        copied(tmp_path, change),
        """
        from tests.telemetry.telemetry_page import BLOCKS
        from tests.telemetry.watched import watched

        with watched() as seen:
            shown = seen.scrape().text
        assert 'prompt_sidecar_made_up_total{way="a"} 1' in shown
        assert 'prompt_sidecar_made_up_total{way="b"} 0' in shown
        assert any("prompt_sidecar_made_up_total" in row for row in BLOCKS["metrics"]())
        """,
    )


def test_a_secret_rule_is_a_row(tmp_path: Path) -> None:
    """Its secrets are masked and counted under its name, and the guard's page tells it."""
    change = [
        (
            f"{PACKAGE}/guard/kinds.py",
            '    secret("github_token"',
            '    secret("made_up_key", r"\\bMADEUP-[a-f0-9]{24}\\b", "MADEUP-" + fake(24, "hex"), "MADEUP-1"),\n',
        )
    ]
    run(
        copied(tmp_path, change),
        """
        from prompt_sidecar.guard.forms import fake
        from prompt_sidecar.guard.options import GuardOptions
        from prompt_sidecar.guard.rules import default_rules
        from prompt_sidecar.telemetry import catalog
        from tests.guard.guard_page import PAGE, BLOCKS, remade

        (finds,) = default_rules(GuardOptions()).scan(["key: MADEUP-" + fake(24, "hex")])
        assert ["made_up_key"] == [find.rule.name for find in finds]
        assert "made_up_key" in catalog.RULES and "made_up_key" in catalog.KINDS
        assert "made_up_key" in remade(PAGE.read_text(), BLOCKS)
        """,
    )


def test_a_model_is_a_row(tmp_path: Path) -> None:
    """Its window holds under every spelling of its name, and its figures are its own."""
    rows = f"{PACKAGE}/providers/catalogue.tsv"
    lines = (ROOT / rows).read_text(encoding="utf-8").splitlines(keepends=True)
    behind = next(line for line in lines if not line.startswith("#") and line > "made-up-9")
    run(
        copied(tmp_path, [(rows, "\n" + behind, "\nmade-up-9\t77000\t\t\t\t\t")]),
        """
        from prompt_sidecar.facts.known_models import Models
        from prompt_sidecar.providers.models import known_family

        assert 77_000 == Models().window("openai/made-up-9-2027-01-01")
        assert "made-up-9" == known_family("openai/made-up-9-2027-01-01")
        """,
    )


def test_a_framework_is_a_file_that_needs_the_client_alone(tmp_path: Path) -> None:
    """What the server needs need not be installed where the framework is."""
    change = [
        (
            f"{PACKAGE}/integrations/made_up.py",
            "",
            """\
from prompt_sidecar.client import Client


def trimmed(client, run_id, call):
    return lambda messages: call(client.trim(run_id, messages).prompt)
""",
        )
    ]
    with serving() as served:
        run(
            copied(tmp_path, change),
            f"""
            import sys
            for server in ("aiohttp", "msgspec", "opentelemetry", "orjson", "tiktoken", "zstandard"):
                sys.modules[server] = None
            from prompt_sidecar.integrations.made_up import Client, trimmed

            with Client("{served.address}", fail_open=False) as client:
                assert trimmed(client, "r", len)([{{"role": "user", "content": "Go on."}}])
                assert 1 == client.trimmed
            """,
        )


KNOB: Change = [
    (
        f"{PACKAGE}/trim/policy.py",
        "    age_repeats: bool = setting(",
        '    age_made_up: int = setting(3, whole(1, 9), "Made up.", "Three is enough.")\n',
    ),
    (
        "protos/prompt_sidecar/v1/policy.proto",
        "  // The preset that the other fields start from.\n",
        "  // Made up: 1 to 9.\n  optional int32 age_made_up = 90;\n",
    ),
]
TRIM_RULE: Change = [
    (f"{PACKAGE}/trim/entries.py", '    REASONING = "reasoning"\n', '    MADE_UP = "made_up"\n'),
    (
        f"{PACKAGE}/trim/stages.py",
        "            self._cap_text([entry for entry in of_result",
        """\
            for entry in of_result:
                if entry.tool == "noisy":
                    self._clip(entry, Reason.MADE_UP, least=0)
""",
    ),
    (
        "protos/prompt_sidecar/v1/trim.proto",
        "  // Reasoning: that of finished turns is removed first",
        "  // Results of a noisy tool.\n  TRIM_REASON_MADE_UP = 90;\n",
    ),
]
RPC: Change = [
    (
        "protos/prompt_sidecar/v1/service.proto",
        "  // Tells a run's figures.\n",
        "  // Counts runs.\n  rpc CountRuns(CountRunsRequest) returns (CountRunsResponse);\n",
    ),
    (
        "protos/prompt_sidecar/v1/run.proto",
        "// The run to describe.\n",
        """\
// All runs of the caller.
message CountRunsRequest {}

// How many there are.
message CountRunsResponse {
  // Runs that this process remembers.
  int32 runs = 1;
}

""",
    ),
    (
        f"{PACKAGE}/engine/runs/service.py",
        "    def end_all(self",
        """\
    def count(self, caller: str) -> int:
        return len(self.table.run_ids(caller))

""",
    ),
    (
        f"{PACKAGE}/doors/grpc/servicer.py",
        "    def end_runs(self",
        """\
    def count_runs(self, raw: bytes, _: grpc.ServicerContext) -> Message:
        _parsed(run_pb2.CountRunsRequest, raw)
        return run_pb2.CountRunsResponse(runs=self._use_cases.runs.count(CALLER.get()))

""",
    ),
    (f"{PACKAGE}/doors/grpc/servicer.py", '            "EndRuns": ', '            "CountRuns": self.count_runs,\n'),
    (
        f"{PACKAGE}/client/asynchronous/client.py",
        "    async def end_runs(self",
        """\
    async def count_runs(self) -> int:
        return int((await self._answer("CountRuns")).runs)

""",
    ),
]


@pytest.fixture(scope="module")
def remade(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with all changes of the protos, and what is generated from them."""
    copy = copied(tmp_path_factory.mktemp("remade"), KNOB, TRIM_RULE, RPC)
    for command in ((".ci/stubs", ".", sys.executable), (sys.executable, ".ci/blocking-client.py")):
        subprocess.run(command, cwd=copy, env=os.environ | {"PYTHONPATH": "sidecar"}, check=True, capture_output=True)
    return copy


def test_a_policy_knob_is_a_field_here_and_in_the_protos(remade: Path) -> None:
    """Settings, requests and the client take it, with the same bounds, and the page tells it in its stage's group."""
    run(
        remade,
        """
        import pytest
        from prompt_sidecar.client.schema import make
        from prompt_sidecar.config.settings import load
        from prompt_sidecar.doors.grpc.conversion.trim import trim_call
        from prompt_sidecar.v1 import trim_pb2
        from tests.config.policy_page import BLOCKS

        assert 3 == load({}).policy.age_made_up
        assert 5 == load({}, flags={"policy.age_made_up": "5"}).policy.age_made_up
        prompt = trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=b"[]")
        asked = make("TrimPromptRequest", run_id="r", policy={"age_made_up": 7}).SerializeToString()
        call = trim_pb2.TrimPromptRequest.FromString(asked)
        call.json.CopyFrom(prompt)
        assert {"age_made_up": 7} == dict(trim_call(call.SerializeToString(), "", 1 << 20, lambda: None).policy)
        with pytest.raises(ValueError, match="1 to 9"):
            make("Policy", age_made_up=10)
        assert any("age_made_up" in row for row in BLOCKS["knobs"]())
        """,
    )


def test_a_trim_rule_is_a_reason_and_where_it_decides(remade: Path) -> None:
    """It is told to agents, to the client and in metrics by its name."""
    run(
        remade,
        """
        from prompt_sidecar.client import Client
        from tests.telemetry.watched import watched

        function = {"name": "noisy", "arguments": "{}"}
        prompt = [
            {"role": "user", "content": "Go on."},
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "c", "content": "noise " * 500},
        ]
        with watched() as seen, Client(seen.served.address, fail_open=False) as client:
            (trim,) = client.trim("r", prompt, context_window=100_000).trims
            shown = seen.scrape().text
        assert ("clipped", "made_up") == (trim.action, trim.reason)
        assert any('reason="made_up"' in row and row.endswith(" 1.0") for row in shown.splitlines())
        """,
    )


def test_an_rpc_without_arguments_is_nine_files(remade: Path) -> None:
    """A method at each of its stations, and in the client one; the rest is generated."""
    run(
        remade,
        """
        from prompt_sidecar.client import Client
        from tests.doors.grpc.serving import serving

        with serving() as served, Client(served.address, fail_open=False) as client:
            client.trim("r", [{"role": "user", "content": "Go on."}])
            assert 1 == client.count_runs()
        """,
    )
