"""What is wrong with an agent's session: each check returns what it found, in words; nothing where all is well.

The provider has already judged each request by its own rules (`upstream.defects`). Here is what only the whole session
shows: that each command ran once, that no call was lost, doubled, or came back after it was dropped, that prompts begin
as the ones before them except where the sidecar cut, that they fit, that recall was answered and hidden from the agent,
and that no secret left.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.facts.untrimmed import TRIMMED, Untrimmed
from tests.agents.lines import LINES, RAN, line
from tests.agents.running import Session
from tests.agents.scripts import DONE, PRINTED, RECALL, SEARCH, THOUGHT, entries, tools
from tests.doors.grpc.serving import counter

MOST_CUTS: Final = 12
"""Of sixty calls: a cut frees half of the limit, and each window here has room for ten calls or more."""
ENCODING: Final = "o200k_base"
OPENED: Final = "opened"
"""What became of a request for a WebSocket that was opened: what comes on it is counted by itself."""
SENT_TO_HTTP: Final = "sent_to_http"
"""What became of a request to open a WebSocket that was answered 426: Codex tries one, and then uses HTTP."""
_SERVED: Final = frozenset({("answered", 200), ("cancelled", 200), ("opened", 101)})
"""How requests end: an agent may close the connection at the end of an answer, whose usage is reported all the same."""
_MADE: Final = re.compile(r"(?:call|own)-\d+\Z")
_RAN: Final = re.compile(r"echo (\d+) ")
DROPPED: Final = re.compile(r"([\d,]+)(\+?) (?:other|earlier) iterations? dropped")
_TEXTS: Final = frozenset({"text", "content", "output", "arguments", "command", "input", "thinking"})
"""Members that hold a text that the model reads."""
_ID_MEMBERS: Final = ("call_id", "tool_call_id", "tool_use_id", "toolUseId", "id")
_WRAPPED: Final = ("toolUse", "toolResult", "functionCall", "functionResponse")
"""Members of a block that hold a call or a result, in Bedrock's and Gemini's words."""
_OWN: Final = {RECALL: "own-1", SEARCH: "own-2"}
_DONE: Final = frozenset({TRIMMED, Untrimmed.NO_NEED, Untrimmed.NO_PROMPT})
_HEAD: Final = ("tools", "toolConfig", "system", "systemInstruction", "instructions")
Check = Callable[[Session], Iterator[str]]


def faults(session: Session, *checks: Check) -> list[str]:
    """Return all that is wrong."""
    return [fault for check in checks for fault in check(session)]


def served(session: Session) -> Iterator[str]:
    """The provider took each request, the agent got each answer, nothing else was asked for, and the agent is done."""
    yield from (f"the provider refuses: {defect}" for defect in session.defects)
    yield from (f"to the provider, and no call of a model: {stray}" for stray in session.strays)
    ends = Counter(session.seen.requests)
    sent_to_http = sum(count for request, count in ends.items() if request[1] == SENT_TO_HTTP)
    if sent_to_http > len(session.ended):
        yield f"{sent_to_http} tries to open a WebSocket"
    for request, count in ends.items():
        if request[1:] not in _SERVED and request[1] != SENT_TO_HTTP:
            yield f"{count} requests ended so: {request}"
    for done in session.ended:
        if done.returncode or DONE not in done.stdout:
            yield f"the agent ended so: {session.shown}"


def counted(session: Session) -> Iterator[str]:
    """What the provider counted was reported for each answer."""
    if session.seen.reports < len(session.bodies):
        yield f"usage of {session.seen.reports} answers was reported"


def commands(session: Session) -> Iterator[str]:
    """Each command ran once, in its order."""
    path = session.home / RAN
    ran = path.read_text().split() if path.exists() else []
    if ran != [str(number) for number in range(1, session.script.last + 1)]:
        yield f"commands ran: {ran}"


def prompts(session: Session) -> Iterator[str]:
    """Each prompt fits, has each call once, and begins as the one before, but for some cuts.

    An agent may write its history in another way when it goes on with a session.
    """
    answers = session.seen.trimmed_prompts
    if len(answers) != len(session.bodies):
        yield f"{len(answers)} prompts for {len(session.bodies)} requests"
        return
    before: Any = None
    known: set[str] = set()
    cuts = 0
    for place, body in session.steps:
        answer = answers[place]
        tokens = sum(counter().count_many(list(_texts(entries(body))), ENCODING))
        if not answer.fits or max(tokens, answer.tokens.after) > answer.tokens.limit:
            yield f"request {place}: {tokens} tokens by text, {answer.tokens}"
        calls = _calls(entries(body))
        yield from (f"request {place}: {call} stands {count} times" for call, count in calls.items() if count != 2)
        if before is not None and not _begins(body, before):
            cuts += 1
            if not answer.cache.batch_point and place not in session.starts:
                yield f"request {place} does not begin as the one before, and nothing was cut"
        elif before is not None and not known <= calls.keys():
            yield f"request {place}: calls are lost without a cut: {sorted(known - calls.keys())}"
        before, known = body, set(calls)
    if cuts > MOST_CUTS:
        yield f"{cuts} cuts"


def over_the_limit(session: Session) -> Iterator[str]:
    """The untrimmed history had more than the limit, and something was cut."""
    last = session.seen.trimmed_prompts[-1]
    if last.tokens.before <= 1.5 * last.tokens.limit or not last.cache.batch_points:
        yield f"the session was never over the limit: {last.tokens}"


def nothing_lost(session: Session) -> Iterator[str]:
    """The last prompt holds each call, or counts it among those dropped."""
    last = session.bodies[-1]
    dropped = dropped_of(json.dumps(entries(last)))
    standing = {call for call in _calls(entries(last)) if call != "own-2"}
    made = session.script.step + bool(session.script.looked_up)
    if made - len(standing) not in dropped:
        yield f"of {made} turns with calls {len(standing)} stand in the last prompt, and {dropped} count as dropped"


def dropped_of(text: str) -> range:
    """How many dropped iterations a prompt may mean, which says how many, or how many at least, in powers of ten."""
    counted = [(int(number.replace(",", "")), bool(more)) for number, more in DROPPED.findall(text)]
    most = sum(10 * number - 1 if more else number for number, more in counted)
    return range(sum(number for number, _ in counted), most + 1)


def none_returned(session: Session) -> Iterator[str]:
    """A call that was dropped is in no later prompt."""
    gone: set[str] = set()
    before: set[str] = set()
    for place, body in session.steps:
        calls = set(_calls(entries(body)))
        gone |= before - calls
        if gone & calls:
            yield f"request {place}: calls came back: {sorted(gone & calls)}"
        before = calls


def recall(session: Session) -> Iterator[str]:
    """What the model looks up stands in its next prompt; an original whole, and not so in the prompt before."""
    looked_up = session.script.looked_up
    if RECALL not in tools(session.bodies[-1]):
        yield "the sidecar's tools are not offered"
    if session.script.last == session.script.step and len(looked_up) != 2:
        yield f"the model looked up {len(looked_up)} times"
    for number, (place, wanted) in enumerate(looked_up.items(), 1):
        texts = [json.dumps(entries(body), ensure_ascii=False) for body in session.bodies[place - 1 : place + 1]]
        before, after = (_answer(texts[0], f"own-{number}"), _answer(texts[1], f"own-{number}"))
        steps = [
            step
            for step in range(1, session.script.step + 1)
            if all(line(step, each) in after for each in range(1, LINES + 1))
        ]
        right = wanted in after if number == 2 else len(steps) == 1
        if before or not right:
            yield f"request {place}: {wanted} was answered by {after[:200]!r}, after {before[:200]!r}"


def reasons(session: Session) -> Iterator[str]:
    """Of each request it was said what was done: trimmed, no need to, or no prompt; each step was offered recall."""
    yield from reported(session, RecallOffer.OFFERED)


def stored_by_provider(session: Session) -> Iterator[str]:
    """Requests that go on from what the provider holds say so, and pass; their model is offered recall all the same."""
    yield from reported(session, RecallOffer.OFFERED, _DONE | {Untrimmed.STORED_BY_PROVIDER})
    if session.seen.asked[-1].untrimmed is not Untrimmed.STORED_BY_PROVIDER:
        yield "the last request was not stored by the provider"


def forced(session: Session) -> Iterator[str]:
    """Requests that force a tool say that recall is not offered for it."""
    yield from reported(session, RecallOffer.FORCED)


def reported(session: Session, recall: RecallOffer, outcomes: frozenset[str] = _DONE) -> Iterator[str]:
    """Of each request it was said what was done, one of `outcomes`, and what became of recall.

    A request that is no step of the run may have no tools that the sidecar's could join.
    """
    handled = session.seen.asked
    requests = [request for request in session.seen.requests if request[1] not in (SENT_TO_HTTP, OPENED)]
    if len(handled) != len(requests):
        yield f"of {len(requests)} requests {len(handled)} have a reason"
    ends = Counter(each.outcome for each in handled)
    yield from (f"{count} requests: {outcome}" for outcome, count in ends.items() if outcome not in outcomes)
    offers = Counter(each.recall for each in handled[1:] if each.recall is not None)
    offers[RecallOffer.NO_TOOLS] -= len(session.bodies) - len(list(session.steps))
    yield from (f"{count} requests: recall {offer}" for offer, count in offers.items() if offer != recall and count > 0)


def written_out(session: Session) -> Iterator[str]:
    """The last prompt has the result of each step, or counts it among those dropped, where calls are plain texts."""
    last = json.dumps(entries(session.bodies[-1]), ensure_ascii=False)
    standing = sum(line(step, 1) in last for step in range(1, session.script.last + 1))
    dropped = dropped_of(last)
    if session.script.last - standing not in dropped:
        yield f"{standing} results stand in the last prompt, and {dropped} count as dropped"


def _answer(history: str, call: str) -> str:
    """The answer to a call in a history as JSON."""
    for entry in json.loads(history):
        for each in _pieces(entry):
            if (
                call in (each.get("call_id"), each.get("tool_call_id"), each.get("tool_use_id"), each.get("toolUseId"))
                and each.get("type") != "function_call"
                and "input" not in each
            ):
                return str(each.get("output") or each.get("content"))
            if "response" in each and each.get("name") == {"own-1": RECALL, "own-2": SEARCH}[call]:
                return str(each["response"])
    return ""


def _pieces(entry: Any) -> list[Any]:
    """An entry and its blocks, as far as they may be calls or results."""
    blocks = entry.get("content") if isinstance(entry.get("content"), list) else entry.get("parts") or []
    inner = [block.get(name) for block in blocks for name in _WRAPPED if block.get(name)]
    return [entry, *blocks, *inner, *(entry.get("tool_calls") or [])]


def hidden_from_the_agent(session: Session) -> Iterator[str]:
    """The agent's own files name no call of the sidecar's tools."""
    for path in sorted(session.home.rglob("*")):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            yield from (
                f"{path.name} names {word}" for word in (RECALL, SEARCH, "own-1", "own-2") if word.encode() in data
            )


def no_secret_left(session: Session) -> Iterator[str]:
    """No made-up key reached the provider, but for what it had signed itself."""
    for place, sent in enumerate(session.here.upstream.sent):
        unsigned = json.dumps(_unsigned(sent.body), ensure_ascii=False)
        yield from (
            f"request {place} holds {name}"
            for name, key in (("what a tool printed", PRINTED), ("a thought", THOUGHT))
            if key in unsigned
        )
        if PRINTED.encode() in sent.raw:
            yield f"request {place} holds what a tool printed"


def _unsigned(value: Any) -> Any:
    """A body without signed thinking."""
    if isinstance(value, list):
        return [_unsigned(each) for each in value if not (isinstance(each, Mapping) and each.get("type") == "thinking")]
    if isinstance(value, Mapping):
        return {name: _unsigned(each) for name, each in value.items()}
    return value


def _calls(history: Sequence[Any]) -> Counter[str]:
    """How often the id of each call of the script's stands in a history: once with the call, once with its answer.

    Gemini's calls have no ids: a step's is known by its number, and an answer by its place.
    """
    found: Counter[str] = Counter()
    open_calls: list[str] = []
    for entry in history:
        for each in _pieces(entry):
            names = [each.get(member) for member in _ID_MEMBERS if isinstance(each.get(member), str)]
            if isinstance(each.get("args"), Mapping):
                names = [_OWN.get(each["name"], f"call-{_number(each['args'])}")]
                open_calls.append(names[0])
            elif isinstance(each.get("response"), Mapping):
                names = [open_calls.pop(0) if open_calls else "none"]
            found.update(name for name in names[:1] if _MADE.match(name))
    return found


def _number(arguments: Mapping[str, Any]) -> object:
    """Return the number of a step, by the arguments of its call."""
    ran = _RAN.match(str(arguments.get("command")))
    return ran[1] if ran else arguments.get("number")


def _texts(value: Any) -> Iterator[str]:
    """The texts of a history that any provider counts at least: no ids, no signatures, no JSON around them."""
    if isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            if isinstance(each, str) and name in _TEXTS:
                yield each
            yield from _texts(each)


def _begins(body: Any, before: Any) -> bool:
    """Whether a prompt begins with all of the one before it, but for a note at its end."""
    old, new = _parts(before), _parts(body)
    if old[-1].get("role") in ("system", "developer"):
        old = old[:-1]
    return new[: len(old)] == old


def _parts(body: Any) -> list[Any]:
    """A prompt's parts in the order in which a provider reads them, without marks of its cache."""
    head = {name: body.get(name) for name in _HEAD}
    return [_unmarked(each) for each in (head, *map(_in_blocks, entries(body)))]


def _in_blocks(entry: Any) -> Any:
    """A message whose text is a string, as one block: agents write the same message in either way."""
    if entry.get("role") and isinstance(entry.get("content"), str):
        return {**entry, "content": [{"type": "text", "text": entry["content"]}]}
    return entry


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(each) for each in value]
    if isinstance(value, Mapping):
        return {name: _unmarked(each) for name, each in value.items() if name != "cache_control"}
    return value


EVERY_SESSION: Final = (served, counted, commands, hidden_from_the_agent)
ONE_HISTORY: Final = (*EVERY_SESSION, prompts, recall, over_the_limit, none_returned)
"""Of a session whose history only grows."""
SIXTY_CALLS: Final = (*ONE_HISTORY, nothing_lost, reasons)
NOT_COUNTED: Final = tuple(check for check in SIXTY_CALLS if check is not counted)
"""Of an agent that asks for no usage."""
FORCED: Final = (*EVERY_SESSION, prompts, over_the_limit, written_out, forced)
"""Of an agent that forces a tool at each request, and writes calls as plain texts."""
WRITTEN_OUT: Final = (*EVERY_SESSION, prompts, over_the_limit, reasons)
"""Of an agent that writes calls as plain texts."""
STORED: Final = (commands, stored_by_provider)
"""Of an agent whose provider holds the history."""
