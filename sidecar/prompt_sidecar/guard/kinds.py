r"""The rules for secrets and personal data.

Patterns follow what providers publish of the form of their keys: a prefix, an alphabet, a length. For values without
such a form, as passwords are, a rule asks for a name in front of the value and for a random value.

Two habits keep the finds whole and apart. A pattern begins with `\b`, which takes no character, so that two keys with
one character between them are both found. It ends with `_END` where its last character may be none of a word. Values
are ASCII, so that no rule finds anything in a mask, which stands in `⟦` and `⟧`.

Examples are made up: `_fake` spells that they are, and puts them together when the module is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prompt_sidecar.guard.checks import IBAN_COUNTRIES
from prompt_sidecar.guard.rule import Action, Group, Rule

_ALPHABETS: Final = {
    "word": "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEaD3qUiCkLy4",
    "letters": "FaKeNoTrEaLbUtLoOkSlIkEiTwHeNrEaDqUiCkLy",
    "lower": "fa4ke0bu7tl8ook9sli2ke3it",
    "hex": "fa4e0b1d2c3e5a6f7980",
    "upper": "FAKE2BUT3LOOKS4LIKE5IT6WHEN7READ",
    "digits": "4928371650",
}
_END: Final = r"(?:[^A-Za-z0-9_-]|$)"
"""The end of a value whose last character may be a dash. It is not part of the value."""


def _fake(length: int, alphabet: str = "word") -> str:
    """Characters that look like those of a key, the same at each call."""
    letters = _ALPHABETS[alphabet]
    return (letters * (length // len(letters) + 1))[:length]


def _uuid() -> str:
    return "-".join(_fake(length, "hex") for length in (8, 4, 4, 4, 12))


def _secret(  # the shape of a row in the tables below
    name: str,
    pattern: str,
    example: str,
    counterexample: str,
    *,
    kind: str = "",
    check: str = "key",
    near: str = "",
    names: str = "",
) -> Rule:
    return Rule(name, kind or name, Group.SECRETS, pattern, check, Action.MASK, example, counterexample, near, names)


def _personal(
    name: str, pattern: str, example: str, counterexample: str, *, check: str = "", action: Action, near: str = ""
) -> Rule:
    return Rule(name, name, Group.PERSONAL, pattern, check, action, example, counterexample, near)


_CLOUD: Final = (
    _secret(
        "aws_access_key",
        r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b",
        "AKIA" + _fake(16, "upper"),
        "AKIA" + _fake(12, "upper"),
    ),
    _secret(
        "aws_secret_key",
        r"(?i:aws|amazon|secret)[ \t\"'A-Za-z_.-]{0,32}[\"'`]?[ \t]{0,3}(?:=>|:=|[:=,>])[ \t]{0,3}[\"'`]?"
        r"(?P<value>[A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+=_-]|$)",
        "aws_secret_access_key = " + _fake(20) + "/" + _fake(19),
        "secret: " + _fake(44),
        check="random",
        names=r"(?i:aws|amazon|secret)[A-Za-z_.-]{0,32}",
    ),
    _secret(
        "aws_bedrock_key",
        r"\bABSK[A-Za-z0-9+/]{109,}={0,2}",
        "ABSK" + _fake(128),
        "ABSK" + _fake(40),
    ),
    _secret("gcp_api_key", r"\b(?P<value>AIza[A-Za-z0-9_-]{35})" + _END, "AIza" + _fake(35), "AIza" + _fake(50)),
    _secret("gcp_oauth_secret", r"\b(?P<value>GOCSPX-[A-Za-z0-9_-]{28})" + _END, "GOCSPX-" + _fake(28), "GOCSPX-x"),
    _secret("gcp_access_token", r"\bya29\.[A-Za-z0-9_-]{30,}", "ya29." + _fake(60), "ya29.short"),
    _secret("gcp_refresh_token", r"\b(?P<value>1//0[A-Za-z0-9_-]{40,})" + _END, "1//0" + _fake(60), "1//0 and so on"),
    _secret(
        "azure_storage_key",
        r"\b(?i:AccountKey|SharedAccessKey|storage[_-]?(?:account)?[_-]?key)[\"']?[ \t]{0,3}[=:][ \t]{0,3}[\"']?"
        r"(?P<value>[A-Za-z0-9+/]{42,86}={1,2})",
        "AccountKey=" + _fake(86) + "==",
        "AccountKey=" + _fake(12),
        names=r"\b(?i:AccountKey|SharedAccessKey|storage[_-]?(?:account)?[_-]?key)",
    ),
    _secret(
        "azure_client_secret",
        r"(?:^|[^A-Za-z0-9_~.-])(?P<value>[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34})(?:[^A-Za-z0-9_~.-]|$)",
        " abc8Q~" + _fake(34),
        " abc8Q~" + _fake(10),
        near=r"[0-9]Q~[A-Za-z0-9_~.-]{31}",
    ),
    _secret(
        "azure_sas",
        r"[?&]sig=(?P<value>[A-Za-z0-9%+/_-]{42,}(?:%3[Dd]|=){0,2})",
        "https://x.blob.core.windows.net/c?sv=2024-11-04&sig=" + _fake(43) + "%3D",
        "https://x.example/c?sig=" + _fake(10),
        check="random",
    ),
    _secret(
        "azure_devops_token",
        r"\b(?P<value>[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4})\b",
        _fake(76) + "AZDO" + _fake(4),
        _fake(20) + "AZDO" + _fake(4),
        near=r"[A-Za-z0-9]AZDO[A-Za-z0-9]{4}\b",
    ),
    _secret(
        "digitalocean_token", r"\bdo[opr]_v1_[a-f0-9]{64}\b", "dop_v1_" + _fake(64, "hex"), "dop_v1_" + _fake(60, "hex")
    ),
    _secret(
        "heroku_key",
        r"\b(?P<value>HRKU-(?:AA[A-Za-z0-9_-]{58}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}))" + _END,
        "HRKU-AA" + _fake(58),
        "HRKU-12",
    ),
    _secret(
        "alibaba_key", r"\bLTAI[A-Za-z0-9]{12,20}\b", "LTAI" + _fake(20), "LTAI-" + _fake(20), kind="alibaba_access_key"
    ),
    _secret(
        "databricks_token",
        r"\bdapi[a-f0-9]{32}(?:-[0-9])?\b",
        "dapi" + _fake(32, "hex"),
        "dapi" + _fake(20, "hex"),
    ),
    _secret("vercel_token", r"\bvc[kpairs]_[A-Za-z0-9]{24,64}\b", "vcp_" + _fake(56), "vcp_short"),
    _secret("netlify_token", r"\bnf[pcoub]_[A-Za-z0-9]{36,40}\b", "nfp_" + _fake(36), "nfp_" + _fake(12)),
    _secret(
        "flyio_token",
        r"\bfm[12][ar]?_[A-Za-z0-9+/=,_-]{100,}",
        "fm2_" + _fake(140),
        "fm2_" + _fake(20),
    ),
    _secret(
        "cloudflare_ca_key",
        r"\bv1\.0-[a-f0-9]{24}-[a-f0-9]{146}\b",
        "v1.0-" + _fake(24, "hex") + "-" + _fake(146, "hex"),
        "v1.0-" + _fake(24, "hex"),
        kind="cloudflare_key",
    ),
    _secret("cloudflare_token", r"\bcf(?:ut|at|k)_[A-Za-z0-9]{40,48}\b", "cfut_" + _fake(48), "cfut_" + _fake(12)),
    _secret("supabase_key", r"\bsb(?:p|_secret|p_oauth)_[A-Za-z0-9_]{31,64}\b", "sbp_" + _fake(40, "hex"), "sbp_x"),
    _secret(
        "planetscale_key",
        r"\bpscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,64}",
        "pscale_pw_" + _fake(43),
        "pscale_pw_" + _fake(12),
    ),
    _secret("scaleway_key", r"\bSCW[A-Z0-9]{17}\b", "SCW" + _fake(17, "upper"), "SCW" + _fake(9, "upper")),
    _secret("clickhouse_key", r"\b4b1d[A-Za-z0-9]{38}\b", "4b1d" + _fake(38), "4b1d" + _fake(20)),
    _secret(
        "vault_token",
        r"\b(?P<value>hv[sbr]\.[A-Za-z0-9_-]{24,})" + _END,
        "hvs." + _fake(95),
        "hvs.example.com",
    ),
    _secret(
        "terraform_token",
        r"\b(?P<value>[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70})" + _END,
        _fake(14) + ".atlasv1." + _fake(67),
        "x.atlasv1.y",
        near=r"\.atlasv1\.[A-Za-z0-9_=-]{60}",
    ),
    _secret("pulumi_token", r"\bpul-[a-f0-9]{40}\b", "pul-" + _fake(40, "hex"), "pul-" + _fake(20, "hex")),
    _secret(
        "doppler_token",
        r"\bdp\.[a-z]{2,5}\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}\b",
        "dp.pt." + _fake(43),
        "dp.pt.x",
    ),
)
_SOURCE: Final = (
    _secret("github_token", r"\bgh[pousr]_[A-Za-z0-9]{36,}\b", "ghp_" + _fake(36), "ghp_" + _fake(20)),
    _secret(
        "github_fine_token",
        r"\bgithub_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}\b",
        "github_pat_" + _fake(22) + "_" + _fake(59),
        "github_pat_" + _fake(22),
        kind="github_token",
    ),
    _secret(
        "gitlab_token",
        r"\b(?P<value>gl(?:(?:pat|dt|rt|rtr|cbt|soat|ft|ffct|wt)-[A-Za-z0-9_-]{20,}(?:\.[a-z0-9]{2}\.[a-z0-9]{9})?|"
        r"imt-[A-Za-z0-9_-]{25}|ptt-[A-Za-z0-9_-]{40}|agent-[A-Za-z0-9_-]{50,}|oas-[a-f0-9]{64}))" + _END,
        "glpat-" + _fake(20),
        "glpat-" + _fake(9),
    ),
    _secret(
        "gitlab_runner_token",
        r"\bGR1348941[A-Za-z0-9_-]{20,}",
        "GR1348941" + _fake(20),
        "GR1348941",
        kind="gitlab_token",
    ),
    _secret(
        "bitbucket_token",
        r"\b(?:ATBB[A-Za-z0-9]{32}\b|ATCTT3xFfG[A-Za-z0-9_=-]{60,})",
        "ATBB" + _fake(32),
        "ATBB" + _fake(12),
    ),
    _secret(
        "atlassian_token",
        r"\bATATT3xFfG[A-Za-z0-9_=-]{60,}",
        "ATATT3xFfG" + _fake(180),
        "ATATT3",
    ),
    _secret(
        "sentry_token", r"\bsntry(?:s_[A-Za-z0-9+/=_]{60,}|u_[a-f0-9]{64}\b)", "sntryu_" + _fake(64, "hex"), "sntryu_x"
    ),
    _secret("linear_key", r"\blin_(?:api|oauth)_[A-Za-z0-9]{40,64}\b", "lin_api_" + _fake(40), "lin_api_" + _fake(8)),
    _secret(
        "postman_key",
        r"\bPMAK-[a-f0-9]{24}-[a-f0-9]{34}\b",
        "PMAK-" + _fake(24, "hex") + "-" + _fake(34, "hex"),
        "PMAK-1",
    ),
    _secret(
        "grafana_token",
        r"\b(?:glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}\b|glc_[A-Za-z0-9+/]{32,}={0,2})",
        "glsa_" + _fake(32) + "_" + _fake(8, "hex"),
        "glsa_" + _fake(8),
    ),
    _secret("newrelic_key", r"\bNRAK-[A-Z0-9]{27}\b", "NRAK-" + _fake(27, "upper"), "NRAK-" + _fake(5, "upper")),
    _secret(
        "notion_token",
        r"\b(?:ntn_[A-Za-z0-9]{40,50}|secret_[A-Za-z0-9]{43})\b",
        "ntn_" + _fake(46),
        "secret_" + _fake(20),
    ),
    _secret("figma_token", r"\b(?P<value>figd_[A-Za-z0-9_-]{38,44})" + _END, "figd_" + _fake(40), "figd_" + _fake(9)),
    _secret(
        "hubspot_token",
        r"\bpat-(?:na|eu)[0-9]-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
        "pat-na1-" + _uuid(),
        "pat-na1-12",
    ),
    _secret(
        "sourcegraph_token",
        r"\b(?:sgp_(?:[A-Fa-f0-9]{16}_|local_)?[A-Fa-f0-9]{40}|slk_[a-f0-9]{64})\b",
        "sgp_" + _fake(40, "hex"),
        "sgp_" + _fake(9, "hex"),
    ),
    _secret("sonar_token", r"\bsq[upa]_[a-f0-9]{40}\b", "squ_" + _fake(40, "hex"), "squ_" + _fake(9, "hex")),
    _secret(
        "onepassword_token",
        r"\bops_eyJ[A-Za-z0-9+/=_-]{100,}",
        "ops_" + "eyJ" + _fake(200),
        "ops_" + "eyJ" + _fake(9),
    ),
    _secret(
        "onepassword_key",
        r"\bA3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}\b",
        "A3-" + "-".join(_fake(length, "upper") for length in (6, 11, 5, 5, 5)),
        "A3-" + _fake(6, "upper"),
    ),
    _secret(
        "airtable_token",
        r"\bpat[A-Za-z0-9]{14}\.[a-f0-9]{64}\b",
        "pat" + _fake(14) + "." + _fake(64, "hex"),
        "pat" + _fake(14),
    ),
    _secret(
        "artifactory_key",
        r"\b(?:AKCp[A-Za-z0-9]{60,75}|cmVmd[A-Za-z0-9]{59})\b",
        "AKCp" + _fake(69),
        "AKCp" + _fake(9),
    ),
)
_PAYMENT: Final = (
    _secret(
        "stripe_key",
        r"\b(?:sk|rk)_(?:live|test|prod)_[A-Za-z0-9]{10,}\b",
        "sk_" + "live_" + _fake(24),
        "pk_" + "live_" + _fake(24),
    ),
    _secret("stripe_webhook_secret", r"\bwhsec_[A-Za-z0-9+/=]{32,}", "whsec_" + _fake(32), "whsec_" + _fake(9)),
    _secret(
        "square_token",
        r"\b(?P<value>sq0(?:atp|csp|idp)-[A-Za-z0-9_-]{22,60}|EAAA[A-Za-z0-9_-]{60})" + _END,
        "sq0atp-" + _fake(22),
        "sq0atp-" + _fake(5),
    ),
    _secret(
        "shopify_token",
        r"\bshp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}\b",
        "shpat_" + _fake(32, "hex"),
        "shpat_" + _fake(8, "hex"),
    ),
    _secret(
        "braintree_token",
        r"\baccess_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[a-f0-9]{32}\b",
        "access_token$production$" + _fake(16, "hex") + "$" + _fake(32, "hex"),
        "access_token$production$x",
    ),
)
_CHAT: Final = (
    _secret(
        "slack_token",
        r"\b(?P<value>xox[abeoprs](?:\.xox[bp])?-(?:[A-Za-z0-9]+-)*[A-Za-z0-9]{10,}|xapp-[0-9]-[A-Z0-9]{5,}-[0-9]{5,}-[A-Za-z0-9]{16,})"
        + _END,
        "xoxb-" + _fake(12, "digits") + "-" + _fake(24),
        "xoxb-token",
    ),
    _secret(
        "slack_webhook",
        r"\bhooks\.slack\.com/(?P<value>(?:services|workflows|triggers)/[A-Z0-9][A-Za-z0-9_]{5,20}/[A-Za-z0-9_]{6,24}/[A-Za-z0-9_/]{16,64})",
        "https://hooks.slack.com/services/T" + _fake(8, "upper") + "/B" + _fake(8, "upper") + "/" + _fake(24),
        "https://hooks.slack.com/services/",
    ),
    _secret(
        "discord_token",
        r"\b(?P<value>[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6,7}\.[A-Za-z0-9_-]{27,38})" + _END,
        "M" + _fake(23) + "." + _fake(6) + "." + _fake(27),
        "Module.submodule.function",
        check="random",
    ),
    _secret(
        "discord_webhook",
        r"\bdiscord(?:app)?\.com/api/(?P<value>(?:v[0-9]{1,2}/)?webhooks/[0-9]{17,20}/[A-Za-z0-9_-]{60,80})",
        "https://discord.com/api/webhooks/" + _fake(18, "digits") + "/" + _fake(68),
        "https://discord.com/api/webhooks/",
    ),
    _secret(
        "facebook_token",
        r"\b(?:EAA[MC][A-Za-z0-9]{100,}|[0-9]{15,16}\|[A-Za-z0-9_-]{27,40})\b",
        "EAAM" + _fake(150),
        "EAAM" + _fake(20),
        near=r"\bEAA[MC][A-Za-z0-9]{20}|[0-9]\|[A-Za-z0-9_-]{27}",
    ),
    _secret(
        "telegram_token",
        r"\b(?P<value>[0-9]{8,10}:AA[A-Za-z0-9_-]{33})" + _END,
        _fake(9, "digits") + ":AA" + _fake(33),
        _fake(9, "digits") + ":AA",
        near=r"[0-9]:AA[A-Za-z0-9_-]{33}",
    ),
    _secret("twilio_key", r"\bSK[a-f0-9]{32}\b", "SK" + _fake(32, "hex"), "SK" + _fake(20, "hex")),
    _secret("twilio_account", r"\bAC[a-f0-9]{32}\b", "AC" + _fake(32, "hex"), "AC" + _fake(20, "hex")),
    _secret(
        "sendgrid_key",
        r"\b(?P<value>SG\.[A-Za-z0-9_-]{20,24}\.[A-Za-z0-9_-]{39,50})" + _END,
        "SG." + _fake(22) + "." + _fake(43),
        "SG." + _fake(5) + ".x",
    ),
    _secret("mailgun_key", r"\b(?:key|pubkey)-[a-f0-9]{32}\b", "key-" + _fake(32, "hex"), "key-" + _fake(12, "hex")),
    _secret(
        "mailchimp_key",
        r"\b[a-f0-9]{32}-us[0-9]{1,2}\b",
        _fake(32, "hex") + "-us12",
        _fake(12, "hex") + "-us12",
        near=r"[a-f0-9]-us[0-9]{1,2}\b",
    ),
    _secret(
        "brevo_key",
        r"\bxkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}\b",
        "xkeysib-" + _fake(64, "hex") + "-" + _fake(16),
        "xkeysib-x",
    ),
    _secret(
        "resend_key", r"\bre_[A-Za-z0-9]{8}_[A-Za-z0-9]{24}\b", "re_" + _fake(8) + "_" + _fake(24), "re_" + _fake(8)
    ),
)
_MODELS: Final = (
    _secret(
        "openai_key",
        r"\b(?P<value>sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{40,}|sk-[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20})"
        + _END,
        "sk-" + _fake(20) + "T3Blbk" + "FJ" + _fake(20),
        "sk-learn",
    ),
    _secret(
        "anthropic_key",
        r"\b(?P<value>sk-ant-[a-z]{2,10}[0-9]{0,2}-[A-Za-z0-9_-]{40,})" + _END,
        "sk-ant-" + "api03-" + _fake(93) + "AA",
        "sk-ant-" + _fake(9),
    ),
    _secret(
        "openrouter_key", r"\bsk-or-v1-[a-f0-9]{64}\b", "sk-or-v1-" + _fake(64, "hex"), "sk-or-v1-" + _fake(9, "hex")
    ),
    _secret("model_key", r"\bsk-[A-Za-z0-9]{32,64}\b", "sk-" + _fake(48), "sk-" + _fake(20), check="random"),
    _secret(
        "huggingface_token", r"\b(?:hf_|api_org_)[A-Za-z0-9]{34,37}\b", "hf_" + _fake(34, "letters"), "hf_" + _fake(12)
    ),
    _secret("groq_key", r"\bgsk_[A-Za-z0-9]{48,56}\b", "gsk_" + _fake(52), "gsk_" + _fake(12)),
    _secret("xai_key", r"\bxai-[A-Za-z0-9]{70,90}\b", "xai-" + _fake(80), "xai-" + _fake(9)),
    _secret("perplexity_key", r"\bpplx-[A-Za-z0-9]{40,64}\b", "pplx-" + _fake(48), "pplx-" + _fake(9)),
    _secret("replicate_token", r"\br8_[A-Za-z0-9]{37,40}\b", "r8_" + _fake(37), "r8_" + _fake(12)),
    _secret(
        "langsmith_key",
        r"\blsv2_(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}\b",
        "lsv2_pt_" + _fake(32, "hex") + "_" + _fake(10, "hex"),
        "lsv2_pt_x",
    ),
)
_REGISTRIES: Final = (
    _secret("npm_token", r"\bnpm_[A-Za-z0-9]{36}\b", "npm_" + _fake(36), "npm_config_" + _fake(9)),
    _secret(
        "npmrc_token",
        r":_(?:authToken|auth|password)[ \t]{0,2}=[ \t]{0,2}[\"']?(?P<value>[A-Za-z0-9+/=_.~-]{16,})",
        "//registry.example.org/:_authToken=" + _uuid(),
        "//registry.example.org/:_authToken=${NPM_TOKEN}",
        kind="npm_token",
        check="random",
    ),
    _secret(
        "pypi_token",
        r"\bpypi-(?:AgEIcHlwaS5vcmc|AgENdGVzdC5weXBpLm9yZ)[A-Za-z0-9_-]{50,}",
        "pypi-AgEIcHlwaS5vcmc" + _fake(150),
        "pypi-attestations",
    ),
    _secret("rubygems_key", r"\brubygems_[a-f0-9]{48}\b", "rubygems_" + _fake(48, "hex"), "rubygems_update"),
    _secret(
        "dockerhub_token",
        r"\b(?P<value>dckr_(?:pat_[A-Za-z0-9_-]{27}|oat_[A-Za-z0-9_-]{32}))" + _END,
        "dckr_pat_" + _fake(27),
        "dckr_pat_" + _fake(7),
    ),
    _secret("nuget_key", r"\boy2[a-z0-9]{43}\b", "oy2" + _fake(43, "lower"), "oy2" + _fake(20, "lower")),
    _secret("crates_token", r"\bcio[A-Za-z0-9]{32}\b", "cio" + _fake(32), "cio" + _fake(12)),
    _secret("clojars_token", r"\bCLOJARS_[a-z0-9]{60}\b", "CLOJARS_" + _fake(60, "lower"), "CLOJARS_USERNAME"),
)
_NAMED: Final = (
    r"(?i:passw(?:or)?d|passwd|passphrase|pwd|secret|token|api[_.-]?key|access[_.-]?key|private[_.-]?key|"
    r"(?:signing|encryption|master|shared|account|auth|client|service)[_.-]?key|credentials?|auth)"
)
"""Words in the names of secrets."""
_BLOCK: Final = "rsa private key".upper()
_GENERAL: Final = (
    _secret(
        "private_key",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[ \t\r\n]|\\[nrt])*"
        r"(?:[A-Za-z-]{1,24}: [^\r\n\\]+(?:[ \t\r\n]|\\[nrt])+)*"
        r"(?:[A-Za-z0-9+/=]{12,}(?:[ \t\r\n>+|\"']|\\[nrt])*)+"
        r"(?:[A-Za-z0-9+/=]{1,11}(?:[ \t\r\n]|\\[nrt])*){0,2}"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?",
        f"-----BEGIN {_BLOCK}-----\n{_fake(64)}\n{_fake(40)}==\n-----END {_BLOCK}-----",
        f"a file that begins with -----BEGIN {_BLOCK}----- is one",
        check="",
    ),
    _secret(
        "age_key",
        r"\bAGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}\b",
        "AGE-SECRET-KEY-1" + _fake(9, "digits").replace("1", "2") + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7LQPZRY9X8GF2TVDW0S",
        "AGE-SECRET-KEY-1",
        check="",
    ),
    _secret(
        "jwt",
        r"\b(?P<value>ey[A-Za-z0-9_-]{15,}\.(?:ey[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]{10,})?|"
        r"[A-Za-z0-9_-]*\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}))",
        "ey" + "JhbGciOiJIUzI1NiJ9." + "ey" + "JzdWIiOiJmYWtlIn0." + _fake(43),
        "ey" + _fake(20) + "." + "ey" + _fake(20) + "." + _fake(43),
        check="jwt",
    ),
    _secret(
        "jwt_in_base64",
        r"\b(?P<value>ZXlK[A-Za-z0-9+/_-]{40,}={0,2})",
        "ZXlK" + "aGJHY2lPaUpJVXpJMU5pSjku" + "ZXlKemRXSWlPaUptWVd0bEluMC5GYUtlMHJOb1RyRWFMMWJVdExvMA==",
        "ZXlK" + _fake(60),
        kind="jwt",
        check="jwt_in_base64",
    ),
    _secret(
        "url_password",
        r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[A-Za-z0-9_.%~+*!$&;=-]*:(?P<value>[!#-%&*-.0-9;=?A-Z^_a-z|~]{3,})@[A-Za-z0-9\[_-]",
        "postgres://app:" + _fake(12) + "@db.internal/orders",
        "http://127.0.0.1:8080/@latest",
        check="url_password",
        near=r"://[A-Za-z0-9_.%~+*!$&;=-]*:[!#-%&*-.0-9;=?A-Z^_a-z|~]{3,}@[A-Za-z0-9\[_-]",
    ),
    _secret(
        "authorization_header",
        r"(?i:authorization|auth[_-]?header)[\"'`]?\]?[ \t]{0,3}(?:=>|[:=,])[ \t]{0,3}[\"'`]?"
        r"(?:(?i:bearer|basic|token|apikey)[ \t:]{1,3})?"
        r"(?P<value>[A-Za-z0-9._~+/=-]{16,})",
        "Authorization: Bearer " + _fake(40),
        "Authorization: Bearer $TOKEN",
        check="random",
        names=r"(?i:authorization|auth[_-]?header)",
    ),
    _secret(
        "curl_user",
        r"\bcurl\b(?:[^\n\\]|\\\n|\\.)*?[ \t](?:-u|--user)[ \t=]{0,2}[\"']{0,2}[A-Za-z0-9_.@%+-]{1,64}:[\"']?"
        r"(?P<value>[^\s\"'<>⟦]{4,})",
        "curl -s -u admin:" + _fake(12) + " https://api.example.org",
        "curl -s -u admin:$PASSWORD https://api.example.org",
        check="url_password",
        near=r"[ \t](?:-u|--user)[ \t=]{0,2}[\"']{0,2}[A-Za-z0-9_.@%+-]{1,64}:[^\s<>⟦]{4,}",
    ),
    _secret(
        "named_secret",
        _NAMED + r"[A-Za-z0-9_-]{0,24}[\"'`\\]{0,2}\]?[ \t]{0,4}(?:=>|:{0,3}=|\?=|\|\||:)[ \t]{0,4}"
        r"(?:(?i:[bruf]{0,2})[\"'`\\]{1,3})?"
        r"(?P<value>[!#$%&*+./0-9:;=?@A-Z^_a-z~-]{10,})",
        "DB_PASSWORD=" + _fake(16),
        "password = get_password_from_environment()",
        check="assignment",
        names=_NAMED + r"[A-Za-z0-9_-]{0,24}",
    ),
    _secret(
        "xml_secret",
        r"<[A-Za-z0-9_.:-]{0,32}" + _NAMED + r"[A-Za-z0-9_.:-]{0,16}>(?P<value>[!#$%&*+./0-9:;=?@A-Z^_a-z~-]{10,})</",
        "<password>" + _fake(16) + "</password>",
        "<password>from the vault</password>",
        kind="named_secret",
        check="assignment",
    ),
)


def _iban_pattern() -> str:
    """Each country's IBANs at their length, in groups of four or in one piece."""
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
        action=Action.MASK,
    ),
    _personal(
        "iban",
        _iban_pattern(),
        "to DE89 " + "3704 0044 " + "0532 0130 00",
        "to DE89 3704 0044 0532 0130 01",
        check="iban",
        action=Action.MASK,
    ),
    _personal(
        "email",
        r"\b[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}\b",
        "write to jane@shop.example.org",
        "@decorator, git@host, logo@2x.png",
        check="email",
        action=Action.OBSERVE,
        near=r"@[A-Za-z0-9-]{1,63}\.[A-Za-z0-9]",
    ),
    _personal(
        "phone",
        r"(?:^|[^\w+./=-])(?P<value>\+[1-9][0-9]{0,2}[ .-]?(?:\([0-9]{1,5}\)[ .-]?)?[0-9]{1,5}"
        r"(?:[ .-]?[0-9]{2,5}){1,5})\b",
        "call +44 20 " + "7946 0958",
        "+1 to this, x+12345678, +0 12 34 56 78",
        check="phone",
        action=Action.OBSERVE,
    ),
)
RULES: Final[Sequence[Rule]] = (
    *_CLOUD, *_SOURCE, *_PAYMENT, *_CHAT, *_MODELS, *_REGISTRIES, *_GENERAL, *_PERSONAL
)  # fmt: skip
"""Every rule for secrets and personal data, with the action that it has under `guard.mode = enforce`."""
