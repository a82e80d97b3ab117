"""Ledger states written under earlier rules, converted to the present format.

A revision outlives the version that made it. That version's decisions stay, so that the prompt is returned as before;
new decisions follow the rules of this version.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from prompt_sidecar.trim.entries import ALONE
from prompt_sidecar.trim.ledger import STATE, Ledger
from prompt_sidecar.trim.ledger.decisions import Fit

_list: Final = msgspec.msgpack.Decoder(list[Any])


def load_5(ledger: Ledger, plain: bytes, fit: Fit | None) -> None:
    """Load into a ledger the state that version 5 wrote for the same history: the fields of all parts in one list.

    Two fields at the end were added later: the message from which reasoning has yet to be looked at, and whether system
    messages were dropped with their iterations (`Record.tied`).
    """
    entries, dropped, done, drop_done, held, carrier, *more = _list.decode(plain)
    listed, batch_end, batch_group, batches, pins, marks, mid_block, *more = more
    unfit_since, words_done, names, named, *later = more
    looked_from, tied = later + [0, False][len(later) :]
    parts = (
        (pins, marks),
        (entries, dropped),
        (done, held),
        (drop_done, words_done, carrier),
        (looked_from, mid_block),
        (listed, batch_end, batch_group, batches, unfit_since, names, named),
    )
    load_6(ledger, msgspec.msgpack.encode(parts), fit)
    if not tied:
        _drop_tied(ledger)


def load_6(ledger: Ledger, plain: bytes, fit: Fit | None) -> None:
    """Load into a ledger the state that version 6 wrote for the same history.

    Its queues also held what precedes a provider's compaction, which is no longer trimmed.
    """
    ledger.load(STATE.decode(plain), fit)
    if ledger.messages.settled:
        ledger.queues.leave_settled()


def _drop_tied(ledger: Ledger) -> None:
    """Drop system messages whose iterations were dropped without them.

    Our own text may also have been placed next to others, where it is no longer written. So reasoning that is bound to
    those returned prompts is no longer valid.
    """
    for index, record in enumerate(ledger.records):
        if not record.tied:
            continue
        ledger.thinking.own_text_moved()
        opens = ledger.records[ledger.groups[record.group].start] if record.group >= 0 else record
        if opens.dropped and opens.dropped_for not in ALONE and not (record.dropped or record.kept):
            ledger.decisions.drop_record(index, opens.dropped_in, opens.dropped_for)
