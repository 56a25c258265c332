"""Guests with rdma_rxe. The carriers of IP between them are verbs over rxe, the software fabric, and the kernel's TCP
on the same Ethernet.

rdma_rxe uses the UDP port of the software fabric, so a carrier is created anew for each turn.
"""

from guests import END_DAEMON, NUMBERS, Guests


class Way:
    """A way to join the guests: the daemon's options, or None without a daemon."""

    def __init__(self, options=None, rxe=False):
        self.options, self.rxe = options, rxe


class Rxe(Guests):
    script = "rxe-guest"
    carriers = {
        "verbs": Way("--provider verbs --device rxe0", rxe=True),
        "verbs-connected": Way("--provider verbs --device rxe0 --mode connected", rxe=True),
        "soft": Way("--underlay eth0"),
        "soft-connected": Way("--underlay eth0 --mode connected"),
        "plain": Way(),
    }

    def boot_options(self, side):
        return ["--addr", f"10.77.0.{NUMBERS[side]}/24"]

    def ready(self):
        pass

    def replace(self, carrier):
        way = self.carriers[carrier]
        for side in NUMBERS:
            self.run(side, f"{END_DAEMON}; rdma link del rxe0 2>/dev/null; modprobe -r rdma_rxe; true")
            if way.rxe:
                self.run(side, "modprobe -a rdma_rxe ib_uverbs rdma_ucm && rdma link add rxe0 type rxe netdev eth0")
            if way.options:
                self.start_daemon(side, way.options)

    def daemons(self, carrier):
        return "ab" if self.carriers[carrier].options else ""

    def to(self, carrier):
        return super().to(carrier) if self.daemons(carrier) else f"10.77.0.{NUMBERS['b']}"
