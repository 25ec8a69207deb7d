# SPDX-License-Identifier: Apache-2.0
"""What MkDocs does with a page before it renders it; named under ``hooks`` in mkdocs.yml.

A line break inside Chinese text goes away, because a browser would show it as a space.
"""

from __future__ import annotations

import re

CHINESE = r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]"
PUNCTUATION = r"[\u3001\u3002\uff08\uff09\uff0c\uff1a\uff1b\uff1f\u201d]"
BREAK = re.compile(rf"(?<={CHINESE})\n *(?={CHINESE})|(?<={PUNCTUATION})\n *(?=[A-Za-z`(])")
CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by MkDocs for every page; code stays as it is."""
    parts = CODE.split(markdown)
    return "".join(part if index % 2 else BREAK.sub("", part) for index, part in enumerate(parts))
