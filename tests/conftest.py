"""Settings of all tests: hypothesis draws the same examples at every run in CI, so that a red build is red again.

None of them depends on how busy the machine is: an example may take its time, and so may drawing it.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

ON_ANY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("ci", ON_ANY_MACHINE, derandomize=True, print_blob=True)
settings.register_profile("local", ON_ANY_MACHINE)
settings.load_profile("ci" if os.environ.get("CI") else "local")
