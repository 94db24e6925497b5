#!/usr/bin/env python3
"""Measures what `POST /e` costs the ingest gateway at each level of acknowledgement, beside a handler that does nothing.

It is bench/run.py with these servers and one cell; its flags work here, too. The gateway's threads share one core, that of
the journal among them; the client has the other. Every row of the gateway has a data directory of its own, on the disk that
DATA is on: a disk in memory would not be one.
"""

import os
import sys
import tempfile

import run
import servers
from machine import ROOT
from servers import Cell, Server

EXAMPLES = """\
examples:
  bench/build.sh floor && cargo build --release -p highwater-ingest -p highwater-arena
  bench/ingest.py                                        9 rounds with 256 connections
  bench/ingest.py --rounds 15 --name ingest              keep the result as bench/evidence/DATE-ingest.json
  DATA=/mnt/disk bench/ingest.py --connections 64        on another disk
"""

NAME = "ingest"
BINARIES = os.environ.get("BINARIES", f"{ROOT}/target/release")


def gateway(name, transport, flags, data):
    """The shell makes way for the gateway, so that the process that is measured and stopped is the gateway's."""
    place = f"{data}/{name}"
    command = (f"rm -rf {place}; exec {BINARIES}/highwater-ingest --listen 127.0.0.1:{{port}} --metrics off --workers 1 "
               f"--pin off --log off --transport {transport} --data {place} {flags}")
    return Server(name, f"/bin/sh -c '{command}'")


def main():
    run.__doc__, run.EXAMPLES = __doc__, EXAMPLES
    body = b'{"ok":true}'
    servers.CELLS.clear()
    servers.CELLS[NAME] = Cell(
        NAME, "/e", body, status=202, content_type="application/json", method="POST", payload='{"n":42}')
    with tempfile.TemporaryDirectory(prefix="highwater-ingest-", dir=os.environ.get("DATA", f"{ROOT}/target")) as data:
        servers.SERVERS.clear()
        for transport in ("uring", "epoll"):
            arena = (f"{BINARIES}/highwater-arena --listen 127.0.0.1:{{port}} --metrics off --workers 1 --pin off "
                     f"--log off --transport {transport}")
            nothing = Server(f"nothing-{transport}", arena, answer=(202, "", b""))
            kinds = {"null": "--ack memory --sink null", "memory": "--ack memory", "disk": "--ack disk"}
            gateways = [gateway(f"{kind}-{transport}", transport, flags, data) for kind, flags in kinds.items()]
            servers.SERVERS.update((server.name, server) for server in (nothing, *gateways))
        with_default(("--cells", NAME), ("--connections", "256"), ("--baseline", "memory-uring,memory-epoll"),
                     ("--servers", "nothing-uring,null-uring,memory-uring,disk-uring"))
        run.main()


def with_default(*flags):
    for flag, value in flags:
        if not any(word.split("=")[0] == flag for word in sys.argv[1:]):
            sys.argv += [flag, value]


if __name__ == "__main__":
    main()
