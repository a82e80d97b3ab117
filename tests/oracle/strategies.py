"""Hypothesis strategies for histories, policies and budgets."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.oracle.runs import Run, Shape, synthetic


@st.composite
def histories(draw: st.DrawFn, format: str, *, most_iterations: int = 12) -> Run:
    """Return a synthetic run; it shrinks to few iterations of few small messages."""
    shape = Shape(
        iterations=draw(st.integers(0, most_iterations)),
        parallel=draw(st.integers(1, 4)),
        median=draw(st.sampled_from([40, 300, 1_200])),
        spread=draw(st.sampled_from([0.1, 1.2, 2.0])),
        interruptions=draw(st.sampled_from([0.0, 0.3])),
        reasoning=draw(st.sampled_from([0.0, 0.5])),
        images=draw(st.sampled_from([0.0, 0.5])),
        unknown_blocks=draw(st.sampled_from([0.0, 0.3])),
        cache_marks=draw(st.booleans()),
        odd_ids=draw(st.sampled_from([0.0, 0.5])),
        defects=draw(st.booleans()),
        bare=draw(st.sampled_from([0.0, 0.3])),
        instructions=draw(st.sampled_from([0.0, 0.0, 0.3, 1.0])),
    )
    return synthetic(draw(st.integers(0, 10_000)), format, shape)


def budgets() -> st.SearchStrategy[int]:
    """Return limits in tokens, from ones that nothing fits to ones that all fits."""
    return st.sampled_from([60, 300, 800, 2_000, 5_000, 20_000, 200_000])


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    """Return overrides of a policy, any subset of the knobs, within their bounds."""
    fit = sorted(draw(st.tuples(st.floats(0.05, 1.0), st.floats(0.05, 1.0))))
    residue = sorted(draw(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0))))
    values: dict[str, Any] = {
        "fit_stage": draw(st.sampled_from(["off", "oldest_first", "largest_first"])),
        "condense": draw(st.sampled_from(["off", "exact", "safe", "full"])),
        "cap_text_bytes": draw(st.integers(1_024, 60_000)),
        "cap_media_bytes": draw(st.sampled_from([0, 300, 8_388_608])),
        "cap_head_share": draw(st.floats(0.0, 1.0)),
        "age_keep_iterations": draw(st.integers(0, 6)),
        "fit_head_share": draw(st.floats(0.0, 1.0)),
        "own_text_max_tokens": draw(st.integers(0, 1_500)),
        "note_max_tokens": draw(st.integers(0, 200)),
        "note_place": draw(st.sampled_from(["off", "tail"])),
        "registry_share": draw(st.floats(0.0, 0.02)),
    }
    kept = {name: value for name, value in values.items() if draw(st.booleans())}
    if draw(st.booleans()):
        kept |= {"fit_low": fit[0], "fit_high": fit[1]}
    if draw(st.booleans()):
        kept |= {"fit_residue_low": residue[0], "fit_residue_high": residue[1]}
    return kept
