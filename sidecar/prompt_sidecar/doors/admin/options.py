"""The options for the pages of runs: addresses, access, and how far they reach back."""

from __future__ import annotations

from dataclasses import dataclass

from prompt_sidecar.values import address, hosts, setting, text, whole


@dataclass(frozen=True, slots=True)
class AdminOptions:
    """Options of the pages. An empty address or path means none."""

    listen: str = setting(
        "",
        address(),
        "TCP address of /runs, the pages of single runs, which show figures, names of callers, runs and rules, and "
        "ids, but no text; empty: none; port 0: a free one. Beyond loopback it needs admin.tokens_file.",
        "Pages that nobody asked for are not served, and what they show is not kept.",
    )
    tokens_file: str = setting(
        "",
        text(4_096),
        "File of tokens of people who may look, one name:token a line, mode 0600; empty: none are asked for. A browser "
        "asks for them as name and password.",
    )
    hosts: tuple[str, ...] = setting(
        (),
        hosts(16),
        "Names under which browsers reach the pages, besides localhost and IP addresses, without a port.",
        "A page of another site could have its own name lead here and read what is answered.",
    )
    run_entries: int = setting(
        200,
        whole(1, 5_000, "entries"),
        "Prompts, and as many recalls, that are kept of each run for its page; the newest.",
        "Half a kilobyte each, within limits.memory_bytes: a run of 200 iterations takes some 200 kB.",
        advanced=True,
    )
