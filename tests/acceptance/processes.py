"""Real processes: started, waited for by what they do, stopped with all their children."""

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

CHECKOUT = Path(__file__).resolve().parents[2]
PORTS = range(8800, 9100)
MARK = f"ACCEPTANCE_RUN={os.getpid()}"  # in the environment of every process that this run starts
PATIENCE = 40.0


def until(condition: Callable[[], Any], what: str = "", seconds: float = PATIENCE) -> Any:
    """What `condition()` returns once it is true; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what or condition}"
        time.sleep(0.02)
    return found


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, and no other run has been given."""
    for port in PORTS:
        lock = (Path(tempfile.gettempdir()) / f"a2a-acceptance-{port}.lock").open("w")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                probe.bind(("127.0.0.1", port))
            except OSError:
                lock.close()
                continue
        _given.append(lock)
        return port
    raise OSError("no free port")


_given: list[IO[str]] = []  # locks of the ports, held for as long as the run lasts


def answers(port: int) -> bool:
    """Whether somebody listens on `port`."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Process:
    """A process in a session of its own, its output in a file."""

    def __init__(
        self, name: str, command: list[str], log: Path, environment: dict[str, str], cwd: Path = CHECKOUT
    ) -> None:
        self.name, self.log, self._command, self._environment, self._cwd = name, log, command, environment, cwd
        self._popen: subprocess.Popen[bytes] | None = None
        self._ready: Callable[[Process], Any] = bool
        self._before = 0  # bytes that an earlier one of its kind has put out

    def start(self, ready: Callable[["Process"], Any]) -> "Process":
        """Starts it and waits until `ready(self)`."""
        self._ready = ready
        return self.restart()

    def restart(self) -> "Process":
        """Starts it as it was started before, when it has ended."""
        ready, self._before = self._ready, self.log.stat().st_size if self.log.exists() else 0
        key, value = MARK.split("=")
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), key: value}
        with self.log.open("ab") as output:
            self._popen = subprocess.Popen(
                self._command,
                cwd=self._cwd,
                env=environment | self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            until(lambda: not self.alive or ready(self), f"{self.name} ready")
            assert self.alive, f"{self.name} ended while it started:\n{self.log.read_text()[-3000:]}"
        except BaseException:
            self.stop(signal.SIGKILL)
            raise
        return self

    @property
    def pid(self) -> int:
        assert self._popen is not None
        return self._popen.pid

    @property
    def alive(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    def kill(self, number: int) -> None:
        """Sends a signal to the process alone."""
        os.kill(self.pid, number)

    def wait(self, seconds: float) -> int:
        """The exit status; fails when it hasn't ended in time."""
        assert self._popen is not None
        return self._popen.wait(seconds)

    def stop(self, number: int = signal.SIGTERM, seconds: float = 10) -> None:
        """Ends it, with whatever it has started."""
        if self._popen is None:
            return
        if self.alive:
            self.kill(number)
            try:
                self.wait(seconds)
            except subprocess.TimeoutExpired:
                print(f"{self.name} did not end by itself")
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait(5)

    def said(self, pattern: str, after: int = 0) -> bool:
        """Whether its output since it was started, from byte `after` of the log on, has `pattern`."""
        return bool(re.search(pattern.encode(), self.log.read_bytes()[max(after, self._before) :]))

    # --- what it holds

    @property
    def threads(self) -> int:
        """How many threads it has."""
        return int(re.search(r"^Threads:\s*(\d+)", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)[1])

    @property
    def memory(self) -> float:
        """How many MB of memory it has taken."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s*(\d+)", status, re.MULTILINE)[1]) / 1024

    @property
    def sockets(self) -> int:
        """How many sockets it has open."""
        count = 0
        for link in Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                count += link.readlink().name.startswith("socket:")
            except FileNotFoundError:
                continue
        return count


def python(*arguments: str) -> list[str]:
    """A command line of this Python."""
    return [sys.executable, *arguments]


@contextmanager
def redis(folder: Path, name: str) -> Iterator["Redis"]:
    """A Redis server of our own."""
    server = Redis(folder, name)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class Redis:
    """A Redis server that keeps nothing on disk and can be stopped and started again."""

    def __init__(self, folder: Path, name: str) -> None:
        self.port = free_port()
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = Process(name, [*command, "--dir", str(folder)], folder / f"{name}.log", {})

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Starts it and waits until it listens."""
        self._process.start(lambda process: process.said("Ready to accept connections"))

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stops it; what it held is gone."""
        self._process.stop(number)

    def command(self, *words: str) -> str:
        """The answer to a Redis command."""
        line = ["redis-cli", "-p", str(self.port), *words]
        return subprocess.run(line, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def left_over() -> list[str]:
    """Processes of this run that are still there."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if MARK.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(f"{folder.name} {(folder / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()}")
        except OSError:
            continue
    return found
