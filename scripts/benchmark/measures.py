"""What is measured over a carrier. Each function gives back named figures of one run."""

import json
import os

from lab import Failure

IPERF_PORT, RR_PORT, UDP_PORT = 5201, 9100, 9200


class Context:
    def __init__(self, lab, programs, seconds):
        self.lab, self.seconds = lab, seconds
        self.perf = programs / "ibtap-perf"
        self.best_pps = {}
        self.rr_servers = set()


def busy_seconds():
    """CPU time of the whole machine that was not idle, since boot (proc(5), /proc/stat)."""
    user, nice, system, _idle, _iowait, irq, softirq = map(int, open("/proc/stat").readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def tcp(context, carrier, streams):
    lab = context.lab
    server = lab.start(carrier.server, "iperf3", "-s", "-1", "-p", IPERF_PORT)
    lab.wait_listening(carrier.server, "tcp", IPERF_PORT)
    before = busy_seconds()
    text = lab.run(
        carrier.client, "iperf3", "-c", carrier.to, "-p", IPERF_PORT, "-P", streams,
        "-t", context.seconds, "-J", timeout=context.seconds + 30,
    )  # fmt: skip
    busy = busy_seconds() - before
    lab.finish(server, 10)
    result = json.loads(text)
    # iperf3 -J leaves with status 0 when it was refused.
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


def pps_at(context, carrier, rate, seconds):
    """(datagrams sent per second, received per second, loss) at an asked rate."""
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
    # Later rounds begin a little below what an earlier one reached.
    rate = int(context.best_pps.get(carrier.name, 50_000) * 0.8)
    high = None
    for _ in range(24):
        sent, received, loss = pps_at(context, carrier, rate, seconds)
        if loss < 0.01:
            low, best = rate, max(best, received)
            if sent < 0.9 * rate:
                break  # The sender itself cannot do more.
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


ALL = {"tcp1": tcp1, "tcp4": tcp4, "pps": pps, "rr": latency}
