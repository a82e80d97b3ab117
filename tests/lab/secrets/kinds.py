"""Kinds of made secrets: the form of each as its provider publishes it, with the page, or the name it goes by.

`github.com/secret-scanning` stands for docs.github.com's "Supported secret scanning patterns", which lists the kind.
A kind of one table has a form, one of the second a form in an address or a header, one of the third a name alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of secret."""

    name: str
    """What it is kept under, in words that a container joins: `github token`."""
    template: str
    """Of its value, for `drawing.drawn`; empty: a password."""
    source: str
    """The page, RFC or program that the form is from; for one that only has a name, where the name is from."""
    published: bool
    """Whether the value has a form of its own; else only its name tells."""
    around: str = "{}"
    """What the value stands in, where the form is in its surroundings: an address, a header."""

    @property
    def words(self) -> tuple[str, ...]:
        """Of its name."""
        return tuple(self.name.split())

    @property
    def password(self) -> bool:
        """Whether it is one that a person or a client types."""
        return not self.template


_PUBLISHED: Final = """
github token|ghp_<A36>|docs.github.com: GitHub's token formats
github oauth token|gho_<A36>|docs.github.com: GitHub's token formats
github user token|ghu_<A36>|docs.github.com: GitHub's token formats
github app token|ghs_<A36>|docs.github.com: GitHub's token formats
github refresh token|ghr_<A36>|docs.github.com: GitHub's token formats
gh pat|github_pat_<A22>_<A59>|docs.github.com: GitHub's token formats
gitlab token|glpat-<u20>|docs.gitlab.com: token overview, prefixes
gitlab routable token|glpat-<u36>.<h2>.<a9>|docs.gitlab.com: routable tokens
gitlab deploy token|gldt-<u20>|docs.gitlab.com: token overview, prefixes
gitlab runner token|glrt-<u20>|docs.gitlab.com: token overview, prefixes
ci job token|glcbt-<h2>_<u20>|docs.gitlab.com: token overview, prefixes
gitlab trigger token|glptt-<h40>|docs.gitlab.com: token overview, prefixes
gitlab feed token|glft-<u20>|docs.gitlab.com: token overview, prefixes
gitlab scim token|glsoat-<u20>|docs.gitlab.com: token overview, prefixes
gitlab oauth secret|gloas-<h64>|docs.gitlab.com: token overview, prefixes
gitlab agent token|glagent-<u50>|docs.gitlab.com: token overview, prefixes
runner registration token|GR1348941<u20>|docs.gitlab.com: token overview, prefixes
aws bedrock token|ABSK<b128>|docs.aws.amazon.com: Bedrock API keys
aws session token|IQoJb3JpZ2luX2Vj<b300-500>|docs.aws.amazon.com: IAM temporary credentials
google api key|AIza<u35>|cloud.google.com: API keys
google client secret|GOCSPX-<u28>|developers.google.com: OAuth 2.0
google access token|ya29.<u120-190>|developers.google.com: OAuth 2.0
google refresh token|1//0<u60-100>|developers.google.com: OAuth 2.0
gemini api key|AQ.Ab8<u47>|ai.google.dev: Gemini API keys, 2026
openai api key|sk-proj-<u74>T3BlbkFJ<u74>|platform.openai.com: API keys
openai legacy key|sk-<A20>T3BlbkFJ<A20>|platform.openai.com: API keys
openai service key|sk-svcacct-<u74>T3BlbkFJ<u74>|platform.openai.com: service accounts
openai admin key|sk-admin-<u58>T3BlbkFJ<u58>|platform.openai.com: admin keys
anthropic api key|sk-ant-api03-<u93>AA|docs.anthropic.com: API keys
anthropic admin key|sk-ant-admin01-<u93>AA|docs.anthropic.com: Admin API
claude code oauth token|sk-ant-oat01-<u93>AA|docs.anthropic.com: Claude Code, setup-token
groq api key|gsk_<A52>|console.groq.com: API keys
xai api key|xai-<A80>|docs.x.ai: API keys
perplexity api key|pplx-<A48>|docs.perplexity.ai: API keys
replicate api token|r8_<A37>|replicate.com: API tokens
hf token|hf_<L34>|huggingface.co: user access tokens
openrouter api key|sk-or-v1-<h64>|openrouter.ai: authentication
cerebras api key|csk-<a48>|inference-docs.cerebras.ai: API keys
together api key|tgp_v1_<u43>|docs.together.ai: API keys
nvidia api key|nvapi-<u64>|build.nvidia.com: API keys
jina api key|jina_<A60>|jina.ai: reader API
tavily api key|tvly-dev-<A32>|docs.tavily.com: API keys
langsmith api key|lsv2_pt_<h32>_<h10>|docs.langchain.com: LangSmith API keys
langfuse secret key|sk-lf-<uuid>|langfuse.com: API keys
pinecone api key|pcsk_<A6>_<A63>|docs.pinecone.io: API keys
deepseek api key|sk-<h32>|api-docs.deepseek.com: API keys
elevenlabs api key|sk_<h48>|elevenlabs.io: API keys
firecrawl api key|fc-<h32>|docs.firecrawl.dev: API keys
e2b api key|e2b_<h40>|e2b.dev: API keys
apify token|apify_api_<A36>|docs.apify.com: API tokens
slack bot token|xoxb-<d11>-<d12>-<A24>|docs.slack.dev: token types
slack user token|xoxp-<d11>-<d11>-<d12>-<h32>|docs.slack.dev: token types
slack app token|xapp-1-A<U10>-<d13>-<h64>|docs.slack.dev: token types
slack config token|xoxe.xoxp-1-<A160>|docs.slack.dev: token types
telegram bot token|<d10>:AA<u33>|core.telegram.org: bots API
discord bot token|MT<A24>.G<A5>.<u38>|discord.com/developers: authentication
stripe secret key|sk_live_<A24>|docs.stripe.com: API keys
stripe live key|sk_live_51<A97>|docs.stripe.com: API keys
stripe restricted key|rk_live_<A24>|docs.stripe.com: API keys
stripe test key|sk_test_<A24>|docs.stripe.com: API keys
stripe webhook secret|whsec_<A32>|docs.stripe.com: webhooks
sendgrid api key|SG.<u22>.<u43>|docs.sendgrid.com: API keys
mailgun api key|key-<h32>|documentation.mailgun.com: API keys
mailchimp api key|<h32>-us<d2>|mailchimp.com/developer: API keys
brevo api key|xkeysib-<h64>-<A16>|developers.brevo.com: authentication
resend api key|re_<A8>_<A24>|resend.com/docs: API keys
mailersend token|mlsn.<h64>|developers.mailersend.com: API tokens
npm token|npm_<A36>|npm: About access tokens
pypi token|pypi-AgEIcHlwaS5vcmcC<u150-180>|PyPI help: API tokens
rubygems api key|rubygems_<h48>|guides.rubygems.org: API key scopes
cargo registry token|cio<A32>|doc.rust-lang.org/cargo: publishing
nuget api key|oy2<a43>|learn.microsoft.com: nuget publish
docker token|dckr_pat_<u27>|docs.docker.com: access tokens
docker org token|dckr_oat_<u32>|docs.docker.com: organization access tokens
clojars token|CLOJARS_<h60>|clojars.org: deploy tokens
artifactory api key|AKCp8<A68>|jfrog.com/help: API keys
artifactory reference token|cmVmdGtuOjAx<A52>|jfrog.com/help: reference tokens
digitalocean token|dop_v1_<h64>|docs.digitalocean.com: personal access tokens
digitalocean oauth token|doo_v1_<h64>|docs.digitalocean.com: OAuth
heroku api key|HRKU-AA<u58>|devcenter.heroku.com: API token format
fly api token|FlyV1 fm2_<b200-300>|fly.io/docs: access tokens
netlify auth token|nfp_<A36>|docs.netlify.com: personal access tokens
vercel token|vcp_<A56>|vercel.com/changelog: new token formats
vercel ai gateway api key|vck_<A56>|vercel.com/changelog: new token formats
cloudflare api token|cfut_<A40><h8>|developers.cloudflare.com: token formats
cloudflare global key|cfk_<A40><h8>|developers.cloudflare.com: token formats
cloudflare origin key|v1.0-<h24>-<h146>|developers.cloudflare.com: origin CA keys
supabase access token|sbp_<h40>|supabase.com/docs: access tokens
supabase secret key|sb_secret_<u22>_<u8>|supabase.com/docs: API keys
planetscale password|pscale_pw_<u43>|planetscale.com/docs: passwords
planetscale token|pscale_tkn_<u43>|planetscale.com/docs: service tokens
neon api key|napi_<a64>|neon.tech/docs: API keys
databricks token|dapi<h32>|docs.databricks.com: personal access tokens
atlassian api token|ATATT3xFfGF0<u180>=<H8>|support.atlassian.com: API tokens
bitbucket app password|ATBB<A32>|support.atlassian.com: app passwords
linear api key|lin_api_<A40>|linear.app/developers: API keys
notion token|ntn_<A46>|developers.notion.com: token formats
notion integration secret|secret_<A43>|developers.notion.com: token formats
asana token|2/<d16>/<d16>:<h32>|developers.asana.com: personal access tokens
airtable token|pat<A14>.<h64>|airtable.com/developers: personal access tokens
figma token|figd_<u40>|developers.figma.com: access tokens
hubspot token|pat-na1-<uuid>|developers.hubspot.com: private apps
shopify access token|shpat_<h32>|shopify.dev: access tokens
shopify shared secret|shpss_<h32>|shopify.dev: access tokens
square access token|EAAAl<u59>|developer.squareup.com: access tokens
square secret|sq0csp-<u43>|developer.squareup.com: access tokens
dropbox token|sl.u.<u130-160>|dropbox.com/developers: OAuth guide
sentry auth token|sntrys_<json>_<b43>|docs.sentry.io: auth tokens
sentry user token|sntryu_<h64>|docs.sentry.io: auth tokens
grafana token|glsa_<A32>_<h8>|grafana.com/docs: service accounts
grafana cloud token|glc_<json>|grafana.com/docs: access policies
new relic api key|NRAK-<U27>|docs.newrelic.com: API keys
new relic license key|<h36>NRAL|docs.newrelic.com: API keys
dynatrace token|dt0c01.<224>.<264>|docs.dynatrace.com: access tokens
posthog api key|phx_<A43>|posthog.com/docs: personal API keys
launchdarkly sdk key|sdk-<uuid>|docs.launchdarkly.com: SDK credentials
logfire token|pylf_v1_us_<A43>|logfire.pydantic.dev: write tokens
buildkite token|bkua_<h40>|buildkite.com/docs: API access tokens
circleci token|CCIPAT_<A22>_<h40>|circleci.com/docs: API tokens
sonar token|sqp_<h40>|docs.sonarsource.com: tokens
doppler token|dp.pt.<A43>|docs.doppler.com: service tokens
onepassword service account token|ops_<json><b200>|developer.1password.com: service accounts
infisical token|st.<h24>.<h32>.<h32>|infisical.com/docs: service tokens
vault token|hvs.<u95>|developer.hashicorp.com: tokens
vault batch token|hvb.<u140>|developer.hashicorp.com: tokens
tfe token|<A14>.atlasv1.<u67>|developer.hashicorp.com: HCP Terraform tokens
pulumi access token|pul-<h40>|pulumi.com/docs: access tokens
age key|AGE-SECRET-KEY-1<z58>|age-encryption.org/v1
tailscale auth key|tskey-auth-k<A11>CNTRL-<A32>|tailscale.com/kb: auth keys
id token|<jwt>|RFC 7519
mapbox secret token|sk.<json>.<u22>|docs.mapbox.com: access tokens
firebase server key|AAAA<u7>:APA91b<u134>|firebase.google.com: legacy server keys
facebook access token|EAAC<A160-190>|developers.facebook.com: access tokens
adafruit io key|aio_<A28>|io.adafruit.com: API
frameio token|fio-u-<u64>|developer.frame.io: tokens
postman api key|PMAK-<h24>-<h34>|learning.postman.com: API keys
readme api key|rdme_xn8s9h<h70>|docs.readme.com: authentication
contentful token|CFPAT-<u43>|contentful.com: personal access tokens
easypost api key|EZAK<A54>|easypost.com: API keys
duffel token|duffel_live_<u43>|duffel.com/docs: access tokens
flutterwave secret key|FLWSECK-<h32>-X|developer.flutterwave.com: API keys
mercadopago token|APP_USR-<d16>-<d6>-<h32>-<d9>|mercadopago.com/developers: credentials
typeform token|tfp_<A44>_<A14>|typeform.com/developers: personal access tokens
maxmind license key|<A6>_<A29>_mmk|dev.maxmind.com: license keys
octopus api key|API-<U26>|octopus.com/docs: API keys
yandex api key|AQVN<u38>|yandex.cloud/docs: API keys
baidu api key|bce-v3/ALTAK-<A21>/<h40>|cloud.baidu.com: API keys
azure client secret|<A3>8Q~<u34>|learn.microsoft.com: Entra client secret SIT
azure devops pat|<A76>AZDO<A4>|learn.microsoft.com: Azure DevOps PAT format
azure openai api key|<A52>JQQJ99<A6>AC<A2>AAAB<A12>|learn.microsoft.com: Azure cognitive services SIT
paypal access token|access_token$production$<a16>$<h32>|github.com/secret-scanning
"""
_AROUND: Final = """
slack webhook url|<A24>|docs.slack.dev: incoming webhooks|https://hooks.slack.com/services/T0<U9>/B0<U9>/{}
discord webhook url|<u68>|discord.com/developers: webhooks|https://discord.com/api/webhooks/<d18>/{}
teams webhook url|<h32>/<uuid>|learn.microsoft.com: incoming webhooks|https://acme.webhook.office.com/webhookb2/<uuid>@<uuid>/IncomingWebhook/{}
teams workflow url|<u43>|learn.microsoft.com: workflows|https://prod-12.westeurope.logic.azure.com:443/workflows/<h32>/triggers/manual/paths/invoke?api-version=2016-06-01&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig={}
zapier hook url|<a7>|help.zapier.com: webhooks|https://hooks.zapier.com/hooks/catch/<d7>/{}/
aws presigned url|<h64>|docs.aws.amazon.com: Signature Version 4|https://acme.s3.amazonaws.com/report.csv?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date=20261101T000000Z&X-Amz-Expires=3600&X-Amz-SignedHeaders=host&X-Amz-Signature={}
gcs signed url|<h512>|cloud.google.com: V4 signing|https://storage.googleapis.com/acme/a.csv?X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Expires=900&X-Goog-Signature={}
azure sas url|<b43>%3D|learn.microsoft.com: service SAS|https://acme.blob.core.windows.net/logs/a.log?sv=2024-11-04&se=2026-12-01T00%3A00%3A00Z&sr=b&sp=r&sig={}
otpauth url|<232>|github.com/google/google-authenticator: key URI format|otpauth://totp/Acme:ada?secret={}&issuer=Acme
oauth code url|4/0A<u70>|RFC 6749, developers.google.com|https://app.acme.io/callback?state=<h16>&code={}&scope=email
postgres url|<A16-24>|postgresql.org: connection URIs|postgres://app:{}@db.internal:5432/app
mongo url|<A12-20>|mongodb.com: connection strings|mongodb+srv://app:{}@cluster0.ab1cd.mongodb.net/app
redis url|<a32>|redis.io: URI|redis://:{}@cache.internal:6379/0
amqp url|<u20>|rabbitmq.com: URI|amqps://app:{}@mq.internal/prod
clone url|<A20>|RFC 3986, user information|https://ci:{}@git.acme.io/app.git
basic header|<basic>|RFC 7617|Authorization: Basic {}
bearer header|<u48>|RFC 6750|Authorization: Bearer {}
api key header|<A40>|swagger.io: API keys|X-API-Key: {}
servicebus connection string|<b43>=|learn.microsoft.com: Service Bus|Endpoint=sb://acme.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={}
storage connection string|<b86>==|learn.microsoft.com: storage connection strings|DefaultEndpointsProtocol=https;AccountName=acme;AccountKey={};EndpointSuffix=core.windows.net
rsa private key|<pem>|RFC 7468|-----BEGIN RSA PRIVATE KEY-----\\n{}\\n-----END RSA PRIVATE KEY-----
private key|<pem>|RFC 7468|-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----
encrypted private key|<pem>|RFC 7468|-----BEGIN ENCRYPTED PRIVATE KEY-----\\n{}\\n-----END ENCRYPTED PRIVATE KEY-----
openssh private key|<pem>|openssh: PROTOCOL.key|-----BEGIN OPENSSH PRIVATE KEY-----\\n{}\\n-----END OPENSSH PRIVATE KEY-----
pgp private key|<pem>|RFC 9580|-----BEGIN PGP PRIVATE KEY BLOCK-----\\n\\n{}\\n-----END PGP PRIVATE KEY BLOCK-----
kube client key|LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQ<b400>|kubernetes.io: kubeconfig|client-key-data: {}
session cookie|<u43>|RFC 6265|Cookie: theme=dark; session_id={}; lang=en
set cookie|s%3A<u32>.<A43>|RFC 6265, expressjs.com|Set-Cookie: connect.sid={}; Path=/; HttpOnly
django cookie|<a32>|docs.djangoproject.com: sessions|Cookie: csrftoken=<A32>; sessionid={}
"""  # noqa: E501
_NAMED: Final = """
db password||12factor.net: config
postgres password||hub.docker.com: postgres
mysql root password||hub.docker.com: mysql
mysql pwd||dev.mysql.com: environment variables
pgpassword||postgresql.org: environment variables
redis pass||redis.io: AUTH
smtp pass||nodemailer.com
mail pwd||real life
admin password||real life
ldap bind password||openldap.org
keystore password||docs.oracle.com: keytool
rabbitmq default pass||rabbitmq.com
gf security admin password||grafana.com/docs: configure
minio root password||min.io/docs
elastic password||elastic.co: docker
ftp passwd||real life
sudo pass||real life
oracle pwd||docs.oracle.com: database images
snowflake password||docs.snowflake.com
vpn passphrase||real life
ssh key passphrase||man ssh-keygen
wifi psk||man wpa_supplicant.conf
root pw||real life
service account secret||real life
backup encryption password||restic.net
aws secret access key|<b40>|docs.aws.amazon.com: CLI
dd api key|<h32>|docs.datadoghq.com: API keys
dd app key|<h40>|docs.datadoghq.com: application keys
algolia admin key|<h32>|algolia.com/doc: API keys
azure storage key|<b86>==|learn.microsoft.com: storage
cosmos db key|<b86>==|learn.microsoft.com: Cosmos DB
twilio auth token|<h32>|twilio.com/docs
cohere api key|<A40>|docs.cohere.com
mistral api key|<A32>|docs.mistral.ai
secret key base|<h128>|guides.rubyonrails.org: security
rails master key|<h32>|guides.rubyonrails.org: security
django secret key|<A50>|docs.djangoproject.com: SECRET_KEY
jwt secret|<A32-64>|RFC 7519
session secret|<h64>|expressjs.com: session
encryption key|<b43>=|real life
nextauth secret|<b43>=|next-auth.js.org
oauth client secret|<u40>|RFC 6749
heroku key|<uuid>|devcenter.heroku.com
codecov token|<uuid>|docs.codecov.com
fastly api token|<u32>|fastly.com: API tokens
okta api token|00<u40>|developer.okta.com
auth0 client secret|<u64>|auth0.com/docs
plaid secret|<h30>|plaid.com/docs
paypal client secret|E<u79>|developer.paypal.com
twitter consumer secret|<A50>|developer.x.com
facebook app secret|<h32>|developers.facebook.com
spotify client secret|<h32>|developer.spotify.com
zendesk token|<A40>|developer.zendesk.com
segment write key|<A32>|segment.com/docs
aliyun access key secret|<A30>|alibabacloud.com: AccessKey
tencentcloud secret key|<A32>|cloud.tencent.com: API keys
snyk token|<uuid>|docs.snyk.io
sumologic access key|<A64>|help.sumologic.com
splunk hec token|<uuid>|docs.splunk.com
rollbar access token|<h32>|docs.rollbar.com
jenkins api token|<h34>|jenkins.io
erlang cookie|<U20>|erlang.org: distributed
vault unseal key|<b44>|developer.hashicorp.com: seal
consul http token|<uuid>|developer.hashicorp.com: consul
circle token|<h40>|circleci.com/docs
webhook signing key|<h40>|real life
hmac key|<b43>=|real life
wireguard private key|<b43>=|wireguard.com
mixpanel api secret|<h32>|developer.mixpanel.com
intercom access token|dG9rO<b55>=|developers.intercom.com
lastpass hash key|<h64>|real life
ngrok authtoken|2<A26>_<A21>|ngrok.com/docs
fernet key|<u43>=|cryptography.io: Fernet
telegram api hash|<h32>|core.telegram.org
internal auth token|<A24>|real life
"""


def _rows(table: str) -> list[list[str]]:
    return [row.split("|", 3) for row in table.strip().splitlines()]


KINDS: Final = (
    *(Kind(name, template, source, published=True) for name, template, source in _rows(_PUBLISHED)),
    *(
        Kind(name, template, source, published=True, around=around.replace("\\n", "\n"))
        for name, template, source, around in _rows(_AROUND)
    ),
    *(Kind(name, template, source, published=False) for name, template, source in _rows(_NAMED)),
)
"""All kinds."""
