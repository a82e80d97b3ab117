"""The settings of the shared store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from prompt_sidecar.values import (
    GIB,
    HOUR,
    KIB,
    MIB,
    Kind,
    addresses,
    byte_count,
    choice,
    seconds,
    setting,
    switch,
    text,
    whole,
)


def _store_url() -> Kind:
    def check(value: object) -> str:
        if not isinstance(value, str) or not value.isprintable():
            raise ValueError(value)
        if value:
            parts = urlsplit(value)
            schemes = {"valkey", "valkeys", "redis", "rediss", "unix"}
            if parts.scheme not in schemes or not (parts.hostname or parts.path) or parts.password:
                raise ValueError
            if parts.query or parts.fragment:  # options of the library that set a password or a timeout
                raise ValueError
            parts.port  # noqa: B018 - reading it checks it
        return value

    accepted = "a URL such as valkey://host:6379/0, valkeys:// for TLS, or unix:///path"
    return Kind(f"{accepted}, without password and without options after a question mark", check)


MOST_VALUES: Final = 100_000
"""Most values behind masks that may be kept of a run: a megabyte of their ids."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Where runs are kept outside the process, and how long a call may wait for it."""

    url: str = setting(
        "",
        _store_url(),
        "Valkey or Redis where runs are kept, so that each replica can go on with any of them; empty: none. Needs key "
        "and the extra `store`.",
    )
    cluster: bool = setting(
        False,
        switch(),
        "Whether the URL leads to a cluster: any node of it, or a name that all of them have. The others are found.",
        "One server with a replica holds what 100,000 agents need (docs/scale.md).",
        advanced=True,
    )
    password_file: str = setting(
        "", text(4_096), "File that holds the password for the store's user, which the URL names; empty: none."
    )
    sentinels: tuple[str, ...] = setting(
        (),
        addresses(16),
        "Addresses of the Sentinels that know which server is the primary; [] for none. Then the URL has the name by "
        "which they know it in the place of host and port, such as valkey://mymaster/0.",
    )
    sentinel_password_file: str = setting(
        "", text(4_096), "File that holds the password of the Sentinels themselves; empty: they have none."
    )
    tls_ca: str = setting(
        "",
        text(4_096),
        "File of the authorities that the store's certificate must come from, PEM; empty: those that the system "
        "trusts. It and the next two are for a URL with valkeys:// or rediss://.",
    )
    tls_certificate: str = setting(
        "", text(4_096), "File of the certificate chain that the sidecar shows the store, PEM; empty: none."
    )
    tls_key: str = setting("", text(4_096), "File of that certificate's private key, PEM.")
    required: bool = setting(
        False,
        switch(),
        "Whether the sidecar is not ready before the store has answered once. Calls are answered all the same.",
        "A sidecar trims without its store, too; where runs move between replicas, one without it is better not asked.",
    )
    durability: str = setting(
        "local",
        choice("local", "acknowledged"),
        "local: the store is written behind the answer. acknowledged: an answer that leaves out something new waits "
        "until the store has it.",
        "A prompt should not depend on another machine.",
    )
    replicas: int = setting(
        0,
        whole(0, 16, "replicas"),
        "Replicas of the store that must have a write, too, before it counts as acknowledged.",
        "A store without replicas is common.",
        advanced=True,
    )
    timeout: float = setting(
        0.25,
        seconds(0.001, 60),
        "Time that the store has for one command and its whole reply.",
        "A hundred times what it takes in one data centre.",
        advanced=True,
    )
    connect_timeout: float = setting(
        1.0,
        seconds(0.001, 60),
        "Time for connecting to the store, in addition to that: TLS and the login included.",
        "Some five round trips, also where one takes 0.1 s; for a store that does not answer a call waits no longer.",
        advanced=True,
    )
    first_wait: float = setting(
        0.001,
        seconds(0, 60),
        "Time that a prompt waits for the store once it has been read: a run's first one at this replica, or one that "
        "shows that another replica has answered prompts of the run since; each for others' changes of tasks.",
        "On a local network the store answers in less.",
        advanced=True,
    )
    acknowledge_timeout: float = setting(
        1.0,
        seconds(0.001, HOUR),
        "Time that an answer waits for the store with durability `acknowledged`; after it the call is UNAVAILABLE.",
        "Longer than a failover is not worth a wait; the agent's retry waits again.",
        advanced=True,
    )
    queue_bytes: int = setting(
        67_108_864,
        byte_count(MIB, 64 * GIB),
        "Originals that wait to be written, before compression; beyond it they are read again from the stash later.",
        "64 MiB are ten seconds of a busy server.",
        advanced=True,
    )
    item_bytes: int = setting(
        16_777_216,
        byte_count(KIB, 256 * MIB),
        "Largest original that is written to the store; a reply of more than twice as much and 32 MiB is a damaged "
        "store's.",
        "A larger value holds up the store's other clients.",
        advanced=True,
    )

    vault: bool = setting(
        False,
        switch(),
        "Whether values behind the guard's masks are kept in the store too, encrypted as all there is, until their run "
        "ends: those of kinds that guard.restore gives back to a tool, so that a replica which has not found a value "
        "itself can. Needs url and guard.restore.",
        "What is not stored cannot be taken from there, and most replicas find values again in the history.",
    )
    vault_values: int = setting(
        1_000,
        whole(1, MOST_VALUES, "values"),
        "Values behind masks of one run that are kept in the store, by all replicas together; further ones are not.",
        "A hundred times what a coding run has.",
        advanced=True,
    )
    vault_bytes: int = setting(
        262_144,
        byte_count(KIB, 16 * MIB),
        "Bytes that these values of one run may take in the store.",
        "A hundred private keys; a replica reads them between two calls.",
        advanced=True,
    )

    @property
    def sentinel_name(self) -> str:
        """The name in place of a host in the URL, as Sentinels know it: with its capitals."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def uses_tls(self) -> bool:
        """Whether the URL asks for TLS."""
        return self.url.startswith(("valkeys:", "rediss:"))
