"""Measures carriers of IP between two network namespaces, in alternating runs.

Started by scripts/bench, which builds what this needs.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import carriers
import guests
import measures
import report
import rxe
import subnet
from lab import Failure, Lab


class Suite:
    """Carriers and measures that run together over one underlay."""

    def __init__(self, what, only, measure, forwarder=False, others="", guests=None):
        self.what, self.only, self.measure = what, only, measure
        self.forwarder, self.others = forwarder, others
        self.guests = guests

    def carriers(self):
        return self.guests.carriers if self.guests else carriers.ALL

    def measures(self):
        return guests.MEASURES if self.guests else measures.ALL


SUITES = {
    "carriers": Suite(
        "both modes and other carriers of IP",
        "ib0,connected,tap-udp,vxlan,tap-tap",
        "tcp1,tcp4,pps,rr",
    ),
    "modes": Suite(
        "datagram and connected mode, small and large MTU, both directions",
        "ib0-2044,ib0,connected-2044,connected",
        "tcp1,back1,tcp4,back4,rr",
    ),
    "loss": Suite("one percent of the underlay's packets lost", "ib0,connected", "loss", forwarder=True),
    "connections": Suite(
        "a stream beside 1,000 idle connections", "connected", "connections", forwarder=True, others="c"
    ),
    "flood": Suite(
        "a stream beside a flood of forged packets, and beside one of a closed port",
        "ib0,connected",
        "flood,flood-paced",
        forwarder=True,
        others="c",
    ),
    "children": Suite("128 children of an interface", "ib0", "children"),
    "siblings": Suite(
        "two interfaces of one daemon in two namespaces, and a copier between two TAPs",
        "siblings,siblings-connected,tap-tap",
        "tcp1,tcp4,rr",
    ),
    "vnic": Suite(
        "a VNIC and datagram mode over one underlay",
        "ib0,vnic",
        "tcp1,back1,tcp4,rr",
    ),
    "verbs": Suite(
        "verbs over rdma_rxe, the software fabric and plain TCP in two guests",
        "verbs,verbs-connected,soft,soft-connected,plain",
        "guest-tcp1,guest-rr,guest-calls",
        guests=rxe.Rxe,
    ),
    "infiniband": Suite(
        "the kernel's ib_ipoib and ibtapd beside a kernel peer in two guests, and two ibtapd",
        "kernel,ibtapd,kernel-connected,ibtapd-connected,both-connected,both",
        "guest-tcp1,guest-back1,guest-rr",
        guests=subnet.Subnet,
    ),
}


def parse():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5, help="length of each run (default 5)")
    parser.add_argument("--rounds", type=int, default=5, help="number of runs of each measure (default 5)")
    parser.add_argument("named", nargs="?", choices=SUITES, metavar="SUITE", help="the same as --suite SUITE")
    parser.add_argument(
        "--suite",
        choices=SUITES,
        default="carriers",
        help="what to measure (default carriers): "
        + "; ".join(f"{name}: {suite.what}" for name, suite in SUITES.items()),
    )
    parser.add_argument(
        "--only",
        metavar="NAME,...",
        help=f"carriers to measure, of {', '.join(carriers.ALL)}; for suites in guests: "
        f"{', '.join((*rxe.Rxe.carriers, *subnet.Subnet.carriers))} (default: the suite's)",
    )
    parser.add_argument(
        "--measure",
        metavar="NAME,...",
        help=f"what to measure, of {', '.join(measures.ALL)}; in guests of {', '.join(guests.MEASURES)} "
        "(default: the suite's)",
    )
    parser.add_argument(
        "--add",
        action="store_true",
        help="add the rounds to those of the suite's last run, which must be of the same revision and options",
    )
    parser.add_argument("--underlay-mtu", type=int, default=9000, help="of the veth (default 9000)")
    parser.add_argument(
        "--record",
        action="store_true",
        help="write the results to docs/ and README.md; refused if tracked files differ from the commit",
    )
    parser.add_argument("--programs", type=Path, default=Path("target/release"), help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=Path("target/bench"), help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, default=Path("."), help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.suite = args.named or args.suite
    suite = SUITES[args.suite]
    if suite.guests:
        args.underlay_mtu = guests.UNDERLAY_MTU
    args.only = choice(parser, "--only", args.only or suite.only, suite.carriers())
    args.measure = choice(parser, "--measure", args.measure or suite.measure, suite.measures())
    for measure in ("loss", "connections", "flood", "flood-paced", "children"):
        if measure in args.measure and measure not in suite.measure:
            parser.error(f"--measure {measure} needs --suite {measure.partition('-')[0]}")
    if "connections" in args.measure and not {"connected", "connected-2044"}.issuperset(args.only):
        parser.error("--suite connections measures connected and connected-2044 only")
    if args.rounds < 1 or args.seconds <= 0:
        parser.error("--rounds and --seconds are positive")
    return args


def choice(parser, option, text, known):
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in known:
            parser.error(f"{option}: no \"{name}\"; there are {', '.join(known)}")
    return names


def git(root, *arguments):
    done = subprocess.run(["git", "-C", root, *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Failure(f"git {arguments[0]} ended with status {done.returncode}")
    return done.stdout


def changed_files(root):
    """Tracked files that differ from the commit, without those that --record itself writes."""
    written = (":!docs/performance", ":!docs/performance.md", ":!README.md")
    return git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", *written).splitlines()


def revision(root):
    try:
        return git(root, "describe", "--always").strip() + ("-dirty" if changed_files(root) else "")
    except Failure:
        return "unknown"


def machine(args):
    """The machine, the revision and the parameters of the runs."""
    model = next(
        (line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    return {
        "kernel": platform.release(),
        "cpu": model,
        "cpus": os.cpu_count(),
        "commit": revision(args.root),
        "suite": args.suite,
        "carriers": args.only,
        "measures": args.measure,
        "underlay_mtu": args.underlay_mtu,
        "seconds": args.seconds,
        "rounds": args.rounds,
    }


def earlier(file, results):
    """Takes over the samples of the earlier run in a file; false if that run was another one."""
    if not file.exists():
        return False
    before = json.loads(file.read_text())
    rounds = before["machine"].pop("rounds")
    now = results["machine"]
    if "error" in before or any(now[key] != value for key, value in before["machine"].items()):
        return False
    results["samples"] = before["samples"]
    now["rounds"] += rounds
    return True


def run(args, results):
    samples = results["samples"]
    suite = SUITES[args.suite]
    if suite.guests:
        guests.run(suite.guests, args, results)
        return
    with Lab(args.underlay_mtu, args.only, suite.forwarder, suite.others) as lab:
        running = {name: carriers.ALL[name](lab, args.programs) for name in args.only}
        context = measures.Context(lab, args.programs, args.seconds)
        for number in range(args.rounds):
            # Every second round reverses the order, so that a drift of the machine favours no carrier.
            order = args.only if number % 2 == 0 else args.only[::-1]
            for measure in args.measure:
                for name in order:
                    found = measures.ALL[measure](context, running[name])
                    print(f"round {number + 1}/{args.rounds}  {name:14}  {report.one_line(found)}", flush=True)
                    for key, value in found.items():
                        samples.setdefault(key, {}).setdefault(name, []).append(value)
                    lab.check_alive()


def main():
    args = parse()
    try:
        changed = changed_files(args.root) if args.record else []
    except Failure as failure:
        print(f"bench: --record needs the revision: {failure}", file=sys.stderr)
        return 1
    if changed:
        print("bench: --record takes figures of a clean revision only; commit these first:", file=sys.stderr)
        print("\n".join(changed), file=sys.stderr)
        return 1
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))
    args.output.mkdir(parents=True, exist_ok=True)
    name = report.file_name(args.suite)
    results = {"machine": machine(args), "samples": {}}
    if args.add and not earlier(args.output / f"{name}.json", results):
        print("bench: --add finds no earlier run of this revision with these options", file=sys.stderr)
        return 1
    try:
        run(args, results)
    except Failure as failure:
        results["error"] = str(failure)
    report.summarise(results)
    # A failed run leaves the file of the last good run, to which --add adds.
    file = f"{name}.failed.json" if "error" in results else f"{name}.json"
    (args.output / file).write_text(json.dumps(results, indent=1) + "\n")
    if "error" in results:
        print(f"bench: {results['error']}", file=sys.stderr)
        return 2
    print()
    print(report.text_table(results))
    (args.output / f"{name}.svg").write_text(report.plot(results))
    print(f"\n{args.output}/{name}.json and {name}.svg hold it all")
    if args.record:
        report.record(args.root, results)
    return 0


sys.exit(main())
