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
    "upper": "A-Z0-9",
    "hex": "A-Fa-f0-9",
    "dashed": "A-Za-z0-9_-",
    "base64": "A-Za-z0-9+/",
    "signs": "A-Za-z0-9_=.-",
    "listed": "A-Za-z0-9+/_=,-",
    "wide": "A-Za-z0-9+/_=.-",
}


_NEAR: Final = 16
"""Characters after a prefix that are searched for first: fewer make a smaller automaton."""


_THREE_CLASSES: Final = (
    "(?:[a-z](?:[A-Z][0-9]|[0-9][A-Z])|[A-Z](?:[a-z][0-9]|[0-9][a-z])|[0-9](?:[a-z][A-Z]|[A-Z][a-z]))"
)
"""Three neighbours of three classes: nearly all keys of 24 letters and digits have them, and few names do."""


def _row(
    name: str, prefix: str, alphabet: str, least: int, most: int = 0, *, shown: str = "", check: str = "key"
) -> Rule:
    """Return a rule for a prefix (RE2) and what follows; `shown`: the example's prefix, if that differs.

    Without `most` the value may have any length.
    """
    plain = shown or prefix.replace("\\", "")
    characters = f"[{_CLASSES[alphabet]}]"
    pattern = rf"\b(?P<value>{prefix}{characters}{{{least},{most or ''}}}"
    if alphabet in {"word", "lower", "upper", "hex"}:
        pattern += r")(?:\b|_)"
    elif alphabet == "dashed":
        pattern += ")" + END
    else:
        pattern += "={0,2})"
    body = fake(least, alphabet if alphabet in {"lower", "upper", "hex"} else "word")
    near = BEGIN + prefix + characters + f"{{{min(least, _NEAR)}}}"
    return secret(name, pattern, plain + body, plain + body[: min(6, least - 1)], check=check, near=near)


PREFIXES: Final[Sequence[Rule]] = (
    _row("aikido_secret", "AIK_(?:CI|SECRET)_", "word", 20, 64, shown="AIK_CI_"),
    _row("brave_search_key", "BSA", "dashed", 24, 32, check="random"),
    _row("buildkite_agent_token", "bk(?:ua|aa|aj|ar|ct|pt|pat|ps)_", "dashed", 40, shown="bkct_"),
    _row("checkout_key", "sk_(?:sbox_|test_)?[A-Fa-f0-9]{8}-", "dashed", 27, 27, shown="sk_" + fake(8, "hex") + "-"),
    _row("cloudsmith_key", "csa_[a-f0-9]{30}", "word", 6, 6, shown="csa_" + fake(30, "hex")),
    _row("deno_token", "dd[opw]_", "word", 36, 36, shown="ddp_"),
    _row("devcycle_key", "dvc_(?:server|client|mobile)_", "dashed", 8, 64, shown="dvc_server_", check="drawn"),
    _row("devin_key", "apk_(?:user_)?", "base64", 80, shown="apk_"),
    _row(
        "docker_swarm_token", r"SWMTKN-1-[a-z0-9]{50,60}-", "lower", 24, 30, shown="SWMTKN-1-" + fake(50, "lower") + "-"
    ),
    _row("docker_swarm_key", "SWMKEY-1-", "base64", 40, 50),
    _row("dropbox_token", r"sl\.(?:u\.)?", "signs", 60, shown="sl.", check="drawn"),
    _row("endor_key", r"endr\+", "word", 16, 32),
    _row("gitlab_session", "_gitlab_session=", "word", 32, 32),
    _row("gocardless_token", "live_", "signs", 40, 40, check="random"),
    _row("ionic_token", "ion_", "word", 42, 42),
    _row("dependency_track_key", "odt_(?:[A-Za-z0-9]{8}_)?", "word", 32, 60, shown="odt_"),
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
    _row("packagist_token", "packagist_[a-z]{3}_", "hex", 30, 100, shown="packagist_out_"),
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
    _row("zoho_token", r"100[01]\.[a-f0-9]{32}\.", "hex", 32, 32, shown="1000." + fake(32, "hex") + "."),
    _row("amazon_mws_token", r"amzn\.mws\.", "dashed", 36, 36),
    _row("appsync_key", "da2-", "lower", 26, 26),
    _row("bannerbear_key", "bb_(?:pr|ma)_", "hex", 30, 30, shown="bb_pr_"),
    _row("defined_networking_key", "dnkey-", "signs", 60, 100),
    _row("flexport_key", "shltm_", "dashed", 40, 40),
    _row("lichess_token", "lip_", "word", 20, 40, check="drawn"),
    _row("newrelic_admin_key", "NRAA-", "hex", 27, 27),
    _row("newrelic_rest_key", "NRRA-", "hex", 42, 42),
    _row("pixie_key", "px-(?:dep|api)-", "dashed", 36, 36, shown="px-dep-"),
    _row("postman_collection_key", "PMAT-", "word", 26, 26),
    _row("salad_key", "salad_cloud_[A-Za-z0-9]{1,12}_", "word", 7, 60, shown="salad_cloud_user_"),
    _row("woocommerce_key", "c[sk]_", "hex", 40, 40, shown="cs_"),
    _row("adyen_key", "AQE[A-Za-z0-9]{3}", "wide", 70, 160, shown="AQEyhm", check="drawn"),
    _row("aiven_password", "AVNS_", "dashed", 15, 24, check="drawn"),
    _row("aiven_token", "aivenv1_", "wide", 60, 200),
    _row("anyscale_key", "(?:esecret_|aph0_)", "dashed", 24, 80, shown="esecret_", check="drawn"),
    _row("appwrite_key", "standard_", "hex", 200, 300),
    _row("astra_token", "AstraCS:", "signs", 20, 100),
    _row("atlas_secret", "mdb_sa_sk_", "dashed", 36, 48),
    _row("axiom_token", "xa[api]t-", "dashed", 36, 36, shown="xaat-"),
    _row("baidu_key", "bce-v3/ALTAK-[A-Za-z0-9]{16,24}/", "hex", 40, 40, shown="bce-v3/ALTAK-" + fake(21) + "/"),
    _row("baremetrics_key", "[ls]k_", "word", 22, 22, shown="lk_", check="drawn"),
    _row("bitbucket_server_token", "BBDC-", "wide", 40, 60),
    _row("blockfrost_key", "(?:mainnet|preprod|preview|testnet|ipfs)", "word", 32, 32, shown="mainnet", check="drawn"),
    _row(
        "braintree_client_key",
        "(?:sandbox|production)_[a-z0-9]{8}_",
        "lower",
        8,
        32,
        shown="sandbox_" + fake(8, "lower") + "_",
        check="random",
    ),
    _row("brex_token", "bxt_", "word", 40, 80),
    _row("cartesia_key", "sk_car_", "word", 20, 48),
    _row("censys_key", "censys_[A-Za-z0-9]{8}_", "word", 20, 32, shown="censys_" + fake(8) + "_"),
    _row("checkout_access_key", "ack_(?:sbox_)?", "lower", 26, 40, shown="ack_sbox_", check="random"),
    _row("checkly_key", "c[uv]_", "hex", 32, 32, shown="cu_"),
    _row("chromatic_token", "chpt_", "hex", 10, 24),
    _row("clickup_token", "pk_[0-9]{5,10}_", "upper", 32, 32, shown="pk_4928371_"),
    _row("close_key", r"api_[A-Za-z0-9]{8,30}\.", "word", 18, 40, shown="api_" + fake(16) + "."),
    _row("cloudflare_tunnel_token", "eyJhIjoi", "base64", 100, 300),
    _row("codesandbox_token", "csb_v1_", "dashed", 30, 80),
    _row(
        "configcat_key",
        "configcat-(?:sdk-1|proxy)/[A-Za-z0-9_-]{22}/",
        "dashed",
        22,
        22,
        shown="configcat-sdk-1/" + fake(22) + "/",
    ),
    _row("confluent_secret", "cflt", "base64", 60, 60, check="drawn"),
    _row("convertapi_secret", "secret_", "word", 16, 16, check="drawn"),
    _row("coralogix_key", "cxt[hp]_", "word", 30, 30, shown="cxtp_"),
    _row("courier_key", "[dp]k_(?:prod|test)_", "upper", 28, 28, shown="pk_prod_"),
    _row("cursor_key", "key_", "hex", 64, 64),
    _row("databento_key", "db-", "word", 29, 29, check="drawn"),
    _row("datadog_token", "dd(?:app|api|pat|sat)_", "dashed", 30, 80, shown="ddapp_", check="drawn"),
    _row("dbt_token", "dbt[csu]_", "signs", 36, 80, shown="dbtc_"),
    _row("daytona_key", "dtn_", "hex", 64, 64),
    _row("ecostruxure_key", "AK1", "base64", 50, 56, check="drawn"),
    _row("elastic_cloud_key", "essu_", "signs", 64, 120),
    _row("facebook_instagram_token", "IG(?:QV|QW|AA)", "dashed", 90, 300, shown="IGQV", check="drawn"),
    _row("facebook_user_token", "EAA[A-Za-z]", "word", 60, 400, shown="EAAB", check="drawn"),
    _row("finage_key", "API_KEY", "upper", 32, 32),
    _row("firecrawl_long_key", "fc-", "dashed", 40, 90, check="drawn"),
    _row("firehydrant_token", "fh[bc]-?", "hex", 64, 64, shown="fhb-"),
    _row("flagsmith_key", r"ser\.", "dashed", 20, 80, shown="ser.", check="drawn"),
    _row("fleetbase_key", "flb_(?:live|test)_", "word", 20, 40, shown="flb_live_"),
    _row("friendli_token", "flp_", "word", 36, 64),
    _row("fullstory_key", r"[en][ua]1\.", "wide", 30, 160, shown="na1.", check="drawn"),
    _row("gcp_hmac_key", "GOOG1?", "upper", 20, 58, shown="GOOG1", check="random"),
    _row("gemini_exchange_key", "(?:account|master)-", "word", 20, 20, shown="account-", check="drawn"),
    _row("gitpod_token", "gitpod_pat_", "signs", 30, 100),
    _row("guilded_token", "gapi_", "base64", 80, 100),
    _row("helicone_key", "sk-helicone-", "dashed", 20, 60),
    _row("heroku_platform_key", "HRKU-", "dashed", 58, 64, check="drawn"),
    _row("honeybadger_token", "hbp_", "word", 36, 36),
    _row("honeycomb_key", "hc[a-z](?:ik|lk|mk)_", "word", 48, 70, shown="hcaik_"),
    _row("humanloop_key", "hl_sk_", "hex", 40, 64),
    _row("hyperbrowser_key", "hb_", "hex", 30, 40),
    _row(
        "infobip_key",
        "[a-f0-9]{32}-[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-",
        "hex",
        12,
        12,
        shown=fake(32, "hex")
        + "-"
        + fake(8, "hex")
        + "-"
        + fake(4, "hex")
        + "-"
        + fake(4, "hex")
        + "-"
        + fake(4, "hex")
        + "-",
    ),
    _row("inngest_key", "signkey-(?:prod|branch|test|staging)-", "hex", 32, 64, shown="signkey-prod-"),
    _row("intercom_token", "dG9rO[gj]", "base64", 50, 120, shown="dG9rOj"),
    _row("jenkins_token", "11", "hex", 32, 32, check="random"),
    _row("klarna_key", "klarna_(?:live|test)_api_", "wide", 30, 200, shown="klarna_live_api_"),
    _row("checio_key", "pk_", "lower", 45, 45, check="random"),
    _row("klaviyo_key", "pk_", "hex", 34, 34),
    _row("lambdatest_key", "LT_", "word", 36, 64, check="drawn"),
    _row("langchain_key", "ls__", "hex", 32, 32),
    _row("lark_app", "cli_", "word", 16, 20, check="drawn"),
    _row("linkedin_secret", r"WPL_AP[01]\.[A-Za-z0-9]{16}\.", "base64", 6, 12, shown="WPL_AP1." + fake(16) + "."),
    _row("llamacloud_key", "llx-", "word", 40, 60),
    _row("mandrill_key", "md-", "dashed", 22, 22, check="drawn"),
    _row(
        "matrix_token",
        "syt_[A-Za-z0-9+/_-]{4,64}_[A-Za-z]{20}_",
        "word",
        6,
        6,
        shown="syt_" + fake(8) + "_" + fake(4) + "NoTrEaLbUtLoOkSl_",
    ),
    _row("matrix_session", "m(?:ct|at|ar|pt)_[A-Za-z0-9]{30}_", "word", 6, 6, shown="mct_" + fake(30) + "_"),
    _row("midtrans_key", "(?:SB-)?Mid-server-", "dashed", 20, 40, shown="Mid-server-"),
    _row("mintlify_key", "mint_(?:dsc_)?", "word", 20, 40, shown="mint_", check="drawn"),
    _row("modal_token", "a[ks]-", "word", 22, 22, shown="ak-", check="drawn"),
    _row("mollie_key", "(?:live|test)_", "word", 27, 40, shown="live_", check="drawn"),
    _row("n8n_key", "n8n_api_", "word", 32, 80),
    _row("netbird_token", "nbp_", "word", 36, 36),
    _row("newrelic_browser_key", "NR(?:JS|BR)-", "hex", 19, 19, shown="NRJS-"),
    _row("nightfall_key", "NF-", "word", 32, 32, check="drawn"),
    _row("nylas_key", "nyk_", "dashed", 40, 90),
    _row("ory_token", "ory_(?:pat|st|at|ac|rt|wak|apikey)_", "signs", 20, 100, shown="ory_pat_", check="drawn"),
    _row("paypal_token", "A21AA", "dashed", 70, 120),
    _row("percy_token", "(?:web|auto|app|ss|generic|vmw)_", "hex", 64, 64, shown="auto_"),
    _row("photoroom_key", "sk_pr_[A-Za-z0-9]{2,24}_", "hex", 40, 40, shown="sk_pr_default_"),
    _row("pinterest_token", "pina_", "upper", 80, 140),
    _row("portainer_token", "ptr_", "wide", 20, 60, check="drawn"),
    _row("predibase_token", "pb_", "dashed", 20, 32, check="drawn"),
    _row("promptlayer_key", "pl_", "hex", 32, 32),
    _row("pterodactyl_key", "pt(?:la|lc)_", "word", 43, 43, shown="ptla_"),
    _row("pubnub_key", "(?:pub|sub)-c-", "dashed", 36, 36, shown="sub-c-", check="random"),
    _row("pubnub_secret", "sec-c-", "signs", 48, 50),
    _row("quicknode_key", "QN_", "hex", 32, 32),
    _row("razorpay_key", "rzp_(?:live|test)_", "word", 14, 14, shown="rzp_live_", check="drawn"),
    _row("retell_key", "key_", "hex", 28, 28),
    _row("retool_token", "retool_", "word", 24, 40, check="drawn"),
    _row("riot_key", "RGAPI-", "dashed", 36, 36),
    _row("robinhood_key", "rh-api-", "dashed", 36, 36, check="random"),
    _row("salesforce_session", "00D[A-Za-z0-9]{12,15}!", "wide", 80, 120, shown="00D" + fake(13) + "!"),
    _row("sanity_token", "sk", "word", 80, 180, check="drawn"),
    _row("segment_token", "sgp_", "word", 64, 64, check="drawn"),
    _row("smooch_secret", "act_", "lower", 24, 24, check="random"),
    _row("snyk_token", r"snyk_(?:uat|sat)\.[a-f0-9]{8}\.", "signs", 40, 200, shown="snyk_uat." + fake(8, "hex") + "."),
    _row("socket_token", "sktsec_", "dashed", 30, 80),
    _row("sonarqube_token", "sq[aup]_", "lower", 40, 40, shown="sqp_"),
    _row("stackhawk_key", r"hawk\.[A-Za-z0-9_-]{20}\.", "dashed", 20, 20, shown="hawk." + fake(20) + "."),
    _row("statsig_key", "(?:secret|console)-", "word", 40, 50, shown="secret-", check="drawn"),
    _row("steel_key", "ste-", "word", 60, 80),
    _row(
        "stripe_client_secret",
        "(?:pi|seti|src|cs)_[A-Za-z0-9_]{14,80}_secret_",
        "word",
        20,
        40,
        shown="pi_" + fake(24) + "_secret_",
    ),
    _row("stytch_secret", "secret-(?:live|test)-", "signs", 30, 60, shown="secret-live-"),
    _row("sui_key", "suiprivkey1", "lower", 59, 59),
    _row("tatum_key", "t-[a-f0-9]{24}-", "hex", 24, 24, shown="t-" + fake(24, "hex") + "-"),
    _row("tickettailor_key", "sk_[0-9]{3,6}_[0-9]{3,9}_", "hex", 32, 32, shown="sk_9249_555934_"),
    _row("trello_token", "ATTA", "hex", 60, 80),
    _row("trigger_key", "tr_(?:prod|dev|stg|preview|pat)_", "word", 16, 48, shown="tr_prod_", check="drawn"),
    _row("ubidots_token", "BB(?:FF|US)-", "dashed", 30, 44, shown="BBFF-"),
    _row("unit_token", r"v[1-4]\.(?:public|local)\.", "signs", 60, 800, shown="v4.local."),
    _row("upcloud_token", "ucat_", "word", 26, 48),
    _row("upstage_key", "up_", "word", 29, 29, check="drawn"),
    _row("uptimerobot_key", "[mu][0-9]{6,9}-", "hex", 24, 24, shown="u4928371-"),
    _row("valtown_token", "vtwn_", "dashed", 20, 40),
    _row("vk_token", r"vk1\.a\.", "dashed", 60, 300, shown="vk1.a."),
    _row("voiceflow_key", r"VF\.(?:DM\.|WS\.)?[A-Fa-f0-9]{24}\.", "word", 16, 16, shown="VF." + fake(24, "hex") + "."),
    _row("wandb_key", "wandb_v1_", "dashed", 60, 110),
    _row("xata_key", "xau_", "word", 20, 60),
    _row("you_key", "ydc-sk-", "dashed", 30, 80),
    _row("zep_key", "z_1", "signs", 100, 300),
    _row("zuplo_key", "zpka_[a-z0-9]{32}_", "hex", 8, 8, shown="zpka_" + fake(32, "lower") + "_"),
    _row(
        "yandex_translate_key",
        r"trnsl\.1\.1\.[0-9]{8}T[A-Z0-9]{6}Z\.[a-f0-9]{8,16}\.",
        "hex",
        24,
        48,
        shown="trnsl.1.1.20260301T120000Z." + fake(16, "hex") + ".",
    ),
    _row("flyio_macaroon", r"FlyV1[ \t]+(?:fm[12][ar]?_)?", "listed", 60, shown="FlyV1 fm2_"),
    secret(
        "service_key",
        r"\b(?P<value>[srp]k_(?:[a-z0-9]{2,40}_){1,3}[A-Za-z0-9]{20,64}|sk_(?:live|test)_[A-Za-z0-9+/-]{60,110}={0,2})"
        + END,
        "sk_" + "acme_live_" + fake(32),
        "sk_buff_" + fake(12),
        check="drawn",
        near=BEGIN + r"(?:[srp]k_(?:[a-z0-9]+_){1,3}[A-Za-z0-9]{16}|sk_(?:live|test)_[A-Za-z0-9+/-]{40})",
    ),
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
    secret(
        "unlisted_key",
        r"\b(?P<value>(?:[a-z][a-z0-9]{1,15}|[A-Z]{3,16})[_-][A-Za-z0-9_-]{20,160})" + END,
        "acme_" + fake(40),
        "acme_" + fake(12),
        check="unlisted",
        # Not from the beginning of the prefix: each word may be one, and would be followed.
        near=r"[A-Za-z0-9][_-](?:[A-Za-z0-9]*" + _THREE_CLASSES + r"|[a-z]*(?:[0-9]+[a-z]+){5})",
    ),
)
"""Each rule with its action under `guard.mode = enforce`."""
