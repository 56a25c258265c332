"""The carriers: an interface on each host and what joins the two.

All of them stand at once, each with a subnet of its own; an idle one sleeps in a system call.
"""

import subprocess

from lab import UNDERLAY


class Carrier:
    """An interface with addresses 10.77.SUBNET.1 and .2."""

    def __init__(self, lab, name, interface, subnet, setup=()):
        self.lab, self.name, self.interface = lab, name, interface
        self.address = {"a": f"10.77.{subnet}.1", "b": f"10.77.{subnet}.2"}
        for side in "ab":
            lab.wait(f"{interface} of {name}", lambda side=side: self._link(side))
            if setup:
                lab.ip("-n", lab.ns(side), "link", "set", interface, *setup)
            lab.ip("-n", lab.ns(side), "addr", "add", f"{self.address[side]}/24", "dev", interface)
            lab.ip("-n", lab.ns(side), "link", "set", interface, "up")
        lab.wait(f"an answer over {name}", self._answers)

    def _link(self, side):
        return self.interface in self.lab.run(side, "ls", "/sys/class/net").split()

    def _answers(self):
        ping = self.lab.command("a", "ping", "-c1", "-W1", self.address["b"])
        return subprocess.run(ping, capture_output=True).returncode == 0


def ib0(lab, programs):
    for side in "ab":
        lab.start(
            side, programs / "ibtapd", "--underlay", "eth0", "--name", "ib0",
            "--socket", lab.path(f"{side}.sock"), keep=True,
        )  # fmt: skip
    return Carrier(lab, "ib0", "ib0", 1)


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
    return carrier


# A frame of 60000 bytes and its headers stay below the underlay's gso_max_size of 65536.
COPIER = ("mtu", 8948, "gso_max_size", 60000)

ALL = {"ib0": ib0, "tap-udp": tap_udp, "vxlan": vxlan, "tap-tap": tap_tap, "veth": veth}
