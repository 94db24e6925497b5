"""A network of its own for an experiment: two namespaces, a cable between them, and each end's receive work on its own CPU.

Both namespaces belong to a process that holds them and that reads from this one. When this process ends, in any way, the
other ends too, and the kernel removes the namespaces with the cable, the settings, every firewall rule and every gate
inside them. Nothing outside them is touched, so there is nothing to restore. Needs root, and says so.

    with netns.Network(server_cpu=0, client_cpu=1) as network:
        subprocess.Popen(network.inside("server", ["my-server", "--listen", f"{network.address}:8080"]))
"""

import ctypes
import os
import select
import shutil
import socket
import subprocess

# Addresses for documentation (RFC 5737): no machine has them, and the namespaces have no route out.
SERVER_ADDRESS = "192.0.2.1"
# Each gives the client's ports once more.
CLIENT_ADDRESSES = [f"192.0.2.{number}" for number in range(2, 10)]
READY_WITHIN_S = 10
NEEDED = ("ip", "nsenter", "setpriv", "taskset", "unshare")
CLONE_NEWNET = 0x40000000

# A connection per request blocks a port for a minute each: the client gets nearly all ports and may use them again. The
# server can choose its backlog, without the kernel's limit.
SETTINGS = {
    "server": {"net.core.somaxconn": "65535", "net.ipv4.tcp_max_syn_backlog": "65535"},
    "client": {"net.ipv4.ip_local_port_range": "1024 65000", "net.ipv4.tcp_tw_reuse": "1"},
}

# Holds one namespace until its input ends. The view of /sys is its own, since that shows a namespace's interfaces only
# to those who mounted it inside. Commands come in on the same input, one a line; each is answered by its exit status.
HOLDER = 'mount -t sysfs sysfs /sys && echo ready && while read -r line; do sh -c "$line" >/dev/null 2>&1; echo $?; done'


class Refused(Exception):
    """This machine, or this user, cannot have namespaces; the text says what to do about it."""


class Network:
    """Two namespaces, "server" and "client", joined by a cable. Enter it to make them; leaving removes them."""

    address = SERVER_ADDRESS

    def __init__(self, server_cpu=0, client_cpu=1):
        self.cpus = {"server": server_cpu, "client": client_cpu}
        self.holders = {}

    def __enter__(self):
        check()
        try:
            for side in self.cpus:
                self.holders[side] = self._hold(side)
            self._connect()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for holder in self.holders.values():
            holder.stdin.close()
            holder.terminate()
            holder.wait()
            holder.stdout.close()
        self.holders.clear()

    def inside(self, side, command, cpu=None):
        """`command` as it is run in a namespace, pinned to that side's CPU, and ended if we are."""
        pinned = ["taskset", "-c", str(self.cpus[side] if cpu is None else cpu)]
        return ["setpriv", "--pdeathsig", "KILL", *self._enter(side), *pinned, *map(str, command)]

    def connect(self, side, port, address="127.0.0.1", timeout=2.0):
        """A TCP connection made inside a namespace, from this process, which stays outside."""
        with open("/proc/self/ns/net") as home, open(self._path(side)) as there:
            _set_namespace(there)
            try:
                stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            finally:
                _set_namespace(home)
        stream.settimeout(timeout)
        try:
            stream.connect((address, port))
        except OSError:
            stream.close()
            raise
        return stream

    def describe(self):
        """For the record."""
        return (f"veth between two network namespaces; receive work steered to CPU {self.cpus['server']} for the server "
                f"and CPU {self.cpus['client']} for the client")

    def _path(self, side):
        return f"/proc/{self.holders[side].pid}/ns/net"

    def _enter(self, side):
        return ["nsenter", f"--net={self._path(side)}"]

    def _hold(self, side):
        holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "sh", "-c", HOLDER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if _line(holder.stdout) != "ready":
            holder.kill()
            said = holder.communicate()[1].strip()
            raise Refused(f"no network namespace for the {side}: {said or 'no reason given'}. In a container, start it "
                          "with --privileged")
        holder.stderr.close()
        return holder

    def _connect(self):
        server, client = (self.holders[side].pid for side in ("server", "client"))
        _run(["ip", "link", "add", "server", "netns", str(server), "type", "veth", "peer", "name", "client",
              "netns", str(client)])
        for side, addresses in (("server", [SERVER_ADDRESS]), ("client", CLIENT_ADDRESSES)):
            addresses = [f"ip address add {address}/24 dev {side}" for address in addresses]
            for command in (*addresses, f"ip link set {side} up", "ip link set lo up"):
                _run([*self._enter(side), *command.split()])
            for name, value in SETTINGS[side].items():
                _run([*self._enter(side), "sysctl", "-qw", f"{name}={value}"])
            self._tell(side, f"echo {1 << self.cpus[side]:x} > /sys/class/net/{side}/queues/rx-0/rps_cpus")

    def _tell(self, side, line):
        """Has the holder run a line, because only it sees this namespace's /sys."""
        holder = self.holders[side]
        holder.stdin.write(line + "\n")
        holder.stdin.flush()
        status = _line(holder.stdout)
        if status != "0":
            raise Refused(f"in the {side}'s namespace: {line}: exit status {status}")


def check():
    """Raises unless namespaces can be had; the reason carries the remedy."""
    if os.geteuid() != 0:
        raise Refused("network namespaces and the kernel's gates need root: run it as root, for example sudo make stress")
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing:
        raise Refused(f"not found: {', '.join(missing)}; on Debian: apt-get install iproute2 util-linux")
    if os.cpu_count() < 2:
        raise Refused("needs two CPUs, one for the server and one for the client; this machine has one")


def _line(stream):
    ready, _, _ = select.select([stream], [], [], READY_WITHIN_S)
    return stream.readline().strip() if ready else None


def _run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=READY_WITHIN_S)
    if done.returncode != 0:
        raise Refused(f"{' '.join(command)}: {done.stderr.strip()}")


def _set_namespace(file):
    if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
