"""The servers and the cells: how each is started, what it must answer, and how it is stopped."""

import contextlib
import dataclasses
import http.client
import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time

from machine import BENCH, ROOT

READY_WITHIN_S = 10
STOPPED_WITHIN_S = 3
CLOSES_WITHIN_S = 0.5


@dataclasses.dataclass(frozen=True)
class Cell:
    """One kind of request, and the answer it must get to the byte."""

    name: str
    path: str
    body: bytes
    status: int = 200
    content_type: str = "text/plain"
    method: str = "GET"
    payload: str = ""
    pipeline: int = 1
    close: bool = False


CELLS = {cell.name: cell for cell in (
    Cell("plaintext", "/plaintext", b"Hello, World!"),
    Cell("json", "/json", b'{"message":"Hello, World!"}', content_type="application/json"),
    Cell("users", "/users/12345", b"12345"),
    Cell("post", "/e", b"", status=202, content_type="", method="POST", payload='{"n":42}'),
    Cell("pipeline", "/plaintext", b"Hello, World!", pipeline=16),
    Cell("close", "/plaintext", b"Hello, World!", close=True),
)}
FLOOR_BODY = b"the least a server does on this machine."


@dataclasses.dataclass(frozen=True)
class Server:
    """How to start a server. `{port}` in the command is replaced; PORT and WORKERS are in its environment too."""

    name: str
    command: str
    is_floor: bool = False
    # Status, type and body of its answers, where they are not what the cell asks for.
    answer: tuple | None = None

    def argv(self, port, cell):
        argv = [word.replace("{port}", str(port)) for word in shlex.split(self.command)]
        # The floor does not read requests, so it has to be told when to close.
        return argv + ["--churn"] if self.is_floor and cell.close else argv

    def program(self):
        return shlex.split(self.command)[0]

    def exists(self):
        return os.access(self.program(), os.X_OK)


def _highwater(transport):
    return (f"{BENCH}/bin/highwater-arena --listen 127.0.0.1:{{port}} --metrics off "
            f"--workers 1 --pin off --transport {transport}")


SERVERS = {server.name: server for server in (
    Server("floor-uring", f"{BENCH}/bin/floor uring --listen 127.0.0.1:{{port}} --cpu 0", is_floor=True),
    Server("floor-epoll", f"{BENCH}/bin/floor epoll --listen 127.0.0.1:{{port}} --cpu 0", is_floor=True),
    Server("highwater", _highwater("uring")),
    Server("highwater-epoll", _highwater("epoll")),
    *(Server(name, f"{BENCH}/bin/{name}") for name in ("axum", "ntex", "may", "actix", "xitca-epoll", "ntex-tokio")),
    Server("nginx", f"{BENCH}/peers/nginx/run.sh"),
)}


class Failed(Exception):
    """A server or the generator did not do its part; the row says so and the run goes on."""


class Unsupported(Failed):
    """A server does not do what this cell asks for, and will not do it in the next round either."""


@contextlib.contextmanager
def running(server, cell, port, cpu):
    """Starts a server of its own for one row, pinned to `cpu`; yields its pid; stops it whatever happens."""
    environment = dict(os.environ, PORT=str(port), WORKERS="1")
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            ["taskset", "-c", str(cpu), *server.argv(port, cell)],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, cwd=ROOT)
        try:
            _wait_ready(process, port, stderr)
            yield process.pid
        finally:
            _stop(process)


def _wait_ready(process, port, stderr):
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            stderr.seek(0)
            said = stderr.read()[-300:].decode(errors="replace").strip()
            raise Failed(f"exited with {process.returncode} before it listened: {said}")
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=0.5).close()
            return
        time.sleep(0.01)
    raise Failed(f"did not listen within {READY_WITHIN_S} s")


def _stop(process):
    """By pid only: SIGTERM, then SIGKILL for a process that ignores it. A server stops its own children."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(signal_number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOPPED_WITHIN_S)


def family(pid):
    """A process and its descendants: nginx, for one, serves from a child."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat") as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
    pids = [pid]
    for known in pids:
        pids.extend(child for child, parent in parents.items() if parent == known)
    return pids


def free_port(first):
    """The first free port from `first`. Bound without SO_REUSEPORT, so that a stray server that would share the port and
    half of the load is noticed."""
    for port in range(first, first + 500):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise Failed(f"no free port in {first}..{first + 500}")


def check_answer(server, cell, port):
    """Raises unless the answer is what the cell asks for, to the byte."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    headers = {"Connection": "close"} if cell.close else {}
    try:
        connection.request(cell.method, cell.path, cell.payload or None, headers)
        response = connection.getresponse()
        got = (response.status, response.getheader("content-type", ""), response.read())
    except (OSError, http.client.HTTPException) as error:
        raise Failed(f"{cell.method} {cell.path}: {error!r}") from error
    finally:
        connection.close()
    floor = (200, "text/plain", FLOOR_BODY) if server.is_floor else None
    want = server.answer or floor or (cell.status, cell.content_type, cell.body)
    if got[0] != want[0] or not got[1].startswith(want[1]) or got[2] != want[2]:
        raise Failed(f"{cell.method} {cell.path} answered {got[0]} {got[1]!r} {got[2][:60]!r}, expected {want}")
    if cell.close:
        _check_closes(cell, port)


def _check_closes(cell, port):
    """Raises unless the server closes after `Connection: close`: one that does not would be measured keeping alive."""
    with socket.create_connection(("127.0.0.1", port), timeout=CLOSES_WITHIN_S) as stream:
        stream.sendall(f"{cell.method} {cell.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        try:
            while stream.recv(65536):
                pass
        except TimeoutError as error:
            raise Unsupported("ignores Connection: close") from error
