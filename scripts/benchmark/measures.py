"""Measurements over a carrier. Each function returns named figures of one run."""

import json
import os
import time
from pathlib import Path

from lab import Failure
from peers import ROCE_PORT

IPERF_PORT, RR_PORT, UDP_PORT = 5201, 9100, 9200


class Context:
    def __init__(self, lab, programs, seconds):
        self.lab, self.seconds = lab, seconds
        self.perf = programs / "ibtap-perf"
        self.best_pps = {}
        self.rr_servers = set()
        self.has_idle_memory = False


def busy_seconds():
    """CPU time of the whole machine that was not idle, since boot (proc(5), /proc/stat)."""
    user, nice, system, _idle, _iowait, irq, softirq = map(int, open("/proc/stat").readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def tcp(context, carrier, streams, *options):
    lab = context.lab
    server = lab.start(carrier.server, "iperf3", "-s", "-1", "-p", IPERF_PORT)
    lab.wait_listening(carrier.server, "tcp", IPERF_PORT)
    before = busy_seconds()
    text = lab.run(
        carrier.client, "iperf3", "-c", carrier.to, "-p", IPERF_PORT, "-P", streams,
        "-t", context.seconds, "-J", *options, timeout=context.seconds + 30,
    )  # fmt: skip
    busy = busy_seconds() - before
    lab.finish(server, 10)
    result = json.loads(text)
    # iperf3 -J exits with 0 also when the server refuses.
    if "error" in result:
        raise Failure(f"iperf3 over {carrier.name}: {result['error']}")
    received = result["end"]["sum_received"]
    return received["bits_per_second"] / 1e9, busy / (received["bytes"] / 1e9)


def tcp1(context, carrier):
    rate, cpu = tcp(context, carrier, 1)
    return {"tcp1_gbps": rate, "tcp1_cpu_s_per_gb": cpu}


def tcp4(context, carrier):
    rate, cpu = tcp(context, carrier, 4)
    return {"tcp4_gbps": rate, "tcp4_cpu_s_per_gb": cpu}


def back1(context, carrier):
    return {"back1_gbps": tcp(context, carrier, 1, "-R")[0]}


def back4(context, carrier):
    return {"back4_gbps": tcp(context, carrier, 4, "-R")[0]}


def pps_at(context, carrier, rate, seconds):
    """(datagrams sent per second, received per second, loss) at a requested rate."""
    lab = context.lab
    to = f"{carrier.to}:{UDP_PORT}"
    receiver = lab.start(carrier.server, context.perf, "udp-recv", "--bind", to)
    lab.wait_listening(carrier.server, "udp", UDP_PORT)
    sent = json.loads(
        lab.run(
            carrier.client, context.perf, "udp-send", "--to", to, "--rate", rate, "--seconds", seconds,
            "--size", 64,
        )  # fmt: skip
    )
    received = json.loads(lab.finish(receiver, 15))
    loss = 1 - received["received"] / sent["sent"] if sent["sent"] else 1.0
    return sent["pps"], received["received"] / sent["seconds"], loss


def pps(context, carrier):
    """The highest rate with less than 1 % lost: up in steps of a quarter, then three halvings."""
    seconds = min(1.0, context.seconds)
    low, best = 0, 0.0
    # Later rounds start a little below the rate of an earlier one.
    rate = int(context.best_pps.get(carrier.name, 50_000) * 0.8)
    high = None
    for _ in range(24):
        sent, received, loss = pps_at(context, carrier, rate, seconds)
        if loss < 0.01:
            low, best = rate, max(best, received)
            if sent < 0.9 * rate:
                break  # The sender is not faster.
            rate = int(rate * 1.25) if high is None else (low + high) // 2
        else:
            high = rate
            rate = int(rate * 0.7) if low == 0 else (low + high) // 2
        if high is not None and low and (high - low) < 0.05 * high:
            break
    if not best:
        raise Failure(f"{carrier.name} loses more than 1 % at any rate")
    context.best_pps[carrier.name] = best
    return {"udp64_pps": best}


def latency(context, carrier):
    lab = context.lab
    server = carrier.server
    if server not in context.rr_servers:
        context.rr_servers.add(server)
        lab.start(server, context.perf, "rr-server", "--bind", f"0.0.0.0:{RR_PORT}", keep=True)
        lab.wait_listening(server, "tcp", RR_PORT)
    to = f"{carrier.to}:{RR_PORT}"
    found = {}
    for protocol, flags in (("tcp", ()), ("udp", ("--udp",))):
        result = json.loads(
            lab.run(
                carrier.client, context.perf, "rr-client", "--to", to, "--size", 1, "--seconds", context.seconds, *flags,
                timeout=context.seconds + 60,
            )  # fmt: skip
        )
        found[f"{protocol}_rr_p50_us"] = result["p50_us"]
        found[f"{protocol}_rr_p99_us"] = result["p99_us"]
    return found


LOST_PER_MILLE = 10


def loss(context, carrier):
    """One stream without loss, then with 1 %, over the same forwarder."""
    lab = context.lab
    lab.lose(0)
    clean, _ = tcp(context, carrier, 1)
    lab.lose(LOST_PER_MILLE)
    lossy, _ = tcp(context, carrier, 1)
    lost = lab.lost()
    lab.lose(0)
    if not lost:
        raise Failure(f"no packet of {carrier.name} was lost")
    return {"clean_gbps": clean, "lossy_gbps": lossy, "kept": lossy / clean, "lost_packets": lost}


IDLE_CONNECTIONS = 1000


def resident_kib(process):
    """VmRSS of proc_pid_status(5). `ip netns exec` executes the daemon in the same process."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def connections(context, carrier):
    """One stream alone, then beside a thousand idle connections of other hosts."""
    lab, daemon = context.lab, context.lab.daemons[carrier.server]
    alone, _ = tcp(context, carrier, 1)
    shown = ibtap(context, carrier, "show")[0]
    before = resident_kib(daemon)
    known = len(ibtap(context, carrier, "conn"))
    peers = lab.start(
        "c", "python3", "-B", Path(__file__).parent / "peers.py", "--interface", "eth0", "--to", shown["gid"],
        "--qpn", shown["qpn"], "--pkey", carrier.pkey, "--count", IDLE_CONNECTIONS, stdin=True,
    )  # fmt: skip
    if not peers.stdout.readline():
        lab.finish(peers, 5)
        raise Failure("the idle peers ended")
    added = len(ibtap(context, carrier, "conn")) - known
    if added < IDLE_CONNECTIONS:
        raise Failure(f"the daemon lists {added} idle connections of {IDLE_CONNECTIONS}")
    found = {"alone_gbps": alone}
    # Later rounds reuse memory of the first one.
    if not context.has_idle_memory:
        context.has_idle_memory = True
        found["idle_kib"] = (resident_kib(daemon) - before) / IDLE_CONNECTIONS
    beside, _ = tcp(context, carrier, 1)
    peers.stdin.close()
    peers.stdin = None
    lab.finish(peers, 60)
    return found | {"beside_gbps": beside, "beside_kept": beside / alone}


# Nothing listens on the second port.
FLOODED = {"flood": ROCE_PORT, "closed": ROCE_PORT + 1}
# The flood begins before the stream and ends after it.
FLOOD_LEAD = 0.5
FLOOD_RATE = 116_000


def flood(context, carrier):
    """One stream beside a flood of forged packets, and beside the same flood of a closed port."""
    rates, packets = beside_floods(context, carrier)
    found = {f"beside_{name}_gbps": rate for name, rate in rates.items()}
    return found | {"flood_kept": rates["flood"] / rates["closed"], "flood_pps": packets}


def flood_paced(context, carrier):
    """The share that a stream keeps beside a flood at a fixed rate."""
    rates, _ = beside_floods(context, carrier, "--rate", FLOOD_RATE)
    return {"paced_flood_kept": rates["flood"] / rates["closed"]}


def beside_floods(context, carrier, *options):
    """The rates of a stream beside floods of both ports, and the packets per second of the smaller flood."""
    lab = context.lab
    shown = ibtap(context, carrier, "show")[0]
    rates, packets = {}, []
    for name, port in FLOODED.items():
        flooder = lab.start(
            "c", "python3", "-B", Path(__file__).parent / "flood.py", "--interface", "eth0", "--to", shown["gid"],
            "--port", port, "--qpn", shown["qpn"], "--qkey", shown["qkey"], "--pkey", carrier.pkey,
            "--seconds", context.seconds + 4 * FLOOD_LEAD, *options,
        )  # fmt: skip
        time.sleep(FLOOD_LEAD)
        rates[name], _ = tcp(context, carrier, 1)
        packets.append(float(lab.finish(flooder, 30)))
    return rates, min(packets)


def ibtap(context, carrier, *command, side=None):
    """The carrier's interface, as shown by the daemon of a host, by default the server."""
    side = side or carrier.server
    socket = context.lab.path(f"{side}.sock")
    text = context.lab.run(
        side, context.perf.parent / "ibtap", "--socket", socket, "--json", *command, carrier.interface
    )
    return json.loads(text)


def of_children(context, carrier):
    import children  # This module uses the functions above.

    return children.children(context, carrier)


ALL = {
    "tcp1": tcp1,
    "tcp4": tcp4,
    "back1": back1,
    "back4": back4,
    "pps": pps,
    "rr": latency,
    "loss": loss,
    "connections": connections,
    "flood": flood,
    "flood-paced": flood_paced,
    "children": of_children,
}
