"""Processes of tests are forks of a process that no thread can have left in the middle of something."""

import os
from pathlib import Path

from launcher import child, threads_of_the_forked


def tell(folder: Path) -> None:
    (folder / "parent.txt").write_text(f"{os.getppid()} {os.environ['OMP_NUM_THREADS']}")


def test_what_is_forked_has_one_thread(tmp_path: Path) -> None:
    process = child(tell, tmp_path)
    process.start()
    process.join()
    parent, threads = (tmp_path / "parent.txt").read_text().split()
    assert int(parent) != os.getpid() and threads == "1"
    assert threads_of_the_forked() == 1  # by now it has imported everything
