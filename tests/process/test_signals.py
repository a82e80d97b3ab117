"""Signals, one after another."""

from __future__ import annotations

import subprocess
import sys

from tests.cli.running import PATIENCE, environment

_FLOOD = """
import os, signal
from prompt_sidecar.process.signals import Signals

signals = Signals((signal.SIGTERM, signal.SIGHUP))
for _ in range(5_000):
    os.kill(os.getpid(), signal.SIGHUP)
os.kill(os.getpid(), signal.SIGTERM)
while signals.wait() is signal.SIGHUP:
    pass
"""


def test_a_flood_of_one_signal_hides_no_other() -> None:
    """A process that got thousands of SIGHUP while it was busy still learns of the SIGTERM behind them."""
    ended = subprocess.run([sys.executable, "-c", _FLOOD], env=environment(), timeout=PATIENCE, check=False)
    assert 0 == ended.returncode


def test_two_of_one_signal_are_two() -> None:
    """A second SIGTERM that comes before the first is waited for is not lost, as it stops at once."""
    twice = """
import os, signal
from prompt_sidecar.process.signals import Signals

signals = Signals((signal.SIGTERM,))
for _ in range(2):
    os.kill(os.getpid(), signal.SIGTERM)
assert [signals.wait(), signals.wait()] == [signal.SIGTERM] * 2
signals.end()
assert signals.wait() is None
"""
    ended = subprocess.run([sys.executable, "-c", twice], env=environment(), timeout=PATIENCE, check=False)
    assert 0 == ended.returncode
