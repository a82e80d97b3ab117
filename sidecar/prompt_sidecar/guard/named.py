r"""Rules for values that only a name identifies: passwords, and keys without a form of their own.

A value is found after the name of a secret (`WORDS`), if its check accepts it. The rules differ in what is between the
two: an assignment, a member of a list, a column, an option of a command.

All of them are looked for where a word for secrets precedes something that may be a value (`NEAR`). That pattern is for
raw text with escapes in it (`reading`), and matches more than any of the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prompt_sidecar.guard.forms import fake, secret
from prompt_sidecar.guard.reading import HIDDEN
from prompt_sidecar.guard.rule import Rule

WORDS: Final = (
    r"(?:(?i:passw(?:or)?d|passphrase|passwd|secret|token|pwd|credentials?|"
    r"(?:[_.-]|\b)(?:pass|pw|psk|cookie)|(?:[a-z0-9][_.-]|(?:hash|api|access|secret|private|admin|signing|encryption|"
    r"master|shared|account|auth|client|service|license|unseal|storage|app|db|hec|write) ?)key|"
    r"(?:bind|root|user|admin|require|db|sql|http|ftp|smtp|mail|store)(?:pass|pw)|"
    r"api_?hash|hash_?key|authtoken|key_?base|auth)|[a-z0-9](?:Key|Pass|Pwd|Pw|Psk)|\bKey)"
)
"""Words that end the names of secrets, or are part of them."""
_TAIL: Final = r"[A-Za-z0-9_-]{0,24}"
_QUOTES: Final = r"[\"'`\\*]{0,9}"
_BLANKS: Final = "[ \t\x7f]{0,24}"
_SET: Final = _QUOTES + r"[\]}]?" + _BLANKS + r"(?:=>|:{0,3}=|\?=|\|\||:)" + _BLANKS
_PLAIN: Final = r"[!#$%&*+./0-9:;=?@A-Z^_a-z~-]"
_PRINTABLE: Final = r"[!#-&(-\[\]-_a-~]"
"""All printable characters except blanks, quotes and the backslash."""
_LAST: Final = r"[#-&(*+/0-9<->@A-\[\]-_a-~-]"
"""Those of them that end no sentence and close no parenthesis."""
_CODED: Final = r"(?:%[0-9A-Fa-f]{2}|=3D|&[a-z#0-9]{2,5};|\\+u00[0-9A-Fa-f]{2}|\\+[nrt]|\[[0-9;]*[mK])"
_HELD: Final = r"[^\s\"'`,;)(]"
_VALUE: Final = (
    r"(?:[A-Za-z]" + _HELD + r"{3,}[0-9!#$*?@^~|]|[A-Za-z][^\s\"'`]{0,2}[0-9][^\s\"'`]{4}|"
    r"[^\s\"'`]{0,3}[!#$*?@^][^\s\"'`]{4}|[0-9][0-9.]*[^0-9.\s\"'`,;)(}\]\\][^\s\"'`]{2}|"
    r"[0-9][0-9.]{5,}[^0-9.\s\"'`,;)(}\]\\]|[0-9][0-9.]*[,;)(}\]][^\s\"'`,:;)({}\[\]\\]{3}|"
    r"[A-Za-z0-9+/_.-]+[\"'][ \t]*\n?[ \t]*[\"'][A-Za-z0-9]|"
    r"[a-z]{20}|[A-Za-z]*[a-z][A-Z]{1,3}[a-z]{1,2}[A-Z]|[a-z]*(?i:value|default|type)[\"' \t=:\\])"
)
"""What may begin a value, or a member with it. A number alone is none, as no value without a letter is found."""
_BASE64_TEXT: Final = r"\b(?:[CDI-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]){7}"
"""Base64 of a text in ASCII: of each three bytes the first bit is 0."""
_NEAR_NAME: Final = (
    WORDS.replace("(?:pass|pw|", "(?:pw|") + r"[A-Za-z0-9_-]*|"
    r"(?:[_.-]|\b)(?i:pass)(?:[A-DF-HJ-Za-df-hj-z0-9_-][A-Za-z0-9_-]*)?"
)
"""The same at the end of a name, or within it: not in `passed` and `passing`, which logs of tests have in each line."""
_ABOUT: Final = r"[ \t](?:for|of|in|on|to)[ \t](?:[A-Za-z0-9 /'.-]|=\r?\n)*[ \t](?:is|was)(?:[ \t]now)?"
"""What a sentence says about a secret before it has the value."""
NEAR: Final = (
    r"(?:"
    + _NEAR_NAME
    + r")(?:(?:[`\"']?[ \t](?:is|was|to)|"
    + _ABOUT
    + r"|:[ \t]?[A-Za-z\[\]|.]+[ \t]*=|[ \t]--body|[\"']\)[ \t]or)?"
    r"(?:[^A-Za-z0-9\x80-\xff]|" + _CODED + ")+" + _VALUE + "|"
    r"[ \t]*(?:\|[^\n]*)?\n[ \t]*[|+]?[-+|: \t]*--[-+|: \t]*\n(?:[^\n]*\|[^\n]*\n)*[^\n]+)|"
    r"(?i:auth)[ \t]?=[ \t]?\([\"'][^\s\"']{1,40}[\"'],|"
    r"(?i:cookie:)|:(?:[0-9]{2,5}|\*):[A-Za-z0-9_.*-]+:[A-Za-z0-9_.*-]+:[!-~]{6}|"
    r"\b[Kk]ey (?:is|was)[ :]{1,2}[\"'`]?[A-Za-z0-9_-]*[a-z][0-9]|" + HIDDEN + "|" + _BASE64_TEXT
)
"""What almost every text with a find of these rules has. Repetitions without an upper limit have fewer states."""
_FOREIGN: Final = (
    r"(?i:contraseña|mot de passe|passwort|kennwort|senha|wachtwoord|пароль|密码|密碼|パスワード|비밀번호|"
    r"şifre|parola(?: d.ordine)?|hasło|"
    r"lösenord|heslo|salasana|adgangskode)"
)


_BEFORE_QUOTED: Final = (
    _QUOTES
    + r"[\]}]?[ \t\r\n\x7f]{0,16}(?:=>|:{0,3}=|\?=|\|\||\?\?|:|:[ \t]?[A-Za-z\[\]| .]{1,24}=|\()[ \t\r\n\x7f(]*",
    r"[\"']?,[ \t]*",
    r"[ \t]+--body[ \t=]+",
    r"[\"']\)[ \t]*(?:or|\|\||\?\?)[ \t]*",
    r"[ \t]{1,4}",
    r"[\"'][ \t]{1,4}(?i:value)=",
    r"[\"'`]?[ \t](?:is|to)[ \t]",
    r"=[ \t]?\([\"'][^\s\"']{1,40}[\"'],[ \t]*",
)
"""What may be between a name and a quoted value: an operator, as in settings and code; the rest of a member of a list
of names and values; the beginning of a block about one name; an attribute; words of a sentence; the user of a pair."""
_BEFORE_PLAIN: Final = (
    _SET,
    r"[\"']?:[ \t]*[>|][+-]?[ \t]*\n[ \t]+",
    r"[\"']?[ \t\r]*\n[ \t-]*(?i:value)[ \t]*:[ \t]*[\"']?",
    "(?:   )?>",
    r"[ \t]->[ \t]{1,2}[\"'`]?",
    r"[ \t]+--body[ \t=]+",
)
"""The same for an unquoted value: an operator, a folded text of YAML, the next member, the end of a tag (with blanks
where it was an entity), an arrow, an option."""
_SAMPLE: Final = "q7Xk2v" + "ZpR9w"
"""A made-up password."""


def _named(
    name: str,
    pattern: str,
    example: str,
    counterexample: str,
    *,
    check: str = "named",
    near: str = NEAR,
    names: str = "",
) -> Rule:
    return secret(name, pattern, example, counterexample, kind="named_secret", check=check, near=near, names=names)


RULES: Final[Sequence[Rule]] = (
    _named(
        "quoted_secret",
        WORDS + _TAIL + r"(?:" + "|".join(_BEFORE_QUOTED) + r")[bruf]{0,2}[\"'`]{1,9}"
        r"(?P<value>" + _PRINTABLE + r"{8,})(?:[\"'`\\]|$)",
        'password: str = "' + _SAMPLE + '"',
        'password: str = "the user\'s"',
    ),
    _named(
        "plain_secret",
        WORDS + _TAIL + r"(?:" + "|".join(_BEFORE_PLAIN) + r")(?P<value>" + _PLAIN + r"{8,})",
        "REDIS_PASS=" + _SAMPLE,
        "pass_count = count_of_passes",
        names=WORDS + _TAIL,
    ),
    _named(
        "block_secret",
        WORDS + r"[A-Za-z0-9_.-]{0,24}[\"'](?:[ \t]{0,3}:?[ \t]{0,3}\{|,)[^{}]{0,160}?"
        r"[\"']?(?i:value|default)[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"'](?P<value>" + _PRINTABLE + r"{8,})[\"']",
        'variable "db_password" {\n  default = "' + _SAMPLE + '"\n}',
        'variable "db_password" {\n  type = string\n}',
    ),
    _named(
        "column_secret",
        WORDS + r"[A-Za-z0-9_-]{0,12}[\"'`]?(?:[ \t\x7f]*\|[ \t\x7f]*|,|\t[ \t]*|[ ]{2,40})"
        r"[`\"']?(?P<value>[!#$%&*+./0-9?@A-Z^_a-z~-]" + _PLAIN + r"{7,})[`\"']?(?:[ \t\x7f]*(?:[|,]|$))",
        "| DB_PASSWORD | " + _SAMPLE + " |",
        "| DB_PASSWORD | from the vault |",
        check="column",
    ),
    _named(
        "line_secret",
        WORDS
        + r"[A-Za-z0-9_-]{0,12}(?:[ \t\x7f]*[:=][ \t\x7f]*|(?:   )?>)(?P<value>"
        + _PRINTABLE
        + r"{8,}?)(?:[ \t\x7f]*$|[ \t]|;|</)",
        "DB_PASSWORD=" + _SAMPLE + ",}>4x",
        "password=get(settings)",
        check="line",
        names=WORDS + _TAIL,
    ),
    _named(
        "argument_secret",
        r"(?:" + WORDS + r"[A-Za-z0-9_-]{0,12}[ \t]{1,4}(?:(?i:is|was|=|:)[ \t]{1,2})?|\b[Kk]ey (?:is|was)[ :]{1,2})"
        r"[\"'`]{0,9}(?P<value>[!#$%&(*+./0-9?@A-"
        r"Z\[^_a-{}~-]" + _PRINTABLE + r"{6,}" + _LAST + r")",
        "./deploy --db-pass " + _SAMPLE,
        "./deploy --db-pass $PASSWORD",
        check="argument",
    ),
    _named(
        "described_secret",
        WORDS
        + r"[A-Za-z0-9_-]{0,12} (?:for|of|in|on|to)(?: [A-Za-z0-9/'.-]{1,24}){1,8} (?:is|was)(?: now)?[ :]{1,3}"
        + r"[\"'`]{0,3}(?P<value>"
        + _PRINTABLE
        + r"{6,}"
        + _LAST
        + ")",
        "the password for the shared cluster is now: " + _SAMPLE,
        "the password for the shared cluster is now: unknown",
        check="sentence",
    ),
    _named(
        "command_secret",
        r"(?:\bsshpass[ \t]+-p[ \t]?|\bmysql\b[^\n]{0,60}[ \t]-p|\bredis-cli\b[^\n]{0,60}[ \t]-a[ \t]|"
        r"\bdocker login\b[^\n]{0,60}[ \t]-p[ \t]|\bsmbclient\b[^\n]{0,80}[ \t]-U[ \t]?[\"']?[A-Za-z0-9_.\\/-]{1,40}%|"
        r"\bhtpasswd[ \t]+-[A-Za-z]{0,8}b[A-Za-z]{0,8}[ \t]+(?:[!-~]+[ \t]+){1,2}|"
        r"(?i:identified by)[ \t]+(?i:password[ \t]+)?)"
        r"[\"'`]{0,9}(?P<value>[!#-&(-\[\]-_a-~]{8,})",
        "sshpass -p " + _SAMPLE + " ssh deploy@host",
        "docker login -p $TOKEN",
        check="argument",
        near=r"\b(?:sshpass[ \t]+-p|mysql\b[^\n]{0,60}[ \t]-p|redis-cli\b[^\n]{0,60} -a|docker login|"
        r"smbclient\b[^\n]{0,80} -U|htpasswd[ \t]+-|(?i:identified by))",
    ),
    _named(
        "stored_before_name",
        r"[\"'](?i:value)[\"'][ \t]{0,3}:[ \t]{0,3}[\"'](?P<value>" + _PRINTABLE + r"{8,})[\"'][^{}]{0,120}?"
        r"(?i:[\"'](?:name|key|variable)[\"'][ \t]{0,3}:[ \t]{0,3}[\"'][A-Za-z0-9_./-]{0,60})"
        + WORDS
        + r"[A-Za-z0-9_.-]{0,24}[\"']",
        '{"value": "' + _SAMPLE + '", "key": "DB_PASSWORD"}',
        '{"value": "' + _SAMPLE + '", "key": "PORT"}',
        check="random",
        near=r"(?i:value)[\"'\\]{1,4}[ \t]{0,3}:[ \t]{0,3}[\"'\\]{1,4}[^\s\"'\\]{8,}[\"'\\]{1,4},\s{0,16}[\"'"
        r"\\]{1,4}[^{}]{0,80}(?i:name|key|variable)",
    ),
    _named(
        "storage_key",
        r"[\"']keyName[\"']:[ \t]?[\"'][^\"'\n]{1,40}[\"'],\s{0,16}[\"']permissions[\"']:[ \t]?[\"'][A-Za-z]{1"
        r",12}[\"'],\s{0,16}"
        r"[\"']value[\"']:[ \t]?[\"'](?P<value>" + _PRINTABLE + r"{8,})[\"']",
        '"keyName": "key1",\n "permissions": "FULL",\n "value": "' + fake(40) + '"',
        '"keyName": "key1",\n "permissions": "FULL",\n "value": "<hidden>"',
        near=r"keyName[\"'\\]{1,4}:",
    ),
    _named(
        "foreign_word",
        _FOREIGN + r"[ \t]{0,2}[:=：][ \t]{0,2}[\"'`]{0,2}(?P<value>[!#-&(-\[\]-_a-~]{8,})",
        "Kennwort: " + _SAMPLE,
        "Kennwort: unbekannt",
        check="sentence",
        near=_FOREIGN,
    ),
    _named(
        "piped_password",
        r"\becho[ \t]+[\"']?[A-Za-z0-9_.-]{1,32}:(?P<value>[!#-&(-\[\]-_a-~]{6,}?)[\"']?[ \t]*\|[ \t]*(?:sudo["
        r" \t]+)?chpasswd",
        "echo 'deploy:" + _SAMPLE + "' | chpasswd",
        "echo 'deploy:$PASSWORD' | chpasswd",
        check="argument",
        near=r"\|[ \t]*(?:sudo[ \t]+)?chpasswd",
    ),
    _named(
        "pgpass",
        r"^[A-Za-z0-9_.*-]{1,80}:(?:[0-9]{2,5}|\*):[A-Za-z0-9_.*-]{1,64}:[A-Za-z0-9_.*-]{1,64}:(?P<value>[!-\["
        r"\]-~]{6,})[ \t]*$",
        "db.internal:5432:app:deploy:" + _SAMPLE,
        "db.internal:5432:app:deploy:*",
        check="argument",
    ),
    _named(
        "user_password",
        r"[a-z][a-z0-9+.-]{1,20}://[A-Za-z0-9_.%~+*!$&;=-]{0,64}:(?P<value>[!-.0-9:-?A-\[\]-~]{6,})@[A-Za-z0-9]",
        "amqp://app:" + _SAMPLE + "(x)4@mq.internal",
        "https://host:8080/@latest",
        check="url_password",
        near=r"://[A-Za-z0-9_.%~+*!$&;=-]{0,64}:[!-.0-9:-?A-\[\]-~]{6,}@[A-Za-z0-9]",
    ),
    _named(
        "short_query_key",
        r"[?&](?i:key|sig|code|auth|pass)=(?P<value>[A-Za-z0-9._~%+/-]{16,}={0,2})",
        "https://api.example.org/v1?key=" + fake(32),
        "https://api.example.org/v1?key=value",
        check="random",
        near=r"[?&](?i:key|sig|code|auth|pass)=[A-Za-z0-9._~%+/-]{16}",
    ),
    _named(
        "cookie",
        r"(?i:cookie:)[^\n]{0,200}?\b(?i:[A-Za-z0-9_.-]{0,32}(?:sess(?:ion)?[A-Za-z_-]{0,8}|sid|auth|jwt|(?:ac"
        r"cess|refresh|remember|id)_?token)[A-Za-z0-9_-]{0,12})[ =]{1,6}(?P<value>[A-Za-z0-9._~%+/-]{16,}={0,2})",
        "Set-Cookie: connect.sid=" + fake(32) + "; Path=/",
        "Cookie: session_id=deleted; lang=en",
        check="random",
    ),
    _named(
        "pem_tail",
        r"(?P<value>(?:^[A-Za-z0-9+/]{64}\n){2,}[A-Za-z0-9+/]{1,64}={0,2})\n-----END [A-Z0-9 ]{0,40}PRIVATE KEY",
        (fake(64) + "\n") * 2 + fake(20) + "==\n-----END " + "rsa private key".upper() + "-----",
        "-----END " + "rsa private key".upper() + "-----",
        check="",
        near=r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY",
    ),
    _named(
        "base64_secret",
        r"\b(?P<value>(?:[CDI-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]){7,}(?:[A-Za-z0-9+/_-]{2,3})?={0,2})",
        "dXNlcj1hcHAKcGFzc3dvcmQ9" + "RmFLZTByTm9UckVhTDFiVXQK",
        "dXNlcj1hcHAKcGxhY2U9aGVyZSBhbmQgdGhlcmUgYW5kIGZhcg==",
        check="decoded",
    ),
)
"""Each rule with its action under `guard.mode = enforce`."""
