r"""Rules for keys of single services, by the prefix or the form that each publishes; kept as those in `kinds.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prompt_sidecar.guard.forms import END, fake, fake_uuid, secret
from prompt_sidecar.guard.rule import Rule

_SETS: Final = r"[\"']?[ \t]{0,3}(?:=>|:{0,3}=|\?=|\|\||:)[ \t]{0,3}[\"']?"
"""Between a name and its value, in settings and code."""
_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"

SERVICES: Final[Sequence[Rule]] = (
    secret("adobe_secret", r"\bp8e-[A-Za-z0-9]{32}\b", "p8e-" + fake(32), "p8e-" + fake(8)),
    secret("browserbase_key", r"\b(?P<value>bb_live_[A-Za-z0-9_-]{24,40})" + END, "bb_live_" + fake(27), "bb_live_x"),
    secret("buildkite_token", r"\bbkua_[a-z0-9]{40,53}\b", "bkua_" + fake(40, "hex"), "bkua_" + fake(8, "hex")),
    secret("cerebras_key", r"\bcsk-[a-z0-9]{48}\b", "csk-" + fake(48, "lower"), "csk-" + fake(8, "lower")),
    secret(
        "circleci_token",
        r"\bCCI(?:PAT|PRJ)_[A-Za-z0-9]{20,26}_[a-z0-9]{40}\b",
        "CCIPAT_" + fake(22) + "_" + fake(40, "hex"),
        "CCIPAT_" + fake(22),
    ),
    secret("contentful_token", r"\b(?P<value>CFPAT-[A-Za-z0-9_-]{43})" + END, "CFPAT-" + fake(43), "CFPAT-" + fake(9)),
    secret(
        "duffel_token",
        r"\b(?P<value>duffel_(?:test|live)_[A-Za-z0-9_=-]{43})" + END,
        "duffel_live_" + fake(43),
        "duffel_live_x",
    ),
    secret(
        "dynatrace_token",
        r"\bdt0[A-Za-z][0-9]{2}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}\b",
        "dt0c01." + fake(24, "upper") + "." + fake(64, "upper"),
        "dt0c01." + fake(24, "upper"),
    ),
    secret("e2b_key", r"\be2b_[a-f0-9]{40}\b", "e2b_" + fake(40, "hex"), "e2b_" + fake(8, "hex")),
    secret("easypost_key", r"\bEZ[AT]K[A-Za-z0-9]{54}\b", "EZAK" + fake(54), "EZAK" + fake(12)),
    secret("elevenlabs_key", r"\bsk_[a-f0-9]{48}\b", "sk_" + fake(48, "hex"), "sk_" + fake(12, "hex")),
    secret("firecrawl_key", r"\bfc-[a-f0-9]{32}\b", "fc-" + fake(32, "hex"), "fc-" + fake(12, "hex")),
    secret("fireworks_key", r"\bfw_[A-Za-z0-9]{22,24}\b", "fw_" + fake(24), "fw_version_of_the_board", check="random"),
    secret(
        "flutterwave_key",
        r"\bFLWSECK(?:_TEST|_LIVE)?-[a-zA-Z0-9]{12,32}(?:-X)?\b",
        "FLWSECK_TEST-" + fake(32, "hex") + "-X",
        "FLWSECK_TEST",
    ),
    secret("frameio_token", r"\b(?P<value>fio-u-[A-Za-z0-9_=-]{64})" + END, "fio-u-" + fake(64), "fio-u-" + fake(9)),
    secret(
        "grafana_api_key",
        r"\bey" + r"JrIjoi[A-Za-z0-9+/]{36,400}={0,3}",
        "ey" + "JrIjoi" + fake(90),
        "ey" + "JrIjoi" + fake(12),
        kind="grafana_token",
    ),
    secret(
        "harness_token",
        r"\b(?:pat|sat)\.[A-Za-z0-9_-]{22}\.[a-f0-9]{24}\.[A-Za-z0-9]{20}\b",
        "pat." + fake(22) + "." + fake(24, "hex") + "." + fake(20),
        "pat." + fake(22),
    ),
    secret("infracost_key", r"\bico-[A-Za-z0-9]{32}\b", "ico-" + fake(32), "ico-" + fake(8)),
    secret(
        "intra42_secret",
        r"\bs-s4t2(?:ud|af)-[a-f0-9]{64}\b",
        "s-s4t2ud-" + fake(64, "hex"),
        "s-s4t2ud-" + fake(8, "hex"),
    ),
    secret(
        "jina_key",
        r"\b(?P<value>jina_[a-f0-9]{32}[A-Za-z0-9_-]{28})" + END,
        "jina_" + fake(32, "hex") + fake(28),
        "jina_" + fake(32, "hex"),
    ),
    secret("langfuse_key", r"\bsk-lf-" + _UUID + r"\b", "sk-lf-" + fake_uuid(), "pk-lf-" + fake_uuid()),
    secret(
        "launchdarkly_key",
        r"\b(?:sdk|api|mob)-[a-z0-9]{8}(?:-[a-z0-9]{4}){3}-[a-z0-9]{12}\b",
        "sdk-" + fake_uuid(),
        "sdk-" + fake(8, "hex"),
        check="random",
    ),
    secret(
        "mapbox_token",
        r"\b(?P<value>[st]k\.(?:ey[A-Za-z0-9_-]{40,}\.[A-Za-z0-9_-]{22}|[A-Za-z0-9._-]{80,240}))" + END,
        "sk.ey" + fake(60) + "." + fake(22),
        "pk.ey" + fake(60) + "." + fake(22),
    ),
    secret(
        "maxmind_key",
        r"\b[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk\b",
        fake(6) + "_" + fake(29) + "_mmk",
        fake(6) + "_mmk",
        near=r"_mmk\b",
    ),
    secret("neon_key", r"\bnapi_[A-Za-z0-9]{64}\b", "napi_" + fake(64, "lower"), "napi_create_function"),
    secret("neon_password", r"\bnpg_[A-Za-z0-9]{12,16}\b", "npg_" + fake(12), "npg_connection", check="random"),
    secret("nvidia_key", r"\b(?P<value>nvapi-[A-Za-z0-9_-]{60,70})" + END, "nvapi-" + fake(64), "nvapi-" + fake(9)),
    secret("octopus_key", r"\bAPI-[A-Z0-9]{26}\b", "API-" + fake(26, "upper"), "API-REFERENCE", check="random"),
    secret(
        "openshift_token",
        r"\b(?P<value>sha256~[A-Za-z0-9_-]{43})" + END,
        "sha256~" + fake(43),
        "sha256:" + fake(64, "hex"),
    ),
    secret("pinecone_key", r"\bpcsk_[A-Za-z0-9_]{50,80}\b", "pcsk_" + fake(70), "pcsk_" + fake(9)),
    secret(
        "plaid_token",
        r"\baccess-(?:sandbox|development|production)-" + _UUID + r"\b",
        "access-production-" + fake_uuid(),
        "access-production-1",
    ),
    secret("posthog_key", r"\b(?P<value>ph[xs]_[A-Za-z0-9_-]{40,50})" + END, "phx_" + fake(43), "phc_" + fake(43)),
    secret("prefect_key", r"\bpn[ub]_[A-Za-z0-9]{36}\b", "pnu_" + fake(36), "pnu_" + fake(9)),
    secret("readme_key", r"\brdme_[a-z0-9]{70}\b", "rdme_" + fake(70, "lower"), "rdme_" + fake(9, "lower")),
    secret("render_key", r"\brnd_[A-Za-z0-9]{26,40}\b", "rnd_" + fake(32), "rnd_" + fake(9)),
    secret("scalingo_token", r"\b(?P<value>tk-us-[A-Za-z0-9_-]{48})" + END, "tk-us-" + fake(48), "tk-us-" + fake(9)),
    secret("settlemint_token", r"\bsm_(?:aat|pat|sat)_[A-Za-z0-9]{16}\b", "sm_pat_" + fake(16), "sm_pat_" + fake(7)),
    secret(
        "shippo_token", r"\bshippo_(?:live|test)_[A-Fa-f0-9]{40}\b", "shippo_live_" + fake(40, "hex"), "shippo_live_x"
    ),
    secret(
        "sidekiq_credentials",
        r"\b(?:BUNDLE_(?:ENTERPRISE|GEMS)__CONTRIBSYS__COM[ \t]{0,3}[:=][ \t]{0,3}[\"']?|"
        r"//)(?P<value>[a-f0-9]{8}:[a-f0-9]{8})(?:@(?:gems|enterprise)\.contribsys\.com|[\"'\s;&]|$)",
        "BUNDLE_GEMS__CONTRIBSYS__COM: " + fake(8, "hex") + ":" + fake(8, "hex"),
        "BUNDLE_GEMS__CONTRIBSYS__COM: $SIDEKIQ",
        near=r"CONTRIBSYS__COM[ \t]{0,3}[:=][ \t]{0,3}[\"']?[a-f0-9]{8}:|//[a-f0-9]{8}:[a-f0-9]{8}@",
    ),
    secret(
        "sonar_login",
        r"(?i:sonar[._-]?(?:login|token))" + _SETS + r"(?P<value>[A-Za-z0-9]{40})\b",
        "sonar.login=" + fake(40),
        "sonar.login=admin",
        kind="sonar_token",
        check="random",
        names=r"(?i:sonar[._-]?(?:login|token))",
    ),
    secret(
        "sumologic_id",
        r"(?i:sumo)[A-Za-z0-9_.-]{0,24}(?i:id)" + _SETS + r"(?P<value>su[A-Za-z0-9]{12})\b",
        "SUMO_ACCESS_ID=su" + fake(12),
        "SUMO_ACCESS_ID=$SUMO",
        near=r"(?i:sumo)[A-Za-z0-9_.-]*(?i:id)",
        names=r"(?i:sumo)[A-Za-z0-9_.-]{0,24}(?i:id)",
    ),
    secret(
        "tailscale_key",
        r"\btskey-[a-z]{3,32}-[A-Za-z0-9_-]{16,80}\b",
        "tskey-auth-" + fake(12) + "-" + fake(32),
        "tskey-auth-" + fake(8),
        check="random",
    ),
    secret(
        "tavily_key",
        r"\b(?P<value>tvly-(?:dev-|prod-)?[A-Za-z0-9]{32,48})\b",
        "tvly-dev-" + fake(32),
        "tvly-" + fake(9),
    ),
    secret("typeform_token", r"\btfp_[A-Za-z0-9_.=-]{40,64}", "tfp_" + fake(59), "tfp_" + fake(9)),
    secret(
        "voyage_key",
        r"\b(?P<value>(?:pa|al)-[A-Za-z0-9_-]{43})" + END,
        "pa-" + fake(43),
        "pa-" + fake(9),
        check="random",
    ),
    secret(
        "yandex_key",
        r"\b(?P<value>AQVN[A-Za-z0-9_-]{35,38}|YC[A-Za-z0-9_-]{38}|t1\.[A-Za-z0-9_-]{4,80}={0,2}\.[A-Za-z0-9_-]{86}={0,2})"
        + END,
        "AQVN" + fake(36),
        "AQVN" + fake(9),
        check="random",
    ),
)
"""Each rule with its action under `guard.mode = enforce`."""
LATER: Final[Sequence[Rule]] = (
    secret("adafruit_key", r"\baio_[A-Za-z0-9]{28}\b", "aio_" + fake(28), "aio_read"),
    secret("apify_token", r"\bapify_api_[A-Za-z0-9]{36}\b", "apify_api_" + fake(36), "apify_api_url"),
    secret(
        "asana_token",
        r"\b[12]/[0-9]{10,20}(?:/[0-9]{10,20})?:[a-f0-9]{32}\b",
        "2/" + fake(16, "digits") + "/" + fake(16, "digits") + ":" + fake(32, "hex"),
        "2/" + fake(16, "digits"),
        near=r"[0-9]{10}:[a-f0-9]{32}\b",
    ),
    secret(
        "azure_service_key",
        r"\b(?P<value>[A-Za-z0-9]{52}J(?:QQJ|99)[A-Za-z0-9]{24,32}={0,2})",
        fake(52) + "JQQJ99" + fake(26),
        fake(12) + "JQQJ99",
        near=r"JQQJ99[A-Za-z0-9]{20}",
    ),
    secret(
        "firebase_key",
        r"\b(?P<value>AAAA[A-Za-z0-9_-]{7}:(?:[A-Za-z0-9]{3})?APA91b[A-Za-z0-9_-]{100,})",
        "AAAA" + fake(7) + ":APA91b" + fake(134),
        "APA91b",
        near=r":APA91b[A-Za-z0-9_-]{20}",
    ),
    secret("gemini_key", r"\b(?P<value>AQ\.[A-Za-z0-9_-]{40,})" + END, "AQ.Ab8" + fake(47), "AQ.high"),
    secret(
        "infisical_token",
        r"\bst\.[a-f0-9]{24}\.[a-f0-9]{32}\.[a-f0-9]{32}\b",
        "st." + fake(24, "hex") + "." + fake(32, "hex") + "." + fake(32, "hex"),
        "st." + fake(24, "hex"),
    ),
    secret(
        "logfire_token",
        r"\bpylf_v[0-9]_(?:[a-z]{2,12}_)?[A-Za-z0-9]{40,44}\b",
        "pylf_v1_us_" + fake(43),
        "pylf_v1_us",
    ),
    secret("mailersend_token", r"\bmlsn\.[A-Za-z0-9]{32,64}\b", "mlsn." + fake(64, "hex"), "mlsn.com"),
    secret(
        "mercadopago_token",
        r"\bAPP_USR-[0-9]{10,20}-[0-9]{6}-[a-f0-9]{32}-[0-9]{5,12}\b",
        "APP_USR-" + fake(16, "digits") + "-" + fake(6, "digits") + "-" + fake(32, "hex") + "-" + fake(9, "digits"),
        "APP_USR-1",
    ),
    secret(
        "newrelic_license",
        r"\b[a-f0-9]{32,36}(?:FFFF)?NRAL\b",
        fake(36, "hex") + "NRAL",
        "NRAL",
        near=r"[A-Fa-f0-9]NRAL\b",
    ),
    secret(
        "kubeconfig_key",
        r"\b(?P<value>LS0tLS1CRUdJTi[A-Za-z0-9+/]{100,}={0,2})",
        "client-key-data: LS0tLS1CRUdJTiB" + "SU0EgUFJJVkFURSBLRVktLS0tLQo" + fake(120),
        "LS0tLS1CRUdJTi",
        check="private_pem",
    ),
    secret(
        "teams_webhook",
        r"\bwebhook\.office\.com/webhookb2/(?P<value>[A-Za-z0-9@-]{36,80}/IncomingWebhook/[A-Za-z0-9]{32}/[A-Za-z0-9-]{36}(?:/[A-Za-z0-9_-]{20,60})?)",
        "https://acme.webhook.office.com/webhookb2/"
        + fake_uuid()
        + "@"
        + fake_uuid()
        + "/IncomingWebhook/"
        + fake(32, "hex")
        + "/"
        + fake_uuid(),
        "https://acme.webhook.office.com/webhookb2/",
        check="",
    ),
    secret(
        "zapier_webhook",
        r"\bhooks\.zapier\.com/(?P<value>hooks/catch/[0-9]{4,12}/[A-Za-z0-9]{5,12})",
        "https://hooks.zapier.com/hooks/catch/" + fake(7, "digits") + "/" + fake(7, "lower"),
        "https://hooks.zapier.com/hooks/catch/",
        check="",
    ),
    secret(
        "signed_address",
        r"(?i:X-(?:Amz|Goog|Oss)-Signature=|X-Amz-Security-Token=|[?&]Signature=)(?P<value>[A-Za-z0-9%+/=]{32,})",
        "https://b.s3.amazonaws.com/k?X-Amz-Signature=" + fake(64, "hex"),
        "https://b.s3.amazonaws.com/k?X-Amz-Signature=",
    ),
    secret(
        "otpauth_secret",
        r"otpauth://[^\s\"']{1,200}?[?&]secret=(?P<value>[A-Z2-7]{16,})",
        "otpauth://totp/Acme:ada?secret=" + fake(32, "upper").replace("8", "7").replace("9", "6"),
        "otpauth://totp/Acme:ada?secret=",
        check="",
    ),
    secret(
        "oauth_code",
        r"\b(?P<value>4/0A[A-Za-z0-9_-]{50,})" + END,
        "https://app.example.org/callback?code=4/0A" + fake(70),
        "4/0A",
    ),
    secret(
        "supabase_secret_key",
        r"\b(?P<value>sb_secret_[A-Za-z0-9_-]{22}_[A-Za-z0-9_-]{8})" + END,
        "sb_secret_" + fake(11) + "-" + fake(10) + "_" + fake(8),
        "sb_secret_x",
        kind="supabase_key",
    ),
    secret("tencent_key", r"\bAKID[A-Za-z0-9]{32}\b", "AKID" + fake(32), "AKID" + fake(12)),
    secret(
        "putty_key",
        r"^Private-Lines: [0-9]{1,3}\r?\n(?P<value>(?:[A-Za-z0-9+/=]{1,64}(?:\r?\n|$))+)",
        "Private-Lines: 1\n" + fake(48),
        "Private-Lines: 1",
        kind="private_key",
        near=r"^Private-Lines: [0-9]",
    ),
    secret("rootly_key", r"\brootly_[a-f0-9]{64}\b", "rootly_" + fake(64, "hex"), "rootly_" + fake(8, "hex")),
    secret("together_key", r"\b(?P<value>tgp_v1_[A-Za-z0-9_-]{43})" + END, "tgp_v1_" + fake(43), "tgp_v1_x"),
    secret(
        "ably_key",
        r"\b(?P<value>[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{6}:[A-Za-z0-9_-]{40,44})" + END,
        "fAk3rN.oTr3aL:" + fake(43),
        "module.method:argument",
        check="drawn",
        near=r"\.[A-Za-z0-9_-]{6}:[A-Za-z0-9_-]{40}",
    ),
    secret(
        "apollo_key",
        r"\b(?P<value>(?:service:[A-Za-z0-9_-]{1,60}|user:gh\.[A-Za-z0-9_-]{1,60}):[A-Za-z0-9_-]{22})" + END,
        "service:shop-graph:" + fake(22),
        "service:shop-graph:a-name-with-22-letters",
        check="drawn",
    ),
    secret("asaas_key", r"(?P<value>\$aact_[A-Za-z0-9_:=-]{20,300})", "$aact_prod_" + fake(60), "$aact_prod"),
    secret(
        "azure_signed_key",
        r"\b(?P<value>[A-Za-z0-9+/_-]{32,77}(?:AzFu|AzSe|ACDb|\+ASt|\+ABa|AIoT|\+AEh|\+ASb|AzCa|\+ACR|AZEG)"
        r"[A-Za-z0-9+/_-]{5,7}={0,2})(?:[^A-Za-z0-9+/_=-]|$)",
        fake(76) + "ACDb" + fake(6) + "==",
        fake(12) + "ACDb" + fake(6) + "==",
        check="drawn",
        near=r"(?:AzFu|AzSe|ACDb|\+ASt|\+ABa|AIoT|\+AEh|\+ASb|AzCa|\+ACR|AZEG)"
        r"[A-Za-z0-9+/_-]{5,7}={0,2}(?:[^A-Za-z0-9+/_=-]|$)",
    ),
    secret(
        "azure_repository_password",
        r"(?P<value>\bgit&[0-9]{12}&[A-Za-z0-9+/]{84,86}={0,2})",
        "git&" + fake(12, "digits") + "&" + fake(86) + "==",
        "git&1",
        near=r"\bgit&[0-9]{12}&",
    ),
    secret(
        "bedrock_short_key",
        r"\b(?P<value>bedrock-api-key-YmVkcm9jay5hbWF6b25hd3MuY29[t][A-Za-z0-9+/=_-]{0,1000})",
        "bedrock-api-key-" + fake(40).replace(fake(28), "YmVkcm9jay5hbWF6b25hd3MuY29t"),
        "bedrock-api-key-id",
    ),
    secret(
        "bitwarden_token",
        r"\b0\." + _UUID + r"\.[A-Za-z0-9]{30}:[A-Za-z0-9+/]{22}={0,2}",
        "0." + fake_uuid() + "." + fake(30) + ":" + fake(22) + "==",
        "0." + fake_uuid(),
        near=r"\b0\.[0-9a-f]{8}-",
    ),
    secret(
        "codefresh_key",
        r"\b[a-f0-9]{24}\.[a-f0-9]{32}\b",
        fake(24, "hex") + "." + fake(32, "hex"),
        fake(24, "hex") + ".json",
        near=r"[a-f0-9]\.[a-f0-9]{32}\b",
    ),
    secret(
        "convex_key",
        r"\b(?P<value>(?:prod|dev|preview|project):[a-z0-9:-]{3,60}\|eyJ[A-Za-z0-9+/]{20,400}={0,2})",
        "prod:quiet-otter-42|" + "eyJ" + fake(40),
        "prod:quiet-otter-42",
    ),
    secret(
        "ebay_secret",
        r"\b(?:PRD|SBX)-[a-f0-9]{8,12}(?:-[a-f0-9]{4,8}){4}\b",
        "PRD-" + "-".join(fake(size, "hex") for size in (12, 8, 4, 4, 4)),
        "PRD-2026",
    ),
    secret(
        "fal_key",
        r"\b" + _UUID + r":[a-f0-9]{32}\b",
        fake_uuid() + ":" + fake(32, "hex"),
        fake_uuid(),
        near=r"-[0-9a-f]{12}:[a-f0-9]{32}\b",
    ),
    secret(
        "ghost_key",
        r"\b[a-f0-9]{24}:[a-f0-9]{64}\b",
        fake(24, "hex") + ":" + fake(64, "hex"),
        "sha256:" + fake(64, "hex"),
        near=r"[a-f0-9]:[a-f0-9]{64}\b",
    ),
    secret(
        "jetbrains_token",
        r"\b(?P<value>perm[:-][A-Za-z0-9+/=]{4,120}\.[A-Za-z0-9+/=_-]{2,120}\.[A-Za-z0-9]{20,60})\b",
        "perm:" + fake(12) + "." + fake(12) + "." + fake(32),
        "perm:read.write.all",
        check="drawn",
    ),
    secret(
        "k3s_token",
        r"\bK10[a-f0-9]{64}::[a-z0-9:]{3,40}:[A-Za-z0-9.]{16,80}\b",
        "K10" + fake(64, "hex") + "::server:" + fake(32, "hex"),
        "K10" + fake(64, "hex"),
    ),
    secret(
        "locationiq_token",
        r"\b(?P<value>pk\.[A-Za-z0-9-]{32})" + END,
        "pk." + fake(32, "hex"),
        "pk.eyJ1" + fake(20),
        check="random",
    ),
    secret(
        "ngrok_token",
        r"\b[1-3][A-Za-z0-9]{26}_[A-Za-z0-9]{20,22}\b",
        "2" + fake(26) + "_" + fake(21),
        "2" + fake(26),
        check="drawn",
        near=r"[A-Za-z0-9]_[A-Za-z0-9]{20,22}\b",
    ),
    secret(
        "nostr_key",
        r"\bnsec1[02-9ac-hj-np-z]{58}\b",
        "nsec1" + fake(58, "lower").translate({98: "z", 105: "l", 111: "w"}),
        "nsec1",
    ),
    secret(
        "okta_token",
        r"\b(?P<value>00[A-Za-z0-9_-]{40})" + END,
        "00" + fake(40),
        "00" + fake(20),
        check="drawn",
    ),
    secret(
        "rancher_token",
        r"\b(?:token|kubeconfig)-[a-z0-9.-]{5,60}:[a-z0-9]{54}\b",
        "token-x7k2p:" + fake(54, "lower"),
        "token-x7k2p",
    ),
    secret(
        "teamcity_token",
        r"\b(?P<value>eyJ0eXAiOiAiVENWMiJ9\.[A-Za-z0-9_-]{30,40}\.[A-Za-z0-9_-]{40,50})" + END,
        "ey" + "J0eXAiOiAiVENWMiJ9." + fake(36) + "." + fake(48),
        "ey" + "J0eXAiOiAiVENWMiJ9.x",
    ),
    secret(
        "tinybird_token",
        r"\b(?P<value>p\.eyJ[A-Za-z0-9_-]{20,300}\.[A-Za-z0-9_-]{20,80})" + END,
        "p." + "eyJ" + fake(60) + "." + fake(43),
        "p." + "eyJ",
    ),
    secret(
        "twitter_bearer",
        r"\b(?P<value>A{18,24}[A-Za-z0-9%]{60,110})" + END,
        "A" * 22 + fake(70) + "%3D" + fake(20),
        "A" * 120,
        check="drawn",
        near=r"\bA{18,24}[A-Za-z0-9%]{60}",
    ),
    secret(
        "unleash_token",
        r"\b(?:[A-Za-z0-9_-]{1,40}|\*):[A-Za-z0-9_-]{1,40}\.[a-f0-9]{50,64}\b",
        "default:production." + fake(60, "hex"),
        "default:production.json",
        near=r":[A-Za-z0-9_-]+\.[a-f0-9]{50}",
    ),
    secret(
        "vault_old_token",
        r"\b(?P<value>[sb]\.[A-Za-z0-9]{24})" + END,
        "s." + fake(24),
        "s.getElementsByClassName",
        kind="vault_token",
        check="tail",
    ),
    secret(
        "wallet_key",
        r"\b[txyzuv]prv[1-9A-HJ-NP-Za-km-z]{107,108}\b",
        "xprv" + ("9s2" + "1ZrQH143K" * 14)[:107],
        "xprv9",
    ),
    secret(
        "zhipu_key",
        r"\b[a-f0-9]{32}\.[A-Za-z0-9]{16}\b",
        fake(32, "hex") + "." + fake(16),
        fake(32, "hex") + ".json",
        check="tail",
        near=r"[a-f0-9]\.[A-Za-z0-9]{16}\b",
    ),
)
"""The same, for keys that were found by their names before: where a name identifies them too, the kind of a mask stays.
"""
