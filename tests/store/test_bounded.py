"""A store that sends slowly or without end: a command to it ends in time, and in bounded memory."""

from __future__ import annotations

import os
import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from prompt_sidecar.errors import StoreUnavailable
from prompt_sidecar.facts.archived import StoreCommand, StoreReply
from prompt_sidecar.store import layout
from prompt_sidecar.store.bounded import ConnectionUse, _Socket
from prompt_sidecar.store.options import StoreOptions
from prompt_sidecar.store.reading import READ_ITEMS
from prompt_sidecar.store.sealing import Sealer
from prompt_sidecar.store.server import Failure, Server
from prompt_sidecar.store.shared import SharedArchive
from prompt_sidecar.trim.ids import Keys, caller_key
from prompt_sidecar.values import KIB, MIB
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, ROOM, send
from tests.promises.engine import CALLER, KEY, RUN_ID, Engine
from tests.real.needing import lack
from tests.store.sharing import LIFE, PATIENT, Stepped, Valkey, replica
from tests.store.test_damaged import values

SHORT: Final = 1.0
"""Seconds for a command."""
EVERY: Final = 0.1
"""Seconds between two bytes of a reply that drips."""
DRIPS: Final = 1_000
"""Bytes of such a reply, which so takes a hundred seconds."""
MOST: Final = 256 * MIB
"""Bytes after which a reply without end does end, for a sidecar that reads them all."""
NAME: Final = "ps:{00000000000000000000000000000000}"
LONG: Final = b"+%b\r\n" % (b"x" * DRIPS)


class Fake:
    """A server that answers each command as `answer` does, which is given the connection and the command's words."""

    def __init__(self, answer: Callable[[Any, list[bytes]], None], certificate: ssl.SSLContext | None = None) -> None:
        self.answer, self.certificate = answer, certificate
        self.ending = threading.Event()
        self.sent = 0
        self.waited_for = False
        """Whether somebody took a reply that drips to its end."""

    def drip(self, connection: Any, reply: bytes) -> None:
        """Send a reply byte by byte."""
        for at in range(len(reply)):
            connection.sendall(reply[at : at + 1])
            if self.ending.wait(EVERY):
                return
        self.waited_for = True

    def flood(self, connection: Any, head: bytes, more: bytes) -> None:
        """Send a reply that goes on."""
        connection.sendall(head)
        piece = more * (65_536 // len(more))
        for _ in range(MOST // len(piece)):
            connection.sendall(piece)
            self.sent += len(piece)

    def serve(self, connection: Any) -> None:
        """Answer one command after another."""
        with suppress(OSError, ValueError):
            if self.certificate is not None:
                connection = self.certificate.wrap_socket(connection, server_side=True)
            with connection.makefile("rb") as commands:
                while head := commands.readline():
                    words = [commands.read(int(commands.readline()[1:]) + 2)[:-2] for _ in range(int(head[1:]))]
                    self.answer(connection, words)
        connection.close()


@contextmanager
def serving(fake: Fake, path: Path | None = None) -> Iterator[str]:
    """Have it listen, on loopback or at a path; the authority of its URL, or its path."""
    kind: Any = socketserver.ThreadingTCPServer if path is None else socketserver.ThreadingUnixStreamServer

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            fake.serve(self.request)

    with kind(("127.0.0.1", 0) if path is None else str(path), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}" if path is None else str(path)
        finally:
            fake.ending.set()
            server.shutdown()
            assert not fake.waited_for


def scripts(words: Sequence[bytes]) -> bool:
    """Whether a command is a script."""
    return words[0].upper() in {b"EVAL", b"EVALSHA"}


def dripping(first: bytes) -> Fake:
    """A server whose replies drip to the command that begins so, and to all that follow."""

    def answer(connection: Any, words: list[bytes]) -> None:
        if words[0].upper() == first or scripts(words):
            fake.drip(connection, LONG)
        else:
            connection.sendall(b"+OK\r\n")

    fake = Fake(answer)
    return fake


def refused(url: str, *, timeout: float = SHORT, **options: Any) -> StoreReply:
    """What a command comes to, which must end before its reply does."""
    server = Server(StoreOptions(url=url, timeout=timeout, **options))
    try:
        with pytest.raises(Failure) as failure:
            server.run(layout.LIST, NAME, ())
    finally:
        server.close()
    return failure.value.reply


@pytest.mark.parametrize("first", [b"EVAL", b"CLIENT", b"SELECT", b"AUTH"])
def test_a_reply_that_drips(first: bytes, tmp_path: Path) -> None:
    """Whether to the command or in the handshake before it."""
    (tmp_path / "password").write_text("secret")
    with serving(dripping(first)) as at:
        url = f"valkey://user@{at}/1"
        assert StoreReply.SLOW is refused(url, password_file=str(tmp_path / "password"))


def test_a_reply_that_drips_at_a_path(tmp_path: Path) -> None:
    """As over TCP."""
    with serving(dripping(b"EVAL"), tmp_path / "s") as at:
        assert StoreReply.SLOW is refused(f"unix://{at}")


def test_a_reply_that_drips_within_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As without."""
    fake = dripping(b"EVAL")
    fake.certificate = trusted(tmp_path, monkeypatch)
    with serving(fake) as at:
        assert StoreReply.SLOW is refused(f"valkeys://{at}/0")


def test_a_handshake_of_tls_that_drips() -> None:
    """A first record of 4 KiB, byte by byte."""
    fake = Fake(lambda *_: None)
    fake.serve = lambda connection: fake.drip(connection, b"\x16\x03\x03\x10\x00" + b"\x02" * DRIPS)  # type: ignore[method-assign]
    with serving(fake) as at:
        assert StoreReply.SLOW is refused(f"valkeys://{at}/0")


@pytest.mark.parametrize("first", [b"CLUSTER", b"EVAL"])
def test_a_cluster_that_drips(first: bytes) -> None:
    """Where it is asked for its nodes, and where a command is sent to one."""

    def answer(connection: Any, words: list[bytes]) -> None:
        if words[0].upper().startswith(first) or scripts(words):
            fake.drip(connection, LONG)
        elif words[0].upper().startswith(b"CLUSTER"):
            host, port = connection.getsockname()
            node = b"*3\r\n$%d\r\n%b\r\n:%d\r\n$1\r\nn\r\n" % (len(host), host.encode(), port)
            connection.sendall(b"*1\r\n*3\r\n:0\r\n:16383\r\n" + node)
        elif words[0].upper() == b"COMMAND":
            connection.sendall(b"*0\r\n")
        else:
            connection.sendall(b"+OK\r\n")

    fake = Fake(answer)
    with serving(fake) as at:
        assert StoreReply.SLOW is refused(f"valkey://{at}", cluster=True)


def test_a_count_of_replicas_that_drips() -> None:
    """What is written is waited for no longer than any command."""

    def answer(connection: Any, words: list[bytes]) -> None:
        if words[0].upper() == b"WAIT":
            fake.drip(connection, b":" + b"0" * DRIPS + b"1\r\n")
        else:
            connection.sendall(b"+done\r\n" if scripts(words) else b"+OK\r\n")

    fake = Fake(answer)
    with serving(fake) as at:
        server = Server(StoreOptions(url=f"valkey://{at}/0", timeout=SHORT))
        with pytest.raises(Failure) as failure:
            server.write(layout.LIST, NAME, (), 1)
        assert StoreReply.SLOW is failure.value.reply
        server.close()


def test_a_count_of_replicas_that_is_none() -> None:
    """It is no sign that a write is acknowledged, and no error of ours."""

    def answer(connection: Any, words: list[bytes]) -> None:
        connection.sendall(b"*1\r\n:1\r\n" if words[0].upper() == b"WAIT" else b"+OK\r\n")

    with serving(Fake(answer)) as at:
        server = Server(StoreOptions(url=f"valkey://{at}/0", timeout=PATIENT))
        with pytest.raises(Failure) as failure:
            server.write(layout.LIST, NAME, (), 1)
        assert StoreReply.FAILED is failure.value.reply
        server.close()


def test_a_command_that_is_read_slowly() -> None:
    """A server that takes a few bytes now and then holds up nobody either."""

    def serve(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            while connection.recv(1_024) and not fake.ending.wait(EVERY):
                connection.sendall(b"+OK\r\n")

    fake = Fake(lambda *_: None)
    fake.serve = serve  # type: ignore[method-assign]
    with serving(fake) as at:
        server = Server(StoreOptions(url=f"valkey://{at}/0", timeout=SHORT))
        with pytest.raises(Failure) as failure:
            server.run(layout.LIST, NAME, (b"x" * 32 * MIB,))
        assert StoreReply.SLOW is failure.value.reply
        server.close()


def test_a_retrieval_ends() -> None:
    """So does a call of which only the store could know the answer."""
    with serving(dripping(b"EVAL")) as at:
        settings = StoreOptions(url=f"valkey://{at}/0", timeout=SHORT)
        archive = SharedArchive(settings, Server(settings), LIFE, threads=False)
        with pytest.raises(StoreUnavailable):
            Engine(LIMIT, policy=ROOM, archive=archive).retrieve("aaaaaaaaaa")


ENDLESS: Final = {
    "a value": (b"$4000000000\r\n", b"x"),
    "a list of numbers": (b"*100000000\r\n", b":1\r\n"),
    "a list of errors": (b"*100000000\r\n", b"-\r\n"),
    "lists": (b"*100000000\r\n", b"*0\r\n"),
    "a line": (b"+", b"x"),
}


@pytest.mark.parametrize(("head", "more"), ENDLESS.values(), ids=ENDLESS)
def test_a_reply_without_end(head: bytes, more: bytes) -> None:
    """It is a damaged store's, and is not read to its end."""

    def answer(connection: Any, words: list[bytes]) -> None:
        if scripts(words):
            fake.flood(connection, head, more)
        else:
            connection.sendall(b"+OK\r\n")

    fake = Fake(answer)
    with serving(fake) as at:
        server = Server(StoreOptions(url=f"valkey://{at}/0", timeout=PATIENT, item_bytes=KIB))
        with pytest.raises(Failure) as failure:
            server.run(layout.LIST, NAME, ())
        assert StoreReply.FAILED is failure.value.reply
        assert MOST / 2 > fake.sent
        server.close()


def test_a_large_reply_that_comes_slowly() -> None:
    """It is whole if it comes in time, and so is the next one on the same connection."""
    sealed = os.urandom(20 * MIB)
    reply = values(b"0", None, sealed)

    def answer(connection: Any, words: list[bytes]) -> None:
        if not scripts(words):
            connection.sendall(b"+OK\r\n")
            return
        for at in range(0, len(reply), MIB):
            connection.sendall(reply[at : at + MIB])
            fake.ending.wait(0.02)

    fake = Fake(answer)
    with serving(fake) as at:
        server = Server(StoreOptions(url=f"valkey://{at}/0", timeout=PATIENT, item_bytes=20 * MIB))
        for _ in range(4):
            assert [b"0", None, sealed] == server.run(layout.READ, NAME, ())
        server.close()


def test_large_replies_pass_through_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands and replies of many records pass."""
    reply = os.urandom(MIB)

    def answer(connection: Any, words: list[bytes]) -> None:
        connection.sendall(values(words[-1], reply) if scripts(words) else b"+OK\r\n")

    fake = Fake(answer, trusted(tmp_path, monkeypatch))
    with serving(fake) as at:
        server = Server(StoreOptions(url=f"valkeys://{at}/0", timeout=PATIENT))
        for _ in range(3):
            assert [reply, reply] == server.run(layout.READ, NAME, (reply,))
        server.close()


def test_the_parser_in_c() -> None:
    """The library's other parser reads into a buffer of its own: what it reads so is counted, too."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        use = ConnectionUse(PATIENT, 4)
        bounded = _Socket(ours, lambda: use)
        buffer = bytearray(8)
        theirs.sendall(b"1234")
        assert 4 == bounded.recv_into(buffer)
        assert b"1234" == buffer[:4]
        theirs.sendall(b"5")
        with pytest.raises(Exception, match="longer"):
            bounded.recv_into(buffer)


class Over(Exception):
    """A call's deadline has passed."""


class Deadline:
    """The check of a call whose deadline passes after it was asked so often."""

    def __init__(self, often: int) -> None:
        self._left = often

    def __call__(self) -> None:
        """Look at it."""
        if not self._left:
            raise Over
        self._left -= 1


def test_the_end_of_many_runs_ends_with_its_call() -> None:
    """The deadline is looked at before each command, not once for all that one command has named."""
    names = values(*(b"ps:{%032x}" % number for number in range(READ_ITEMS)))

    def answer(connection: Any, words: list[bytes]) -> None:
        connection.sendall(names if scripts(words) else b"+OK\r\n")

    with serving(Fake(answer)) as at:
        archive = Stepped(f"valkey://{at}/0")
        with pytest.raises(Over):
            archive.end_all(caller_key(KEY, CALLER), Deadline(3))
        assert 2 == archive.store.commands[StoreCommand.END, StoreReply.DONE]


def test_facts_of_many_calls_are_read_until_their_call_ends(valkey: Valkey) -> None:
    """As the runs of a caller."""
    engine, first = replica(valkey)
    send(engine, OPENAI_CHAT, 3)
    first.drain()
    keys = Keys(KEY, ()).of_run(CALLER, RUN_ID)
    fields = {layout.ITEMS + b"%d" % number: b"" for number in range(3 * READ_ITEMS)}
    valkey.client.hset(Sealer(keys[0]).name, mapping=fields)
    archive = Stepped(valkey.url)
    with pytest.raises(Over):
        archive.find(keys[0], caller_key(KEY, CALLER)).items(Deadline(1))
    assert 3 == archive.store.commands[StoreCommand.READ, StoreReply.DONE]


def trusted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's side of TLS, whose certificate this process trusts meanwhile."""
    if shutil.which("openssl") is None:
        lack("needs the openssl program to make a certificate")
    certificate, key = str(folder / "server.pem"), str(folder / "server.key")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    command = [
        "openssl",
        "req",
        "-x509",
        *curve,
        "-keyout",
        key,
        "-out",
        certificate,
        "-days",
        "2",
        "-subj",
        "/CN=store",
    ]
    subprocess.run(command, check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
