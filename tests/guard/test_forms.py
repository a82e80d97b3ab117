"""Forms of keys that services give beside those that the rules' examples show, and what only resembles them."""

from __future__ import annotations

import pytest

from prompt_sidecar.guard.forms import fake, fake_uuid
from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.guard.rules import default_rules

RULES = default_rules(GuardOptions(ENFORCE))
LETTERS = "qWeRtZuIoPaSdFgHjKl"
"""A password without digits, as one in fifty drawn ones of this length is."""
COMMIT = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"


def found(text: str) -> list[tuple[str, str]]:
    """The rules that find something and what they find, in order."""
    return [(find.rule.name, text[find.start : find.end]) for find in RULES.scan([text])[0]]


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("adobe_secret", "p8e-" + fake(14) + "-" + fake(17)),
        ("aikido_secret", "AIK_SECRET_" + fake(20) + "-" + fake(20) + "_" + fake(22)),
        ("aiven_password", "AVNS_" + LETTERS),
        ("astra_token", "AstraCS:" + fake(24) + ":" + fake(64, "hex")),
        ("azure_signed_key", fake(38) + "/" + fake(37) + "APIM" + fake(6) + "=="),
        ("dynatrace_token", "dt0s02." + fake(8, "upper") + "." + fake(64, "upper")),
        ("elastic_cloud_key", "essu_" + fake(40) + "+" + fake(20) + "/" + fake(24) + "=="),
        ("exoscale_key", "EXO" + fake(24, "hex")),
        ("gcp_access_token", "ya29.c." + fake(200)),
        ("helicone_key", "pk-helicone-" + "-".join(fake(7, "lower") for _ in range(4))),
        ("intercom_token", "dG9rOm" + fake(52) + "="),
        ("laravel_token", "7|laravel_sanctum_" + fake(48)),
        ("mollie_key", "access_" + fake(40)),
        ("numbered_token", "3-" + fake(64)),
        ("yandex_key", "t1." + fake(150) + "." + fake(86)),
    ],
)
def test_a_further_form_of_a_key_is_found_without_a_name(rule: str, value: str) -> None:
    """Such as without digits, with base64's signs, or longer than the example."""
    assert [(rule, value)] == found(f"the runner then used `{value}` for it")


@pytest.mark.parametrize(
    "text",
    [
        f"| 12|{COMMIT} | fix |",
        f"v1.2-14-g{COMMIT}, 14-{COMMIT}",
        f"nixpkgs/web:{COMMIT}",
        f"base64:{fake(42)}, sha256-{fake(43)}=",
        "app-component-main-content-a, dataset-TrainingSplitForModels",
        "sk-fading-circle-container, sk-" + "0" * 22,
        fake_uuid() + ":fxaa",
        "A" * 64,
        "0x4AAAAAA" + fake(15),
    ],
)
def test_what_resembles_a_form_is_no_key(text: str) -> None:
    """Hashes of commits in tables, names of code, runs of one letter, public keys of sites."""
    assert [] == found(text)
