"""Disturbs two daemons while traffic runs between them. Started by scripts/chaos, which builds what this needs."""

import argparse
import random
import signal
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "benchmark"))

from faults import Faults  # noqa: E402
from hosts import Hosts  # noqa: E402
from lab import Failure  # noqa: E402

# After a fault, the daemons may take so many seconds to release what the fault has ended.
QUIET = 60
# After a fault, each stream and transfer goes on within so many seconds. TCP doubles the time between its attempts.
PROGRESS = 15
# How much more the daemons may hold after the faults: what the allocator keeps.
SLACK = {"memory, KiB": 24 * 1024}


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__.splitlines()[0].split(" Started")[0])
    parser.add_argument("--seconds", type=float, default=60, help="length of the run (default 60)")
    parser.add_argument("--seed", type=int, help="order and parameters of the faults (default: random, printed)")
    parser.add_argument("--only", metavar="FAULT,...", help="these faults only; --list names all")
    parser.add_argument("--recovery", type=float, default=2, metavar="SECONDS", help="longest time from the end of a fault until traffic passes again (default 2)")
    parser.add_argument("--list", action="store_true", help="print the faults")
    parser.add_argument("--bin", type=Path, metavar="FOLDER", help="folder of ibtapd and ibtap (default: build a release)")
    return parser.parse_args()


def chosen(only):
    known = Faults.all()
    names = only.split(",") if only else list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise Failure(f"there is no fault {unknown[0]!r}; the faults are {', '.join(known)}")
    return {name: known[name] for name in names}


def run(options):
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    faults = chosen(options.only)
    print(f"seed {seed}", flush=True)
    chance = random.Random(seed)
    with Hosts(options.bin) as hosts:
        on = Faults(hosts, chance)
        hosts.start_traffic()
        time.sleep(2)
        before = hosts.holdings()
        blocks = [0]
        longest = dict.fromkeys(faults, 0.0)
        counts = dict.fromkeys(faults, 0)
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            name = chance.choice(list(faults))
            try:
                # A daemon that starts again belongs to the fault; the time of its start counts.
                begin = faults[name](on) or time.monotonic()
                taken, slowest = hosts.await_traffic(begin, options.recovery + 10)
                hosts.check_daemons()
                blocks = check_progress(hosts, max(PROGRESS, options.recovery))
                await_holdings(hosts, before)
            except Failure as e:
                raise Failure(f"after the fault {name!r} (seed {seed}): {e}") from e
            print(f"{name}: traffic after {taken:.2f} s ({slowest})", flush=True)
            counts[name] += 1
            longest[name] = max(longest[name], taken)
            if taken > options.recovery:
                logs = "".join(f"\nlast log lines of host {side}:\n{hosts.log(side)}" for side in "ab")
                raise Failure(f"after the fault {name!r} (seed {seed}), traffic passed after {taken:.2f} s only, last over {slowest}{logs}")
            time.sleep(chance.uniform(0, 1))
        print(f"\n{sum(counts.values())} faults, {sum(blocks)} blocks of 64 KiB arrived whole, {hosts.forged} forged packets")
        for name in faults:
            print(f"{name:10} {counts[name]:5} times, traffic after at most {longest[name]:.2f} s")


def check_progress(hosts, seconds):
    """From now on, each transfer and each stream goes on, and no byte was wrong. Returns the blocks of the transfers."""
    before = [(link, link.blocks(), link.streams()) for link in hosts.links]
    for link, blocks, streams in before:
        try:
            hosts.lab.wait(f"progress of the transfers over {link.name}", lambda: link.blocks_grew(blocks), seconds)
            hosts.lab.wait(f"progress of the streams over {link.name}", lambda: link.streams_grew(streams), seconds)
        except Failure:
            hosts.describe(link)
            raise
    return [sum(link.blocks()) for link in hosts.links]


def await_holdings(hosts, before):
    """The daemons hold what they held before the faults."""
    end = time.monotonic() + QUIET
    while True:
        after = hosts.holdings()
        left = [f"{what} of host {side}: {then} before, {after[side][what]} after"
                for side in before for what, then in before[side].items()
                if after[side][what] > then + SLACK.get(what, 0)]
        if not left:
            return
        if time.monotonic() > end:
            raise Failure("something is left: " + "; ".join(left))
        time.sleep(1)


def main():
    options = arguments()
    if options.list:
        for name, fault in Faults.all().items():
            print(f"{name:10} {fault.__doc__}")
        return 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        run(options)
    except (Failure, AssertionError) as e:
        print(f"chaos: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


sys.exit(main())
