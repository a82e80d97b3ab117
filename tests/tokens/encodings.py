"""tiktoken's encodings, loaded once for all tests of counts: each takes half a second of processor time."""

from __future__ import annotations

from collections.abc import Mapping

import tiktoken

from prompt_sidecar.tokens import ENCODINGS, load

ENCODED: Mapping[str, tiktoken.Encoding] = {name: load(name) for name in ENCODINGS}
