"""The figures that several dashboards and rules show, each defined once."""

from __future__ import annotations

from typing import Final

from dashboards.generate.promql import Like, Not, Place, Where, ratio
from prompt_sidecar.facts.untrimmed import MISSED as MISSED_REASONS
from prompt_sidecar.facts.untrimmed import Untrimmed
from prompt_sidecar.telemetry.catalog import (
    BUFFERS_SIZE,
    CACHE_BREAKS,
    COMPARED_PROMPTS,
    COMPARED_TOKENS,
    COST_COMPARED,
    ENVOY_REQUESTS,
    ESTIMATE_RATIO,
    HANDLED,
    HTTP_REQUESTS,
    MEMORY_LIMIT,
    MEMORY_SIZE,
    PREFIX_TOKENS,
    PROCESS_MEMORY,
    PROMPT_TOKENS,
    PROMPTS,
    PROVIDER_CACHE,
    PROVIDER_CALLS,
    PROVIDER_FIRST_BYTE,
    RECOUNTED_PROMPTS,
    RECOUNTED_TOKENS,
    REPORTED_TOKENS,
    RETRIEVALS,
    RPC_DURATION,
    SEARCHES,
    STASH_LIMIT,
    STASH_SIZE,
    TRIM_DURATION,
)

METHODS: Final = Like(r"((prompt_)?sidecar[.]v1[.]SidecarService/)?[A-Z][A-Za-z]+")
"""Our own methods; not the health checks, which would drown them, nor what we do not serve."""

FAULTS: Final = ("UNKNOWN", "DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS")
"""Statuses that are the sidecar's fault, after OpenTelemetry's conventions for servers; but UNIMPLEMENTED, which tells
of a client of another version."""
REFUSALS: Final = ("RESOURCE_EXHAUSTED",)
"""The status of a call that a bound of the sidecar refused."""
PROMPT_ROUTES: Final = Not(("passed_through",))
"""Requests through the HTTP door that the sidecar does something with."""
HTTP_DOORS: Final = ("http", "gateway")
"""Doors whose prompts go on as they came where the sidecar fails: a fault, though the provider answers."""
ENVOY_PROMPTS: Final = Not(("not_a_prompt",))
"""The same of Envoy's, by outcome."""


MISSED: Final = tuple(reason.value for reason in MISSED_REASONS)
"""Outcomes of requests for which trimming was missed."""
MISSED_LARGE: Final[Where] = {"size": "large", "outcome": MISSED}
"""Large requests that went on untrimmed for a reason that somebody should look at."""


def missed_share(place: Place) -> str:
    """Part of the large prompts that went on untrimmed and should have been trimmed."""
    prompts = place.rate(HANDLED, where={"size": "large", "outcome": Not((Untrimmed.NO_PROMPT.value,))})
    return share(place.rate(HANDLED, where=MISSED_LARGE), prompts)


PROVIDER_FAULTS: Final = ("rate_limited", "failed", "unreachable", "broken_off")
"""Outcomes of calls of a provider that are its faults, or a want of quota; what it refused is the agent's."""
SLOW_PROVIDER: Final = 60.0
"""Seconds after which a provider is slow to begin: thinking models that do not stream take up to that."""


def share(part: str, whole: str) -> str:
    """Return part / whole; 0 where no part was ever seen, and nothing where the whole is 0."""
    return f"(({part}) or ({whole}) * 0) / ({whole} > 0)"


def calls(place: Place) -> str:
    """Calls of our own methods, and prompts through the HTTP door and Envoy, a second."""
    return place.rate_of_all(
        (RPC_DURATION, {"rpc_method": METHODS}),
        (HTTP_REQUESTS, {"route": PROMPT_ROUTES}),
        (ENVOY_REQUESTS, {"outcome": ENVOY_PROMPTS}),
    )


def faults(place: Place) -> str:
    """The part of calls, and of prompts through the HTTP door and Envoy, that failed by the sidecar's fault."""
    failed = place.rate_of_all(
        (RPC_DURATION, {"rpc_method": METHODS, "rpc_response_status_code": FAULTS}),
        (HTTP_REQUESTS, {"route": PROMPT_ROUTES, "outcome": "failed"}),
        (HANDLED, {"door": HTTP_DOORS, "outcome": Untrimmed.INTERNAL.value}),
        (ENVOY_REQUESTS, {"outcome": "failed"}),
    )
    return share(failed, calls(place))


def trim_time(place: Place, quantile: float) -> str:
    """A quantile of the time that prompts take, through all doors."""
    return place.quantile(quantile, TRIM_DURATION)


def largest(query: str) -> str:
    """The ten largest series, of those above 0."""
    return f"topk(10, {query} > 0)"


def before(place: Place) -> str:
    """Tokens a second that agents sent."""
    return place.rate(PROMPT_TOKENS, where={"state": "before"})


def after(place: Place) -> str:
    """Tokens a second that the sidecar answered with."""
    return place.rate(PROMPT_TOKENS, where={"state": "after"})


def removed_share(place: Place) -> str:
    """The part of the tokens that agents sent which did not reach the provider."""
    return f"1 - {ratio(after(place), before(place))}"


def removed(place: Place) -> str:
    """Tokens that did not reach the provider, over the window."""
    sent = place.increase(PROMPT_TOKENS, where={"state": "before"})
    return f"{sent} - {place.increase(PROMPT_TOKENS, where={'state': 'after'})}"


def price(place: Place, prompts: str) -> str:
    """What a provider with a prompt cache charges a second, in uncached input tokens; `prompts`: returned, untrimmed.

    Of prompts that would fit the model's window untrimmed: for others there is nothing to compare with. Where the
    provider's counts were reported they take the place of the estimates.
    """

    def tokens(state: str) -> str:
        where = {"prompts": prompts, "state": state}
        estimate, report = (place.rate(RECOUNTED_TOKENS, where=where | {"by": by}) for by in ("estimate", "report"))
        return f"({place.rate(COMPARED_TOKENS, where=where)} - {estimate} + {report})"

    return f"${{read_price}} * {tokens('kept')} + ${{write_price}} * {tokens('new')}"


def price_share(place: Place) -> str:
    """The price with the sidecar, as a part of that of never trimming."""
    return f"({price(place, 'returned')}) / (({price(place, 'untrimmed')}) > 0)"


def saved_an_hour(place: Place) -> str:
    """An estimate of what trimming saved an hour, by model and currency, of calls that the provider has counted."""
    by = ("model", "currency")
    untrimmed, returned = (
        place.each_hour(COST_COMPARED, by=by, where={"prompts": prompts}) for prompts in ("untrimmed", "returned")
    )
    return f"{untrimmed} - {returned}"


def kept(place: Place) -> str:
    """What sidecars had at their start, and keep of runs."""
    baseline = place.value(PROCESS_MEMORY, where={"state": "baseline"})
    stash = place.value(STASH_SIZE, where={"state": "held"})
    return f"{baseline} + {stash} + {place.value(MEMORY_SIZE)} + {place.value(BUFFERS_SIZE)}"


def explained(place: Place) -> str:
    """The same with free blocks, as far as it is resident: pages of theirs that were given back are not."""
    resident = place.value(PROCESS_MEMORY, where={"state": "resident"})
    whole = f"({kept(place)} + {place.value(PROCESS_MEMORY, where={'state': 'free'})})"
    return f"({whole} < {resident}) or {resident}"


def measured_share(place: Place) -> str:
    """The part of the compared prompts of which the provider's counts are known."""
    where = {"how": ("compared", "recall")}
    return ratio(place.rate(RECOUNTED_PROMPTS, where=where), place.rate(COMPARED_PROMPTS, where=where))


def kept_share(place: Place) -> str:
    """The part of the answered tokens that stood in the prompt before, byte for byte."""
    return ratio(place.rate(PREFIX_TOKENS, where={"state": "kept"}), place.rate(PREFIX_TOKENS))


def over_budget_share(place: Place) -> str:
    """The part of answered prompts that do not fit."""
    answered = place.rate(PROMPTS, where={"outcome": ("trimmed", "condensed", "untouched", "over_budget")})
    return ratio(place.rate(PROMPTS, where={"outcome": "over_budget"}), answered)


def agent_breaks_share(place: Place) -> str:
    """Prompts whose earlier part the agent itself had changed, as a part of all."""
    return ratio(place.rate(CACHE_BREAKS, where={"cause": "agent"}), place.rate(PROMPTS))


def provider_breaks_share(place: Place) -> str:
    """Reports that suspect a break of the provider's cache, as a part of those that could tell."""
    reported = place.rate(PROVIDER_CACHE, where={"outcome": ("as_expected", "break_suspected")})
    return ratio(place.rate(PROVIDER_CACHE, where={"outcome": "break_suspected"}), reported)


def cached_share(place: Place) -> str:
    """The part of the input that providers read from their cache, as agents reported it."""
    return ratio(
        place.rate(REPORTED_TOKENS, where={"kind": "cached"}), place.rate(REPORTED_TOKENS, where={"kind": "input"})
    )


def provider_faults(place: Place) -> str:
    """The part of calls of providers, by route, that got no answer, an error of theirs, or half an answer."""
    failed = place.rate(PROVIDER_CALLS, by=("route",), where={"outcome": PROVIDER_FAULTS})
    return ratio(failed, place.rate(PROVIDER_CALLS, by=("route",)))


def failed_by_providers(place: Place) -> str:
    """The part of all calls of providers that failed as `provider_faults` has it; 0 where none ever failed."""
    return share(place.rate(PROVIDER_CALLS, where={"outcome": PROVIDER_FAULTS}), place.rate(PROVIDER_CALLS))


def slow_providers(place: Place) -> str:
    """The part of calls of providers, by route, that waited for more than a minute for the first bytes."""
    return f"1 - {place.up_to(PROVIDER_FIRST_BYTE, SLOW_PROVIDER, by=('route',))}"


def close_estimates(place: Place) -> str:
    """The part of estimates within 10 % of the real count."""
    return place.within(ESTIMATE_RATIO, 0.9, 1.1)


def hits_share(place: Place) -> str:
    """The part of originals asked for that were there."""
    return ratio(place.rate(RETRIEVALS, where={"outcome": "hit"}), place.rate(RETRIEVALS))


def gone_share(place: Place) -> str:
    """The part of originals asked for that had expired or been evicted."""
    return ratio(place.rate(RETRIEVALS, where={"outcome": ("expired", "evicted")}), place.rate(RETRIEVALS))


def found_share(place: Place) -> str:
    """The part of searches that found something."""
    return ratio(place.rate(SEARCHES, where={"outcome": "found"}), place.rate(SEARCHES))


def stash_used(place: Place) -> str:
    """The part of the stash's budget that is taken."""
    return ratio(place.value(STASH_SIZE, where={"state": "held"}), place.value(STASH_LIMIT))


def process_memory_used(place: Place) -> str:
    """The part of the process's limit of memory that is resident; nothing where it has no limit."""
    resident = place.value(PROCESS_MEMORY, where={"state": "resident"})
    return ratio(resident, f"({place.value(PROCESS_MEMORY, where={'state': 'limit'})} > 0)")


def memory_used(place: Place) -> str:
    """The part that is taken of what runs may keep in addition to the stash."""
    return ratio(place.value(MEMORY_SIZE), place.value(MEMORY_LIMIT))
