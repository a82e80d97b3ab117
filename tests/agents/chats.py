"""aider's session: a user who types wishes and adds what commands print, and what is wrong with it afterwards.

It has no tools: its model edits files by texts, and a turn begins with words of a user's. So nothing can be recalled,
and a history is known by its texts.

aider 0.86.2 has its model summarize a chat of more than `max_chat_history_tokens`, and takes the summary only if the
chat is as it was when that began; where a turn has changed a file it adds a message in between (aider-ai/aider,
aider/coders/base_coder.py: `move_back_cur_messages`, `summarize_end`). So the chat of a user whose turns change files
only grows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from prompt_sidecar.facts.recall_offer import RecallOffer
from tests.agents.judging import (
    MOST_CUTS,
    Check,
    commands,
    dropped_of,
    hidden_from_the_agent,
    over_the_limit,
    reported,
    served,
)
from tests.agents.lines import LINES, RAN, line
from tests.agents.programs import KEY, Agent, Command, Start
from tests.agents.running import Session
from tests.agents.scripts import CALLS, DONE, PRINTS, Script
from tests.client.provider import Says

QUIET: Final = ("--yes-always", "--no-check-update", "--no-show-release-notes", "--no-show-model-warnings")
"""Yes to what it asks, such as whether to make a Git repository; what else is off would want the network."""
_WISH: Final = re.compile(r"Do step (\d+)\.")
_FILES: Final = "I have *added these files to the chat*"
"""Begins the message behind aider's history, which it writes anew for each request."""
_SUMMARY: Final = "The user had steps done, and all went well."
_COMMIT: Final = "Record a step"


def _aider(agent: Agent, start: Start) -> Command:
    """In a folder that is not its user's home, where it would make no Git repository."""
    words = [f"/run sh {PRINTS} {{step}}", "Do step {step}."]
    typed = [word.format(step=step) for step in range(1, CALLS + 1) for word in words]
    (start.home / "user").mkdir(exist_ok=True)
    return Command(
        [str(start.python("aider"))],
        ["-m", "aider", "--model", agent.model, *QUIET, RAN],
        {
            "OPENAI_API_BASE": f"{start.url}/v1",
            "OPENAI_API_KEY": KEY,
            "TERM": "dumb",
            "HOME": str(start.home / "user"),
        },
        typed="".join(f"{each}\n" for each in [*typed, "Is all done?"]),
    )


AIDER: Final = Agent("aider", "chat/completions", _aider, "", 30_000, model="openai/next")


@dataclass(slots=True)
class Chat(Script):
    """aider's model: it writes the file of steps again at each wish, and what aider asks for by itself."""

    def is_step(self, body: Any) -> bool:
        """Whether a request has a wish of the user's as its newest turn."""
        return _WISH.match(_newest(body)) is not None

    def _turn(self, body: Any) -> Says:
        self.requests += 1
        newest = _newest(body)
        if (wish := _WISH.match(newest)) is not None:
            self.turns += 1
            self.step = int(wish[1])
            numbers = "".join(f"{number}\n" for number in range(1, self.step + 1))
            return Says(f"Step {self.step}.\n\n{RAN}\n```\n{numbers}```\n")
        if newest.startswith("Is all done?"):
            return Says(DONE)
        return Says(_SUMMARY if newest.startswith("# USER") else _COMMIT)


def _texts(body: Any) -> list[str]:
    """The texts of a body's messages."""
    found = [message["content"] for message in body["messages"]]
    return [each if isinstance(each, str) else "".join(part.get("text", "") for part in each) for each in found]


def _newest(body: Any) -> str:
    return _texts(body)[-1]


def turns(session: Session) -> Iterator[str]:
    """Each wish came once, with what its command printed; the earlier ones stand once, or count as dropped.

    What the newest command printed is whole but in a cut: it is a user's text, and not in the newest message.
    """
    wished = []
    for place, body in session.steps:
        texts = _texts(body)
        standing = Counter(wish[1] for text in texts if (wish := _WISH.match(text)))
        yield from (
            f"request {place}: step {step} stands {count} times" for step, count in standing.items() if count > 1
        )
        dropped = dropped_of("\n".join(texts))
        wished.append(newest := int(_WISH.findall(texts[-1])[0]))
        if newest - len(standing) not in dropped:
            yield f"request {place}: of {newest} wishes {len(standing)} stand there, and {dropped} count as dropped"
        printed = "\n".join(texts)
        lines = {printed.count(f"{line(newest, each)}\n") for each in (1, LINES)}
        if not session.seen.trimmed_prompts[place].cache.batch_point:
            lines |= {printed.count(f"{line(newest, each)}\n") for each in range(1, LINES + 1)}
        if lines != {1}:
            yield f"request {place}: what the newest command printed is not there once"
    if wished != list(range(1, session.script.last + 1)):
        yield f"wishes came: {wished}"


def prompts(session: Session) -> Iterator[str]:
    """Each prompt fits, and has the history of the one before as its beginning, but for some cuts."""
    answers = session.seen.trimmed_prompts
    if len(answers) != len(session.bodies):
        yield f"{len(answers)} prompts for {len(session.bodies)} requests"
        return
    yield from (f"a prompt does not fit: {each.tokens}" for each in answers if not each.fits)
    before: list[str] = []
    cuts = 0
    for place, body in session.steps:
        texts = _texts(body)
        if texts[: len(before)] != before:
            cuts += 1
            if not answers[place].cache.batch_point:
                yield f"request {place} does not begin as the one before, and nothing was cut"
        before = texts[: next(number for number, text in enumerate(texts) if text.startswith(_FILES))]
    if cuts > MOST_CUTS:
        yield f"{cuts} cuts"


def reasons(session: Session) -> Iterator[str]:
    """Of each request it was said what was done, and that recall was not offered as there are no tools."""
    yield from reported(session, RecallOffer.NO_TOOLS)


CHAT: Final[tuple[Check, ...]] = (served, commands, hidden_from_the_agent, turns, prompts, over_the_limit, reasons)
