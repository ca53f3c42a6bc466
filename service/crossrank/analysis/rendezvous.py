"""Whether sends wait for their receiver.

A buffered send ends when its data has left; whether the receiver is there does not matter. A rendezvous send (NCCL; large messages
elsewhere) ends when both sides have met. The recording tells: where the receiver came so late that a send without one would long
have ended (later than nine of ten sends take whose receiver is there), a buffered send has ended before, a rendezvous send never.
With LEAST such messages and not one send ended before its receiver came, sends wait; both ends of a message then come after both
starts.

Only sends on lanes of their own (streams of a device) are looked at: a send that is a call of the program may also take long for
reasons of its own, so there its time is kept as the send's own.
"""

from __future__ import annotations

import numpy as np

from crossrank.model.arrays import Int64Array
from crossrank.model.kinds import RECV, SEND
from crossrank.model.matches import MessageMatches
from crossrank.model.trace import JobTrace

LEAST = 20
_MOST_EARLY = 0.002  # share that may have ended before, by the clocks' fault


def sends_wait(trace: JobTrace, messages: MessageMatches, start_ns: Int64Array, end_ns: Int64Array) -> bool:
    """Whether the job's sends are rendezvous sends on lanes of their own. start_ns, end_ns: [n] aligned times."""
    others = np.unique(trace.lane[~np.isin(trace.kind, (SEND, RECV))])
    if len(messages) == 0 or np.isin(trace.lane[messages.send], others).any():
        return False
    late_ns = start_ns[messages.recv] - start_ns[messages.send]
    takes_ns = (end_ns - start_ns)[messages.send] - np.maximum(late_ns, 0)  # once both are there
    telling = late_ns > max(2 * float(np.quantile(takes_ns, 0.9)), 0.0)
    early = takes_ns[telling] < 0
    return bool(telling.sum() >= LEAST and early.mean() <= _MOST_EARLY)


def both_arrive(messages: MessageMatches) -> tuple[Int64Array, Int64Array]:
    """(spans, message index) of all sends and receives, for the gates at which both sides meet."""
    index = np.arange(len(messages))
    return np.concatenate((messages.send, messages.recv)), np.concatenate((index, index))
