"""The carriers: an interface on each host, and the network between them.

All carriers exist at once, each in a separate subnet. An idle carrier sleeps in a system call.
"""

import json
import subprocess

from lab import UNDERLAY


class Carrier:
    """An interface with addresses 10.77.SUBNET.1 and .2, on the hosts or on namespaces behind them."""

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


class Device:
    """An IPoIB interface, in a separate partition, so that one underlay has several. With `both`, one daemon
    has the interface in both namespaces."""

    def __init__(self, name, pkey, both=False, **keys):
        self.name, self.pkey, self.both, self.keys = name, pkey, both, keys

    def toml(self):
        lines = ["[[ipoib]]", f'name = "{self.name}"', 'underlay = "eth0"', f"pkey = {self.pkey:#06x}"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in self.keys.items()]
        return "\n".join(lines) + "\n"


class Vnic:
    """A VNIC on a virtual Ethernet switch."""

    pkey, both = 0xFFFF, False

    def __init__(self, name, vesw):
        self.name, self.vesw = name, vesw

    def toml(self):
        return f'[[vnic]]\nname = "{self.name}"\nunderlay = "eth0"\nvesw = {self.vesw}\n'


# The interfaces of each carrier. The daemons create no others: polling their queues would take time.
DEVICES = {
    "ib0": Device("ib0", 0xFFFF),
    "bridge": Device("ib1", 0x8001),
    "connected": Device("ib2", 0x8002, mode="connected"),
    "ib0-2044": Device("ib3", 0x8003, mtu=2044),
    "connected-2044": Device("ib4", 0x8004, mode="connected", mtu=2044),
    "siblings": Device("ib5", 0x8005, both=True),
    "siblings-connected": Device("ib6", 0x8006, both=True, mode="connected"),
    "vnic": Vnic("vnic0", 1),
}


def daemons(lab, programs):
    """One daemon on each host, with an interface for each selected carrier."""
    if lab.has_daemons:
        return
    lab.has_daemons = True
    devices = [DEVICES[name] for name in lab.wanted if name in DEVICES]
    for side in "ab":
        config = lab.path(f"{side}.toml")
        text = "".join(configured(lab, device, side) for device in devices)
        if not text:
            continue
        config.write_text(text)
        lab.daemons[side] = lab.start(
            side, programs / "ibtapd", "--config", config, "--socket", lab.path(f"{side}.sock"), keep=True
        )
    for side in "ab":
        for device in devices:
            lab.wait(
                device.name,
                lambda side=side, name=device.name: name in lab.run(side, "ls", "/sys/class/net").split(),
            )


def configured(lab, device, side):
    """The table of an interface in the configuration of a host's daemon."""
    if not device.both:
        return device.toml()
    return device.toml() + device.toml() + f'netns = "{lab.ns("b")}"\n' if side == "a" else ""


def plain(name, subnet):
    """A carrier that is an interface of the daemons only."""

    def make(lab, programs):
        daemons(lab, programs)
        carrier = Carrier(lab, name, DEVICES[name].name, subnet)
        carrier.pkey = DEVICES[name].pkey
        return carrier

    return make


def bridge(lab, programs):
    """Hosts behind a bridge on each host; the bridge's other port is ib1."""
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

ALL = {
    "ib0": plain("ib0", 1),
    "connected": plain("connected", 6),
    "ib0-2044": plain("ib0-2044", 7),
    "connected-2044": plain("connected-2044", 8),
    "siblings": plain("siblings", 9),
    "siblings-connected": plain("siblings-connected", 10),
    "vnic": plain("vnic", 11),
    "bridge": bridge,
    "tap-udp": tap_udp,
    "vxlan": vxlan,
    "tap-tap": tap_tap,
    "veth": veth,
}
