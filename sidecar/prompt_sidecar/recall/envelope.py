"""Envelopes: quoted text in fences, so that text of tools cannot be mistaken for text of the sidecar.

    2 of 17 matching items shown; iterations 1-37 were searched. Quotes stand between <<483920 and 483920>>.
    snippet 1 of 2, tool result of read_file, iteration 3, id ab3dq7ghjk, lines 120-148 of 900, more near line 40, 312
    <<483920
    the text, to the character
    483920>>
    also in the prompt: tool result of read_file, iteration 35, lines 3-40

A fence has a nonce that is chosen after the text is known and occurs nowhere in it, so that no text can close its
fence, and a header line inside a fence is recognisably quoted. "Nowhere" includes text that a model may read as the
nonce: the nonce is searched in the text with letters and digits folded to ASCII and all other characters dropped, so
full-width digits, or spaces and zero-width characters in between, make no difference. Folding works on single
characters, as normalising a whole text takes quadratic time on long runs of combining marks (1.8 s for 40,000).

The text is exactly what is between the line feed after the opening fence and the line feed before the closing one: one
line feed is always added, even if the text ends with one. So every text can be read back, including the empty one.

Envelopes state facts and never instruct. Tool names are shown if they are plain ones, call ids never.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Final

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.recall.found import InPrompt, Snippet
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.recall.selection import Stretch
from prompt_sidecar.recall.tag import one_line
from prompt_sidecar.trim.own_text import plain_name

QUOTE_TOKENS: Final = 60
"""Estimated tokens (o200k) of one quote without its text, with a nonce of six digits: 44 with an id, a short tool name
and three-digit line numbers, of which the fence takes 9; numbers of seven digits add 11, a name of 64 characters up to
30 and each further digit or letter of a nonce about one."""
HEAD_TOKENS: Final = 20
"""Tokens of the sentence that shows the fence, once for each envelope, with such a nonce."""

IN_PROMPT_TOKENS: Final = 30
"""Estimated tokens of the line of an item that is in the prompt: 22 with a short tool name and two-digit numbers."""

_ROUNDS: Final = 16
"""Most pieces of a nonce. Each makes it a hundred thousand times less likely that the text contains the nonce, so a
second piece is rarely needed and a fifth practically never, unless the source of nonces is not random."""
_LEAST_NONCE: Final = 4
"""Least characters of a nonce, so that it is easy to recognise."""
_TEXTS: Final = {
    Role.USER: "user text",
    Role.ASSISTANT: "assistant text",
    Role.TOOL: "tool text",
    Role.SYSTEM: "system text",
    Role.OTHER: "text",
}


def render_found(
    snippets: Sequence[Snippet],
    in_prompt: Sequence[InPrompt] = (),
    *,
    total: int,
    message: str,
    nonce: Callable[[], str],
) -> str:
    """Write the body of a search's answer.

    Args:
        snippets: the quoted snippets, best first.
        in_prompt: matching items that the prompt shows whole and that are not quoted; a line each, at the end.
        total: items that match, shown or not.
        message: one sentence of ours, with no text of a prompt; empty: how many of `total` are shown.
        nonce: gives a few random ASCII letters or digits at each call; six digits cost two tokens.

    Raises:
        ValueError: `nonce` returned other characters.
        RuntimeError: all nonces occur in the text.
    """
    shown = len(snippets)
    sentence = one_line(message) or f"{shown} of {total:,} matching items shown."
    more = [_in_prompt_line(one) for one in in_prompt]
    if not snippets:
        return "\n".join([sentence, *more])
    quotes = [(_snippet_line(snippet, place, shown), snippet.text) for place, snippet in enumerate(snippets, 1)]
    return "\n".join([_fenced(sentence, quotes, nonce), *more])


def render_page(
    page_content: bytes, content_type: str, stretches: Sequence[Stretch], *, nonce: Callable[[], str]
) -> str:
    """Write the body of a recall's answer: each stretch of the page as a quote. Empty where nothing is shown.

    Args:
        page_content: the bytes of the stretches, one after another.
        content_type: media type of the original.
        stretches: their positions in the original.
        nonce: as for `render_found`.

    Raises:
        ValueError: the stretches do not match the content, or as for `render_found`.
        RuntimeError: as for `render_found`.
    """
    if sum(stretch.end_byte - stretch.start_byte for stretch in stretches) != len(page_content):
        raise ValueError(f"the stretches of a page of {len(page_content):,} bytes have other bytes in all")
    what = ", JSON" if content_type == "application/json" else ""
    quotes: list[tuple[str, str]] = []
    at = 0
    for place, stretch in enumerate(stretches, 1):
        size = stretch.end_byte - stretch.start_byte
        of = f" {place} of {len(stretches)}" if len(stretches) > 1 else ""
        label = (
            f"stretch{of}, lines {stretch.first_line}-{stretch.last_line}, "
            f"bytes {stretch.start_byte}-{stretch.end_byte}{what}"
        )
        # Pages are cut between characters, and originals are UTF-8, so no character is replaced.
        quotes.append((label, page_content[at : at + size].decode(errors="replace")))
        at += size
    return _fenced("", quotes, nonce) if quotes else ""


def _fenced(sentence: str, quotes: Sequence[tuple[str, str]], nonce: Callable[[], str]) -> str:
    mark = _unused(nonce, [sentence, *(part for quote in quotes for part in quote)])
    head = f"Quotes stand between <<{mark} and {mark}>>."
    lines = [f"{sentence} {head}" if sentence else head]
    for label, text in quotes:
        lines += [label, f"<<{mark}\n{text}\n{mark}>>"]
    return "\n".join(lines)


def _unused(nonce: Callable[[], str], texts: Sequence[str]) -> str:
    """Return a nonce that is in none of the texts in any form; longer at each attempt."""
    bare = [_bare(text) for text in texts]
    mark = ""
    for _ in range(_ROUNDS):
        piece = nonce()
        if not (piece.isascii() and piece.isalnum()):
            raise ValueError("a nonce must be ASCII letters and digits")
        mark += piece
        looked_for = mark.lower()
        if len(mark) >= _LEAST_NONCE and not any(looked_for in text for text in bare):
            return mark
    raise RuntimeError(f"no nonce of {_ROUNDS} pieces is free: their source gives no chance")


def _bare(text: str) -> str:
    """Return the text's letters and digits, folded to lower-case ASCII, without all other characters."""
    return text.translate({ord(character): _folded(character) for character in set(text)})


def _folded(character: str) -> str:
    """Return the ASCII letters and digits that a character may be read as: 2 for `２` and `٢`, k for `K` (Kelvin)."""
    digit = unicodedata.digit(character, None)
    if digit is not None:
        return str(digit)
    unfolded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", character).casefold())
    return "".join(part for part in unfolded if part.isascii() and part.isalnum())


def _snippet_line(snippet: Snippet, place: int, shown: int) -> str:
    item = snippet.item
    line = (
        f"snippet {place} of {shown}, {_what(item)}, iteration {item.iteration}, id {item.stash_id}, "
        f"lines {snippet.first_line}-{snippet.last_line} of {snippet.total_lines}"
    )
    if snippet.elsewhere:
        line += f", more near line {', '.join(map(str, snippet.elsewhere))}"
    if snippet.repeats:
        line += f", also in {snippet.repeats} older item{'' if snippet.repeats == 1 else 's'}"
    return line


def _in_prompt_line(one: InPrompt) -> str:
    lines = f"lines {one.first_line}-{one.last_line}"
    return f"also in the prompt: {_what(one.item)}, iteration {one.item.iteration}, {lines}"


def _what(item: HistoryItem) -> str:
    """Return the description of an item in a header line."""
    name = plain_name(item.tool)
    match item.kind:
        case ItemKind.RESULT:
            return f"tool result of {name}" if name else "tool result"
        case ItemKind.ARGUMENTS:
            return f"call arguments of {name}" if name else "call arguments"
        case ItemKind.TEXT | ItemKind.SNAPSHOT:
            return _TEXTS[item.role]
        case ItemKind.REASONING:
            return "reasoning of the model"
        case ItemKind.IMAGE:
            return "image"
        case ItemKind.OPAQUE:
            return "message"
