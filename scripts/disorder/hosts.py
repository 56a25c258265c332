"""Two hosts with daemons, whose wire, configuration and disk the faults disturb."""

import json
import signal
import struct
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from lab import ENDS_WITH_PARENT, Failure, Lab
from traffic import Link

CONFIG = """
[[ipoib]]
name = "ib0"
underlay = "eth0"
persist = true

[[ipoib]]
name = "ib1"
underlay = "eth0"
pkey = 0x8001
mode = "connected"
persist = true

[[vnic]]
name = "vnic0"
underlay = "eth0"
vesw = 1
persist = true

[[vnic]]
name = "vnic1"
underlay = "eth0"
vesw = 2
persist = true

[port.eth0]
busy_poll = {busy_poll}
"""

# After the usual faults, traffic is back within this time, in seconds.
LATE = 1.5


class Hosts:
    """The hosts a and b, joined by a bridge in the namespace f. A host of f sends through vnic1 of a."""

    ports = ("port-a", "port-b")

    def __init__(self, programs):
        self.programs = programs
        self.lab = Lab(9000, forwarder=True)
        self.daemons = {}
        # How much of each log was searched.
        self.searched = {"a": 0, "b": 0}
        self.forged = 0

    def __enter__(self):
        self.lab.__enter__()
        try:
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.daemons.values():
            process.kill()
            process.wait()
        self.lab.end_processes()
        subprocess.run(["umount", str(self.lab.path("disk"))], capture_output=True)
        self.lab.close()

    def build(self):
        # A small file system, to be filled.
        self.disk = self.lab.path("disk")
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(self.disk)], check=True)
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(self.lab.path("clock.so")), str(source)], check=True)
        for side in "ab":
            # After the link was down or its MTU too small, its address is usable at once.
            for conf in ("default", "eth0"):
                self.lab.run(side, "sysctl", "-q", f"net.ipv6.conf.{conf}.accept_dad=0")
            # A relay must see finished checksums.
            self.lab.run(side, "ethtool", "-K", "eth0", "tx", "off")
            self.link_local(side)
            self.set_clock(side, 0)
            self.write_config(side)
            self.start(side)
        ns = self.lab.ns("a")
        self.lab.ip("-n", ns, "link", "add", "storm0", "mtu", 9000, "type", "veth", "peer", "name", "storm", "netns", self.lab.ns("f"))
        self.lab.ip("-n", ns, "link", "add", "br1", "type", "bridge")
        for port in ("storm0", "vnic1"):
            self.lab.ip("-n", ns, "link", "set", port, "master", "br1", "up")
        self.lab.ip("-n", ns, "link", "set", "br1", "up")
        self.lab.ip("-n", self.lab.ns("f"), "link", "set", "storm", "up")
        self.links = [Link(self.lab, name, subnet) for subnet, name in enumerate(("ib0", "ib1", "vnic0"), 1)]
        self.links.append(Link(self.lab, "vnic1", 4, device_of_a="br1", has_streams=False))
        for link in self.links:
            link.configure()

    def start_traffic(self):
        server = [sys.executable, "-B", str(Path(__file__).with_name("traffic.py")), "serve"]
        for side in "ab":
            self.lab.start(side, *server)
            self.lab.wait_listening(side, "tcp", 7007)
        for link in self.links:
            link.start_traffic()

    # Daemons.

    def config(self, side, busy_poll=100):
        return CONFIG.format(busy_poll=busy_poll)

    def config_path(self, side):
        return self.disk / f"{side}.toml"

    def write_config(self, side, text=None):
        self.config_path(side).write_text(text or self.config(side))

    def start(self, side):
        """Starts a daemon. Its log and its configuration are on the small file system."""
        log = open(self.log_path(side), "ab")
        command = self.lab.command(
            side, *ENDS_WITH_PARENT,
            "env", f"LD_PRELOAD={self.lab.path('clock.so')}", f"CLOCK_ERROR={self.clock_path(side)}",
            self.programs / "ibtapd", "--config", self.config_path(side), "--socket", self.socket(side),
        )  # fmt: skip
        self.daemons[side] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.lab.wait(f"the daemon of host {side}", lambda: self.ask(side, "show", check=False).returncode == 0, 60)

    def clock_path(self, side):
        return self.lab.path(f"{side}.clock")

    def set_clock(self, side, error):
        """The clock of a host's daemon is wrong by so many seconds."""
        # Opened in place: the daemon has mapped the file.
        with open(self.clock_path(side), "r+b" if self.clock_path(side).exists() else "wb") as file:
            file.write(struct.pack("=q", error))

    def check_clock(self, side, error):
        # The daemon logs this command.
        self.ask(side, "log", "info")
        line = self.log_path(side).read_text(errors="replace").splitlines()[-1]
        found = datetime.fromisoformat(line.split()[0]) - datetime.now(UTC)
        if abs(found.total_seconds() - error) > 60:
            raise Failure(f"the clock of host {side} is not wrong by {error} s: {line}")

    def end(self, side, how):
        self.check_daemons()
        process = self.daemons[side]
        process.send_signal(how)
        status = process.wait(timeout=20)
        self.check_log(side)
        if status != (0 if how == signal.SIGTERM else -how):
            raise Failure(f"the daemon of host {side} has ended with {status}:\n{self.log(side)}")

    def log_path(self, side):
        return self.disk / f"{side}.log"

    def log(self, side):
        lines = self.log_path(side).read_text(errors="replace").splitlines()
        return "\n".join(lines[-20:])

    def check_log(self, side):
        """Searches the lines since the last time."""
        with self.log_path(side).open("rb") as log:
            log.seek(self.searched[side])
            lines = log.read()
        # A line may not be complete yet.
        self.searched[side] += lines.rfind(b"\n") + 1
        if b"panicked" in lines:
            raise Failure(f"the daemon of host {side} has panicked:\n{self.log(side)}")

    def check_daemons(self):
        for side, process in self.daemons.items():
            if process.poll() is not None:
                raise Failure(f"the daemon of host {side} has ended with {process.returncode}:\n{self.log(side)}")
            self.check_log(side)

    def socket(self, side):
        return self.lab.path(f"{side}.sock")

    def ibtap(self, side):
        return [self.programs / "ibtap", "--socket", self.socket(side)]

    def ask(self, side, *command, check=True):
        words = self.lab.command(side, *self.ibtap(side), *command)
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        if check and done.returncode:
            raise Failure(f"ibtap {' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")
        return done

    # The wire.

    def detach(self):
        for port in self.ports:
            self.lab.ip("-n", self.lab.ns("f"), "link", "set", port, "nomaster")

    def attach(self):
        for port in self.ports:
            self.lab.ip("-n", self.lab.ns("f"), "link", "set", port, "master", "br0")

    def frames(self):
        """The frames that each port of the wire has sent."""
        counts = [f"/sys/class/net/{port}/statistics/tx_packets" for port in self.ports]
        return [int(count) for count in self.lab.run("f", "cat", *counts).split()]

    def link_local(self, side):
        def address():
            found = json.loads(self.lab.run(side, "ip", "-j", "-6", "addr", "show", "dev", "eth0", "scope", "link"))
            known = [a for a in found[0]["addr_info"] if not a.get("tentative")] if found else []
            return known and known[0]["local"]

        self.lab.wait(f"a link-local address of host {side}", address)
        return address()

    def replace_address(self, side, address):
        ns = self.lab.ns(side)
        # Each time when the link goes down, the kernel replaces the address by the one made from the MAC address.
        old = self.link_local(side)
        self.lab.ip("-n", ns, "addr", "add", f"{address}/64", "dev", "eth0", "nodad")
        self.lab.ip("-n", ns, "addr", "del", f"{old}/64", "dev", "eth0")

    # Checks.

    def await_traffic(self, begin, seconds):
        """Waits until all interfaces pass full packets; returns the time since `begin`, and the interface that was last.
        If that is later than LATE, prints what both hosts know about the peer."""
        last = begin
        waits, descriptions = {}, []
        for link in self.links:
            what = f"an answer over {link.name}"
            try:
                self.lab.wait(what, link.answers, begin + LATE - time.monotonic())
            except Failure:
                # The wait goes on meanwhile.
                descriptions.append(threading.Thread(target=self.describe, args=(link,)))
                descriptions[-1].start()
                self.lab.wait(what, link.answers, seconds)
            waits[link.name] = time.monotonic() - last
            last = time.monotonic()
        for description in descriptions:
            description.join()
        return last - begin, max(waits, key=waits.get)

    def describe(self, link):
        interface = link.name
        own = ("vnic mac", "vnic members") if interface.startswith("vnic") else ("neigh", "conn")
        # Late answers, or none?
        print(self.lab.run("a", "sh", "-c", f"ping -c 3 -i 0.2 -W 5 {link.address['b']} || true"))
        for side in "ab":
            print(f"host {side}, ip neigh:", self.lab.run(side, "ip", "neigh", "show", "dev", interface), sep="\n")
            print(f"host {side}, ss:", self.lab.run(side, "ss", "-Htino", "dst", f"{link.address['a']}/24"), sep="\n")
            for command in (*own, "stats"):
                done = self.ask(side, *command.split(), interface, check=False)
                print(f"host {side}, ibtap {command} {interface}:\n{done.stdout}{done.stderr}", flush=True)

    def holdings(self):
        """What the daemons hold: descriptors, memory and objects of the fabric. Connections from a daemon that was killed
        stay until they have been idle for some minutes."""
        held = {}
        for side, process in self.daemons.items():
            # "ip netns exec" has replaced itself with the daemon.
            proc = Path(f"/proc/{process.pid}")
            status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line)
            shown = json.loads(self.ask(side, "--json", "show").stdout)
            ports = json.loads(self.ask(side, "--json", "res").stdout)
            held[side] = {
                "descriptors": len(list((proc / "fd").iterdir())),
                "threads": int(status["Threads"]),
                "interfaces": len(shown),
                "network interfaces of the host": len(self.lab.run(side, "ls", "/sys/class/net").split()),
                "datagram queue pairs": sum(pair["type"] == "UD" for port in ports for pair in port["queue_pairs"]),
                "groups": sum(len(port["groups"]) for port in ports),
                "memory, KiB": int(status["VmRSS"].split()[0]),
            }
        return held
