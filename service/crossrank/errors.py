"""The faults a caller can meet, named once. Each says what happened, where, and what to do.

Layers raise these; only `api.errors` turns them into HTTP status codes and only `cli` into exit codes.
"""

from __future__ import annotations


class CrossrankError(Exception):
    """Base of every fault a user can cause or meet; the message is written for them. `detail` is machine-readable."""

    code = "error"

    def __init__(self, message: str, **detail: object) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail


class UndecodableBody(CrossrankError):
    """The body as a whole cannot be read."""

    code = "undecodable"


class BodyTooLarge(CrossrankError):
    """The body is larger than the limit, before or after decompression."""

    code = "too_large"


class UnsupportedType(CrossrankError):
    """The content type or encoding is not one we read."""

    code = "unsupported_type"


class BadParameter(CrossrankError):
    """A query parameter or option has a value that cannot be used; `detail["field"]` names it."""

    code = "bad_parameter"


class NotFound(CrossrankError):
    """No such job, step, trace or event."""

    code = "not_found"


class Overloaded(CrossrankError):
    """A budget is used up; try again shortly. Reads go on."""

    code = "overloaded"


class StoreUnavailable(CrossrankError):
    """The data folder cannot take writes (disk full, failed sync, held by another process, newer format)."""

    code = "store_unavailable"


class Unauthenticated(CrossrankError):
    """No valid token came with the request."""

    code = "unauthenticated"


class Forbidden(CrossrankError):
    """The token is valid, but not for this."""

    code = "forbidden"


class TooSlow(CrossrankError):
    """The request did not arrive in the time allowed for it."""

    code = "too_slow"


class Damaged(CrossrankError):
    """Files of the data folder are not what was written; the message says which."""

    code = "damaged"


class Unreachable(CrossrankError):
    """The service does not answer at the address given."""

    code = "unreachable"


class Refused(CrossrankError):
    """The service answered with a fault of a kind this program does not know, or with something that is not an answer."""

    code = "refused"
