"""Arrays that compiled code uses without owning them.

numba counts references to an array whenever one is passed on or taken out of a tuple, with atomic operations that its optimiser
often cannot remove: in a kernel that handles bytes one by one they cost ten times the work itself. A kernel that starts with
`x = borrowed(x)` gets the same arrays with no owner to count. They must be arguments of that kernel, whose caller keeps the
real ones alive until it returns: an array made inside would be freed after its last visible use. No borrowed array may be returned. Indexing, also with bounds checking, is as before.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def borrowed(typingctx: Any, value: Any) -> Any:
    """The array, or the tuple of arrays, without its owner."""
    del typingctx
    if not isinstance(value, (types.Array, types.NamedUniTuple, types.NamedTuple)):
        return None

    def bare(context: Any, builder: Any, kind: Any, array: Any) -> Any:
        view = context.make_array(kind)(context, builder, value=array)
        view.meminfo = cgutils.get_null_value(view.meminfo.type)
        view.parent = cgutils.get_null_value(view.parent.type)
        return view._getvalue()  # noqa: SLF001  # numba's own name for "the value of this structure"

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (kind,), (given,) = signature.args, args
        if isinstance(kind, types.Array):
            return bare(context, builder, kind, given)
        out = given
        for place, member in enumerate(kind):
            out = builder.insert_value(out, bare(context, builder, member, builder.extract_value(given, place)), place)
        return out

    return value(value), generate
