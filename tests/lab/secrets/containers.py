"""The places of real life that a secret stands in: files, outputs of commands, logs, and what encodes or cuts it.

A container is a function of a name, a value and a chance. It returns text and the pieces that the value has in it, as
they stand there: one, or more where the place cuts the value.
"""

from __future__ import annotations

import base64
import html
import json
import quopri
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, quote_plus


@dataclass(frozen=True, slots=True)
class Secret:
    """A value and the name that it goes by."""

    words: tuple[str, ...]
    value: str
    line: str
    """The value in the address or header that it belongs to; else the value."""

    @property
    def env(self) -> str:
        """Its name as a variable of the environment has it."""
        return "_".join(self.words).upper()

    @property
    def snake(self) -> str:
        """As a member of JSON or a setting has it."""
        return "_".join(self.words)

    @property
    def camel(self) -> str:
        """As JavaScript and Java have it."""
        return self.words[0] + "".join(word.capitalize() for word in self.words[1:])

    @property
    def kebab(self) -> str:
        """As Kubernetes has it."""
        return "-".join(self.words)

    @property
    def spaced(self) -> str:
        """As people write it."""
        return " ".join(self.words)


@dataclass(frozen=True, slots=True)
class Placed:
    """A value in a place."""

    text: str
    shown: tuple[str, ...]
    """The pieces of the value as they stand in the text."""


Place = Callable[[Secret, random.Random], Placed]


@dataclass(frozen=True, slots=True)
class Container:
    """A place, and what may stand in it."""

    name: str
    place: Place
    takes: str
    """`named`: any value; `bare`: one with a form of its own, as no name is near; `password`: what is typed; `pem`."""
    encoded: bool = False
    """Whether it encodes the value or cuts it."""
    plain: bool = False
    """Whether it takes only values without blanks, quotes and what a shell reads."""
    alone: bool = False
    """Whether it takes a value, and no address or header that a value stands in."""


def _in(text: str) -> Place:
    """Return a place of a template in which `ENV`, `SNAKE` ... stand for the name and `VALUE` for the value."""

    def place(secret: Secret, _chance: random.Random) -> Placed:
        return Placed(_filled(text, secret, secret.line), _pieces(secret.value))

    return place


def _filled(text: str, secret: Secret, value: str) -> str:
    names = {
        "ENV": secret.env,
        "SNAKE": secret.snake,
        "CAMEL": secret.camel,
        "KEBAB": secret.kebab,
        "SPACED": secret.spaced,
    }
    names["TITLE"] = secret.camel[:1].upper() + secret.camel[1:]
    return re.sub(
        r"(ENV|SNAKE|CAMEL|KEBAB|SPACED|TITLE|VALUE)", lambda found: {**names, "VALUE": value}[found[1]], text
    )


def _pieces(value: str) -> tuple[str, ...]:
    return tuple(value.split("\n"))


def _through(text: str, escape: Callable[[str], str]) -> Place:
    """Return a place of a template whose value is written with escapes."""

    def place(secret: Secret, _chance: random.Random) -> Placed:
        shown = escape(secret.value)
        return Placed(_filled(text, secret, escape(secret.line)), _pieces(shown))

    return place


def _whole(text: str, escape: Callable[[str], str]) -> Place:
    """Return a place whose text as a whole is written with escapes."""

    def place(secret: Secret, _chance: random.Random) -> Placed:
        return Placed(escape(_filled(text, secret, secret.line)), _pieces(escape(secret.value)))

    return place


def _json(value: str) -> str:
    return json.dumps(value)[1:-1]


def _python(value: str) -> str:
    return repr(value + "'")[1:-1].removesuffix("'")


def _yaml(value: str) -> str:
    return value.replace("'", "''")


def _colours(secret: Secret, _chance: random.Random) -> Placed:
    return Placed(f"\x1b[1m{secret.env}\x1b[0m=\x1b[32m{secret.line}\x1b[0m\n", _pieces(secret.value))


def _quoted(value: str) -> str:
    return "'" + value + "'"


def _dockerfile(secret: Secret, _chance: random.Random) -> Placed:
    return Placed(f"FROM alpine\nENV {secret.env} {secret.line}\nRUN make\n", _pieces(secret.value))


def _cut(value: str, chance: random.Random) -> tuple[str, str]:
    middle = len(value) // 2 + chance.randint(-2, 2)
    return value[:middle], value[middle:]


def _continued(secret: Secret, chance: random.Random) -> Placed:
    one, two = _cut(secret.value, chance)
    return Placed(f"export {secret.env}={one}\\\n{two}\necho done\n", (one, two))


def _concatenated(secret: Secret, chance: random.Random) -> Placed:
    one, two = _cut(secret.value, chance)
    return Placed(f'{secret.env} = (\n    "{one}"\n    "{two}"\n)\n', (one, two))


def _joined(secret: Secret, chance: random.Random) -> Placed:
    one, two = _cut(secret.value, chance)
    return Placed(f'const {secret.camel} = "{one}" +\n  "{two}";\n', (one, two))


def _split_diff(secret: Secret, chance: random.Random) -> Placed:
    one, two = _cut(secret.value, chance)
    return Placed(f'@@ -3,4 +3,5 @@\n {{\n+  "{secret.snake}": "{one}\\\n+{two}",\n   "debug": false\n', (one, two))


def _pem_tail(_secret: Secret, chance: random.Random) -> Placed:
    lines = [base64.b64encode(chance.randbytes(48)).decode() for _ in range(chance.randint(4, 9))]
    lines.append(base64.b64encode(chance.randbytes(31)).decode())
    body = "\n".join(lines)
    return Placed(f"[3 lines left out]\n{body}\n-----END RSA PRIVATE KEY-----\n$ ls\n", tuple(lines))


def _k8s_secret(secret: Secret, _chance: random.Random) -> Placed:
    shown = base64.b64encode(secret.line.encode()).decode()
    text = f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: app\ntype: Opaque\ndata:\n  {secret.kebab}: {shown}\n"
    return Placed(text, (shown,))


def _cloud_init(secret: Secret, _chance: random.Random) -> Placed:
    shown = base64.b64encode(
        f"#!/bin/bash\nexport {secret.env}='{secret.line}'\nsystemctl start app\n".encode()
    ).decode()
    return Placed(json.dumps({"InstanceId": "i-0abc", "UserData": {"Value": shown}}), (shown,))


def _base64_json(secret: Secret, _chance: random.Random) -> Placed:
    shown = base64.b64encode(json.dumps({"user": "app", secret.snake: secret.line}).encode()).decode()
    return Placed(f"$ echo {shown} | base64 -d\n", (shown,))


def _quoted_printable(secret: Secret, _chance: random.Random) -> Placed:
    def escape(text: str) -> str:
        return quopri.encodestring(text.encode()).decode()

    line = escape(
        f"Dear Ada, please use this from now on: {secret.spaced}: {secret.line} and tell nobody of it at all."
    )
    start = line.find(escape(secret.value)[:4], line.find(": ") + 2)
    shown = []
    rest = escape(secret.value).replace("=\n", "")
    for part in line[start:].split("=\n"):
        if not rest:
            break
        piece = part[: len(rest)]
        if not rest.startswith(piece):
            return Placed("", ())
        shown.append(piece)
        rest = rest[len(piece) :]
    return Placed(f"Content-Transfer-Encoding: quoted-printable\n\n{line}\n", tuple(shown))


def _yaml_folded(secret: Secret, _chance: random.Random) -> Placed:
    return Placed(f"app:\n  {secret.snake}: >-\n    {secret.line}\n  debug: true\n", _pieces(secret.value))


def _key_value(secret: Secret, chance: random.Random) -> Placed:
    members = [("key", secret.env), ("value", secret.line), ("target", ["production"]), ("type", "encrypted")]
    chance.shuffle(members)
    return Placed(json.dumps({"envs": [dict(members)]}), _pieces(_json(secret.value)))


def _parameter(secret: Secret, _chance: random.Random) -> Placed:
    stored = {"Name": f"/prod/app/{secret.snake}", "Type": "SecureString", "Value": secret.line, "Version": 3}
    return Placed(json.dumps({"Parameter": stored}, indent=4), _pieces(_json(secret.value)))


def _state(secret: Secret, _chance: random.Random) -> Placed:
    output = {secret.snake: {"value": secret.line, "type": "string", "sensitive": True}}
    return Placed(json.dumps({"version": 4, "outputs": output}, indent=2), _pieces(_json(secret.value)))


def _inspected(secret: Secret, _chance: random.Random) -> Placed:
    env = ["PATH=/usr/bin", f"{secret.env}={secret.line}", "LANG=C.UTF-8"]
    return Placed(json.dumps([{"Id": "4f1e", "Config": {"Env": env}}], indent=4), _pieces(_json(secret.value)))


def _markdown(secret: Secret, _chance: random.Random) -> Placed:
    return Placed(
        f"| Variable | Value |\n|---|---|\n| PORT | 8080 |\n| {secret.env} | {secret.line} |\n", (secret.value,)
    )


def _csv(secret: Secret, _chance: random.Random) -> Placed:
    value = '"' + secret.line + '"' if "," in secret.line else secret.line
    return Placed(
        f"name,value,updated\nport,8080,2026-11-01\n{secret.snake},{value},2026-11-02\n", _pieces(secret.value)
    )


def _csv_column(secret: Secret, _chance: random.Random) -> Placed:
    return Placed(f"id,user,{secret.snake},role\n17,ada,{secret.line},admin\n", (secret.value,))


def _psql(secret: Secret, _chance: random.Random) -> Placed:
    width = max(len(secret.snake), len(secret.line))
    text = f" id | {secret.snake:<{width}} | role\n----+-{'-' * width}-+------\n  1 | {secret.line:<{width}} | admin\n(1 row)\n"  # noqa: E501
    return Placed(text, (secret.value,))


def _psql_expanded(secret: Secret, _chance: random.Random) -> Placed:
    name = secret.snake
    return Placed(f"-[ RECORD 1 ]-\n{'id':<{len(name)}} | 1\n{name} | {secret.line}\n", _pieces(secret.value))


def _vault(secret: Secret, _chance: random.Random) -> Placed:
    name = secret.snake
    width = len(name) + 4
    head = f"{'Key':<{width}}Value\n{'---':<{width}}-----\n{'user':<{width}}app\n"
    return Placed(
        f"$ vault kv get secret/app\n====== Data ======\n{head}{name:<{width}}{secret.line}\n", _pieces(secret.value)
    )


def _history(secret: Secret, chance: random.Random) -> Placed:
    value = _quoted(secret.line)
    start = 1_700_000_000 + chance.randint(0, 9_999_999)
    return Placed(
        f": {start}:0;cd app\n: {start + 9}:0;export {secret.env}={value}\n: {start + 20}:0;make run\n",
        _pieces(secret.value),
    )


def _env(secret: Secret, _chance: random.Random) -> Placed:
    value = secret.line if re.fullmatch(r"[\w+/=.:@-]+", secret.line) else _quoted(secret.line)
    return Placed(f"PORT=8080\n{secret.env}={value}\nDEBUG=0\n", _pieces(secret.value))


def _pgpass(secret: Secret, _chance: random.Random) -> Placed:
    value = secret.value.replace("\\", "\\\\").replace(":", "\\:")
    return Placed(f"$ cat ~/.pgpass\ndb.internal:5432:app:deploy:{value}\n", (value,))


def _az_keys(secret: Secret, _chance: random.Random) -> Placed:
    keys = [{"creationTime": "2026-01-01T00:00:00", "keyName": "key1", "permissions": "FULL", "value": secret.line}]
    return Placed(
        f"$ az storage account keys list -n acme\n{json.dumps(keys, indent=2)}\n", _pieces(_json(secret.value))
    )


def _foreign(secret: Secret, chance: random.Random) -> Placed:
    words = "contraseña|mot de passe|Passwort|Kennwort|senha|wachtwoord|пароль|密码|パスワード|비밀번호|şifre|hasło|lösenord"  # noqa: E501
    word = chance.choice(words.split("|"))
    return Placed(f"{word}: {secret.value}\n", (secret.value,))


def _prose(secret: Secret, chance: random.Random) -> Placed:
    way = chance.choice(("the {} is {}", "{}: {}", "use {} {} for staging", "{} = {}", "our {} was `{}`"))
    return Placed(f"Hi, {way.format(secret.spaced, secret.line)} - thanks\n", _pieces(secret.value))


CONTAINERS: Final = (
    Container("env file", _env, "named"),
    Container(
        "export", _through("set -e\nexport ENV='VALUE'\n./run.sh\n", lambda text: text.replace("'", "'\\''")), "named"
    ),
    Container("yaml", _through("app:\n  port: 80\n  SNAKE: 'VALUE'\n", _yaml), "named"),
    Container("yaml bare", _in("app:\n  port: 80\n  SNAKE: VALUE\n  debug: true\n"), "named", plain=True),
    Container("yaml folded", _yaml_folded, "named", plain=True),
    Container("json", _through('{"port": 80, "SNAKE": "VALUE", "debug": false}', _json), "named"),
    Container("json camel", _through('{\n  "app": {\n    "CAMEL": "VALUE"\n  }\n}\n', _json), "named"),
    Container("toml", _through('[app]\nport = 80\nSNAKE = "VALUE"\n', _json), "named"),
    Container("ini", _in("[app]\nport = 80\nSNAKE = VALUE\n"), "named"),
    Container("properties", _in("server.port=80\napp.KEBAB=VALUE\n"), "named"),
    Container("python constant", _through('import os\n\nENV = "VALUE"\n', _json), "named"),
    Container("python default", _through('key = os.getenv("ENV", "VALUE")\n', _json), "named"),
    Container("python field", _through('class Settings:\n    SNAKE: str = "VALUE"\n', _json), "named"),
    Container("python repr", _through("{'port': 80, 'SNAKE': 'VALUE', 'debug': False}", _python), "named"),
    Container(
        "traceback",
        _in(
            "Traceback (most recent call last):\n  File \"a.py\", line 3, in main\n    connect(SNAKE='VALUE')\nTimeoutError\n"  # noqa: E501
        ),
        "named",
        plain=True,
    ),
    Container("javascript", _through('const CAMEL = process.env.ENV || "VALUE";\n', _json), "named"),
    Container("go", _through('cfg := Config{\n\tTITLE: "VALUE",\n}\n', _json), "named"),
    Container("php", _in("define('ENV', 'VALUE');\n"), "named", plain=True),
    Container("ruby", _in("config.SNAKE = 'VALUE'\n"), "named", plain=True),
    Container("dockerfile", _dockerfile, "named", plain=True),
    Container("dockerfile arg", _in("FROM alpine\nARG ENV=VALUE\nRUN make\n"), "named", plain=True),
    Container(
        "compose", _in("services:\n  app:\n    environment:\n      - PORT=80\n      - ENV=VALUE\n"), "named", plain=True
    ),
    Container("docker inspect", _inspected, "named"),
    Container("docker run", _in("$ docker run -d -e ENV=VALUE -p 80:80 acme/app\n"), "named", plain=True),
    Container(
        "kubernetes env",
        _through("        env:\n        - name: ENV\n          value: 'VALUE'\n        - name: PORT\n", _yaml),
        "named",
    ),
    Container(
        "kubernetes describe",
        _in("    Environment:\n      PORT:      80\n      ENV:  VALUE\n    Mounts:  <none>\n"),
        "named",
        plain=True,
    ),
    Container("kubernetes stringData", _through("kind: Secret\nstringData:\n  KEBAB: 'VALUE'\n", _yaml), "named"),
    Container("ssm parameter", _parameter, "named"),
    Container("key and value", _key_value, "named"),
    Container("az keys", _az_keys, "named"),
    Container("terraform output", _through('Outputs:\n\nendpoint = "db.internal"\nSNAKE = "VALUE"\n', _json), "named"),
    Container("terraform state", _state, "named"),
    Container(
        "terraform variable",
        _through('variable "SNAKE" {\n  type    = string\n  default = "VALUE"\n}\n', _json),
        "named",
    ),
    Container("helm", _in("$ helm upgrade app ./chart --set port=80 --set config.CAMEL=VALUE\n"), "named", plain=True),
    Container("fish", _in("set -gx ENV VALUE\n"), "named", plain=True),
    Container("setx", _in("C:\\> setx ENV VALUE\nSUCCESS: Specified value was saved.\n"), "named", plain=True),
    Container("powershell", _through("PS> $env:ENV = 'VALUE'\n", _yaml), "named"),
    Container("aws configure", _in("$ aws configure set SNAKE VALUE --profile prod\n"), "named", plain=True),
    Container("gh secret", _in('$ gh secret set ENV --body "VALUE"\n'), "named", plain=True),
    Container("option", _in("$ ./deploy --region eu-1 --KEBAB VALUE --dry-run\n"), "named", plain=True),
    Container("option with equals", _in("$ ./deploy --region=eu-1 --KEBAB=VALUE\n"), "named", plain=True),
    Container("ps", _in("root 812 0.0 0.1 python3 serve.py --KEBAB=VALUE --port 80\n"), "named", plain=True),
    Container("systemd", _in('[Service]\nEnvironment="ENV=VALUE"\nExecStart=/usr/bin/app\n'), "named", plain=True),
    Container(
        "query", _through("GET https://api.acme.io/v1/items?limit=10&SNAKE=VALUE&page=2 200\n", quote_plus), "named"
    ),
    Container("header", _in("> GET /v1 HTTP/1.1\n> X-KEBAB: VALUE\n> Accept: */*\n"), "named", plain=True),
    Container(
        "log line", _in("2026-11-27 10:00:01 INFO app.db connecting with SNAKE=VALUE retries=3\n"), "named", plain=True
    ),
    Container(
        "xml setting",
        _through('<appSettings>\n  <add key="TITLE" value="VALUE"/>\n</appSettings>\n', html.escape),
        "named",
    ),
    Container("xml element", _through("<server>\n  <CAMEL>VALUE</CAMEL>\n</server>\n", html.escape), "named"),
    Container("markdown table", _markdown, "named", plain=True),
    Container("csv", _csv, "named"),
    Container("csv column", _csv_column, "named", plain=True),
    Container("psql", _psql, "named", plain=True),
    Container("psql expanded", _psql_expanded, "named"),
    Container("vault kv", _vault, "named"),
    Container("shell history", _history, "named"),
    Container("prose", _prose, "named", plain=True),
    Container("numbered lines", _in("12\tPORT=80\n13\tENV=VALUE\n14\tDEBUG=0\n"), "named", plain=True),
    Container("grep", _in("config/prod.env:13:ENV=VALUE\n"), "named", plain=True),
    Container("diff", _in("@@ -1,2 +1,2 @@\n PORT=80\n-ENV=\n+ENV=VALUE\n"), "named", plain=True),
    # What is typed.
    Container("docker login", _in("$ docker login -u deploy -p VALUE registry.acme.io\n"), "password", plain=True),
    Container("docker login long", _in("$ docker login --username deploy --password VALUE\n"), "password", plain=True),
    Container("sshpass", _in("$ sshpass -p 'VALUE' ssh deploy@10.0.0.4\n"), "password", plain=True),
    Container("mysql", _in("$ mysql -h db -u root -pVALUE app\n"), "password", plain=True),
    Container("curl user", _in("$ curl -s -u admin:VALUE https://ci.acme.io/api/json\n"), "password", plain=True),
    Container("sql identified", _in("CREATE USER 'app'@'%' IDENTIFIED BY 'VALUE';\n"), "password", plain=True),
    Container("sql with password", _in("ALTER ROLE app WITH LOGIN PASSWORD 'VALUE';\n"), "password", plain=True),
    Container("pgpass", _pgpass, "password", plain=True),
    Container("netrc", _in("machine api.acme.io\n  login deploy\n  password VALUE\n"), "password", plain=True),
    Container(
        "git credentials", _through("https://deploy:VALUE@git.acme.io\n", lambda text: quote(text, safe="")), "password"
    ),
    Container(
        "ado.net",
        _in("Server=tcp:db,1433;Database=app;User ID=sa;Password=VALUE;Encrypt=True;\n"),
        "password",
        plain=True,
    ),
    Container("odbc", _in("Driver={SQL Server};Server=db;Uid=sa;Pwd=VALUE;\n"), "password", plain=True),
    Container("jdbc", _through("jdbc:mysql://db:3306/app?user=root&password=VALUE&ssl=1\n", quote_plus), "password"),
    Container(
        "url user",
        _through("DATABASE_URL=postgres://app:VALUE@db:5432/app\n", lambda text: quote(text, safe="")),
        "password",
    ),
    Container("other languages", _foreign, "password", plain=True),
    Container("chpasswd", _in("$ echo 'deploy:VALUE' | chpasswd\n"), "password", plain=True),
    Container("redis cli", _in("$ redis-cli -h cache -a VALUE ping\n"), "password", plain=True),
    # Without a name.
    Container("alone", _in("VALUE\n"), "bare"),
    Container("in a sentence", _in("I have put VALUE into the config, please rotate it.\n"), "bare"),
    Container("markdown code", _in("Then call it with `VALUE` as usual.\n"), "bare"),
    Container("error", _in("ERROR 401 unauthorized (credential VALUE rejected by upstream)\n"), "bare"),
    Container("array", _through('["a1", "VALUE", "b2"]', _json), "bare"),
    Container("url path", _in("2026-11-27T10:00:00Z GET /hooks/VALUE/run 200 12ms\n"), "bare", plain=True),
    Container("argument", _in("$ ./sync.sh VALUE --all\n"), "bare", plain=True),
    # Encoded and cut.
    Container("colour codes", _colours, "named", encoded=True, plain=True),
    Container(
        "colour of grep",
        _in("config.env:\x1b[01;31m\x1b[KENV\x1b[m\x1b[K=\x1b[33mVALUE\x1b[0m\n"),
        "named",
        encoded=True,
        plain=True,
    ),
    Container(
        "colour of bat",
        _in("\x1b[38;5;231m   3\x1b[0m \x1b[38;5;203mSNAKE\x1b[0m\x1b[38;5;203m:\x1b[0m \x1b[38;5;186mVALUE\x1b[0m\n"),
        "named",
        encoded=True,
        plain=True,
    ),
    Container(
        "json in log",
        _through(
            '10:00:01 INFO body={\\"user\\":\\"app\\",\\"SNAKE\\":\\"VALUE\\"} status=200\n',
            lambda text: _json(_json(text)),
        ),
        "named",
        encoded=True,
    ),
    Container(
        "json twice",
        _whole(
            '{"event": "saved", "payload": "{\\"settings\\": \\"{\\\\\\"SNAKE\\\\\\": \\\\\\"VALUE\\\\\\"}\\"}"}', str
        ),
        "named",
        encoded=True,
        plain=True,
    ),
    Container(
        "jsonl truncated",
        _through('{"ts": 1, "level": "info"}\n{"ts": 2, "request": {"CAMEL": "VALUE", "items": [1, 2, 3, ', _json),
        "named",
        encoded=True,
    ),
    Container(
        "sse",
        _through('event: delta\ndata: {"type":"text","text":"ENV=VALUE\\nPORT=80"}\n\n', _json),
        "named",
        encoded=True,
    ),
    Container(
        "file in json",
        _through('{"stdout": "PORT=80\\nENV=VALUE\\nDEBUG=0\\n", "exit": 0}', _json),
        "named",
        encoded=True,
    ),
    Container(
        "tabs in json", _through('{"stdout": "PORT\\t80\\nENV\\tVALUE\\nDEBUG\\t0\\n"', _json), "named", encoded=True
    ),
    Container(
        "windows lines in json",
        _through('"stdout": "PORT=80\\r\\nENV=VALUE\\r\\nDEBUG=0\\r\\n"', _json),
        "named",
        encoded=True,
    ),
    Container("python bytes", _in("b'PORT=80\\nENV=VALUE\\nDEBUG=0\\n'"), "named", encoded=True, plain=True),
    Container(
        "unicode escapes", _whole('{"line": "ENV\\u003dVALUE\\u0026x\\u003d1"}', str), "named", encoded=True, plain=True
    ),
    Container(
        "percent",
        _through("POST /form ref=1%26SNAKE%3DVALUE%26page%3D2\n", lambda text: quote(text, safe="")),
        "named",
        encoded=True,
    ),
    Container(
        "percent quotes",
        _through("GET /q?filter=%7B%22SNAKE%22%3A%22VALUE%22%7D\n", lambda text: quote(text, safe="")),
        "named",
        encoded=True,
    ),
    Container(
        "html entities",
        _through("<pre>{&quot;SNAKE&quot;: &quot;VALUE&quot;}</pre>\n", html.escape),
        "named",
        encoded=True,
    ),
    Container("html numbers", _through("<td>ENV&#61;VALUE&#10;PORT&#61;80</td>\n", html.escape), "named", encoded=True),
    Container("kubernetes secret", _k8s_secret, "named", encoded=True),
    Container("cloud-init", _cloud_init, "named", encoded=True),
    Container("base64 of json", _base64_json, "named", encoded=True),
    Container("quoted-printable", _quoted_printable, "named", encoded=True, plain=True),
    Container("line continuation", _continued, "named", encoded=True, plain=True, alone=True),
    Container("strings side by side", _concatenated, "named", encoded=True, plain=True, alone=True),
    Container("strings joined", _joined, "named", encoded=True, plain=True, alone=True),
    Container("split in diff", _split_diff, "named", encoded=True, plain=True, alone=True),
    Container("pem tail", _pem_tail, "pem", encoded=True),
    Container("after underscore", _in("saved as backup_VALUE today\n"), "bare", encoded=True, plain=True),
    Container("after letter n", _in("output was:\\nVALUE\\n(exit 0)\n"), "bare", encoded=True, plain=True),
    Container(
        "after percent", _in("redirect_uri=https%3A%2F%2Fapp%3Fx%3DVALUE%26y%3D1\n"), "bare", encoded=True, plain=True
    ),
)
"""All places."""
