"""128 children of an interface: times to create and delete them, cost while idle, and the rate of one child against the rate of
its parent before."""

import os
import subprocess
import time
from pathlib import Path
from statistics import mean

import measures
from lab import Failure

CHILDREN = 128
FIRST_PKEY = 0x9000
# The kernel solicits routers on each new interface for a while.
SETTLE_SECONDS = 10
IDLE_SECONDS = 5
PATIENCE = 60
STREAMS = 3


def children(context, carrier):
    """Creates children with `ip tuntap add` on the server; the client has one of them."""
    lab, parent = context.lab, carrier.interface
    alone = stream(context, carrier)
    daemon = lab.daemons[carrier.server]
    names = [f"{parent}.{FIRST_PKEY + n:04x}" for n in range(CHILDREN)]
    before = measures.resident_kib(daemon)
    # The first child carries traffic, so it has a queue for each thread; the others have one.
    ours = f"tuntap add dev {names[0]} mode tap multi_queue\nlink set {names[0]} up\n"
    batch(lab, carrier.client, ours)
    others = "".join(f"tuntap add dev {name} mode tap\nlink set {name} up\n" for name in names[1:])
    created = timed(
        lambda: batch(lab, carrier.server, ours + others), lambda: serving(context, carrier) == CHILDREN
    )
    lab.wait("a child on the client", lambda: carrying(context, carrier, carrier.client) == 1)
    after = measures.resident_kib(daemon)
    found = {
        "create_s": created,
        "idle_cpu_percent": idle_cpu(daemon),
        # Later rounds reuse memory of the first one.
        **({} if context.has_idle_memory else {"child_kib": (after - before) / CHILDREN}),
        "parent_gbps": alone,
    }
    context.has_idle_memory = True
    rate = stream(context, Child(carrier, names[0]))
    found |= {"child_gbps": rate, "child_kept": rate / alone}
    batch(lab, carrier.client, f"link del {names[0]}\n")
    deleted = timed(
        lambda: batch(lab, carrier.server, "".join(f"link del {name}\n" for name in names)),
        lambda: len(listed(context, carrier, carrier.server)) == 0,
    )
    return found | {"delete_s": deleted}


def stream(context, carrier):
    """Gbit/s of one stream, the mean of a few: single runs differ by a tenth."""
    return mean(measures.tcp(context, carrier, 1)[0] for _ in range(STREAMS))


class Child:
    """A child on both hosts as a carrier, in a separate subnet."""

    def __init__(self, parent, interface):
        lab = parent.lab
        self.lab, self.interface, self.name = lab, interface, interface
        self.client, self.server = parent.client, parent.server
        self.address = {self.client: "10.78.0.1", self.server: "10.78.0.2"}
        self.to = self.address[self.server]
        for side, address in self.address.items():
            lab.ip("-n", lab.ns(side), "addr", "add", f"{address}/24", "dev", interface)
        ping = lab.command(self.client, "ping", "-c1", "-W1", self.to)
        lab.wait(f"an answer over {interface}", lambda: subprocess.run(ping, capture_output=True).returncode == 0)


def batch(lab, side, lines):
    done = subprocess.run(
        lab.command(side, "ip", "-batch", "-"), input=lines, capture_output=True, text=True, timeout=PATIENCE
    )
    if done.returncode:
        raise Failure(f"ip -batch: {done.stderr.strip()}")


def timed(act, is_done):
    """Seconds from the first command until the daemon has followed."""
    begin = time.monotonic()
    act()
    while not is_done():
        if time.monotonic() - begin > PATIENCE:
            raise Failure(f"the daemon did not follow within {PATIENCE} s")
        time.sleep(0.02)
    return time.monotonic() - begin


def listed(context, carrier, side):
    return measures.ibtap(context, carrier, "child", "list", side=side)


def carrying(context, carrier, side):
    return sum(child["carrier"] for child in listed(context, carrier, side))


def serving(context, carrier):
    return carrying(context, carrier, carrier.server)


def idle_cpu(daemon):
    """Percent of one CPU that the daemon uses without traffic."""
    time.sleep(SETTLE_SECONDS)
    before = cpu_seconds(daemon)
    time.sleep(IDLE_SECONDS)
    return 100 * (cpu_seconds(daemon) - before) / IDLE_SECONDS


def cpu_seconds(process):
    """utime and stime of proc_pid_stat(5)."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
