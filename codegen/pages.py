"""Where a page has a table that is written for it: between two comments."""

from __future__ import annotations

import re


def block(name: str) -> re.Pattern[str]:
    """What is between the lines ``<!-- name: begin -->`` and ``<!-- name: end -->`` of a page."""
    return re.compile(rf"(?<=<!-- {name}: begin -->\n).*?(?=<!-- {name}: end -->)", re.DOTALL)
