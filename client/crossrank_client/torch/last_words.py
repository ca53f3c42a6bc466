"""What a rank still says when it is told to go: on SIGTERM its flight recorder and the stacks of its threads are posted.

A launcher ends the ranks of a hung job with SIGTERM, and a rank that hangs in a collective runs no Python: a handler of Python
would wait for it for ever. The interpreter's own C handler does run, and writes a byte to the wakeup socket; a thread that sleeps on that
socket then does the work, as the interpreter is free while the rank waits.

    who handled SIGTERM before      what happens after the words are posted (at most WORDS_S later)
    the default action              the process dies of SIGTERM, as it would have
    a handler of Python             it runs, in the main thread as ever
    nobody (ignored)                nothing

Where somebody else already owns the wakeup socket (asyncio), only a rank that is in Python can be heard.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
import traceback
from types import FrameType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from crossrank_client.torch.ring import dump

if TYPE_CHECKING:
    from crossrank_client.client import Client

WORDS_S = 2.0
STACK_CHARACTERS = 3900


class LastWords:
    """Waits for SIGTERM until removed. Only the main thread can install a handler; elsewhere it does nothing."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._said = threading.Event()
        self._installed = threading.current_thread() is threading.main_thread()
        if not self._installed:
            return
        self._before: Any = signal.getsignal(signal.SIGTERM)
        self._pid = os.getpid()
        self._ours, theirs = socket.socketpair()
        self._theirs = theirs
        theirs.setblocking(False)
        self._heard_at_once = self._take_wakeup()
        signal.signal(signal.SIGTERM, self._in_main_thread)
        self._thread = threading.Thread(target=self._listen, name="crossrank-last-words", daemon=True)
        self._thread.start()

    def remove(self) -> None:
        """Gives SIGTERM back, unless somebody else has taken it since."""
        if not self._installed or threading.current_thread() is not threading.main_thread():
            return
        self._installed = False
        if signal.getsignal(signal.SIGTERM) == self._in_main_thread:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)
        if self._heard_at_once:
            signal.set_wakeup_fd(-1)
        self._theirs.close()  # the thread reads the end and goes
        self._thread.join(1.0)
        self._ours.close()

    def _take_wakeup(self) -> bool:
        before = signal.set_wakeup_fd(self._theirs.fileno(), warn_on_full_buffer=False)
        if before == -1:
            return True
        signal.set_wakeup_fd(before)
        return False

    def _listen(self) -> None:
        while True:
            try:
                numbers = self._ours.recv(16)
            except OSError:
                return
            if not numbers:
                return
            if signal.SIGTERM in numbers:
                self._speak()
                if self._before in (signal.SIG_DFL, None):
                    self._die()

    def _in_main_thread(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._pid:
            if not self._heard_at_once:
                self._theirs.send(bytes([signal.SIGTERM]))
            self._said.wait(WORDS_S)
        if callable(self._before):
            self._before(number, frame)
        elif self._before != signal.SIG_IGN:
            self._die()

    def _die(self) -> None:
        """As if nobody had handled SIGTERM. libc is asked, since Python changes handlers in the main thread only, which may hang."""
        ctypes.CDLL(None).signal(int(signal.SIGTERM), None)
        os.kill(os.getpid(), signal.SIGTERM)

    def _speak(self) -> None:
        try:
            stacks = _stacks()
            recorded = dump(stacks=True)
            self._client.mark("sigterm", stacks=stacks)
            posting = threading.Thread(target=self._post, args=(recorded,), daemon=True, name="crossrank-dump")
            posting.start()
            self._client.flush(WORDS_S / 2)
            posting.join(WORDS_S / 2)
        except Exception:  # noqa: BLE001, S110 -- the process has to end as it would
            pass
        finally:
            self._said.set()

    def _post(self, recorded: bytes | None) -> None:
        if recorded is None:
            return
        client = self._client
        where = f"/v1/import?format=flight_recorder&job={quote(client.job, safe='')}&rank={client.rank}"
        sender = client._new_sender()  # noqa: SLF001 -- a connection of its own: the client's thread uses the other one
        sender.timeout_s = WORDS_S
        sender.post(where, recorded, {"content-type": "application/octet-stream"})
        sender.close()


def _stacks() -> str:
    """Python stacks of all threads, the main one first, as much as an attribute holds."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    own = threading.get_ident()
    frames = sorted(sys._current_frames().items(), key=lambda item: item[0] != main)  # noqa: SLF001 -- the only way to see other threads
    texts = [f"{names.get(thread, thread)}:\n{''.join(traceback.format_stack(frame))}" for thread, frame in frames if thread != own]
    return "\n".join(texts)[-STACK_CHARACTERS:] if len(texts) == 1 else "\n".join(text[-1200:] for text in texts)[:STACK_CHARACTERS]
