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

import contextlib
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

from crossrank_client.clock import mono_ns
from crossrank_client.torch.ring import dump

if TYPE_CHECKING:
    from crossrank_client.client import Client

WORDS_S = 2.0
AGAIN_NS = 5_000_000_000
END = b"\0"
STACK_CHARACTERS = 3900


class LastWords:
    """Waits for SIGTERM until removed. Only the main thread can install a handler; elsewhere it does nothing."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._said = threading.Event()
        self._spoke_ns: int | None = None
        self._installed = threading.current_thread() is threading.main_thread()
        if not self._installed:
            return
        self._before: Any = signal.getsignal(signal.SIGTERM)
        self._pid = os.getpid()
        self._ours, theirs = socket.socketpair()
        self._theirs = theirs
        theirs.setblocking(False)
        self._take_wakeup()
        signal.signal(signal.SIGTERM, self._in_main_thread)
        _Forks.guarded = self
        self._thread = threading.Thread(target=self._listen, name="crossrank-last-words", daemon=True)
        self._thread.start()

    def remove(self) -> None:
        """Gives SIGTERM back, unless somebody else has taken it since."""
        if not self._installed:
            return
        self._installed = False
        _Forks.guarded = None
        if threading.current_thread() is not threading.main_thread():
            # Signals can be given back by the main thread only. The sockets stay: a number in use by C must not become another file.
            self._send(END)
            self._thread.join(1.0)
            return
        self._give_back()
        self._theirs.close()  # the thread reads the end and goes
        self._thread.join(1.0)
        self._ours.close()

    def in_child(self) -> None:
        """After a fork: lets go of what is the parent's."""
        if self._installed and os.getpid() != self._pid:
            self._installed = False
            self._give_back()
            self._theirs.close()
            self._ours.close()

    def _give_back(self) -> None:
        if signal.getsignal(signal.SIGTERM) == self._in_main_thread:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)
        found = signal.set_wakeup_fd(-1)
        if found not in (-1, self._theirs.fileno()):
            signal.set_wakeup_fd(found)  # somebody has taken it since

    def _take_wakeup(self) -> None:
        before = signal.set_wakeup_fd(self._theirs.fileno(), warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)

    def _send(self, word: bytes) -> None:
        with contextlib.suppress(OSError):  # full: the thread has enough to read
            self._theirs.send(word)

    def _listen(self) -> None:
        while True:
            try:
                numbers = self._ours.recv(16)
            except OSError:
                return
            if not numbers or numbers[-1:] == END:
                return
            if signal.SIGTERM in numbers and self._installed:
                self._speak()
                if self._before in (signal.SIG_DFL, None):
                    self._die()

    def _in_main_thread(self, number: int, frame: FrameType | None) -> None:
        if self._installed and os.getpid() == self._pid:
            self._send(bytes([signal.SIGTERM]))  # again, if the wakeup has told it already
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
        """Once for the several ways in which one signal is heard; again for a later one that the job survived to see."""
        now = mono_ns()
        if self._spoke_ns is not None and now - self._spoke_ns < AGAIN_NS:
            return
        self._spoke_ns = now
        self._said.clear()
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


class _Forks:
    """Keeps SIGTERM off a child until it has let go: its parent would read of it in the socket that both have, and die."""

    guarded: LastWords | None = None
    forking = threading.local()  # mask: of the thread that forks, and so of its child

    @classmethod
    def before(cls) -> None:
        """In the parent, in the thread that forks."""
        if cls.guarded is not None:
            cls.forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    @classmethod
    def after(cls) -> None:
        """In the parent."""
        mask = cls.forking.__dict__.pop("mask", None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    @classmethod
    def in_child(cls) -> None:
        """In the child."""
        found, cls.guarded = cls.guarded, None
        try:
            if found is not None:
                found.in_child()
        finally:
            cls.after()


os.register_at_fork(before=_Forks.before, after_in_parent=_Forks.after, after_in_child=_Forks.in_child)


def _stacks() -> str:
    """Python stacks of all threads, the main one first, as much as an attribute holds."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    own = threading.get_ident()
    frames = sorted(sys._current_frames().items(), key=lambda item: item[0] != main)  # noqa: SLF001 -- the only way to see other threads
    texts = [f"{names.get(thread, thread)}:\n{''.join(traceback.format_stack(frame))}" for thread, frame in frames if thread != own]
    return "\n".join(texts)[-STACK_CHARACTERS:] if len(texts) == 1 else "\n".join(text[-1200:] for text in texts)[:STACK_CHARACTERS]
