"""Two guests on one Ethernet, and the measures of IP between them. rxe.py and subnet.py have their carriers."""

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import report
from lab import Failure

IPERF_PORT, RR_PORT = 5201, 9100
# Room for an RDMA MTU of 4096.
UNDERLAY_MTU = 4500
# An emulated guest is slow.
PATIENCE = 120
# strace slows a stream down by a multiple, so this stream is short.
TRACED = "8M"

SOCKET = "/run/ibtapd.sock"
NUMBERS = {"a": 1, "b": 2}

# Ends the daemon of a guest.
END_DAEMON = "pkill -x ibtapd && while pgrep -x ibtapd >/dev/null; do sleep 0.1; done"


class Guests:
    """Guests a and b, with interfaces of one carrier at a time. They end with this process."""

    # Set by subclasses: the script that boots the guests, and the carriers by name.
    script = None
    carriers = {}

    def __init__(self, root, programs):
        self.script = root / "scripts" / self.script
        self.programs = programs
        self.run_id = f"ibt{os.getpid()}"
        self.scratch = tempfile.TemporaryDirectory(prefix=f"{self.run_id}.")
        self.stands = None

    def boot_options(self, side):
        """Options of `boot` for the Ethernet of a guest."""
        raise NotImplementedError

    def ready(self):
        """Prepares the booted guests."""
        raise NotImplementedError

    def replace(self, carrier):
        """Replaces the present carrier."""
        raise NotImplementedError

    def daemons(self, carrier):
        """The guests in which a daemon carries the packets."""
        raise NotImplementedError

    def to(self, carrier):
        """The address of b."""
        return f"10.9.0.{NUMBERS['b']}"

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
        for name in ("ibtapd", "ibtap", "ibtap-perf"):
            subprocess.run(
                ["strip", "-o", f"{self.scratch.name}/{name}", self.programs / name], check=True
            )
        self._host("net", self.run_id, "tapa", "tapb")
        booting = [
            subprocess.Popen(
                [
                    *(self.script, "boot", self.name(side), "--netns", self.run_id, "--tap", f"tap{side}"),
                    *self.boot_options(side),
                    *("--mtu", str(UNDERLAY_MTU), "--memory", "768"),
                    *("--share", self.scratch.name, "--owner", str(os.getpid()), "--life", "36000"),
                ]
            )
            for side in NUMBERS
        ]
        if any([process.wait() for process in booting]):
            raise Failure("the guests do not boot")
        for side in NUMBERS:
            # All carriers send single packets: QEMU would pass trains of TCP only.
            self.run(side, "ethtool -K eth0 tso off; modprobe tun")
        self.ready()

    def close(self):
        for side in NUMBERS:
            subprocess.run([self.script, "stop", self.name(side)])
        subprocess.run(["ip", "netns", "del", self.run_id], stderr=subprocess.DEVNULL)
        self.scratch.cleanup()

    def name(self, side):
        return f"{self.run_id}-{side}"

    def _host(self, *words):
        done = subprocess.run([self.script, *words], capture_output=True, text=True)
        if done.returncode:
            raise Failure(f"{self.script.name} {words[0]}: {done.stderr.strip()}")

    def command(self, side, script, limit=PATIENCE):
        return [self.script, "exec", self.name(side), "--limit", str(limit), script]

    def run(self, side, script, limit=PATIENCE):
        done = subprocess.run(self.command(side, script, limit), capture_output=True, text=True)
        if done.returncode:
            raise Failure(f"{script}: status {done.returncode}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def start(self, side, script):
        """A program that runs until the guests end or until it is killed."""
        return subprocess.Popen(self.command(side, script, 36000), stdout=subprocess.DEVNULL)

    def start_daemon(self, side, options):
        """Starts a daemon, and gives its interface an address."""
        self.start(side, f"exec /host/ibtapd --socket {SOCKET} {options}")
        self.run(side, f"until /host/ibtap --socket {SOCKET} show >/dev/null 2>&1; do sleep 0.2; done")
        self.configure(side)

    def configure(self, side):
        self.run(side, f"ip addr add 10.9.0.{NUMBERS[side]}/24 dev ib0 && ip link set ib0 up")

    def stand(self, carrier):
        """Replaces the present carrier and waits until the new one answers."""
        if self.stands == carrier:
            return
        self.replace(carrier)
        self.run("a", f"until ping -c 3 -i 0.2 -W 5 {self.to(carrier)} >/dev/null; do sleep 0.2; done")
        self.stands = carrier

    def counters(self, carrier, name):
        """The sum of a counter over the workers of the daemons; 0 if the provider has no such counter."""
        return sum(
            found
            for side in self.daemons(carrier)
            for found in collect(json.loads(self.run(side, f"/host/ibtap --socket {SOCKET} --json stats ib0")), name)
        )


def collect(value, name):
    """All numbers of this name at any depth."""
    if isinstance(value, list):
        for item in value:
            yield from collect(item, name)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key == name and isinstance(item, int):
                yield item
            else:
                yield from collect(item, name)


def stream(guests, carrier, options):
    """One stream from a to b, or with -R from b to a: as counted by iperf3's receiver."""
    guests.run("b", f"iperf3 -s -1 -D -p {IPERF_PORT}")
    text = guests.run("a", f"iperf3 -J -c {guests.to(carrier)} -p {IPERF_PORT} {options}")
    result = json.loads(text)
    # iperf3 -J exits with 0 also when the server refuses.
    if "error" in result:
        raise Failure(f"iperf3 over {carrier}: {result['error']}")
    return result["end"]["sum_received"]


def tcp1(guests, carrier, seconds):
    return {"guest_tcp1_mbps": stream(guests, carrier, f"-t {seconds:g}")["bits_per_second"] / 1e6}


def back1(guests, carrier, seconds):
    return {"guest_back1_mbps": stream(guests, carrier, f"-t {seconds:g} -R")["bits_per_second"] / 1e6}


def latency(guests, carrier, seconds):
    server = f"/host/ibtap-perf rr-server --bind 0.0.0.0:{RR_PORT}"
    guests.run("b", f"pgrep -f rr-server >/dev/null || {{ setsid {server} >/dev/null 2>&1 & sleep 1; }}")
    result = json.loads(
        guests.run(
            "a", f"/host/ibtap-perf rr-client --to {guests.to(carrier)}:{RR_PORT} --size 1 --seconds {seconds:g}"
        )
    )
    return {"guest_rr_p50_us": result["p50_us"], "guest_rr_p99_us": result["p99_us"]}


def calls(guests, carrier, seconds):
    """Calls of the daemons for a gigabyte of one stream: verbs calls by the daemons' counters, system calls by
    strace in a separate run."""
    sides = guests.daemons(carrier)
    if not sides:
        return {}
    before = {name: guests.counters(carrier, name) for name in ("verbs_calls", "post_lists")}
    found = {}
    # The software fabric makes no verbs calls.
    if any(before.values()):
        gigabytes = stream(guests, carrier, f"-t {seconds:g}")["bytes"] / 1e9
        counted = {name: guests.counters(carrier, name) - count for name, count in before.items()}
        found = {f"{name}_per_gb": count / gigabytes for name, count in counted.items() if count}
    for side in sides:
        guests.run(
            side,
            "rm -f /tmp/calls; setsid strace -f -c -o /tmp/calls -p $(pgrep -x ibtapd) >/dev/null 2>&1 &"
            "sleep 1",
        )
    gigabytes = stream(guests, carrier, f"-n {TRACED}")["bytes"] / 1e9
    system = 0
    for side in sides:
        guests.run(side, "pkill -INT -x strace; while pgrep -x strace >/dev/null; do sleep 0.1; done")
        system += total_calls(guests.run(side, "cat /tmp/calls"))
    return found | {"system_calls_per_gb": system / gigabytes}


def total_calls(summary):
    """The last line of strace -c: "100.00 SECONDS [USECS/CALL] CALLS [ERRORS] total"."""
    line = next(line for line in summary.splitlines() if line.endswith("total"))
    numbers = line.split()[:-1]
    # strace 5.19 and later print usecs/call; the column of errors can be empty.
    whole = [int(word) for word in numbers if word.isdigit()]
    return max(whole)


MEASURES = {"guest-tcp1": tcp1, "guest-back1": back1, "guest-rr": latency, "guest-calls": calls}


def run(made, args, results):
    """Measures carriers of the class `made` of guests."""
    samples = results["samples"]
    begun = time.monotonic()
    with made(Path(args.root).resolve(), args.programs) as guests:
        for number in range(args.rounds):
            # Every second round reverses the order, so that a drift of the machine favours no carrier.
            order = args.only if number % 2 == 0 else args.only[::-1]
            for carrier in order:
                guests.stand(carrier)
                for measure in args.measure:
                    found = MEASURES[measure](guests, carrier, args.seconds)
                    if not found:
                        continue
                    print(f"round {number + 1}/{args.rounds}  {carrier:16}  {report.one_line(found)}", flush=True)
                    for key, value in found.items():
                        samples.setdefault(key, {}).setdefault(carrier, []).append(value)
    print(f"the guests ran for {time.monotonic() - begun:.0f} s")
