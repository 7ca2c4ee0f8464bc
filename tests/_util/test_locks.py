"""Locks at a fork: another thread holds one, and the child has no such thread."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hangs import HANG_S

from tritonhook._util.locks import ForkLock, command_line_of, lock_that_forks_wait_for, parent_of

pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")

waits = lock_that_forks_wait_for()


def exit_status_of_child(runs: Callable[[], object]) -> int:
    """Run something in a forked child; minus SIGALRM if it hangs."""
    child = os.fork()
    if child == 0:
        signal.alarm(HANG_S)
        try:
            runs()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def take_and_give_back(lock: ForkLock | threading.RLock) -> None:
    with lock:
        pass


def test_a_lock_that_another_thread_holds_is_free_in_a_child():
    lock, held, over = ForkLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock, lock:
            held.set()
            over.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    try:
        assert exit_status_of_child(lambda: take_and_give_back(lock)) == 0
    finally:
        over.set()
        holder.join()
    take_and_give_back(lock)


def test_a_fork_waits_for_a_change_to_be_whole():
    state, halfway = [0, 0], threading.Event()

    def change() -> None:
        with waits:
            state[0] = 1
            halfway.set()
            threading.Event().wait(0.2)
            state[1] = 1

    changer = threading.Thread(target=change)
    changer.start()
    halfway.wait()

    def check() -> None:
        take_and_give_back(waits)
        assert state == [1, 1]

    assert exit_status_of_child(check) == 0
    changer.join()


def test_the_thread_that_holds_it_can_fork():
    with waits:
        assert exit_status_of_child(lambda: take_and_give_back(waits)) == 0
    taken = threading.Thread(target=take_and_give_back, args=(waits,))
    taken.start()
    taken.join(HANG_S)
    assert not taken.is_alive()


def test_another_process_tells_its_parent_and_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["sh", "-c", "echo; read -r line", "a b", "", "\udcff)"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout and child.stdout.readline()  # Popen returns before the kernel has written the new words
        assert parent_of(child.pid) == os.getpid() and command_line_of(child.pid) == [*words[:-1], "\ufffd)"]
    assert parent_of(child.pid) is None and command_line_of(child.pid) == []
    for text in ("7 (a) b) S 41 7 7", "7 (a) S x", "7 (a) S", ""):
        monkeypatch.setattr(Path, "read_text", lambda path, text=text: text)
        assert parent_of(7) == (41 if "41" in text else None)
