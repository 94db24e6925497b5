"""One cell: a fresh server on one CPU, a load from the other, and the readings of both cores and the server.

A cell never outlives its `with`: servers are stopped, and if this process dies, the kernel kills everything.
Nothing here judges the results; `law.py` does.
"""

import bisect
import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import netns
from common import Failed, on_cpu_ns

PORT = 8080
METRICS_PORT = 9090
# The most that an open loop may have in flight: a second and a half at 10 000 a second.
OPEN_CONNECTIONS = 16384
SOURCES = f"{netns.CLIENT_ADDRESSES[0]}-{netns.CLIENT_ADDRESSES[-1]}"
READY_WITHIN_S = 10
STOPPED_WITHIN_S = 12
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """A way to refuse connections: the server's flags, and how many connections with work it may have."""

    name: str
    flags: tuple = ()
    # A rule that cannot be changed without losing its count needs a number, and the best there is for 1 ms of work.
    fixed_limit: int = 0

    def argv(self, limit=None):
        limit = limit or self.fixed_limit
        return [*self.flags, *(["--limiter", "fixed", "--connection-limit", str(limit)] if limit else [])]


MECHANISMS = {one.name: one for one in (
    Mechanism("none", ("--shed", "none")),
    Mechanism("app", ("--shed", "app")),
    Mechanism("accept", ("--shed", "accept")),
    Mechanism("ebpf-reset", ("--shed", "kernel", "--gate", "ebpf", "--gate-refusal", "reset")),
    Mechanism("ebpf-drop", ("--shed", "kernel", "--gate", "ebpf", "--gate-refusal", "drop")),
    Mechanism("ebpf", ("--shed", "kernel", "--gate", "ebpf")),
    Mechanism("nft", ("--shed", "kernel", "--gate", "nft"), fixed_limit=10),
    Mechanism("iptables", ("--shed", "kernel", "--gate", "iptables"), fixed_limit=10),
)}


@dataclasses.dataclass(frozen=True)
class Load:
    """The settings of the generator. Exactly one of `rate` (a second) and `connections` (a closed loop) is set."""

    path: str = "/work?us=1000"
    rate: float = 0
    connections: int = 0
    warmup_s: float = 2.0
    seconds: float = 4.0
    deadline_ms: int = 200
    backoff_ms: int = 50
    close: bool = True
    requests_per_connection: int = 0
    # Length of one point of the report's series.
    step_ms: int = 1000

    def argv(self, program, address):
        argv = [program, "load", f"http://{address}:{PORT}{self.path}", "--json", "--source", SOURCES,
                "--warmup", f"{self.warmup_s}s", "--duration", f"{self.seconds}s", "--deadline", f"{self.deadline_ms}ms",
                "--series", f"{self.step_ms}ms"]
        if self.rate:
            argv += ["--rate", f"{self.rate:.0f}", "--connections", str(OPEN_CONNECTIONS)]
        else:
            argv += ["--connections", str(self.connections), "--backoff", f"{self.backoff_ms}ms"]
        if self.requests_per_connection:
            argv += ["--requests-per-connection", str(self.requests_per_connection)]
        elif self.close:
            argv += ["--close"]
        return argv


def in_network(options, measure):
    """The result of `measure(options, network)` in a network of its own; if there can be none, exits with the reason."""
    # The server's CPU belongs to the server: this process must not use it.
    os.sched_setaffinity(0, {options.client_cpu})
    try:
        with netns.Network(options.server_cpu, options.client_cpu) as network:
            return measure(options, network)
    except netns.Refused as refused:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {refused}")


class Lab:
    """A network and the two programs."""

    def __init__(self, network, server, load, port=PORT, metrics_port=METRICS_PORT):
        self.network, self.server, self.load, self.port, self.metrics_port = network, server, load, port, metrics_port

    @contextlib.contextmanager
    def serving(self, flags, workers=1):
        """Starts a server; yields a `Serving`; always stops it."""
        command = [self.server, "--listen", f"{self.network.address}:{self.port}", "--metrics", f"127.0.0.1:{self.metrics_port}",
                   "--workers", workers, "--pin", "off", *flags]
        with tempfile.TemporaryFile() as stderr:
            process = subprocess.Popen(self.network.inside("server", command), stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=stderr)
            serving = Serving(self, process, stderr)
            try:
                serving.wait_ready()
                yield serving
            finally:
                serving.stop()

    @contextlib.contextmanager
    def loading(self, load):
        """Starts a load; yields it; ends it if it still runs afterwards."""
        running = Loading(self, load)
        try:
            yield running
        finally:
            running.end()

    def chained(self, loads):
        """Loads that follow each other without a gap; yields (the load, when it began, its report) when all have ended."""
        with contextlib.ExitStack() as stack:
            running = []
            for load in loads:
                running.append((time.monotonic(), stack.enter_context(self.loading(load))))
                # Do not wait for it: its last requests may still be in flight when the next load begins.
                time.sleep(load.warmup_s + load.seconds)
            yield from ((one.load, began, one.report()) for began, one in running)

    def measure(self, serving, load):
        """The generator's report, and the readings of the cores and the server's counters for the same time."""
        with self.loading(load) as running:
            time.sleep(load.warmup_s)
            before = self._look(serving)
            time.sleep(load.seconds)
            after = self._look(serving)
            report = running.report()
        return {"load": report, **difference(before, after)}

    def _look(self, serving):
        at, cores = time.monotonic(), {side: core_ticks(cpu) for side, cpu in self.network.cpus.items()}
        return {"at": at, "cores": cores, "process_ns": on_cpu_ns([serving.process.pid]), "metrics": serving.metrics()}


class Serving:
    """A running server."""

    def __init__(self, lab, process, stderr):
        self.lab, self.process, self.stderr = lab, process, stderr

    def wait_ready(self):
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise Failed(f"the server exited with {self.process.returncode}: {self.said()}")
            with contextlib.suppress(OSError, Failed):
                self.metrics()
                return
            time.sleep(0.02)
        raise Failed(f"the server was not ready within {READY_WITHIN_S} s: {self.said()}")

    def metrics(self):
        """Every sample of the metrics port, as {name with labels: value}."""
        return parse_metrics(self.get("/metrics"))

    def get(self, path, port=None):
        """The body of an answer. Written out because the standard client cannot be given a socket."""
        with self.lab.network.connect("server", port or self.lab.metrics_port) as stream:
            stream.sendall(f"GET {path} HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n".encode())
            answer = b"".join(iter(lambda: stream.recv(65536), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise Failed(f"{path} was answered {head[:40]!r}")
        return body.decode()

    def said(self):
        self.stderr.seek(0)
        return self.stderr.read()[-400:].decode(errors="replace").strip()

    def stop(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                self.process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(STOPPED_WITHIN_S)


class Loading:
    """A running load."""

    def __init__(self, lab, load):
        self.load = load
        self.process = subprocess.Popen(
            lab.network.inside("client", load.argv(lab.load, lab.network.address)),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def report(self):
        """Waits for its end."""
        try:
            out, said = self.process.communicate(timeout=self.load.warmup_s + self.load.seconds + 15)
        except subprocess.TimeoutExpired as expired:
            raise Failed("the load did not end in time") from expired
        try:
            return json.loads(out)
        except ValueError as error:
            raise Failed(f"the load exited with {self.process.returncode}: {said[-300:].strip()}") from error

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Soak:
    """How busy the server's CPU is, measured while this is entered."""

    def __init__(self, network):
        self.network, self.points = network, []

    def __enter__(self):
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "soak.py")
        self.process = subprocess.Popen(self.network.inside("server", ["python3", program]), stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()

    def share(self, begin, end):
        """The share of the time between two instants of CLOCK_MONOTONIC in which other work had the CPU. Ask only after the
        loop has had a turn after the end: before that, nothing is known."""
        return (lost_at(self.points, end) - lost_at(self.points, begin)) / (end - begin)

    def _read(self):
        for line in self.process.stdout:
            self.points.append(tuple(map(float, line.split())))


# ------------------------------------------------------------------------------------------------------------- readings


def lost_at(points, at):
    """Seconds lost up to an instant, between points (instant, lost) on a straight line."""
    after = bisect.bisect_left(points, (at,))
    if after == 0 or after == len(points):
        raise Failed("the soak loop had no turn before or after the load")
    (low, lost), (high, more) = points[after - 1 : after + 1]
    return lost + (more - lost) * (at - low) / (high - low)


def core_ticks(cpu):
    """The time of one CPU since boot, in seconds, by kind."""
    with open("/proc/stat") as file:
        line = next(line for line in file if line.startswith(f"cpu{cpu} "))
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    return {name: int(value) / TICKS_PER_SECOND for name, value in zip(names, line.split()[1:9])}


def parse_metrics(text):
    samples = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            samples[name] = float(value)
    return samples


def difference(before, after):
    """Shares of each core, the server's CPU, and the counters' growth with the gauges' last values."""
    span = after["at"] - before["at"]
    cores = {}
    for side, ticks in after["cores"].items():
        spent = {name: ticks[name] - before["cores"][side][name] for name in ticks}
        cores[side] = {name: round(seconds / span, 4) for name, seconds in spent.items() if name not in ("nice", "iowait")}
    counted, gauges = {}, {}
    for name, value in after["metrics"].items():
        bare = name.partition("{")[0]
        if bare in KEPT_COUNTERS or bare.startswith("http_rejections"):
            grown = value - before["metrics"].get(name, 0)
            if grown:
                counted[name] = round(grown, 6)
        elif re.match(KEPT_GAUGES, bare):
            gauges[name] = value
    return {"span_s": round(span, 3), "cores": cores, "counted": counted, "gauges": gauges,
            "server_cpu": round((after["process_ns"] - before["process_ns"]) / 1e9 / span, 4)}


KEPT_COUNTERS = {"http_requests_total", "http_goodput_total", "http_scaling_total_rejections", "http_connections_total",
                 "http_shed_cpu_seconds_total"}
KEPT_GAUGES = r"http_scaling_(connection_limit|demand_ratio|needs_scaleout|saturation_ratio)$|highwater_(gate|transport)_info$"
