"""Texts that agents' frameworks put into a history in mid-run, recognised by their exact form.

They are in the place of a user's words or a developer's instructions, and are neither: a framework writes them, and for
some kinds only the newest one matters. Only a whole text counts, from its opening to its closing tag, in a message of
the role that its framework uses, in the agent's format. A tag inside another text, in a tool's output or in the model's
text is ordinary text.

The table below has what was read in openai/codex (`codex-rs/core/src/context`: each fragment has a role and its
markers; `world_state` says what is sent again when) and in recorded sessions of Claude Code. Not in it, although they
have such a form, as a later one of them does not replace an earlier one:

- `<skills_instructions>` of Codex, whose later ones list skills without the rules for their use;
- `<turn_aborted>`, `<subagent_notification>` and `<user_shell_command>` of Codex: each reports another event;
- `<system-reminder>` of Claude Code: such a text is clipped when it is old (`Policy.reminder_tags`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

from prompt_sidecar.prompt.items import Role

CODEX: Final = "codex"
CLAUDE_CODE: Final = "claude_code"
_NAME: Final = "[^<>\n]{1,1024}"
_ELEMENT: Final = re.compile(r"^  <([a-z_]{1,40})[ >]", re.MULTILINE)


class Injected(NamedTuple):
    """The kind of a text that a framework put into a history."""

    agent: str
    kind: bytes
    """A digest that is the same for texts of which the newest replaces the others."""
    certain: bool
    """Whether the form identifies the agent. Otherwise the text counts only in a run that is known to be the agent's:
    by such a text before it, or by any text of the agent in the run's opening."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of one kind of text."""

    agent: str
    role: Role
    tag: str
    begins: re.Pattern[str]
    """The text after the opening tag; its groups are part of the kind."""
    certain: bool = True
    elements: bool = False
    """Whether a later text replaces only one with the same elements, as it may state changes only."""

    def match(self, role: Role, text: str) -> Injected | None:
        """Return the kind of a text in this form, or None. Takes linear time."""
        if role is not self.role or not text.startswith(self._opening) or not text.rstrip().endswith(self._closing):
            return None
        begins = self.begins.match(text, len(self._opening))
        if begins is None or text.count(self._opening) > 1 or text.count(self._closing) > 1:
            return None
        parts = [self.agent, self.tag, *(group or "" for group in begins.groups())]
        if self.elements:
            names = _ELEMENT.findall(text)
            if "environments" in names:  # it lists the changed ones
                return None
            parts += sorted(names)
        kind = blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=8).digest()
        return Injected(self.agent, kind, self.certain)

    @property
    def _opening(self) -> str:
        return f"<{self.tag}>"

    @property
    def _closing(self) -> str:
        return f"</{self.tag}>"


def _form(agent: str, role: Role, tag: str, begins: str, *, certain: bool = True, elements: bool = False) -> Form:
    return Form(agent, role, tag, re.compile(begins), certain, elements)


FORMS: Final[Mapping[str, Sequence[Form]]] = {
    "openai_responses": (
        # model_switch_instructions.rs: all instructions of the model that is used from there on.
        _form(CODEX, Role.SYSTEM, "model_switch", "\nThe user was previously using a different model\\."),
        # permissions_instructions.rs: sandbox and approvals, complete each time they change.
        _form(CODEX, Role.SYSTEM, "permissions instructions", "\n"),
        # collaboration_mode.rs: "any previous instructions for other modes are no longer active".
        _form(CODEX, Role.SYSTEM, "collaboration_mode", ""),
        # skill_instructions.rs: the newest of a skill replaces the earlier ones.
        _form(CODEX, Role.USER, "skill", f"\n<name>({_NAME})</name>\n<path>({_NAME})</path>\n", certain=False),
        # environment.rs: unchanged elements may be absent.
        _form(CODEX, Role.USER, "environment_context", "\n  <[a-z_]", certain=False, elements=True),
    ),
    "anthropic_messages": (
        # Reports of background tasks: the newest of each task.
        _form(CLAUDE_CODE, Role.USER, "task-notification", f"\n<task-id>({_NAME})</task-id>\n"),
    ),
}
"""By format; see the module's docstring for the sources."""


def injected(format_name: str, role: Role, text: str) -> Injected | None:
    """Return which framework put a whole text of a message of this role into a history, or None if none is known."""
    if not text.startswith("<"):
        return None
    found = (form.match(role, text) for form in FORMS.get(format_name, ()))
    return next((each for each in found if each is not None), None)
