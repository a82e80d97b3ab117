r"""The rules for secrets and personal data.

Patterns follow the published form of providers' keys: a prefix, an alphabet, a length. For values without such a form,
such as passwords, a rule requires a name before the value and a random value.

Two conventions keep finds complete and separate. A pattern begins with `\b`, which takes no character, so that two keys
with one character between them are both found. It ends with `END` where its last character may not be a word character.
Values are ASCII, so that no rule finds anything in a mask, which is enclosed in `⟦` and `⟧`.

Examples are made up: `fake` marks them as such, and builds them when the module is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prompt_sidecar.guard import named
from prompt_sidecar.guard.checks import IBAN_COUNTRIES
from prompt_sidecar.guard.forms import END, fake, fake_uuid, secret
from prompt_sidecar.guard.prefixes import PREFIXES
from prompt_sidecar.guard.rule import BEGIN, Rule, RuleAction, RuleGroup
from prompt_sidecar.guard.services import LATER, SERVICES


def _personal(
    name: str, pattern: str, example: str, counterexample: str, *, check: str = "", action: RuleAction, near: str = ""
) -> Rule:
    return Rule(name, name, RuleGroup.PERSONAL, pattern, check, action, example, counterexample, near)


_CLOUD: Final = (
    secret(
        "aws_access_key",
        r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b",
        "AKIA" + fake(16, "upper"),
        "AKIA" + fake(12, "upper"),
    ),
    secret(
        "aws_secret_key",
        r"(?i:aws|amazon|secret)[ \t\"'A-Za-z_.-]{0,32}[\"'`]?[ \t]{0,3}(?:=>|:=|[:=,>])[ \t]{0,3}[\"'`]?"
        r"(?P<value>[A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+=_-]|$)",
        "aws_secret_access_key = " + fake(20) + "/" + fake(19),
        "secret: " + fake(44),
        check="random",
        names=r"(?i:aws|amazon|secret)[A-Za-z_.-]{0,32}",
    ),
    secret(
        "aws_bedrock_key",
        r"\bABSK[A-Za-z0-9+/]{109,}={0,2}",
        "ABSK" + fake(128),
        "ABSK" + fake(40),
    ),
    secret("gcp_api_key", r"\b(?P<value>AIza[A-Za-z0-9_-]{35})" + END, "AIza" + fake(35), "AIza" + fake(50)),
    secret("gcp_oauth_secret", r"\b(?P<value>GOCSPX-[A-Za-z0-9_-]{20,40})" + END, "GOCSPX-" + fake(28), "GOCSPX-x"),
    secret("gcp_access_token", r"\bya29\.(?:[a-z]\.)?[A-Za-z0-9_-]{30,}", "ya29." + fake(60), "ya29.short"),
    secret("gcp_refresh_token", r"\b(?P<value>1//0[A-Za-z0-9_-]{40,})" + END, "1//0" + fake(60), "1//0 and so on"),
    secret(
        "azure_storage_key",
        r"\b(?i:AccountKey|SharedAccessKey|storage[_-]?(?:account)?[_-]?key)[\"']?[ \t]{0,3}[=:][ \t]{0,3}[\"']?"
        r"(?P<value>[A-Za-z0-9+/]{42,86}={1,2})",
        "AccountKey=" + fake(86) + "==",
        "AccountKey=" + fake(12),
        near=named.NEAR,
        names=r"\b(?i:AccountKey|SharedAccessKey|storage[_-]?(?:account)?[_-]?key)",
    ),
    secret(
        "azure_client_secret",
        r"(?:^|[^A-Za-z0-9_~.-])(?P<value>[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34})(?:[^A-Za-z0-9_~.-]|$)",
        " abc8Q~" + fake(34),
        " abc8Q~" + fake(10),
        near=r"[0-9]Q~[A-Za-z0-9_~.-]{31}",
    ),
    secret(
        "azure_sas",
        r"[?&]sig=(?P<value>[A-Za-z0-9%+/_-]{42,}(?:%3[Dd]|=){0,2})",
        "https://x.blob.core.windows.net/c?sv=2024-11-04&sig=" + fake(43) + "%3D",
        "https://x.example/c?sig=" + fake(10),
        check="random",
    ),
    secret(
        "azure_devops_token",
        r"\b(?P<value>[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4})\b",
        fake(76) + "AZDO" + fake(4),
        fake(20) + "AZDO" + fake(4),
        near=r"[A-Za-z0-9]AZDO[A-Za-z0-9]{4}\b",
    ),
    secret(
        "digitalocean_token", r"\bdo[opr]_v1_[a-f0-9]{64}\b", "dop_v1_" + fake(64, "hex"), "dop_v1_" + fake(60, "hex")
    ),
    secret(
        "heroku_key",
        r"\b(?P<value>HRKU-(?:AA[A-Za-z0-9_-]{58}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}))" + END,
        "HRKU-AA" + fake(58),
        "HRKU-12",
    ),
    secret(
        "alibaba_key", r"\bLTAI[A-Za-z0-9]{12,20}\b", "LTAI" + fake(20), "LTAI-" + fake(20), kind="alibaba_access_key"
    ),
    secret(
        "databricks_token",
        r"\bd(?:api|kea|ose|sap)[a-f0-9]{32,64}(?:-[0-9])?\b",
        "dapi" + fake(32, "hex"),
        "dapi" + fake(20, "hex"),
    ),
    secret(
        "vercel_token",
        r"\b(?P<value>vc[kpairs]_(?:[A-Za-z0-9]{24,64}|[A-Za-z0-9_-]{56}))" + END,
        "vcp_" + fake(56),
        "vcp_short",
    ),
    secret("netlify_token", r"\b(?P<value>nf[pcoub]_[A-Za-z0-9_-]{36,40})" + END, "nfp_" + fake(36), "nfp_" + fake(12)),
    secret(
        "flyio_token",
        r"\bf(?:m[12][ar]?|o1)_[A-Za-z0-9+/=,_-]{40,}",
        "fm2_" + fake(140),
        "fm2_" + fake(20),
    ),
    secret(
        "cloudflare_ca_key",
        r"\bv1\.0-(?:[a-f0-9]{24}-[a-f0-9]{146}|[A-Za-z0-9._-]{160,180})\b",
        "v1.0-" + fake(24, "hex") + "-" + fake(146, "hex"),
        "v1.0-" + fake(24, "hex"),
        kind="cloudflare_key",
        near=BEGIN + r"v1\.0-[A-Za-z0-9._-]{40}",
    ),
    secret("cloudflare_token", r"\bcf(?:ut|at|k)_[A-Za-z0-9]{40,48}\b", "cfut_" + fake(48), "cfut_" + fake(12)),
    secret("supabase_key", r"\bsb(?:p|_secret|p_oauth)_[A-Za-z0-9_]{31,64}\b", "sbp_" + fake(40, "hex"), "sbp_x"),
    secret(
        "planetscale_key",
        r"\bpscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,64}",
        "pscale_pw_" + fake(43),
        "pscale_pw_" + fake(12),
    ),
    secret("scaleway_key", r"\bSCW[A-Z0-9]{17}\b", "SCW" + fake(17, "upper"), "SCW" + fake(9, "upper")),
    secret("clickhouse_key", r"\b4b1d[A-Za-z0-9]{38}\b", "4b1d" + fake(38), "4b1d" + fake(20)),
    secret(
        "vault_token",
        r"\b(?P<value>hv[sbr]\.[A-Za-z0-9_-]{24,})" + END,
        "hvs." + fake(95),
        "hvs.example.com",
    ),
    secret(
        "terraform_token",
        r"\b(?P<value>[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,100})" + END,
        fake(14) + ".atlasv1." + fake(67),
        "x.atlasv1.y",
        near=r"\.atlasv1\.[A-Za-z0-9_=-]{60}",
    ),
    secret("pulumi_token", r"\bpul-[a-f0-9]{40}\b", "pul-" + fake(40, "hex"), "pul-" + fake(20, "hex")),
    secret(
        "doppler_token",
        r"\bdp\.[a-z]{2,5}\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,64}\b",
        "dp.pt." + fake(43),
        "dp.pt.x",
    ),
)
_SOURCE: Final = (
    secret("github_token", r"\bgh[pousr]_[A-Za-z0-9]{36,}\b", "ghp_" + fake(36), "ghp_" + fake(20)),
    secret(
        "github_fine_token",
        r"\bgithub_pat_[A-Za-z0-9_]{60,}\b",
        "github_pat_" + fake(22) + "_" + fake(59),
        "github_pat_" + fake(22),
        kind="github_token",
    ),
    secret(
        "gitlab_token",
        r"\b(?P<value>gl(?:(?:pat|dt|rt|rtr|cbt|soat|ft|ffct|wt)-[A-Za-z0-9_-]{20,}(?:(?:\.[a-z0-9]{2})?\.[a-z0-9]{9})?|"
        r"imt-[A-Za-z0-9_-]{25}|ptt-[A-Za-z0-9_-]{40}|agent-[A-Za-z0-9_-]{50,}|oas-[A-Za-z0-9_-]{64}))" + END,
        "glpat-" + fake(20),
        "glpat-" + fake(9),
    ),
    secret(
        "gitlab_runner_token",
        r"\bGR1348941[A-Za-z0-9_-]{20,}",
        "GR1348941" + fake(20),
        "GR1348941",
        kind="gitlab_token",
    ),
    secret(
        "bitbucket_token",
        r"\b(?:ATBB[A-Za-z0-9]{32}\b|ATCTT3xFfG[A-Za-z0-9+/_=-]{36,})",
        "ATBB" + fake(32),
        "ATBB" + fake(12),
    ),
    secret(
        "atlassian_token",
        r"\bATATT?[A-Za-z0-9+/_=-]{36,}",
        "ATATT3xFfG" + fake(180),
        "ATATT3",
        check="random",
    ),
    secret(
        "sentry_token", r"\bsntry(?:s_[A-Za-z0-9+/=_]{60,}|u_[a-f0-9]{64}\b)", "sntryu_" + fake(64, "hex"), "sntryu_x"
    ),
    secret("linear_key", r"\blin_(?:api|oauth)_[A-Za-z0-9]{40,64}\b", "lin_api_" + fake(40), "lin_api_" + fake(8)),
    secret(
        "postman_key",
        r"\bPMAK-[A-Za-z0-9]{24}-[A-Za-z0-9]{34}\b",
        "PMAK-" + fake(24, "hex") + "-" + fake(34, "hex"),
        "PMAK-1",
    ),
    secret(
        "grafana_token",
        r"\b(?:glsa_[A-Za-z0-9_]{41}\b|glc_[A-Za-z0-9+/=]{32,})",
        "glsa_" + fake(32) + "_" + fake(8, "hex"),
        "glsa_" + fake(8),
    ),
    secret(
        "newrelic_key",
        r"\b(?P<value>NRAK-[A-Z0-9]{27}|NRI[IQ]-[A-Za-z0-9_-]{25,32})" + END,
        "NRAK-" + fake(27, "upper"),
        "NRAK-" + fake(5, "upper"),
    ),
    secret(
        "notion_token",
        r"\b(?:ntn_[A-Za-z0-9]{40,50}|secret_[A-Za-z0-9]{43})\b",
        "ntn_" + fake(46),
        "secret_" + fake(20),
    ),
    secret("figma_token", r"\b(?P<value>fig[a-z]_[A-Za-z0-9_-]{32,48})" + END, "figd_" + fake(40), "figd_" + fake(9)),
    secret(
        "hubspot_token",
        r"\bpat-(?:na|eu)[0-9]-[0-9A-Za-z]{8}(?:-[0-9A-Za-z]{4}){3}-[0-9A-Za-z]{12}\b",
        "pat-na1-" + fake_uuid(),
        "pat-na1-12",
    ),
    secret(
        "sourcegraph_token",
        r"\b(?:sgp_(?:[A-Fa-f0-9]{16}_|local_)?[A-Fa-f0-9]{40}|slk_[a-f0-9]{64})\b",
        "sgp_" + fake(40, "hex"),
        "sgp_" + fake(9, "hex"),
    ),
    secret("sonar_token", r"\bsq[upa]_[a-f0-9]{40}\b", "squ_" + fake(40, "hex"), "squ_" + fake(9, "hex")),
    secret(
        "onepassword_token",
        r"\bops_eyJ[A-Za-z0-9+/=_-]{100,}",
        "ops_" + "eyJ" + fake(200),
        "ops_" + "eyJ" + fake(9),
    ),
    secret(
        "onepassword_key",
        r"\bA3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}\b",
        "A3-" + "-".join(fake(length, "upper") for length in (6, 11, 5, 5, 5)),
        "A3-" + fake(6, "upper"),
    ),
    secret(
        "airtable_token",
        r"\bpat[A-Za-z0-9]{14}\.[a-f0-9]{64}\b",
        "pat" + fake(14) + "." + fake(64, "hex"),
        "pat" + fake(14),
    ),
    secret(
        "artifactory_key",
        r"\b(?:AKC[A-Za-z0-9]{55,76}|cmVmd[A-Za-z0-9]{59})\b",
        "AKCp" + fake(69),
        "AKCp" + fake(9),
    ),
)
_PAYMENT: Final = (
    secret(
        "stripe_key",
        r"\b(?:sk|rk)_(?:live|test|prod)_[A-Za-z0-9]{10,}\b",
        "sk_" + "live_" + fake(24),
        "pk_" + "live_" + fake(24),
    ),
    secret("stripe_webhook_secret", r"\bwhsec_[A-Za-z0-9+/=]{32,}", "whsec_" + fake(32), "whsec_" + fake(9)),
    secret(
        "square_token",
        r"\b(?P<value>sq0(?:atp|csp|idp)-[A-Za-z0-9_-]{22,60}|EAAA[A-Za-z0-9+=_-]{54,64})" + END,
        "sq0atp-" + fake(22),
        "sq0atp-" + fake(5),
    ),
    secret(
        "shopify_token",
        r"\bshp(?:at|ca|pa|ss|ua|tka)_[A-Fa-f0-9]{32,40}\b",
        "shpat_" + fake(32, "hex"),
        "shpat_" + fake(8, "hex"),
    ),
    secret(
        "braintree_token",
        r"\baccess_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[a-f0-9]{32}\b",
        "access_token$production$" + fake(16, "hex") + "$" + fake(32, "hex"),
        "access_token$production$x",
    ),
)
_CHAT: Final = (
    secret(
        "slack_token",
        r"\b(?P<value>xox[abeoprs][0-9]?(?:\.xox[bp])?-(?:[A-Za-z0-9]+-{1,2})*[A-Za-z0-9]{10,}|xapp-[0-9]+-[A-Za-z0-9]{5,}-(?:[A-Za-z0-9]+-)?[A-Za-z0-9]{10,}|xox[cos](?:-[0-9]{2,15}){3}-[A-Fa-f0-9]{6,}|xoxd-[A-Za-z0-9%/+_-]{100,}={0,2})"
        + END,
        "xoxb-" + fake(12, "digits") + "-" + fake(24),
        "xoxb-token",
    ),
    secret(
        "slack_webhook",
        r"\bhooks\.slack\.com/(?P<value>(?:services|workflows|triggers)/[A-Z0-9][A-Za-z0-9_]{5,20}/[A-Za-z0-9_]{6,24}/[A-Za-z0-9_/]{16,64})",
        "https://hooks.slack.com/services/T" + fake(8, "upper") + "/B" + fake(8, "upper") + "/" + fake(24),
        "https://hooks.slack.com/services/",
    ),
    secret(
        "discord_token",
        r"\b(?P<value>[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6,7}\.[A-Za-z0-9_-]{27,38})" + END,
        "M" + fake(23) + "." + fake(6) + "." + fake(27),
        "Module.submodule.function",
        check="random",
    ),
    secret(
        "discord_webhook",
        r"\bdiscord(?:app)?\.com/api/(?P<value>(?:v[0-9]{1,2}/)?webhooks/[0-9]{17,20}/[A-Za-z0-9_-]{60,80})",
        "https://discord.com/api/webhooks/" + fake(18, "digits") + "/" + fake(68),
        "https://discord.com/api/webhooks/",
    ),
    secret(
        "facebook_token",
        r"\b(?:EAA[MC][A-Za-z0-9]{100,}|EAACEdEose0cBA[A-Za-z0-9]{20,}|[0-9]{15,16}\|[A-Za-z0-9_-]{27,40})\b",
        "EAAM" + fake(150),
        "EAAM" + fake(20),
        near=r"\bEAA[MC][A-Za-z0-9]{20}|[0-9]\|[A-Za-z0-9_-]{27}",
    ),
    secret(
        "telegram_token",
        r"\b(?P<value>[0-9]{8,10}:AA[A-Za-z0-9_-]{33})" + END,
        fake(9, "digits") + ":AA" + fake(33),
        fake(9, "digits") + ":AA",
        near=r"[0-9]:AA[A-Za-z0-9_-]{33}",
    ),
    secret("twilio_key", r"\bSK[a-f0-9]{32}\b", "SK" + fake(32, "hex"), "SK" + fake(20, "hex")),
    secret("twilio_account", r"\bAC[a-f0-9]{32}\b", "AC" + fake(32, "hex"), "AC" + fake(20, "hex")),
    secret(
        "sendgrid_key",
        r"\b(?P<value>SG\.[A-Za-z0-9_=.-]{60,90})" + END,
        "SG." + fake(22) + "." + fake(43),
        "SG." + fake(5) + ".x",
        check="random",
    ),
    secret(
        "mailgun_key",
        r"\b(?:key|pubkey)-(?:[a-f0-9]{32}|[A-Za-z0-9]{64})\b",
        "key-" + fake(32, "hex"),
        "key-" + fake(12, "hex"),
    ),
    secret(
        "mailchimp_key",
        r"\b[a-f0-9]{32}-us[0-9]{1,2}\b",
        fake(32, "hex") + "-us12",
        fake(12, "hex") + "-us12",
        near=r"[a-f0-9]-us[0-9]{1,2}\b",
    ),
    secret(
        "brevo_key",
        r"\bx(?:key|smtp)sib-[A-Fa-f0-9]{64}(?:-[A-Za-z0-9]{16})?\b",
        "xkeysib-" + fake(64, "hex") + "-" + fake(16),
        "xkeysib-x",
    ),
    secret("resend_key", r"\bre_[A-Za-z0-9]{8}_[A-Za-z0-9]{24}\b", "re_" + fake(8) + "_" + fake(24), "re_" + fake(8)),
)
_MODELS: Final = (
    secret(
        "openai_key",
        r"\b(?P<value>sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{40,}|sk-[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20})"
        + END,
        "sk-" + fake(20) + "T3Blbk" + "FJ" + fake(20),
        "sk-learn",
    ),
    secret(
        "anthropic_key",
        r"\b(?P<value>sk-ant-[a-z]{2,10}[0-9]{0,2}-[A-Za-z0-9_-]{40,})" + END,
        "sk-ant-" + "api03-" + fake(93) + "AA",
        "sk-ant-" + fake(9),
    ),
    secret("openrouter_key", r"\bsk-or-v1-[a-f0-9]{64}\b", "sk-or-v1-" + fake(64, "hex"), "sk-or-v1-" + fake(9, "hex")),
    secret(
        "model_key",
        r"\b(?P<value>sk-(?:[a-z0-9]{2,12}-)?[A-Za-z0-9]{32,64}|sk-[a-z]{2,12}-[A-Za-z0-9_-]{64,160})" + END,
        "sk-" + fake(48),
        "sk-" + fake(20),
        check="random",
    ),
    secret(
        "huggingface_token", r"\b(?:hf_|api_org_)[A-Za-z0-9]{34,37}\b", "hf_" + fake(34, "letters"), "hf_" + fake(12)
    ),
    secret("groq_key", r"\bgsk_[A-Za-z0-9]{48,56}\b", "gsk_" + fake(52), "gsk_" + fake(12)),
    secret("xai_key", r"\b(?P<value>xai-[A-Za-z0-9_-]{70,90})" + END, "xai-" + fake(80), "xai-" + fake(9)),
    secret("perplexity_key", r"\bpplx-[A-Za-z0-9]{40,64}\b", "pplx-" + fake(48), "pplx-" + fake(9)),
    secret("replicate_token", r"\br8_[A-Za-z0-9]{37,40}\b", "r8_" + fake(37), "r8_" + fake(12)),
    secret(
        "langsmith_key",
        r"\blsv2_(?:pt|sk)_[A-Fa-f0-9]{32}_[A-Fa-f0-9]{10}\b",
        "lsv2_pt_" + fake(32, "hex") + "_" + fake(10, "hex"),
        "lsv2_pt_x",
    ),
)
_REGISTRIES: Final = (
    secret("npm_token", r"\bnpm_[A-Za-z0-9]{36}\b", "npm_" + fake(36), "npm_config_" + fake(9)),
    secret(
        "npmrc_token",
        r":_(?:authToken|auth|password)[ \t]{0,2}=[ \t]{0,2}[\"']?(?P<value>[A-Za-z0-9+/=_.~-]{16,})",
        "//registry.example.org/:_authToken=" + fake_uuid(),
        "//registry.example.org/:_authToken=${NPM_TOKEN}",
        kind="npm_token",
        check="random",
    ),
    secret(
        "pypi_token",
        r"\bpypi-(?:AgEIcHlwaS5vcmc|AgENdGVzdC5weXBpLm9yZ)[A-Za-z0-9_-]{50,}",
        "pypi-AgEIcHlwaS5vcmc" + fake(150),
        "pypi-attestations",
    ),
    secret("rubygems_key", r"\brubygems_[a-z0-9]{40,64}\b", "rubygems_" + fake(48, "hex"), "rubygems_update"),
    secret(
        "dockerhub_token",
        r"\b(?P<value>dckr_[op]at_[A-Za-z0-9_-]{27,40})" + END,
        "dckr_pat_" + fake(27),
        "dckr_pat_" + fake(7),
    ),
    secret("nuget_key", r"\boy2[a-z0-9]{43}\b", "oy2" + fake(43, "lower"), "oy2" + fake(20, "lower")),
    secret("crates_token", r"\bcio[A-Za-z0-9]{32}\b", "cio" + fake(32), "cio" + fake(12)),
    secret("clojars_token", r"\bCLOJARS_[a-z0-9]{60}\b", "CLOJARS_" + fake(60, "lower"), "CLOJARS_USERNAME"),
)
_NAMED: Final = (
    r"(?i:passw(?:or)?d|passwd|passphrase|pwd|secret|token|api[_.-]?key|access[_.-]?key|private[_.-]?key|"
    r"(?:signing|encryption|master|shared|account|auth|client|service)[_.-]?key|credentials?|auth)"
)
"""Words in the names of secrets."""
_THEN_VALUE: Final = (
    r"[A-Za-z0-9_.-]{0,24}[\"'\\]{0,3}[ \t\r\n,\\nrt]{0,32}[\"'\\]{0,3}(?i:[a-z]{0,10}value)[\"'\\]{0,3}[ \t]{0,3}[:=]"
)
"""As many bytes as characters remain: no more than needed, and each step covers at least a quarter of the rest."""
_NUMBER: Final = r"(?:[0-9]{1,6}(?:[ \t]{0,2}[|:]|\t|-|→)[ \t]{0,8})?"
"""A line number, as tools that read files write it before each line: `cat -n`, `grep -n`, an agent's own tool."""
_BLOCK: Final = "rsa private key".upper()
_GENERAL: Final = (
    secret(
        "private_key",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[ \t\r\n]|\\[nrt])*"
        r"(?:[A-Za-z-]{1,24}: [^\r\n\\]+(?:[ \t\r\n]|\\[nrt])+)*"
        + _NUMBER
        + r"(?:[A-Za-z0-9+/=]{12,}(?:[ \t\r\n>+|\"']|\\[nrt])*"
        + _NUMBER
        + r")+(?:[A-Za-z0-9+/=]{1,11}(?:[ \t\r\n]|\\[nrt])*"
        + _NUMBER
        + r"){0,2}"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?",
        f"-----BEGIN {_BLOCK}-----\n{fake(64)}\n{fake(40)}==\n-----END {_BLOCK}-----",
        f"a file that begins with -----BEGIN {_BLOCK}----- is one",
        check="",
    ),
    secret(
        "age_key",
        r"\bAGE-SECRET-KEY-1[0-9A-Z]{58}\b",
        "AGE-SECRET-KEY-1" + fake(9, "digits").replace("1", "2") + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7LQPZRY9X8GF2TVDW0S",
        "AGE-SECRET-KEY-1",
        check="",
    ),
    secret(
        "jwt",
        r"\b(?P<value>ey[A-Za-z0-9_-]{15,}\.(?:ey[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]{10,})?|[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}|"
        r"[A-Za-z0-9_-]*\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}))",
        "ey" + "JhbGciOiJIUzI1NiJ9." + "ey" + "JzdWIiOiJmYWtlIn0." + fake(43),
        "ey" + fake(20) + "." + "ey" + fake(20) + "." + fake(43),
        check="jwt",
    ),
    secret(
        "jwt_in_base64",
        r"\b(?P<value>ZXlK[A-Za-z0-9+/_-]{40,}={0,2})",
        "ZXlK" + "aGJHY2lPaUpJVXpJMU5pSjku" + "ZXlKemRXSWlPaUptWVd0bEluMC5GYUtlMHJOb1RyRWFMMWJVdExvMA==",
        "ZXlK" + fake(60),
        kind="jwt",
        check="jwt_in_base64",
        near=named.NEAR,
    ),
    secret(
        "url_password",
        r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[A-Za-z0-9_.%~+*!$&;=-]*:(?P<value>[!#-%&*-.0-9;=?A-Z^_a-z|~]{3,})@[A-Za-z0-9\[_-]",
        "postgres://app:" + fake(12) + "@db.internal/orders",
        "http://127.0.0.1:8080/@latest",
        check="url_password",
        near=r"://[A-Za-z0-9_.%~+*!$&;=-]*:[!#-%&*-.0-9;=?A-Z^_a-z|~]{3,}@[A-Za-z0-9\[_-]",
    ),
    secret(
        "authorization_header",
        r"(?i:authorization|auth[_-]?header)[\"'`]?\]?[ \t]{0,3}(?:=>|[:=,])[ \t]{0,3}[\"'`]?"
        r"(?:(?i:bearer|basic|token|apikey)[ \t:]{1,3})?"
        r"(?P<value>[A-Za-z0-9._~+/=-]{16,})",
        "Authorization: Bearer " + fake(40),
        "Authorization: Bearer $TOKEN",
        check="header",
        names=r"(?i:authorization|auth[_-]?header)",
    ),
    secret(
        "curl_user",
        r"\bcurl\b(?:[^\n\\]|\\\n|\\.)*?[ \t](?:-u|--user)[ \t=]{0,2}[\"']{0,2}[A-Za-z0-9_.@%+-]{1,64}:[\"']?"
        r"(?P<value>[^\s\"'<>⟦]{4,})",
        "curl -s -u admin:" + fake(12) + " https://api.example.org",
        "curl -s -u admin:$PASSWORD https://api.example.org",
        check="url_password",
        near=r"[ \t](?:-u|--user)[ \t=]{0,2}[\"']{0,2}[A-Za-z0-9_.@%+-]{1,64}:[^\s<>⟦]{4,}",
    ),
    secret(
        "named_secret",
        _NAMED + r"[A-Za-z0-9_-]{0,24}[\"'`\\]{0,2}\]?[ \t]{0,4}(?:=>|:{0,3}=|\?=|\|\||:)[ \t]{0,4}"
        r"(?:(?i:[bruf]{0,2})[\"'`\\]{1,3})?"
        r"(?P<value>[!#$%&*+./0-9:;=?@A-Z^_a-z~-]{10,})",
        "DB_PASSWORD=" + fake(16),
        "password = get_password_from_environment()",
        check="assignment",
        near=named.NEAR,
        names=_NAMED + r"[A-Za-z0-9_-]{0,24}",
    ),
    secret(
        "xml_secret",
        r"<[A-Za-z0-9_.:-]{0,32}" + _NAMED + r"[A-Za-z0-9_.:-]{0,16}>(?P<value>[!#$%&*+./0-9:;=?@A-Z^_a-z~-]{10,})</",
        "<password>" + fake(16) + "</password>",
        "<password>from the vault</password>",
        kind="named_secret",
        check="assignment",
        near=named.NEAR,
    ),
    secret(
        "listed_secret",
        r"(?i:name|key|variable)[\"'\\]{0,3}[ \t]{0,3}[:=][ \t]{0,3}[\"'\\]{0,3}[A-Za-z0-9_.-]{0,40}"
        + _NAMED
        + _THEN_VALUE
        + r"[ \t]{0,3}[\"'\\]{0,3}(?P<value>[!#$%&*+./0-9:;=?@A-Z^_a-z~-]{10,})",
        '{"name": "DB_PASSWORD", "value": "' + fake(16) + '"}',
        '{"name": "NEXT_TOKEN", "value": "' + fake(16) + '"}',
        kind="named_secret",
        check="listed",
        near=named.NEAR,
    ),
)


def _iban_pattern() -> str:
    """Return a pattern for each country's IBANs at their length, in groups of four or unseparated."""
    by_length = (
        f"(?:{'|'.join(countries.split())})[0-9]{{2}}(?: ?[A-Z0-9]){{{length - 4}}}"
        for length, countries in sorted(IBAN_COUNTRIES.items())
    )
    return rf"\b(?:{'|'.join(by_length)})\b"


_PERSONAL: Final = (
    _personal(
        "card",
        r"\b(?:(?:4[0-9]{3}|5[1-5][0-9]{2}|2(?:22[1-9]|2[3-9][0-9]|[3-6][0-9]{2}|7[01][0-9]|720)|"
        r"6(?:011|5[0-9]{2}|4[4-9][0-9]|2[0-9]{2})|35(?:2[89]|[3-8][0-9]))(?:[ -]?[0-9]{4}){3}|"
        r"3[47][0-9]{2}[ -]?[0-9]{6}[ -]?[0-9]{5}|3(?:0[0-5]|[68][0-9])[0-9][ -]?[0-9]{6}[ -]?[0-9]{4})\b",
        "paid with 4242 " + "4242 4242 " + "4242",
        "order 4242 4242 4242 4243",
        check="luhn",
        action=RuleAction.MASK,
    ),
    _personal(
        "iban",
        _iban_pattern(),
        "to DE89 " + "3704 0044 " + "0532 0130 00",
        "to DE89 3704 0044 0532 0130 01",
        check="iban",
        action=RuleAction.MASK,
    ),
    _personal(
        "email",
        r"\b[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}\b",
        "write to jane@shop.example.org",
        "@decorator, git@host, logo@2x.png",
        check="email",
        action=RuleAction.OBSERVE,
        near=r"[A-Za-z0-9._%+-]@[A-Za-z0-9-]{1,63}\.[A-Za-z0-9]",
    ),
    _personal(
        "phone",
        r"(?:^|[^\w+./=-])(?P<value>\+[1-9][0-9]{0,2}[ .-]?(?:\([0-9]{1,5}\)[ .-]?)?[0-9]{1,5}"
        r"(?:[ .-]?[0-9]{2,5}){1,5})\b",
        "call +44 20 " + "7946 0958",
        "+1 to this, x+12345678, +0 12 34 56 78",
        check="phone",
        action=RuleAction.OBSERVE,
    ),
)
RULES: Final[Sequence[Rule]] = (
    *_CLOUD, *_SOURCE, *_PAYMENT, *_CHAT, *_MODELS, *_REGISTRIES, *SERVICES, *_GENERAL, *LATER, *PREFIXES,
    *named.RULES, *_PERSONAL
)  # fmt: skip
"""Every rule for secrets and personal data, with the action that it has under `guard.mode = enforce`."""
