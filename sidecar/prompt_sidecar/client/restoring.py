"""Values in place of masks, in the arguments of calls that are about to be executed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prompt_sidecar.client.engine import Engine, Steps
from prompt_sidecar.client.errors import ClientError
from prompt_sidecar.client.facts import Restored


def restored(
    engine: Engine, run_id: str, calls: Sequence[tuple[str, str]], again: Callable[[], Steps[object]]
) -> Steps[tuple[Restored, ...]]:
    """Return what becomes of calls' arguments; nothing where the sidecar does not answer: the masks reveal nothing.

    Args:
        engine: the client's.
        run_id: the run.
        calls: a tool's name and its arguments, JSON text, each.
        again: sends the run's history once more, for a sidecar that has not got the values, as after a restart.

    Raises:
        ClientError: the sidecar does not answer, and the client does not fail open.
    """
    try:
        made = yield from engine.restore_secrets(run_id, calls)
        if any(each.unknown for each in made):
            yield from again()
            made = yield from engine.restore_secrets(run_id, calls)
    except ClientError:
        if not engine.options.fail_open:
            raise
        return ()
    return made
