# SPDX-License-Identifier: Apache-2.0
"""What MkDocs does with a page before it renders it; named under ``hooks`` in mkdocs.yml.

A line that is nothing but a link to a file at the root of the repository, such as the changelog,
becomes the text of that file: on GitHub a reader follows the link, on the site it is there. A line
break inside Chinese text goes away, because a browser would show it as a space.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

ROOT_FILE = re.compile(r"^\[[^\]]+\]\(\.\./\.\./(?P<name>[A-Z]+\.md)\)$", re.MULTILINE)

#: Links of such a file: to a page of this language, and to anything else in the repository.
PAGE_LINK = re.compile(r"\]\(docs/(?:en|zh)/(?P<page>[^)]+)\)")
OTHER_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?!https?:|#)(?P<path>[^)]+)\)")
TITLE = re.compile(r"\A(?:<!--.*?-->\s*)?# .*\n", re.DOTALL)

CHINESE = r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]"
PUNCTUATION = r"[\u3001\u3002\uff08\uff09\uff0c\uff1a\uff1b\uff1f\u201d]"
BREAK = re.compile(rf"(?<={CHINESE})\n *(?={CHINESE})|(?<={PUNCTUATION})\n *(?=[A-Za-z`(])")
CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by MkDocs for every page."""
    return joined(included(markdown))


def included(markdown: str) -> str:
    """The page with the text of root files in place of their links.

    Raises:
        FileNotFoundError: a linked file does not exist.
    """
    return ROOT_FILE.sub(lambda link: root_file(link["name"]), markdown)


def root_file(name: str) -> str:
    """The text of a file at the root, without its title, its links as they have to be on a page."""
    text = TITLE.sub("", (ROOT / name).read_text(encoding="utf-8"), count=1)
    pages: list[str] = []

    def kept(link: re.Match[str]) -> str:
        pages.append(link["page"])
        return f"](page:{len(pages) - 1})"

    text = PAGE_LINK.sub(kept, text)
    text = OTHER_LINK.sub(
        lambda link: link[0] if link["path"].startswith("page:") else f"`{link['path']}`", text
    )
    return re.sub(r"\]\(page:(\d+)\)", lambda link: f"]({pages[int(link[1])]})", text)


def joined(markdown: str) -> str:
    """The page without line breaks inside Chinese text; code stays as it is."""
    parts = CODE.split(markdown)
    return "".join(part if index % 2 else BREAK.sub("", part) for index, part in enumerate(parts))
