"""Guests with an InfiniBand port on a subnet with a scripted subnet administrator. The carriers of IP between them are
the kernel's ib_ipoib and ibtapd, on the same device.

Guest a has the driver under test. Guest b, its peer, has the kernel's driver, except in the carriers "both".
"""

import subprocess
import time
from pathlib import Path

from guests import END_DAEMON, NUMBERS, PATIENCE, Guests
from lab import Failure

DAEMON = "--provider verbs --device rxe0"
CONNECTED_MTU = 65520
# ibtapd manages connections with the kernel's ib_ipoib where ib_cm is not loaded.
UNLOAD = "for module in ib_ipoib rdma_ucm rdma_cm iw_cm ib_cm; do rmmod $module 2>/dev/null; done; true"


class Drivers:
    """The driver of each guest, "kernel" or "ibtapd", and the mode of both."""

    def __init__(self, a, b, mode="datagram"):
        self.of, self.mode = {"a": a, "b": b}, mode


class Subnet(Guests):
    script = "ib-guest"
    carriers = {
        "kernel": Drivers("kernel", "kernel"),
        "ibtapd": Drivers("ibtapd", "kernel"),
        "both": Drivers("ibtapd", "ibtapd"),
        "kernel-connected": Drivers("kernel", "kernel", "connected"),
        "ibtapd-connected": Drivers("ibtapd", "kernel", "connected"),
        "both-connected": Drivers("ibtapd", "ibtapd", "connected"),
    }

    def __init__(self, root, programs):
        super().__init__(root, programs)
        self.administrator = None
        self.present = {}

    def boot_options(self, side):
        return ["--lid", str(0x10 + NUMBERS[side])]

    def ready(self):
        socket = Path(self.scratch.name, "sa")
        # Code 5 is an MTU of 4096, the largest one.
        self.administrator = subprocess.Popen(
            [self.script, "sa", self.run_id, "--mtu", "5", "--control", socket], stdout=subprocess.DEVNULL
        )
        end = time.monotonic() + PATIENCE
        while not socket.exists():
            if self.administrator.poll() is not None or time.monotonic() > end:
                raise Failure("the subnet administrator does not start")
            time.sleep(0.05)

    def close(self):
        if self.administrator:
            self.administrator.terminate()
            self.administrator.wait()
        super().close()

    def daemons(self, carrier):
        return "".join(side for side, driver in self.carriers[carrier].of.items() if driver == "ibtapd")

    def replace(self, carrier):
        """Changes only the guests whose driver or mode differs."""
        drivers = self.carriers[carrier]
        for side in NUMBERS:
            wanted = drivers.of[side], drivers.mode
            if self.present.get(side) != wanted:
                self.present[side] = wanted
                self.run(side, f"{END_DAEMON}; {UNLOAD}")
                self.begin(side, *wanted)
        for side, other in ("ab", "ba"):
            # The other guest's interface may have another queue pair. A large packet needs the connection, if there
            # is one.
            size = 56 if drivers.mode == "datagram" else 60000
            self.run(
                side,
                "ip neigh flush dev ib0;"
                f"until ping -c 2 -i 0.2 -W 2 -M do -s {size} 10.9.0.{NUMBERS[other]} >/dev/null; do sleep 0.2; done",
            )

    def begin(self, side, driver, mode):
        if driver == "ibtapd":
            self.start_daemon(side, f"{DAEMON} --mode {mode}")
            return
        self.run(side, f"modprobe ib_ipoib && echo {mode} >/sys/class/net/ib0/mode")
        if mode == "connected":
            self.run(side, f"ip link set ib0 mtu {CONNECTED_MTU}")
        self.configure(side)
