"""The carriers: an interface on each host and what joins the two.

All of them stand at once, each with a subnet of its own; an idle one sleeps in a system call.
"""

import json
import subprocess

from lab import UNDERLAY


class Carrier:
    """An interface with addresses 10.77.SUBNET.1 and .2, on the hosts or on guests behind them."""

    def __init__(self, lab, name, interface, subnet, setup=(), on=("a", "b")):
        self.lab, self.name, self.interface = lab, name, interface
        self.client, self.server = on
        self.address = {on[0]: f"10.77.{subnet}.1", on[1]: f"10.77.{subnet}.2"}
        self.to = self.address[self.server]
        for side in on:
            lab.wait(f"{interface} of {name}", lambda side=side: self._link(side))
            if setup:
                lab.ip("-n", lab.ns(side), "link", "set", interface, *setup)
            lab.ip("-n", lab.ns(side), "addr", "add", f"{self.address[side]}/24", "dev", interface)
            lab.ip("-n", lab.ns(side), "link", "set", interface, "up")
        lab.wait(f"an answer over {name}", self._answers)

    def _link(self, side):
        return self.interface in self.lab.run(side, "ls", "/sys/class/net").split()

    def _answers(self):
        ping = self.lab.command(self.client, "ping", "-c1", "-W1", self.to)
        return subprocess.run(ping, capture_output=True).returncode == 0


def daemons(lab, programs):
    """One on each host: ib0 for the host itself, ib1 in another partition for what is stacked."""
    if lab.has_daemons:
        return
    lab.has_daemons = True
    for side in "ab":
        config = lab.path(f"{side}.toml")
        config.write_text(DEVICES)
        lab.start(
            side, programs / "ibtapd", "--config", config, "--socket", lab.path(f"{side}.sock"), keep=True
        )
    for side in "ab":
        lab.wait("ib1", lambda side=side: "ib1" in lab.run(side, "ls", "/sys/class/net").split())


DEVICES = """
[[device]]
name = "ib0"
underlay = "eth0"
[[device]]
name = "ib1"
underlay = "eth0"
pkey = 0x8001
"""


def ib0(lab, programs):
    daemons(lab, programs)
    return Carrier(lab, "ib0", "ib0", 1)


def bridge(lab, programs):
    """Guests behind a bridge on each host, whose other port is ib1."""
    daemons(lab, programs)
    for side in "ab":
        host, guest = lab.ns(side), lab.add(f"g{side}")
        mtu = json.loads(lab.run(side, "ip", "-j", "link", "show", "ib1"))[0]["mtu"]
        lab.ip("-n", host, "link", "add", "br1", "type", "bridge")
        lab.ip(
            "-n", host, "link", "add", "port1", "mtu", mtu, "type", "veth",
            "peer", "name", "guest0", "mtu", mtu, "netns", guest,
        )  # fmt: skip
        for port in ("ib1", "port1"):
            lab.ip("-n", host, "link", "set", port, "master", "br1", "up")
        lab.ip("-n", host, "link", "set", "br1", "up")
    return Carrier(lab, "bridge", "guest0", 5, on=("ga", "gb"))


def tap_udp(lab, programs):
    for side, other in ("ab", "ba"):
        lab.start(
            side, programs / "ibtap-perf", "tap-udp", "--name", "tapu",
            "--local", f"{UNDERLAY[side]}:4790", "--peer", f"{UNDERLAY[other]}:4790", keep=True,
        )  # fmt: skip
    return Carrier(lab, "tap-udp", "tapu", 2, COPIER)


def vxlan(lab, _programs):
    for side, other in ("ab", "ba"):
        lab.ip(
            "-n", lab.ns(side), "link", "add", "vx0", "type", "vxlan", "id", 42, "dev", "eth0",
            "local", UNDERLAY[side], "remote", UNDERLAY[other], "dstport", 4789,
        )  # fmt: skip
    return Carrier(lab, "vxlan", "vx0", 3)


def tap_tap(lab, programs):
    lab.start(
        None, programs / "ibtap-perf", "tap-tap", "--name", "tapt",
        "--ns-a", lab.ns("a"), "--ns-b", lab.ns("b"), keep=True,
    )  # fmt: skip
    return Carrier(lab, "tap-tap", "tapt", 4, COPIER)


def veth(lab, _programs):
    carrier = Carrier.__new__(Carrier)
    carrier.lab, carrier.name, carrier.interface, carrier.address = lab, "veth", "eth0", dict(UNDERLAY)
    carrier.client, carrier.server, carrier.to = "a", "b", UNDERLAY["b"]
    return carrier


# A frame of 60000 bytes and its headers stay below the underlay's gso_max_size of 65536.
COPIER = ("mtu", 8948, "gso_max_size", 60000)

ALL = {"ib0": ib0, "bridge": bridge, "tap-udp": tap_udp, "vxlan": vxlan, "tap-tap": tap_tap, "veth": veth}
