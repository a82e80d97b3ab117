"""Settings from their sources: order, faults, masking."""

from __future__ import annotations

import json
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.config.settings import (
    MOST_PROBLEMS,
    SETTINGS,
    TABLES,
    LogSettings,
    Settings,
    SettingsError,
    TokenSettings,
    load,
    table,
)
from prompt_sidecar.doors.admin.options import AdminOptions
from prompt_sidecar.doors.envoy.options import EnvoyOptions
from prompt_sidecar.doors.http.options import HttpOptions
from prompt_sidecar.facts.known_models import ModelFacts
from prompt_sidecar.facts.limits import Limits, RecallLimits
from prompt_sidecar.guard.ceilings import CeilingAction, Ceilings, Price
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.recall.found import MOST_SNIPPET_TOKENS, MOST_SNIPPETS, MOST_TOTAL_TOKENS, SearchLimits
from prompt_sidecar.recall.retrieve import MAX_PAGE_TOKENS
from prompt_sidecar.store.options import StoreOptions
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.presets import preset

KEY = "0123456789abcdef0123456789abcdef"


def _problems(environment: dict[str, str] | None = None, **more: object) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load(environment or {}, **more)  # type: ignore[arg-type]
    return caught.value.problems


def _file(folder: Path, text: str) -> str:
    path = folder / "sidecar.toml"
    path.write_text(text)
    return str(path)


def test_nothing_set_gives_the_defaults() -> None:
    """Without a source every setting is at its default, and the policy is the default preset."""
    assert Settings() == load({})
    assert preset("cache_first") == load({}).policy


def test_every_field_is_a_setting() -> None:
    """A field of an options class without a declaration, or a class that Settings does not hold, fails here."""
    structs: dict[str, type[Any]] = {
        "server": ServerOptions,
        "http": HttpOptions,
        "admin": AdminOptions,
        "envoy": EnvoyOptions,
        "log": LogSettings,
        "tokens": TokenSettings,
        "limits": Limits,
        "recall": RecallLimits,
        "search": SearchLimits,
        "guard": GuardOptions,
        "store": StoreOptions,
        "telemetry": TelemetryOptions,
        "ceilings": Ceilings,
        "policy": Policy,
    }
    expected = {f"{prefix}.{entry.name}" for prefix, struct in structs.items() for entry in fields(struct)} - set(
        TABLES
    )
    assert expected | {"key", "previous_keys", "mode", "policy.preset"} == set(SETTINGS)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_explained(name: str) -> None:
    """It says what it is for; a number and a choice also say why their default is what it is."""
    declared = SETTINGS[name]
    assert declared.what.endswith(".")
    assert declared.why.endswith(".") or (not declared.why and declared.kind.bounds is None)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_default_is_accepted(name: str) -> None:
    """Each default passes its own check, as it is and as it is shown."""
    declared = SETTINGS[name]
    if not declared.kind.secret:
        assert declared.default == declared.kind.check(declared.default)
        assert declared.default == declared.kind.read(tomllib.loads(f"value = {declared.shown_default}")["value"])


def test_later_sources_win(tmp_path: Path) -> None:
    """Default < file < environment < flag; the source in force is told."""
    path = _file(tmp_path, "[server]\nworkers = 2\nmax_calls = 20\ngrace = '20s'\n")
    environment = {"PROMPT_SIDECAR_CONFIG": path, "PROMPT_SIDECAR_SERVER__MAX_CALLS": "30"}
    environment["PROMPT_SIDECAR_SERVER__GRACE"] = "30s"
    settings = load(environment, flags={"server.grace": "40s"})
    server = settings.server
    assert ("127.0.0.1:7717", 2, 30, 40.0) == (server.listen, server.workers, server.max_calls, server.grace)
    sources = {name: source for name, _, source in table(settings)}
    assert "default" == sources["server.listen"]
    assert f"server.workers in {path}" == sources["server.workers"]
    assert "PROMPT_SIDECAR_SERVER__MAX_CALLS" == sources["server.max_calls"]
    assert "--set server.grace" == sources["server.grace"]


def test_the_bounds_of_recall_and_search_are_settings() -> None:
    """What a source says reaches the structs that the core takes; sizes may have units."""
    flags = {"recall.page_tokens": "200000", "recall.repeats": "1"}
    flags |= {"search.max_snippets": "50", "search.snippet_tokens": "4000", "search.total_tokens": "50000"}
    flags |= {"search.query_bytes": "1KiB", "search.query_terms": "8", "search.index_bytes": "512MiB"}
    settings = load({}, flags=flags)
    assert RecallLimits(page_tokens=200_000, repeats=1) == settings.recall
    assert SearchLimits(50, 4_000, 50_000, 1_024, 8, 512 << 20) == settings.search


def test_a_configured_page_is_one_that_can_be_asked_for() -> None:
    """No default that a source sets is beyond what a request may ask for."""
    highest = {
        "recall.page_tokens": MAX_PAGE_TOKENS,
        "search.max_snippets": MOST_SNIPPETS,
        "search.snippet_tokens": MOST_SNIPPET_TOKENS,
        "search.total_tokens": MOST_TOTAL_TOKENS,
    }
    for name, most in highest.items():
        assert most == SETTINGS[name].kind.read(most)
        with pytest.raises(ValueError):  # noqa: PT011  # as in test_readers
            SETTINGS[name].kind.read(most + 1)


def test_the_named_file_goes_before_the_environments(tmp_path: Path) -> None:
    """--config is read in place of PROMPT_SIDECAR_CONFIG."""
    path = _file(tmp_path, "[log]\nlevel = 'debug'\n")
    assert "debug" == load({"PROMPT_SIDECAR_CONFIG": "/nonexistent"}, config=path).log.level


def test_a_policy_is_a_preset_with_overrides() -> None:
    """Policy fields override those of the preset."""
    environment = {"PROMPT_SIDECAR_POLICY__PRESET": "fit_only", "PROMPT_SIDECAR_POLICY__CAP_TEXT_BYTES": "32KiB"}
    settings = load(environment)
    assert preset("fit_only").override({"cap_text_bytes": 32_768}) == settings.policy
    assert {"cap_text_bytes": 32_768} == settings.policy_overrides


def test_switches_and_lists_reach_the_policy(tmp_path: Path) -> None:
    """A file says them in TOML; the environment in JSON, or as one text alone."""
    path = _file(tmp_path, "[policy]\nage_repeats = true\nage_stage = 'always'\nfeedback_error = ['Oops:', 'No:']\n")
    environment = {"PROMPT_SIDECAR_POLICY__FEEDBACK_VALIDATION": '["a", "b"]'}
    environment["PROMPT_SIDECAR_POLICY__FEEDBACK_REPETITION"] = "[again]"
    policy = load(environment, config=path).policy
    assert (True, "always", ("Oops:", "No:")) == (policy.age_repeats, policy.age_stage, policy.feedback_error)
    assert (("a", "b"), ("[again]",)) == (policy.feedback_validation, policy.feedback_repetition)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PROMPT_SIDECAR_SERVER__WORKERS", "many", ('"many"', "a whole number of threads from 1 to 256")),
        ("PROMPT_SIDECAR_SERVER__LISTN", ":1", ("did you mean PROMPT_SIDECAR_SERVER__LISTEN?",)),
        ("PROMPT_SIDECAR_ZZZ", "1", ("check-config --example",)),
        ("PROMPT_SIDECAR_POLICY__FIT_HIGH", "1.5", ("from 0.01 to 1",)),
        ("PROMPT_SIDECAR_POLICY__PRESET", "thin", ("cache_first, lean, cap_only, fit_only",)),
        ("PROMPT_SIDECAR_POLICY__AGE_STAGE", "often", ('"often"', "off, pressure, always")),
        ("PROMPT_SIDECAR_POLICY__AGE_REPEATS", "yes", ("true or false",)),
        ("PROMPT_SIDECAR_POLICY__AGE_KEEP_TEXT", "-2", ("from -1 to 1,000",)),
        ("PROMPT_SIDECAR_POLICY__FEEDBACK_ERROR", '["Error:"', ("at most 16 texts of 1 to 200", "or one text alone")),
        ("PROMPT_SIDECAR_POLICY__FEEDBACK_EROR", "x", ("did you mean PROMPT_SIDECAR_POLICY__FEEDBACK_ERROR?",)),
        ("PROMPT_SIDECAR_GUARD__MODE", "on", ("audit, enforce",)),
        ("PROMPT_SIDECAR_GUARD__ACTIONS", "email=hide", ("off, observe, mask, defang",)),
        ("PROMPT_SIDECAR_LOG__FORMAT", "xml", ("text, json",)),
        ("PROMPT_SIDECAR_LIMITS__TIME_TO_LIVE", "1 week", ("60m",)),
        ("PROMPT_SIDECAR_LIMITS__PAGE_TOKENS", "4000", ("did you mean PROMPT_SIDECAR_RECALL__PAGE_TOKENS?",)),
        ("PROMPT_SIDECAR_RECALL__REPEATS", "0", ("from 1 to",)),
        ("PROMPT_SIDECAR_SEARCH__MAX_SNIPPETS", "51", ("from 1 to 50",)),
        ("PROMPT_SIDECAR_SEARCH__SNIPPET_TOKENS", "4001", ("to 4,000",)),
        ("PROMPT_SIDECAR_SEARCH__TOTAL_TOKENS", "50001", ("to 50,000",)),
    ],
)
def test_a_faulty_variable_is_reported(name: str, value: str, words: tuple[str, ...]) -> None:
    """The message names the variable, its value, and what would be accepted or was meant."""
    (problem,) = _problems({name: value})
    assert name in problem
    for word in words:
        assert word in problem


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    """One start tells every fault, of every source."""
    path = _file(tmp_path, "[server]\nworkers = true\nlistn = 'x'\n")
    problems = _problems({"PROMPT_SIDECAR_LIMITS__RUNS": "0"}, config=path, flags={"log.level": "loud", "nope": "1"})
    faults = ("server.workers in", "server.listn in", "PROMPT_SIDECAR_LIMITS__RUNS", "--set log.level", "--set nope")
    assert 5 == len(problems)
    for start in faults:
        assert any(problem.startswith(start) for problem in problems)


@pytest.mark.parametrize("text", ["[server", "x = 1979-05-27", "[server]\nlisten = ['a']", b"\xff"])
def test_faulty_files(tmp_path: Path, text: str | bytes) -> None:
    """A file that is not TOML, or holds what no setting can be, is told with its path."""
    path = tmp_path / "f.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    (problem,) = _problems(config=str(path))
    assert str(path) in problem


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    """A settings file that was asked for and is missing stops the start."""
    (problem,) = _problems(config=str(tmp_path / "none.toml"))
    assert "No such file" in problem


@pytest.mark.parametrize(
    ("environment", "word"),
    [
        ({"SERVER__LISTEN": ""}, "at least one"),
        ({"SERVER__LISTEN": "0.0.0.0:1"}, "nobody is authenticated"),
        ({"SERVER__LISTEN": "example.org:1"}, "nobody is authenticated"),
        ({"SERVER__UNAUTHENTICATED": "true", "SERVER__TOKENS_FILE": "/a"}, "leave one out"),
        ({"SERVER__TLS_KEY": "k.pem"}, "belong together"),
        ({"SERVER__CLIENT_CA": "ca.pem"}, "needs server.tls_certificate"),
        ({"LIMITS__STASH_BYTES": "1MiB"}, "at most limits.stash_bytes"),
        ({"LIMITS__MEMORY_BYTES": "63MiB"}, "at most limits.memory_bytes"),
        ({"SEARCH__SNIPPET_TOKENS": "1501"}, "at most search.total_tokens, 1500"),
        ({"SEARCH__TOTAL_TOKENS": "299"}, "at most search.total_tokens, 299"),
        ({"GUARD__ACTIONS": "e_mail=mask"}, "did you mean email?"),
        ({"GUARD__ACTIONS": "chat_template=mask"}, "mask is for secrets and personal"),
        ({"GUARD__ACTIONS": "secrets=defang"}, "defang is for lookalikes"),
        ({"POLICY__FIT_LOW": "0.995"}, "policy.fit_low"),
    ],
)
def test_settings_that_do_not_go_together(environment: dict[str, str], word: str) -> None:
    """Combinations that cannot work, or would be open to anyone, stop the start."""
    (problem,) = _problems({f"PROMPT_SIDECAR_{name}": value for name, value in environment.items()})
    assert word in problem


def test_beyond_loopback_with_authentication() -> None:
    """Tokens, a client authority with TLS, or saying that nobody is to be asked permit listening beyond loopback."""
    flags = {"server.listen": "0.0.0.0:7717"}
    tls = {"server.tls_certificate": "c", "server.tls_key": "k", "server.client_ca": "ca"}
    for more in ({"server.tokens_file": "t"}, tls, {"server.unauthenticated": "true"}):
        assert "0.0.0.0:7717" == load({}, flags=flags | more).server.listen


def test_the_key_is_never_shown(tmp_path: Path) -> None:
    """The key reaches the core as 32 bytes, is masked in tables, and is no part of any message."""
    settings = load({"PROMPT_SIDECAR_KEY": KEY})
    assert 32 == len(settings.key)
    assert settings.key == load({}, config=_file(tmp_path, f"key = '{KEY}'")).key
    assert settings.key != load({"PROMPT_SIDECAR_KEY": KEY + "x"}).key
    assert KEY not in str(table(settings))
    assert "…" in str(table(settings))
    (problem,) = _problems({"PROMPT_SIDECAR_KEY": KEY + "\udcff"})  # a byte that is no text
    assert "PROMPT_SIDECAR_KEY is not usable" in problem
    for problems in (_problems({"PROMPT_SIDECAR_KEY": "s3cr3t"}), _problems(flags={"key": "s3cr3t"})):
        assert "s3cr3t" not in str(problems)


def test_variables_of_kubernetes_are_no_settings() -> None:
    """What Kubernetes sets beside a Service named prompt-sidecar does not stop the start; a near miss does."""
    injected = {
        "PROMPT_SIDECAR_SERVICE_HOST": "10.0.0.1",
        "PROMPT_SIDECAR_SERVICE_PORT": "7717",
        "PROMPT_SIDECAR_SERVICE_PORT_GRPC": "7717",
        "PROMPT_SIDECAR_PORT": "tcp://10.0.0.1:7717",
        "PROMPT_SIDECAR_PORT_7717_TCP": "tcp://10.0.0.1:7717",
        "PROMPT_SIDECAR_PORT_7717_TCP_ADDR": "10.0.0.1",
    }
    assert Settings() == load(injected)
    assert 1 == len(_problems({"PROMPT_SIDECAR_PORTS": "1"}))


_SEVERAL = """
[ceilings]
run_cost = 5
run_model_calls = 9

[prices."gpt-5"]
input = 1.25
output = 10

[prices."*"]
input = 1
output = 3
cached = 0.1

[models."prod.chat"]
like = "gpt-5"
most_output = 9_000

[callers."token:x"]
policy.preset = "lean"
ceilings.run_cost = 2

[callers.unix.ceilings]
run_model_calls = 3
run_model_calls_action = "refuse"
"""


def test_tables_that_come_several_times(tmp_path: Path) -> None:
    """Prices, models and callers have names of their own, with dots and colons; what they hold is read and shown."""
    settings = load({}, config=_file(tmp_path, _SEVERAL))
    assert {"gpt-5": Price(1.25, 10.0), "*": Price(1.0, 3.0, 0.1)} == settings.prices
    assert {"prod.chat": ModelFacts(like="gpt-5", most_output=9_000)} == settings.models
    assert {"policy.preset": "lean", "ceilings.run_cost": 2.0} == settings.callers["token:x"]
    shown = {name: value for name, value, _ in table(settings)}
    assert "0.1" == shown['prices."*".cached']
    assert '"lean"' == shown['callers."token:x".policy.preset']
    assert '"gpt-5"' == shown['models."prod.chat".like']
    again = load({}, config=_file(tmp_path, "\n".join(f"{n} = {v}" for n, v in shown.items() if n != "key")))
    assert (settings.prices, settings.models) == (again.prices, again.models)


def test_a_caller_has_the_general_settings_but_for_its_own(tmp_path: Path) -> None:
    """What a caller's table does not hold is as for all; a caller without one has what all have."""
    settings = load({"PROMPT_SIDECAR_POLICY__FIT_HIGH": "0.8"}, config=_file(tmp_path, _SEVERAL))
    assert settings == settings.of_caller("token:y")
    one, other = settings.of_caller("token:x"), settings.of_caller("unix")
    assert (2.0, 9, CeilingAction.OBSERVE) == (
        one.ceilings.run_cost,
        one.ceilings.run_model_calls,
        one.ceilings.run_model_calls_action,
    )
    assert (5.0, 3, CeilingAction.REFUSE) == (
        other.ceilings.run_cost,
        other.ceilings.run_model_calls,
        other.ceilings.run_model_calls_action,
    )
    assert preset("lean").override({"fit_high": 0.8}) == one.policy
    assert settings.policy == other.policy


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[prices."gpt-5"]\ninput = 1\n', ('prices."gpt-5"', "has no output")),
        ('[prices."gpt-5"]\ninput = 1\noutput = 1\ncache = 1\n', ('prices."gpt-5".cache', "did you mean cached?")),
        ('[prices."gpt-5"]\ninput = "much"\noutput = 1\n', ('prices."gpt-5".input', "a number from 0")),
        ("[prices]\ninput = 1\n", ("prices", 'tables such as [prices."gpt-5"]')),
        ("prices = 1\n", ("prices", 'tables such as [prices."gpt-5"]')),
        ('[callers."token:x"]\nserver.listen = ""\n', ('callers."token:x".server.listen', "not a setting there")),
        ('[callers."token:x"]\nceilings.callers = 2\n', ('callers."token:x".ceilings.callers',)),
        ('[callers.a]\nidentities = ["sk-team"]\n', ('callers."a".identities', "sha256:DIGEST")),
        (
            '[callers.a]\nidentities = ["unix"]\n[callers.b]\nidentities = ["unix"]\n',
            ('callers."b".identities', 'callers."a" has too'),
        ),
        ('[callers."token:x"]\nceilings.run_csot = 2\n', ("did you mean ceilings.run_cost?",)),
        ('[callers."token:x"]\npolicy.fit_high = 0.1\n', ('callers."token:x".policy.fit_low', "above")),
        ('mode = "off"\n', ("mode", "one of active, observe")),
        ('[models."prod"]\nlike = "gpt5"\n', ('models."prod".like is "gpt5"', "catalogue does not know")),
        ('[models."prod"]\nlike = "other"\n[models.other]\nwindow = 900\n', ('models."prod".like is "other"',)),
        ('[models."ours"]\nmost_output = 900\n', ('models."ours" has no window', "say window, or like")),
        ('[models."ours"]\nlike = "gpt-image-1"\n', ('models."ours" has no window', "say window, or like")),
        ('[models."gpt-5"]\nwindow = 200\n', ('models."gpt-5"', "window is 200", "at least 256")),
        ('[models."gpt-5"]\nwindow = "many"\n', ('models."gpt-5".window', "a whole number of tokens")),
        ('[models."gpt-5"]\nwindow = 900\nmost_input = 901\n', ('models."gpt-5"', "most_input is 901", "at most")),
        ('[models."gpt-5"]\nwindows = 900\n', ('models."gpt-5".windows', "did you mean window?")),
        ('[models."gpt-5"]\n', ('models."gpt-5"', "it says nothing")),
        ('[models."*"]\nwindow = 900\n', ('models."*" is no model', "limits.default_window")),
        ('[models.""]\nwindow = 900\n', ('models."" has 0 characters',)),
        ('[models."gpt-5"]\nwindow = 900\n[models."GPT-5"]\nwindow = 800\n', ('models."GPT-5"', "case does not")),
        ("[models]\nwindow = 900\n", ("models", 'tables such as [models."prod-chat"]')),
    ],
)
def test_faulty_tables_that_come_several_times(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    """A key that is not known, a value that is not accepted and one that is missing are named with their table."""
    (problem,) = _problems(config=_file(tmp_path, text))
    for word in words:
        assert word in problem


def test_previous_keys_are_a_list_that_is_never_shown() -> None:
    """Read as one text or several, digested as the key is, and of use only with one."""
    old, older = "a key before, long enough", "a key before that one"
    given = {"PROMPT_SIDECAR_KEY": "the key now, long enough", "PROMPT_SIDECAR_PREVIOUS_KEYS": old}
    one = load(given)
    several = load(given | {"PROMPT_SIDECAR_PREVIOUS_KEYS": json.dumps([old, older])})
    assert (load({"PROMPT_SIDECAR_KEY": old}).key,) == one.previous_keys
    assert one.previous_keys == several.previous_keys[:1]
    assert 2 == len(several.previous_keys)
    assert old not in str(table(several))
    assert () == load(given | {"PROMPT_SIDECAR_PREVIOUS_KEYS": ""}).previous_keys
    assert ["previous_keys" in problem for problem in _problems({"PROMPT_SIDECAR_PREVIOUS_KEYS": old})] == [True]
    (problem,) = _problems(given | {"PROMPT_SIDECAR_PREVIOUS_KEYS": "s3cr3t"})
    assert "s3cr3t" not in problem


@pytest.mark.parametrize(
    "name", ["STORE__URL", "HTTP__OPENAI_UPSTREAM", "HTTP__BEDROCK_UPSTREAM", "TELEMETRY__OTLP_ENDPOINT"]
)
@pytest.mark.parametrize("url", ["https://u:hunter2@host", "rediss//u:hunter2@host", "https://u:hunt@er/hunter2@host"])
def test_credentials_in_a_url_are_refused_and_not_shown(name: str, url: str) -> None:
    """No setting takes them, and what refuses them goes to logs."""
    (problem,) = _problems({f"PROMPT_SIDECAR_{name}": url})
    assert "//…@host" in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize("query", ["password=hunter2", "socket_timeout=x", "db=hunter2", "unknown=1"])
def test_options_in_the_stores_url_are_refused_and_not_shown(query: str) -> None:
    """They are the library's: one that it does not know would fail each command, and one may be a password."""
    (problem,) = _problems({"PROMPT_SIDECAR_STORE__URL": f"valkey://host:6379/0?{query}", "PROMPT_SIDECAR_KEY": KEY})
    assert "valkey://host:6379/0?…" in problem
    assert "hunter2" not in problem


def test_an_empty_table_is_one_that_there_is(tmp_path: Path) -> None:
    """A misspelt one would hold nothing that could be found wrong."""
    load({}, config=_file(tmp_path, '[server]\n[policy]\n[callers."x"]\n'))
    (problem,) = _problems(config=_file(tmp_path, "[sevrer]\n"))
    assert "sevrer" in problem


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.0.0.2:80", "[::1]:8080"])
def test_an_upstream_on_this_machine_may_be_without_tls(host: str) -> None:
    """Whatever way it is written."""
    assert f"http://{host}" == load({"PROMPT_SIDECAR_HTTP__OPENAI_UPSTREAM": f"http://{host}"}).http.openai_upstream


@pytest.mark.parametrize("host", ["10.0.0.1", "[2001:db8::1]:80", "localhost.example", "::1"])
def test_another_upstream_needs_tls(host: str) -> None:
    """Credentials travel there."""
    (problem,) = _problems({"PROMPT_SIDECAR_HTTP__OPENAI_UPSTREAM": f"http://{host}"})
    assert "HTTP__OPENAI_UPSTREAM" in problem or "https" in problem


def test_a_value_in_place_of_a_table(tmp_path: Path) -> None:
    """It is told as that, and no setting of a similar name is suggested."""
    path = tmp_path / "f.toml"
    path.write_text("server = 3\n")
    with pytest.raises(SettingsError) as caught:
        load({}, config=str(path))
    assert (f"server in {path} is 3; it must be a table, [server]",) == caught.value.problems


def test_a_refused_value_conflicts_with_nothing() -> None:
    """It is one problem: what its default would contradict is not told."""
    with pytest.raises(SettingsError) as caught:
        load(
            {}, flags={"server.listen": "", "server.socket": "/" + "s" * 200, "http.listen": "", "server.tls_key": "k"}
        )
    first, second = caught.value.problems
    assert first.startswith('--set server.socket is "/sss')
    assert second.startswith("server.tls_certificate and server.tls_key belong together")


def test_a_flag_is_reported_as_it_was_written() -> None:
    """A short form of a flag is named in a problem and as a source, and `--set` is not."""
    with pytest.raises(SettingsError, match='--listen is "here"'):
        load({}, flags={"server.listen": "here"}, short={"server.listen": "--listen"})
    settings = load({}, flags={"server.listen": "127.0.0.1:1"}, short={"server.listen": "--listen"})
    assert "--listen" == settings.sources["server.listen"]


def test_a_long_value_is_cut() -> None:
    """A file in place of its path does not fill the terminal."""
    with pytest.raises(SettingsError) as caught:
        load({"PROMPT_SIDECAR_LIMITS__TIME_TO_LIVE": "long " * 10_000})
    [problem] = caught.value.problems
    assert len(problem) < 500


def test_a_credential_in_place_of_its_digest_is_not_shown(tmp_path: Path) -> None:
    """The error goes to logs."""
    path = tmp_path / "settings.toml"
    path.write_text('[callers.a]\nidentities = ["sk-of-a-team-0123456789"]\n')
    with pytest.raises(SettingsError) as refused:
        load({}, config=str(path), flags={})

    assert "identities has a text of 23 characters" in refused.value.problems[0]
    assert "sk-of" not in str(refused.value.problems)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"a = {'[' * 10_000}{']' * 10_000}", "deeper than any setting"),
        (f"[{'a.' * 2_000}a]\nb = 1", "deeper than any setting"),
        (f"{'a.' * 100_000}a = 1", "deeper than any setting"),  # tomllib would take hours
        ("a = {" + '"b" . c.' * 50_000 + "a = 1}", "deeper than any setting"),
        (f"a = {'{a = ' * 17}1{'}' * 17}", "deeper than any setting"),
        (f"limits.runs = {'9' * 5_000}", "is not TOML: "),
    ],
)
def test_files_that_no_reader_can_take_are_reported(tmp_path: Path, text: str, message: str) -> None:
    """What is nested too deeply, and numbers too long for Python, are faults like any other."""
    (problem,) = _problems(config=_file(tmp_path, text))
    assert message in problem


@pytest.mark.parametrize("place", ["", '[callers."token:a"]\n'])
def test_a_file_with_very_many_faults_is_reported_in_some(tmp_path: Path, place: str) -> None:
    """A file of something else, of which each line is a fault, does not take minutes: names are compared with all."""
    problems = _problems(config=_file(tmp_path, place + "".join(f"key{number} = 1\n" for number in range(100_000))))
    assert MOST_PROBLEMS <= len(problems) <= MOST_PROBLEMS + 1
