"""Print the bounds of what TrimPrompt takes, for the Python client, which may import nothing of the server.

`.ci/stubs` writes them to `sidecar/prompt_sidecar/client/ranges.json`; `make check` fails if that is not what the
server's code says. Each is a message's field: the least and the greatest number, or, for texts, the fewest and the most
bytes.
"""

from __future__ import annotations

import json

from prompt_sidecar.calls.checks import NAME_BYTES, RUN_ID_BYTES
from prompt_sidecar.trim.policy import BOUNDS

MOST = 2**31 - 1
"""The greatest number that the field's type holds; the server sets no other bound."""

if __name__ == "__main__":
    ranges = {
        "Annotation": {"message_index": (0, MOST)},
        "Policy": dict(BOUNDS),
        "TrimPromptRequest": {
            "context_window": (0, MOST),
            "output_reserve": (0, MOST),
            "served_iterations": (0, MOST),
            "run_id": (1, RUN_ID_BYTES),
            "model": (0, NAME_BYTES),
        },
    }
    print(json.dumps(ranges, indent=2, sort_keys=True))
