"""Network namespaces joined by a veth or a bridge, and the processes in them; all removed at the end."""

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

UNDERLAY = {"a": "10.77.0.1", "b": "10.77.0.2"}

# In front of a command: the program ends with its parent, also if that is killed.
ENDS_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")

# A packet longer than the underlay's MTU is a train, and would be lost as a whole.
LOSS = """
table netdev ibtap
delete table netdev ibtap
table netdev ibtap {{
  counter trains {{ }}
  counter lost {{ }}
  chain ingress {{
    type filter hook ingress devices = {{ {ports} }} priority 0;
    meta length > {mtu} counter name trains
    udp dport 4791 numgen random mod 1000 < {per_mille} counter name lost drop
  }}
}}
"""


class Failure(Exception):
    """The reason why a measurement is impossible, in a sentence."""


class Lab:
    """Hosts a and b. With `forwarder`, a bridge in a separate namespace joins them and the named `others`, and
    only single packets pass: see `lose`."""

    def __init__(self, underlay_mtu, wanted=(), forwarder=False, others=""):
        self.prefix = f"ibt{os.getpid()}"
        self.namespaces = []
        self.processes = []
        self.scratch = tempfile.TemporaryDirectory(prefix=f"{self.prefix}.")
        self.underlay_mtu = underlay_mtu
        self.has_daemons = False
        self.daemons = {}
        self.wanted = wanted
        self.forwarder = forwarder
        self.hosts = "ab" + others

    def __enter__(self):
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def _build(self):
        for side in self.hosts:
            self.add(side)
        if self.forwarder:
            self._join_by_bridge()
        else:
            self._veth("eth0", self.ns("b"))
        for side in self.hosts:
            if side in UNDERLAY:
                self.ip("-n", self.ns(side), "addr", "add", f"{UNDERLAY[side]}/24", "dev", "eth0")
            self.ip("-n", self.ns(side), "link", "set", "eth0", "up")

    def _veth(self, peer, namespace, side="a"):
        mtu = str(self.underlay_mtu)
        self.ip(
            *("link", "add", "name", "eth0", "netns", self.ns(side), "mtu", mtu, "type", "veth"),
            *("peer", "name", peer, "netns", namespace, "mtu", mtu),
        )

    def _join_by_bridge(self):
        forwarder = self.add("f")
        self.ip("-n", forwarder, "link", "add", "br0", "type", "bridge", "mcast_snooping", 0)
        self.ip("-n", forwarder, "link", "set", "br0", "up", "mtu", self.underlay_mtu)
        for side in self.hosts:
            self._veth(f"port-{side}", forwarder, side)
            self.ip("-n", forwarder, "link", "set", f"port-{side}", "master", "br0", "up")
            # Packets are cut before they leave a host, and not merged on arrival.
            self.run(side, "ethtool", "-K", "eth0", "tx-udp-segmentation", "off")
            self.run("f", "ethtool", "-K", f"port-{side}", "gro", "off")

    def lose(self, per_mille):
        """Makes the forwarder drop this many of 1000 RoCE packets."""
        ports = ", ".join(f'"port-{side}"' for side in self.hosts)
        rules = self.path("loss.nft")
        rules.write_text(LOSS.format(ports=ports, mtu=self.underlay_mtu, per_mille=per_mille))
        self.run("f", "nft", "-f", rules)

    def lost(self):
        """The number of dropped packets; fails if one was a train."""
        found = {}
        for name in ("trains", "lost"):
            listed = json.loads(self.run("f", "nft", "-j", "list", "counter", "netdev", "ibtap", name))
            found[name] = next(item["counter"]["packets"] for item in listed["nftables"] if "counter" in item)
        if found["trains"]:
            raise Failure(f"{found['trains']} trains passed where single packets were to be lost")
        return found["lost"]

    def add(self, side):
        """Creates another namespace and returns its name."""
        self.ip("netns", "add", self.ns(side))
        self.namespaces.append(self.ns(side))
        self.ip("-n", self.ns(side), "link", "set", "lo", "up")
        return self.ns(side)

    def kill(self, process):
        """Ends a process that need not clean up."""
        process.kill()
        process.wait()
        self.processes.remove(process)

    def end_processes(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    def close(self):
        self.end_processes()
        for namespace in self.namespaces:
            subprocess.run(["ip", "netns", "del", namespace], stderr=subprocess.DEVNULL)
        self.scratch.cleanup()

    def ns(self, side):
        return f"{self.prefix}-{side}"

    def path(self, name):
        return Path(self.scratch.name) / name

    def ip(self, *arguments):
        done = subprocess.run(["ip", *map(str, arguments)], capture_output=True, text=True)
        if done.returncode:
            raise Failure(f"ip {' '.join(map(str, arguments))}: {done.stderr.strip()}")

    def command(self, side, *arguments):
        return ["ip", "netns", "exec", self.ns(side), *map(str, arguments)]

    def run(self, side, *arguments, timeout=120):
        """Output of a command on one host."""
        try:
            done = subprocess.run(
                self.command(side, *arguments), capture_output=True, text=True, timeout=timeout
            )
        except subprocess.TimeoutExpired as e:
            raise Failure(f"{' '.join(map(str, arguments))} did not end within {timeout} s") from e
        if done.returncode:
            words = " ".join(map(str, arguments))
            raise Failure(f"{words}: status {done.returncode}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def start(self, side, *arguments, keep=False, stdin=False, unread=False):
        """A process on one host (side None: on neither). With `keep` it must outlive the lab; with
        `stdin` its standard input is a pipe, otherwise empty. `unread`: nobody reads its standard output, and a full
        pipe would stop the process."""
        log = self.path(f"{len(self.processes)}.log")
        command = self.command(side, *arguments) if side else [str(a) for a in arguments]
        process = subprocess.Popen(
            [*ENDS_WITH_PARENT, *command],
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if unread else subprocess.PIPE,
            stderr=open(log, "w"),
            text=True,
        )
        process.log = log
        process.words = " ".join(command)
        process.keep = keep
        self.processes.append(process)
        return process

    def check_alive(self):
        for process in self.processes:
            if process.keep and process.poll() is not None:
                raise Failure(
                    f"{process.words} ended with {process.returncode}: {process.log.read_text().strip()}"
                )

    def finish(self, process, timeout):
        """Output of a started process after its end."""
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as e:
            raise Failure(f"{process.words} did not end within {timeout:.0f} s") from e
        self.processes.remove(process)
        if process.returncode:
            raise Failure(f"{process.words}: status {process.returncode}: {process.log.read_text().strip()}")
        return output

    def wait(self, what, condition, seconds=15):
        end = time.monotonic() + seconds
        while not condition():
            self.check_alive()
            if time.monotonic() > end:
                raise Failure(f"timed out waiting for {what}")
            time.sleep(0.05)

    def wait_listening(self, side, protocol, port):
        flags = {"tcp": "-Hltn", "udp": "-Hlun"}[protocol]
        self.wait(
            f"{protocol} port {port}", lambda: self.run(side, "ss", flags, "sport", "=", f":{port}").strip()
        )
