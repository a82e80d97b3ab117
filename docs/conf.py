"""How `make docs` builds the site: pages of this folder, and what `_extensions/reference.py` makes from the sources.

The build is strict (`-W -n`): a link that leads nowhere and a page that no other leads to fail it. It reads nothing
from the network, and neither do the pages.
"""

import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs" / "_extensions"), str(ROOT / "sidecar")]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "Prompt Sidecar"
version = release = PROJECT["version"]
html_title = f"{project} {release}"
extensions = ["myst_parser", "reference"]
exclude_patterns = ["_extensions"]
source_suffix = {".md": "markdown"}

myst_heading_anchors = 4  # [text](page.md#a-heading), as code hosts name their headings
myst_enable_extensions: list[str] = []

# Pygments does not know that names of recorded series have colons.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_copy_source = False
html_show_copyright = False
