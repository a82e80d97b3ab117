r"""Rules for keys with a known prefix, followed by a known alphabet and length: a row for each.

The forms are those that the services publish, or that maintained scanners require (betterleaks, kingfisher; read in
November 2026). Where these differ, the wider form is used: a distinctive prefix makes a find by chance unlikely.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prompt_sidecar.guard.forms import END, fake, secret
from prompt_sidecar.guard.rule import BEGIN, Rule

_CLASSES: Final = {
    "word": "A-Za-z0-9",
    "lower": "a-z0-9",
    "hex": "A-Fa-f0-9",
    "dashed": "A-Za-z0-9_-",
    "base64": "A-Za-z0-9+/",
    "signs": "A-Za-z0-9_=.-",
    "listed": "A-Za-z0-9+/_=,-",
    "wide": "A-Za-z0-9+/_=.-",
}


_NEAR: Final = 16
"""Characters after a prefix that are searched for first: fewer make a smaller automaton."""


def _row(
    name: str, prefix: str, alphabet: str, least: int, most: int = 0, *, shown: str = "", check: str = "key"
) -> Rule:
    """Return a rule for a prefix (RE2) and what follows; `shown`: the example's prefix, if that differs.

    Without `most` the value may have any length.
    """
    plain = shown or prefix.replace("\\", "")
    characters = f"[{_CLASSES[alphabet]}]"
    pattern = rf"\b(?P<value>{prefix}{characters}{{{least},{most or ''}}}"
    if alphabet in {"word", "lower", "hex"}:
        pattern += r")(?:\b|_)"
    elif alphabet == "dashed":
        pattern += ")" + END
    else:
        pattern += "={0,2})"
    body = fake(least, alphabet if alphabet in {"lower", "hex"} else "word")
    near = BEGIN + prefix + characters + f"{{{min(least, _NEAR)}}}"
    return secret(name, pattern, plain + body, plain + body[: min(6, least - 1)], check=check, near=near)


PREFIXES: Final[Sequence[Rule]] = (
    _row("aikido_secret", "AIK_(?:CI|SECRET)_", "word", 20, 64, shown="AIK_CI_"),
    _row("brave_search_key", "BSA", "dashed", 24, 32, check="random"),
    _row("buildkite_agent_token", "bk(?:ua|aa|aj|ar|ct|pt|pat|ps)_", "dashed", 40, shown="bkct_"),
    _row("checkout_key", "sk_(?:sbox_|test_)?[A-Fa-f0-9]{8}-", "dashed", 27, 27, shown="sk_" + fake(8, "hex") + "-"),
    _row("cloudsmith_key", "csa_[a-f0-9]{30}", "word", 6, 6, shown="csa_" + fake(30, "hex")),
    _row("deno_token", "dd[op]_", "word", 36, 36, shown="ddp_"),
    _row("devcycle_key", "dvc_(?:server|client|mobile)_", "dashed", 12, 64, shown="dvc_server_"),
    _row("devin_key", "apk_(?:user_)?", "base64", 80, shown="apk_"),
    _row(
        "docker_swarm_token", r"SWMTKN-1-[a-z0-9]{50,60}-", "lower", 24, 30, shown="SWMTKN-1-" + fake(50, "lower") + "-"
    ),
    _row("docker_swarm_key", "SWMKEY-1-", "base64", 40, 50),
    _row("dropbox_token", r"sl\.(?:u\.)?", "signs", 130, shown="sl."),
    _row("endor_key", r"endr\+", "word", 16, 32),
    _row("gitlab_session", "_gitlab_session=", "hex", 32, 32),
    _row("gocardless_token", "live_", "signs", 40, 40, check="random"),
    _row("ionic_token", "ion_", "word", 42, 42),
    _row("dependency_track_key", "odt_(?:[A-Za-z0-9]{8}_)?", "word", 32, 40, shown="odt_"),
    _row(
        "mercury_token",
        r"(?:secret-token:)?mercury_(?:production|sandbox)_[a-z]{2,8}_",
        "dashed",
        24,
        80,
        shown="mercury_production_rma_",
    ),
    _row("onesignal_key", "os_v2_(?:org|app)_", "lower", 60, shown="os_v2_app_"),
    _row("onfido_token", r"api_(?:live|sandbox)(?:_us|_ca)?\.", "dashed", 20, 64, shown="api_live."),
    _row(
        "paddle_key",
        "pdl_(?:live|sdbx)_apikey_[a-z0-9]{26}_",
        "dashed",
        22,
        32,
        shown="pdl_live_apikey_" + fake(26, "lower") + "_",
    ),
    _row("polar_token", "polar_(?:at|oat|pat|rt)_", "dashed", 20, 100, shown="polar_at_", check="random"),
    _row("proof_key", "prf_(?:cli_)?", "dashed", 24, 80, shown="prf_", check="random"),
    _row("rainforest_key", "apikey_", "hex", 64, 64),
    _row("runpod_key", "rpa_", "word", 30, 46, check="random"),
    _row("samsara_token", "samsara_api_", "word", 26, 32),
    _row("thunderstore_token", "tss_", "dashed", 24, 80, check="random"),
    _row("unkey_key", "unkey_", "word", 20, 32, check="random"),
    _row("canva_secret", "cnvca", "dashed", 51, 51),
    _row("cockroach_key", "CCDB1_[A-Za-z0-9]{22}_", "word", 40, 40, shown="CCDB1_" + fake(22) + "_"),
    _row("dfuse_key", "(?:web|server)_", "lower", 32, 32, shown="web_", check="random"),
    _row("exoscale_key", "EXO", "word", 27, 27, check="random"),
    _row("iex_key", "T?sk_", "lower", 32, 32, shown="sk_", check="random"),
    _row("lob_key", "(?:live|test)_", "hex", 35, 35, shown="live_"),
    _row("mem_key", "m0-", "word", 28, 48, check="random"),
    _row("mergify_key", "mergify_application_key_", "dashed", 40, 64),
    _row("miro_token", "eyJtaXJv", "dashed", 32),
    _row("packagist_token", "packagist_[a-z]{3}_", "hex", 64, 72, shown="packagist_out_"),
    _row("persona_key", "persona_(?:production|sandbox)_", "dashed", 28, 40, shown="persona_production_"),
    _row("ramp_secret", "ramp_sec_", "word", 40, 56),
    _row("salesforce_token", r"(?:5AEP861|3MVG9)", "wide", 75, 128, shown="5AEP861"),
    _row("shutterstock_token", "v2/", "word", 200, check="random"),
    _row("teamwork_token", r"tkn\.v1_", "base64", 60, 80, shown="tkn.v1_"),
    _row("telnyx_key", "KEY", "dashed", 55, 55, check="random"),
    _row("trufflehog_key", "thog-(?:key|secret)-", "hex", 16, 32, shown="thog-key-"),
    _row("wakatime_key", "waka_", "dashed", 36, 48),
    _row("workato_token", r"wrka[a-z]{0,4}-eyJ", "signs", 40, shown="wrka-" + "eyJ"),
    _row("xendit_key", "xnd_(?:production|development)_", "word", 40, 72, shown="xnd_production_"),
    _row("zoho_token", r"1000\.[a-f0-9]{32}\.", "hex", 32, 32, shown="1000." + fake(32, "hex") + "."),
    secret(
        "prefixed_key",
        r"\b(?P<value>[a-z][a-z0-9]{1,15}[_-](?:api|key|apikey|token|tok|pat|secret|sec|sk|live|prod|production|sandbox|"
        r"oauth|access|svc)[_-](?:[a-z]{2,8}[_-])?[A-Za-z0-9_]{24,120})" + END,
        "acme_live_" + fake(32),
        "acme_live_" + fake(12),
        check="prefixed",
        near=r"[a-z0-9][_-](?:api|key|apikey|token|tok|pat|secret|sec|sk|live|prod|production|sandbox|oauth|access|svc)"
        r"[_-](?:[a-z]{2,8}[_-])?[A-Za-z0-9]{20}",
    ),
    _row("flyio_macaroon", r"FlyV1[ \t]+(?:fm[12][ar]?_)?", "listed", 60, shown="FlyV1 fm2_"),
)
"""Each rule with its action under `guard.mode = enforce`."""
