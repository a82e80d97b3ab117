"""The trace of a call is its agent's, as OpenTelemetry's own propagator reads it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.context import Context
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from prompt_sidecar.telemetry.spans import remote

PARENTS = (
    "",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
    "00-00000000000000000000000000000000-b7ad6b7169203331-01",
)
HEX = st.text("0123456789abcdefABCDEF", max_size=33)
HEADERS = st.one_of(
    st.builds(
        "{}-{}-{}-{}".format,
        st.sampled_from(["00", "01", "ff", "0"]),
        HEX | st.text("0123456789abcdef", min_size=32, max_size=32) | st.just("0" * 32),
        HEX | st.text("0123456789abcdef", min_size=16, max_size=16) | st.just("0" * 16),
        st.sampled_from(["00", "01", "02", "03", "ff", "1", "01-more"]),
    ),
    st.sampled_from(PARENTS),
    st.text(max_size=60),
)
METADATA = st.lists(
    st.tuples(st.just("traceparent"), HEADERS)
    | st.tuples(st.just("tracestate"), st.sampled_from(["vendor=1", "", "=", "a=1,b=2"]))
    | st.just(("user-agent", "agent"))
    | st.just(("traceparent", b"00")),
    max_size=3,
)


@given(METADATA)
def test_the_agents_trace_is_read_as_the_library_reads_it(metadata: list[tuple[str, Any]]) -> None:
    """Whatever the headers hold."""
    carrier = {key: value for key, value in metadata if key in {"traceparent", "tracestate"} and type(value) is str}
    expected = get_current_span(TraceContextTextMapPropagator().extract(carrier, Context())).get_span_context()
    found = get_current_span(remote(metadata)).get_span_context()
    assert (expected, expected.is_remote) == (found, found.is_remote)
