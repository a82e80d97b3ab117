"""Which requests may be a web page's of another site."""

from __future__ import annotations

import logging

import pytest

from prompt_sidecar.browsers import BrowserHeaders, BrowserRefusal, Sign, Sites, Visitors

PAGES = Sites.of(["Runs.example."], links=True)
PROGRAMS = Sites.of(["Runs.example."], private_names=True)


@pytest.mark.parametrize("sites", [PAGES, PROGRAMS])
@pytest.mark.parametrize(
    "host",
    ["", "localhost", "LOCALHOST:7780", "localhost.", "a.localhost:1", "127.0.0.1", "10.1.2.3:7780", "[::1]",
     "[fd00::7]:80", "runs.example", "Runs.Example.:443"],
)  # fmt: skip
def test_hosts_that_lead_here_alone(host: str, sites: Sites) -> None:
    """Localhost, addresses and configured names, with any port; programs may leave it out."""
    assert sites.stranger(BrowserHeaders(host)) is None


@pytest.mark.parametrize("sites", [PAGES, PROGRAMS])
@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:7780", "localhost.evil.example", "127.0.0.1.evil.example", "a@localhost", "a b",
     "[::1", "notlocalhost.example", "runs.example.evil.example", "localhost,evil.example", "x.internal.example"],
)  # fmt: skip
def test_names_that_anybody_could_make_lead_here(host: str, sites: Sites) -> None:
    """They are refused, and so is what is no host."""
    assert sites.stranger(BrowserHeaders(host)) is Sign.HOST


@pytest.mark.parametrize(
    "host",
    ["prompt-sidecar:7780", "my_sidecar", "host.docker.internal:7780", "sidecar.agents.svc", "printer.local",
     "sidecar.agents.svc.cluster.local:7780", "nas.home.arpa"],
)  # fmt: skip
def test_names_that_the_public_dns_does_not_give(host: str) -> None:
    """Programs call containers and services by them; a browser that asks for pages does not."""
    assert PROGRAMS.stranger(BrowserHeaders(host)) is None
    assert PAGES.stranger(BrowserHeaders(host)) is Sign.HOST
    assert Sites(any_host=True).stranger(BrowserHeaders(host)) is None


@pytest.mark.parametrize(
    "origin",
    ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:8080", "tauri://localhost", "https://runs.example",
     "app://runs.example", "http://a.localhost"],
)  # fmt: skip
def test_pages_of_this_machine(origin: str) -> None:
    """And those that the settings name, whatever their scheme and port."""
    assert PROGRAMS.stranger(BrowserHeaders("127.0.0.1:7780", origin, "cross-site", "cors")) is None


@pytest.mark.parametrize(
    "origin",
    ["null", "https://evil.example", "http://10.1.2.3", "http://localhost.evil.example", "file://", "x",
     "http://localhost,https://evil.example", "http://localhost@evil.example", "http://127.0.0.1.evil.example:80",
     "chrome-extension://abc", "http://prompt-sidecar:7780"],
)  # fmt: skip
@pytest.mark.parametrize("site", ["", "none", "same-origin", "cross-site"])
def test_pages_of_others(origin: str, site: str) -> None:
    """A browser names the page at each POST and each WebSocket, also where the page had its name lead here."""
    assert PROGRAMS.stranger(BrowserHeaders("localhost:7780", origin, site)) is Sign.ORIGIN
    assert Sites(any_host=True, links=True).stranger(BrowserHeaders("a", origin, site, "navigate")) is Sign.ORIGIN


@pytest.mark.parametrize(("site", "foreign"), [("cross-site", True), ("same-site", True), ("none", False), ("", False)])
def test_images_and_links_of_others(site: str, *, foreign: bool) -> None:
    """They come without an origin; a person may follow a link to what is meant for people."""
    expected = Sign.ORIGIN if foreign else None
    assert expected is PROGRAMS.stranger(BrowserHeaders("localhost", site=site, mode="no-cors"))
    assert expected is PROGRAMS.stranger(BrowserHeaders("localhost", site=site, mode="navigate"))
    assert expected is PAGES.stranger(BrowserHeaders("localhost", site=site, mode="no-cors"))
    assert PAGES.stranger(BrowserHeaders("localhost", site=site, mode="navigate")) is None


def test_each_refusal_is_counted_and_the_first_of_a_kind_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The line names the setting, and no text that would run on."""
    visitors, counted = Visitors("http", "http.hosts", PROGRAMS), list[tuple[str, str]]()
    visitors.count = lambda listener, header: counted.append((listener, header))
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            answer = visitors.refusal(BrowserHeaders(f"a\x1b{number}.example" + "x" * 9_000))
            assert visitors.refusal(BrowserHeaders("localhost", "null")) == BrowserRefusal(
                403,
                "FOREIGN_ORIGIN",
                "web pages of other sites may not ask; add the host of the page to http.hosts if this one may",
            )
    assert answer == BrowserRefusal(421, "FOREIGN_HOST", "use localhost, an IP address, or a name in http.hosts")
    assert [("http", "host"), ("http", "origin")] * 3 == counted
    assert 2 == len(caplog.records)
    assert all("http.hosts" in line and "\x1b" not in line and len(line) < 600 for line in caplog.messages)
    assert visitors.refusal(BrowserHeaders("localhost")) is None
