"""The faults. Each disturbs the hosts, and leaves everything as it was."""

import signal
import sys
import time
from pathlib import Path

from lab import Failure

WIRE = Path(__file__).with_name("wire.py")


class Faults:
    """What can be done to two hosts with daemons. A fault can return the time of its end."""

    def __init__(self, hosts, chance):
        self.hosts, self.lab, self.chance = hosts, hosts.lab, chance

    @classmethod
    def all(cls):
        """The names of the faults, and their methods."""
        found = (name for name in dir(cls) if name.startswith("do_"))
        return {name.removeprefix("do_"): getattr(cls, name) for name in found}

    def side(self):
        return self.chance.choice("ab")

    def seed(self):
        return self.chance.randrange(1 << 32)

    def pause(self, least, most):
        time.sleep(self.chance.uniform(least, most))

    def do_kill(self):
        """kill -9 of a daemon, which starts again."""
        return self.end(signal.SIGKILL)

    def do_restart(self):
        """SIGTERM of a daemon, which starts again."""
        return self.end(signal.SIGTERM)

    def end(self, how):
        side = self.side()
        self.hosts.end(side, how)
        self.pause(0, 1)
        begin = time.monotonic()
        self.hosts.start(side)
        return begin

    def do_stop(self):
        """A daemon is stopped for a while, as on a machine that swaps."""
        process = self.hosts.daemons[self.side()]
        process.send_signal(signal.SIGSTOP)
        self.pause(0.1, 1.5)
        process.send_signal(signal.SIGCONT)

    def do_link(self):
        """The underlay goes down and up."""
        side = self.side()
        self.lab.ip("-n", self.lab.ns(side), "link", "set", "eth0", "down")
        self.pause(0.1, 1.5)
        self.lab.ip("-n", self.lab.ns(side), "link", "set", "eth0", "up")

    def do_mtu(self):
        """The MTU of the underlay falls and rises. Below 1280 bytes, the underlay has no IPv6."""
        side = self.side()
        mtu = self.chance.choice((1200, 1500, 4200, 5000))
        self.lab.ip("-n", self.lab.ns(side), "link", "set", "eth0", "mtu", mtu)
        self.pause(0.1, 1)
        self.lab.ip("-n", self.lab.ns(side), "link", "set", "eth0", "mtu", self.lab.underlay_mtu)

    def do_address(self):
        """The GID of a host changes: its underlay gets another link-local address."""
        side, number = self.side(), self.chance.randrange(1, 0xFFFF)
        self.hosts.replace_address(side, f"fe80::77:{number:x}")

    def do_wire(self):
        """Packets are lost, doubled, late and damaged, some percent of each."""
        self.hosts.detach()
        percent = self.chance.choice((0.5, 2, 5))
        relay = self.lab.start(
            "f", sys.executable, "-B", WIRE, "relay", *self.hosts.ports, percent, self.seed()
        )
        # A busy machine takes seconds to start a program.
        relay.stdout.readline()
        before = self.hosts.frames()
        self.pause(1, 3)
        passed = min(now - then for now, then in zip(self.hosts.frames(), before, strict=True))
        if relay.poll() is not None or not passed:
            raise Failure(f"the relay passed no frames: {relay.log.read_text().strip()}")
        self.lab.kill(relay)
        self.hosts.attach()

    def do_forged(self):
        """Both hosts get a flood of forged packets of each kind that is on the wire."""
        flood = self.lab.start(
            "f", sys.executable, "-B", WIRE, "forge", *self.hosts.ports,
            self.chance.uniform(0.5, 2), self.seed(),
        )  # fmt: skip
        # Then messages of connection management are on the wire, too.
        side = self.side()
        for mode in ("datagram", "connected"):
            self.hosts.ask(side, "mode", "ib1", mode)
        sent = int(self.lab.finish(flood, 30))
        if not sent:
            raise Failure("no packet was forged")
        self.hosts.forged += sent

    def do_reload(self):
        """The configuration changes and comes back."""
        side = self.side()
        for text in (self.hosts.config(side, busy_poll=self.chance.choice((0, 50))), "[[ipoib", None):
            self.hosts.write_config(side, text)
            done = self.hosts.ask(side, "reload", check=False)
            if (done.returncode == 0) != (text != "[[ipoib"):
                raise Failure(f"ibtap reload: status {done.returncode}: {done.stderr.strip()}")

    def do_children(self):
        """Children appear and disappear."""
        side = self.side()
        keys = self.chance.sample(range(0x8100, 0x8200), 8)
        for key in keys:
            self.hosts.ask(side, "child", "add", "ib0", f"{key:#06x}")
        for key in keys:
            self.hosts.ask(side, "child", "delete", "ib0", f"{key:#06x}")

    def do_mode(self):
        """Interfaces change their mode and back."""
        side = self.side()
        for mode in ("connected", "datagram"):
            self.hosts.ask(side, "mode", "ib0", mode)
            self.pause(0, 0.5)
        for mode in ("datagram", "connected"):
            self.hosts.ask(side, "mode", "ib1", mode)
            self.pause(0, 0.5)

    def do_macs(self):
        """A host behind a bridge sends from thousands of Ethernet addresses."""
        storm = self.lab.start("f", sys.executable, "-B", WIRE, "storm", "storm", 5000)
        self.lab.finish(storm, 30)

    def do_disk(self):
        """The file system of log and configuration is full."""
        full = self.hosts.disk / "full"
        try:
            with full.open("wb") as file:
                while True:
                    file.write(bytes(1 << 20))
                    file.flush()
        except OSError:
            pass
        self.hosts.ask(self.side(), "log", "debug")
        self.hosts.ask(self.side(), "reload")
        self.pause(0.2, 1)
        full.unlink()
        for side in "ab":
            self.hosts.ask(side, "log", "info")

    def do_clock(self):
        """The clock of a daemon is wrong by up to ten days, and right again."""
        side = self.side()
        for error in (self.chance.randrange(86_400, 864_000) * self.chance.choice((-1, 1)), 0):
            self.hosts.set_clock(side, error)
            self.hosts.check_clock(side, error)
            self.pause(0, 1)

    def do_frozen(self):
        """A program that watches events is stopped."""
        side = self.side()
        watcher = self.lab.start(side, *self.hosts.ibtap(side), "monitor")
        # Then the program watches.
        watcher.stdout.readline()
        # The command is a child of "ip netns exec" or has replaced it.
        watcher.send_signal(signal.SIGSTOP)
        self.do_children()
        self.lab.kill(watcher)
