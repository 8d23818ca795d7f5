"""Any text as the name of a file, and back."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

#: A name of its own for the empty text; every other ``%`` of a name is followed by two digits.
_EMPTY = "%"


def encode(text: str) -> str:
    """Letters and digits of all scripts, ``_``, ``-`` and ``~`` stay; the rest is URL-encoded, also ``.`` and ``/``.

    Raises:
        UnicodeEncodeError: the text cannot be encoded as UTF-8.
    """
    text.encode()
    return re.sub(r"[^\w~-]", lambda found: quote(found[0], safe="").replace(".", "%2E"), text) or _EMPTY


def decode(name: str) -> str:
    """The text of a name that :func:`encode` has made."""
    return "" if name == _EMPTY else unquote(name)
