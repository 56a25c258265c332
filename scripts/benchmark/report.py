"""Medians, ratios, tables, plots, and the documents that hold them."""

import json
from statistics import median

REFERENCE = "tap-udp"

# key: (title, format, goal of the ratio to the reference, whether more is better)
FIGURES = {
    "tcp1_gbps": ("TCP, 1 stream, Gbit/s", "{:.2f}", 0.90, True),
    "tcp4_gbps": ("TCP, 4 streams, Gbit/s", "{:.2f}", 1.00, True),
    "tcp1_cpu_s_per_gb": ("CPU s/GB, 1 stream", "{:.3f}", 1.45, False),
    "tcp4_cpu_s_per_gb": ("CPU s/GB, 4 streams", "{:.3f}", 1.45, False),
    "back1_gbps": ("TCP reverse, 1 stream, Gbit/s", "{:.2f}", None, True),
    "back4_gbps": ("TCP reverse, 4 streams, Gbit/s", "{:.2f}", None, True),
    "udp64_pps": ("64-byte UDP, packets/s", "{:,.0f}", 1.0, True),
    "tcp_rr_p50_us": ("TCP request/response p50, us", "{:.1f}", 1.0, False),
    "tcp_rr_p99_us": ("TCP request/response p99, us", "{:.1f}", None, False),
    "udp_rr_p50_us": ("UDP request/response p50, us", "{:.1f}", 1.0, False),
    "udp_rr_p99_us": ("UDP request/response p99, us", "{:.1f}", None, False),
}

FIGURES |= {
    "clean_gbps": ("without loss, Gbit/s", "{:.2f}", None, True),
    "lossy_gbps": ("with 1 % lost, Gbit/s", "{:.2f}", None, True),
    "kept": ("share kept", "{:.2f}", None, True),
    "lost_packets": ("packets lost per run", "{:,.0f}", None, True),
    "alone_gbps": ("one stream alone, Gbit/s", "{:.2f}", None, True),
    "beside_gbps": ("beside 1,000 idle connections, Gbit/s", "{:.2f}", None, True),
    "beside_kept": ("share kept", "{:.2f}", None, True),
    "idle_kib": ("memory of an idle connection, KiB", "{:.1f}", None, False),
    "beside_flood_gbps": ("beside a flood of forged packets, Gbit/s", "{:.2f}", None, True),
    "beside_closed_gbps": ("beside a flood of a closed port, Gbit/s", "{:.2f}", None, True),
    "flood_kept": ("share kept beside the flood", "{:.2f}", None, True),
    "flood_pps": ("forged packets/s", "{:,.0f}", None, True),
    "paced_flood_kept": ("share kept beside 116,000 packets/s", "{:.2f}", None, True),
    "create_s": ("create 128 children, s", "{:.2f}", None, False),
    "delete_s": ("delete 128 children, s", "{:.2f}", None, False),
    "idle_cpu_percent": ("idle CPU with 128 children, %", "{:.2f}", None, False),
    "child_kib": ("memory of an idle child, KiB", "{:.1f}", None, False),
    "parent_gbps": ("TCP, 1 stream, parent alone, Gbit/s", "{:.2f}", None, True),
    "child_gbps": ("TCP, 1 stream, one child of 128, Gbit/s", "{:.2f}", None, True),
    "child_kept": ("child / parent", "{:.2f}", None, True),
}

FIGURES |= {
    "guest_tcp1_mbps": ("TCP, 1 stream, Mbit/s", "{:.1f}", None, True),
    "guest_back1_mbps": ("TCP reverse, 1 stream, Mbit/s", "{:.1f}", None, True),
    "guest_rr_p50_us": ("TCP request/response p50, us", "{:,.0f}", None, False),
    "guest_rr_p99_us": ("TCP request/response p99, us", "{:,.0f}", None, False),
    "verbs_calls_per_gb": ("verbs calls per GB, all daemons", "{:,.0f}", None, False),
    "post_lists_per_gb": ("post lists per GB, all daemons", "{:,.0f}", None, False),
    "system_calls_per_gb": ("system calls per GB, all daemons", "{:,.0f}", None, False),
}

# Goals: (title, figure, carrier, reference or None for the figure itself, bound or None for a figure without a goal, whether more is
# better). A ratio is the median over rounds of the ratio within the round.
GOALS = [
    ("connected / copier, TCP, 1 stream", "tcp1_gbps", "connected", "tap-udp", 1.00, True),
    ("connected / copier, CPU s/GB, 1 stream", "tcp1_cpu_s_per_gb", "connected", "tap-udp", 1.10, False),
    ("connected / copier, TCP, 4 streams", "tcp4_gbps", "connected", "tap-udp", 1.00, True),
    ("connected / datagram, TCP, 1 stream", "tcp1_gbps", "connected", "ib0", 0.95, True),
    ("connected / datagram, CPU s/GB, 1 stream", "tcp1_cpu_s_per_gb", "connected", "ib0", 1.00, False),
    ("share of the rate kept with 1 % loss", "kept", "connected", None, 0.82, True),
    ("share of the rate kept beside 1,000 idle connections", "beside_kept", "connected", None, 0.95, True),
    *(
        (f"flood of forged packets / of a closed port, {mode} mode{pace}", figure, carrier, None, 0.90, True)
        for mode, carrier in (("datagram", "ib0"), ("connected", "connected"))
        for pace, figure in (("", "flood_kept"), (", 116,000 packets/s", "paced_flood_kept"))
    ),
    ("memory of an idle connection, KiB", "idle_kib", "connected", None, 16.0, False),
    ("create 128 children, s", "create_s", "ib0", None, 2.0, False),
    ("delete 128 children, s", "delete_s", "ib0", None, 4.0, False),
    ("idle CPU with 128 children, %", "idle_cpu_percent", "ib0", None, 1.0, False),
    ("child / parent alone", "child_kept", "ib0", None, 0.95, True),
    ("siblings / TAP-to-TAP copier, 1 stream", "tcp1_gbps", "siblings", "tap-tap", 0.8, True),
    ("siblings / TAP-to-TAP copier, connected mode", "tcp1_gbps", "siblings-connected", "tap-tap", 0.8, True),
    ("VNIC / datagram, TCP, 1 stream", "tcp1_gbps", "vnic", "ib0", 0.95, True),
    ("VNIC / datagram, CPU s/GB, 1 stream", "tcp1_cpu_s_per_gb", "vnic", "ib0", 1.10, False),
    ("VNIC / datagram, TCP, 4 streams", "tcp4_gbps", "vnic", "ib0", None, True),
    ("VNIC / datagram, TCP p50", "tcp_rr_p50_us", "vnic", "ib0", None, False),
    ("verbs / software fabric, 1 stream", "guest_tcp1_mbps", "verbs", "soft", None, True),
    ("verbs / software fabric, connected mode", "guest_tcp1_mbps", "verbs-connected", "soft-connected", None, True),
    ("verbs / plain TCP, 1 stream", "guest_tcp1_mbps", "verbs", "plain", None, True),
    ("verbs / plain TCP, connected mode", "guest_tcp1_mbps", "verbs-connected", "plain", None, True),
    ("verbs / software fabric, p50", "guest_rr_p50_us", "verbs", "soft", None, False),
    ("verbs / plain TCP, p50", "guest_rr_p50_us", "verbs", "plain", None, False),
    ("verbs / software fabric, system calls", "system_calls_per_gb", "verbs", "soft", None, False),
    *(
        (f"ibtapd / ib_ipoib, {mode} mode, {title}", figure, f"ibtapd{name}", f"kernel{name}", bound, more)
        for mode, name in (("datagram", ""), ("connected", "-connected"))
        for title, figure, bound, more in (
            ("stream to a kernel peer", "guest_tcp1_mbps", 1.0, True),
            ("stream from a kernel peer", "guest_back1_mbps", 1.0, True),
            ("p50", "guest_rr_p50_us", 1.2, False),
        )
    ),
]

# carrier: mode, MTU, and the published figures of the kernel's IPoIB on InfiniBand adapters of that time,
# where known: MB/s and microseconds.
MODES = {
    "ib0-2044": ("datagram", 2044, 707, 19.4),
    "ib0": ("datagram", 4092, None, None),
    "connected-2044": ("connected", 2044, 353, 18.9),
    "connected": ("connected", 65520, 726, 19.6),
}

# The README's small table: carriers with their titles, and figures.
SMALL_CARRIERS = {"ib0": "datagram mode", "connected": "connected mode", "tap-udp": "TAP-to-UDP copier", "vxlan": "vxlan"}
SMALL_FIGURES = ("tcp1_gbps", "tcp4_gbps", "udp64_pps", "tcp_rr_p50_us")


def file_name(suite):
    """Of the suite's files and marks."""
    return "bench" if suite == "carriers" else suite


def marks(suite):
    name = file_name(suite)
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def one_line(found):
    return "  ".join(f"{FIGURES[key][0]} {FIGURES[key][1].format(value)}" for key, value in found.items())


def summarise(results):
    """Adds medians, and the median over rounds of ib0's ratio to each reference in the same round."""
    samples = results["samples"]
    results["medians"] = {
        key: {name: median(values) for name, values in by_name.items()} for key, by_name in samples.items()
    }
    results["ratios"] = {}
    for key, by_name in samples.items():
        ours = by_name.get("ib0", [])
        results["ratios"][key] = {
            name: median(a / b for a, b in zip(ours, theirs))
            for name, theirs in by_name.items()
            if name != "ib0" and ours
        }
        if ours and "bridge" in by_name:
            results.setdefault("bridge", {})[key] = median(a / b for a, b in zip(by_name["bridge"], ours))
    results["goals"] = list(goals(samples))


def goals(samples):
    for title, figure, carrier, reference, bound, more in GOALS:
        by_name = samples.get(figure, {})
        values = by_name.get(carrier)
        if reference and values:
            values = [a / b for a, b in zip(values, by_name.get(reference, []))]
        if values:
            reached = median(values)
            yield {"goal": title, "bound": bound, "more": more, "reached": reached}


def rows(results):
    return {"modes": mode_rows, "carriers": carrier_rows}.get(results["machine"]["suite"], figure_rows)(results)


def title_of(results):
    return "median of %d rounds" % results["machine"]["rounds"]


def names_of(results):
    return sorted({name for by_name in results["medians"].values() for name in by_name}, key=order)


def figure_rows(results):
    """A figure a row, a carrier a column."""
    names = names_of(results)
    yield [title_of(results), *names]
    for key, by_name in results["medians"].items():
        title, form, _, _ = FIGURES[key]
        yield [title, *(form.format(by_name[name]) if name in by_name else "-" for name in names)]


def carrier_rows(results):
    """The same with ib0's ratio to the reference, and with a bridge on ib0."""
    names = names_of(results)
    stacked = results.get("bridge", {})
    extra = ["bridge / ib0"] if stacked else []
    yield [title_of(results), *names, f"ib0 / {REFERENCE}", "goal", *extra]
    for key, by_name in results["medians"].items():
        title, form, goal, more = FIGURES[key]
        ratio = results["ratios"][key].get(REFERENCE)
        yield [
            title,
            *(form.format(by_name[name]) if name in by_name else "-" for name in names),
            "-" if ratio is None else f"{ratio:.2f}",
            verdict(ratio, goal, more),
            *([f"{stacked[key]:.2f}"] if key in stacked else ["-"] * len(extra)),
        ]


def mode_rows(results):
    """One row for each mode and MTU, in MB/s and microseconds, beside figures of InfiniBand adapters."""
    medians = results["medians"]

    def of(name, key, form, scale=1):
        value = medians.get(key, {}).get(name)
        return "-" if value is None else form.format(value * scale)

    yield [
        "mode", "MTU", "MB/s", "reverse", "4 streams", "reverse", "CPU s/GB", "round trip p50, us", "p99, us",
        "InfiniBand adapter, MB/s", "latency, us",
    ]  # fmt: skip
    for name in names_of(results):
        mode, mtu, rate, latency = MODES.get(name, (name, "-", None, None))
        yield [
            mode,
            str(mtu),
            *(of(name, key, "{:.0f}", 125) for key in ("tcp1_gbps", "back1_gbps", "tcp4_gbps", "back4_gbps")),
            of(name, "tcp1_cpu_s_per_gb", "{:.3f}"),
            *(of(name, key, "{:.1f}") for key in ("tcp_rr_p50_us", "tcp_rr_p99_us")),
            *("-" if value is None else f"{value:g}" for value in (rate, latency)),
        ]


def goal_rows(results):
    yield ["ratio or figure", "reached", "goal"]
    for goal in results["goals"]:
        ratio = goal["reached"]
        yield [goal["goal"], f"{ratio:.2f}", verdict(ratio, goal["bound"], goal["more"])]


def order(name):
    known = [
        "ib0-2044", "ib0", "vnic", "connected-2044", "connected", "siblings", "siblings-connected", "bridge", "tap-udp",
        "vxlan", "tap-tap", "veth", "verbs", "verbs-connected", "soft", "soft-connected", "plain",
        "kernel", "ibtapd", "both", "kernel-connected", "ibtapd-connected", "both-connected",
    ]  # fmt: skip
    return known.index(name)


def verdict(ratio, goal, more):
    if goal is None:
        return ""
    text = f"{'>=' if more else '<='} {goal:.2f}"
    if ratio is None:
        return text
    return text + (" reached" if (ratio >= goal) == more or ratio == goal else " missed")


def tables(results):
    """The tables of a suite, each a head and rows; the last one compares with the goals."""
    yield list(rows(results))
    if results["goals"]:
        yield list(goal_rows(results))


def text_table(results):
    return "\n\n".join(text_of(table) for table in tables(results))


def text_of(table):
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return "\n".join(
        "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths)))
        for row in table
    )


def markdown(results):
    """All tables of a suite, for docs/performance.md."""
    lines = []
    for table in tables(results):
        lines += markdown_of(table)
        lines.append("")
    return "\n".join([*lines, conditions(results)])


def small(results):
    """The README's table."""
    table = [[title_of(results), *SMALL_CARRIERS.values()]]
    for key in SMALL_FIGURES:
        title, form, _, _ = FIGURES[key]
        by_name = results["medians"].get(key, {})
        table.append([title, *(form.format(by_name[name]) if name in by_name else "-" for name in SMALL_CARRIERS)])
    return "\n".join([*markdown_of(table), "", conditions(results)])


def markdown_of(table):
    head, *rest = ("| " + " | ".join(row) + " |" for row in table)
    return [head, "|---" + "|---:" * (len(table[0]) - 1) + "|", *rest]


def conditions(results):
    """The machine, the revision and the command."""
    machine = results["machine"]
    suite = "" if machine["suite"] == "carriers" else f" --suite {machine['suite']}"
    return (
        f"{machine['cpus']} CPUs ({machine['cpu']}), Linux {machine['kernel']}, underlay MTU "
        f"{machine['underlay_mtu']}, revision {machine['commit']}; "
        f"`scripts/bench{suite} --seconds {machine['seconds']:g} --rounds {machine['rounds']}`."
    )


def plot(results):
    """One panel a figure: a bar for the median, dots for the runs."""
    panels = list(results["samples"].items())
    width, height, columns = 300, 190, 3
    rows_of_panels = -(-len(panels) // columns)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width * columns}" height="{height * rows_of_panels}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, (key, by_name) in enumerate(panels):
        x, y = number % columns * width, number // columns * height
        out.append(f'<g transform="translate({x},{y})">{panel(key, by_name, width, height)}</g>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


OURS = {"ib0": "#1f6fb2", "connected": "#3a9d5d", "vnic": "#b2611f"}


def panel(key, by_name, width, height):
    title, form, _, more = FIGURES[key]
    top, bottom, left = 34, height - 24, 14
    most = max(max(values) for values in by_name.values()) or 1
    step = (width - 2 * left) / len(by_name)
    out = [f'<text x="{left}" y="16" font-weight="bold">{title}</text>']
    out.append(f'<text x="{left}" y="28" fill="#666">{"more" if more else "less"} is better</text>')
    for i, name in enumerate(sorted(by_name, key=order)):
        values = by_name[name]
        middle = left + (i + 0.5) * step
        tall = (bottom - top - 14) * median(values) / most
        colour = OURS.get(name, "#b9c4cf")
        out.append(
            f'<rect x="{middle - step * 0.32:.1f}" y="{bottom - tall:.1f}" width="{step * 0.64:.1f}" '
            f'height="{tall:.1f}" fill="{colour}"/>'
        )
        for value in values:
            dot = bottom - (bottom - top - 14) * value / most
            out.append(f'<circle cx="{middle - step * 0.26:.1f}" cy="{dot:.1f}" r="2" fill="#333" fill-opacity="0.6"/>')
        out.append(
            f'<text x="{middle:.1f}" y="{bottom - tall - 6:.1f}" text-anchor="middle">'
            f"{form.format(median(values))}</text>"
        )
        out.append(f'<text x="{middle:.1f}" y="{bottom + 14}" text-anchor="middle">{name}</text>')
    return "".join(out)


def record(root, results):
    """Writes JSON and plot to docs/performance/, and the tables between the marks of the documents."""
    folder = root / "docs" / "performance"
    folder.mkdir(parents=True, exist_ok=True)
    suite = results["machine"]["suite"]
    file = file_name(suite)
    (folder / f"{file}.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / f"{file}.svg").write_text(plot(results))
    write_between(root / "docs" / "performance.md", marks(suite), markdown(results))
    if suite == "carriers":
        write_between(root / "README.md", marks(suite), small(results))


def write_between(path, marks, text):
    begin, end = marks
    head, _, rest = path.read_text().partition(begin)
    _, _, tail = rest.partition(end)
    if not rest or not tail:
        raise SystemExit(f"bench: {path} lacks the marks {begin} and {end}")
    path.write_text(f"{head}{begin}\n{text}\n{end}{tail}")
