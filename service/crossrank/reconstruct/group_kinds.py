"""What a process group is for, by what it is called or described as.

Names such as `dp3` or `tp_0` say it; frameworks name groups by number and describe them in words: `TENSOR_MODEL_PARALLEL_GROUP`,
`EXPERT_DATA_PARALLEL_GROUP_WITH_CP`. One kind of parallelism in a description is that kind; several at once (tensor *and* data)
are none of them; what a group is taken *with* does not count.
"""

from __future__ import annotations

import re
from typing import Final

from crossrank.model.topology import GroupKind

_NAMED: Final = re.compile(r"(?:^|[^a-z])(world|dp|tp|pp|ep|cp)(?![a-z])")
_WORDS: Final[dict[str, GroupKind]] = {
    "data": "dp",
    "tensor": "tp",
    "pipeline": "pp",
    "expert": "ep",
    "context": "cp",
    "dp": "dp",
    "tp": "tp",
    "pp": "pp",
    "ep": "ep",
    "cp": "cp",
}
_WORLD: Final = frozenset({"default_pg", "world", "all ranks"})


def named_kind(name: str) -> GroupKind | None:
    """The kind that a group's name states; None where it states none."""
    word = name.lower()
    found = _NAMED.search(word)
    if found:
        return "world" if found[1] == "world" else _WORDS[found[1]]
    if word in _WORLD:
        return "world"
    return next((kind for text, kind in _WORDS.items() if len(text) > 2 and text in word), None)


def described_kind(description: str) -> GroupKind | None:
    """The kind that a description states: `other` for several at once, None for none."""
    text = description.lower()
    if text in _WORLD:
        return "world"
    words = re.split(r"[^a-z]+", text)
    counted = words[: words.index("with")] if "with" in words else words
    found = {_WORDS[word] for word in counted if word in _WORDS}
    return None if not found else found.pop() if len(found) == 1 else "other"
