"""Clients that cost little: thousands of connections, and hundreds of requests a second, in one thread.

Every request is counted under its kind and ends in exactly one outcome: `ok` for a 200, or why there was none (another
status, `refused` for a refused connection, `reset`, `closed`, `timeout`). A stream that was cut off also counts as
`cut`. The server is a Highwater server: it frames by Content-Length, or chunked for a stream.
"""

import array
import collections
import contextlib
import errno
import heapq
import itertools
import select
import socket
import time

# Far beyond any patience: a request without an answer by then was lost, not kept waiting.
TIMEOUT_S = 60.0
# Less than the server's --idle-timeout, so that no request meets a connection that is just being closed.
IDLE_MAX_S = 30.0
BACKOFF_S = 0.05
READ_SIZE = 256 * 1024
NEVER = float("inf")
OK, CUT = "ok", "cut"
clock = time.monotonic


class Tally:
    """The outcomes of the requests of one kind."""

    def __init__(self):
        self.asked, self.outcomes, self.seconds = 0, collections.Counter(), array.array("d")

    def add(self, outcome, seconds):
        self.outcomes[outcome] += 1
        if outcome == OK:
            self.seconds.append(seconds)

    def summary(self):
        ordered = sorted(self.seconds)
        quantile = lambda share: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e3, 1) if ordered else None
        return {"asked": self.asked, "outcomes": dict(self.outcomes), "p50_ms": quantile(0.5), "p99_ms": quantile(0.99),
                "slowest_ms": quantile(1)}


class Clients:
    """All clients of one cell: an event loop, their connections, and the tallies by kind of request."""

    def __init__(self, address, port):
        self.target = (address, port)
        self.tallies = collections.defaultdict(Tally)
        self.epoll = select.epoll()
        self.by_descriptor, self.idle, self.timers, self.numbers = {}, [], [], itertools.count()
        self.under_way = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for connection in list(self.by_descriptor.values()):
            connection.close()
        self.epoll.close()

    # What clients do.

    def connection(self):
        """A new connection. If it fails, the requests on it get that outcome."""
        return Connection(self, self.target)

    def ask(self, kind, path, fields="", on=None, since=None, then=None, streams=False):
        """One request: on a connection of its own (`on`), or on any that is idle. Its time runs from `since`. `then(outcome)`
        is called when it has ended; with `streams`, when the answer has begun."""
        tally, began, connection = self.tallies[kind], since or clock(), on or self._any()
        tally.asked += 1
        self.under_way += 1

        def done(outcome):
            self.under_way -= 1
            tally.add(outcome, clock() - began)
            if on is None and connection.is_open():
                connection.idle_since = clock()
                self.idle.append(connection)
            if then:
                then(outcome)

        message = f"GET {path} HTTP/1.1\r\nHost: server\r\n{fields}\r\n".encode()
        connection.ask(message, done, (lambda: tally.add(CUT, 0)) if streams else None)

    def user(self, kind, path, until, per_s=0, fields=""):
        """A closed loop on a connection of its own: asks again when answered, at most `per_s` times a second. A user with a
        rate keeps it when refused; one without waits a moment after a refusal, or it would be a flood."""
        connection, due = self.connection(), clock()

        def again(outcome=OK):
            nonlocal connection, due
            goes_on = outcome == OK or (per_s and connection.is_open())
            if not connection.is_open():
                connection = self.connection()
            due = max(due + (1 / per_s if per_s else 0), clock() + (0 if goes_on else BACKOFF_S))
            self.at(due, send)

        def send():
            if clock() < until:
                self.ask(kind, path, fields, on=connection, then=again)
            else:
                connection.close()

        send()

    def arrive(self, gaps, act, until):
        """Calls `act(due)` at instants `gaps` apart, independently of the server."""
        due = clock()

        def fire():
            nonlocal due
            while due <= clock() and due < until:
                act(due)
                due += next(gaps)
            if due < until:
                self.at(due, fire)

        fire()

    # The loop.

    def at(self, when, call):
        """Calls back at an instant; pass the result to `forget` to cancel it."""
        timer = [when, next(self.numbers), call]
        heapq.heappush(self.timers, timer)
        return timer

    @staticmethod
    def forget(timer):
        timer[2] = None

    def run(self, until=NEVER, over=lambda: False):
        """Until an instant, or until `over()`."""
        while clock() < until and not over():
            while self.timers and self.timers[0][0] <= clock():
                call = heapq.heappop(self.timers)[2]
                if call:
                    call()
            if over():
                return
            due = min(until, self.timers[0][0] if self.timers else NEVER)
            for descriptor, events in self.epoll.poll(max(0.0, min(due - clock(), 1.0))):
                connection = self.by_descriptor.get(descriptor)
                if connection:
                    connection.ready(events)

    def drain(self):
        """Runs until nothing is in flight any more; timeouts make sure that it ends."""
        self.run(over=lambda: self.under_way == 0)

    def _any(self):
        while self.idle:
            connection = self.idle.pop()
            if connection.is_open() and clock() - connection.idle_since < IDLE_MAX_S:
                return connection
            connection.close()
        return self.connection()


class Connection:
    """A connection with at most one request under way."""

    def __init__(self, clients, target):
        self.clients, self.failure, self.is_connected = clients, None, False
        self.message = self.done = self.cut = self.timer = None
        self.head, self.left, self.is_streaming, self.pieces = b"", None, False, 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        clients.by_descriptor[self.socket.fileno()] = self
        clients.epoll.register(self.socket, select.EPOLLIN | select.EPOLLOUT)
        failed = self.socket.connect_ex(target)
        if failed not in (0, errno.EINPROGRESS):
            self._fail(reason(failed))

    def is_open(self):
        return self.failure is None

    def ask(self, message, done, cut=None):
        self.message, self.done, self.cut = message, done, cut
        self.head, self.left = b"", None
        self.timer = self.clients.at(clock() + TIMEOUT_S, lambda: self._fail("timeout"))
        if self.failure:
            # Not from inside the caller, because the callback may ask again.
            self.clients.at(clock(), lambda: self._end(self.failure))
        elif self.is_connected:
            self._send()

    def close(self):
        if self.failure is None:
            self.failure = "closed"
            del self.clients.by_descriptor[self.socket.fileno()]
            self.socket.close()

    def ready(self, events):
        if not self.is_connected:
            failed = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failed:
                return self._fail(reason(failed))
            self.is_connected = True
            self.clients.epoll.modify(self.socket, select.EPOLLIN | select.EPOLLRDHUP)
            if self.message:
                self._send()
        if events & ~select.EPOLLOUT:
            self._read()

    def _send(self):
        message, self.message = self.message, None
        try:
            # A request is far smaller than a socket's buffer.
            self.socket.send(message)
        except OSError as error:
            self._fail(reason(error.errno))

    def _read(self):
        try:
            data = self.socket.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            return self._fail(reason(error.errno))
        if not data:
            return self._fail("closed")
        if self.is_streaming:
            self.pieces += 1
            if data.endswith(b"0\r\n\r\n"):
                self._fail("ended")
        elif self.left is None:
            self._head(data)
        else:
            self._content(len(data))

    def _head(self, data):
        self.head += data
        head, found, content = self.head.partition(b"\r\n\r\n")
        if not found:
            return
        status = head[9:12].decode(errors="replace")
        if self.cut and status == "200":
            self.is_streaming = True
            return self._end(OK)
        _, _, length = head.lower().partition(b"content-length:")
        self.left = int(length.split(b"\r\n", 1)[0] or 0)
        self.head = status
        self._content(len(content))

    def _content(self, size):
        self.left -= size
        if self.left <= 0:
            self._end(OK if self.head == "200" else self.head)

    def _end(self, outcome):
        done, self.done = self.done, None
        if done:
            self.clients.forget(self.timer)
            done(outcome)

    def _fail(self, why):
        self.close()
        self.failure = why
        if self.is_streaming:
            self.is_streaming = False
            self.cut()
        self._end(why)


def reason(number):
    """An error of the system, as an outcome."""
    return {errno.ECONNREFUSED: "refused", errno.ECONNRESET: "reset", errno.EPIPE: "reset", errno.ETIMEDOUT: "timeout"}.get(
        number, errno.errorcode.get(number, str(number)).lower())


def apart(per_s):
    """Equal gaps."""
    return itertools.repeat(1 / per_s)


@contextlib.contextmanager
def opened(clients, number, beforehand):
    """`number` connections, which are closed in the end. Waits for those that are opened beforehand."""
    connections = [clients.connection() for _ in range(number)]
    try:
        if beforehand:
            clients.run(clock() + TIMEOUT_S, lambda: all(one.is_connected or one.failure for one in connections))
        yield connections
    finally:
        for one in connections:
            one.close()
