"""How hypothesis searches: without time limits, and with the same examples every time on CI."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("here", deadline=None, max_examples=60)
settings.register_profile("ci", parent=settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
