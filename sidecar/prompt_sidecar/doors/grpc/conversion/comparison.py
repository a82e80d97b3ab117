"""The comparison with never trimming, in the answers that carry it."""

from __future__ import annotations

from prompt_sidecar.facts.comparison import Bill, Comparison
from prompt_sidecar.v1 import comparison_pb2


def comparison_message(comparison: Comparison) -> comparison_pb2.Comparison:
    """Return the message of what a run's prompts cost, trimmed and never trimmed."""
    return comparison_pb2.Comparison(
        prompts=comparison.prompts,
        refused=comparison.refused,
        recalls=comparison.recalls,
        returned=_bill(comparison.returned),
        untrimmed=_bill(comparison.untrimmed),
        reported=comparison.reported,
    )


def _bill(bill: Bill) -> comparison_pb2.PromptBill:
    return comparison_pb2.PromptBill(kept_tokens=bill.kept, new_tokens=bill.new, cost=bill.cost)
