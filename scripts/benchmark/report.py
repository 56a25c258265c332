"""Medians, ratios, the table, the plot and where they are kept."""

import json
from statistics import median

REFERENCE = "tap-udp"

# key: (title, format, goal of the ratio to the reference, whether more is better)
FIGURES = {
    "tcp1_gbps": ("TCP, 1 stream, Gbit/s", "{:.2f}", 0.70, True),
    "tcp4_gbps": ("TCP, 4 streams, Gbit/s", "{:.2f}", 0.70, True),
    "tcp1_cpu_s_per_gb": ("CPU s/GB, 1 stream", "{:.3f}", 1.45, False),
    "tcp4_cpu_s_per_gb": ("CPU s/GB, 4 streams", "{:.3f}", 1.45, False),
    "udp64_pps": ("64-byte UDP, packets/s", "{:,.0f}", 1.0, True),
    "tcp_rr_p50_us": ("TCP request/response p50, us", "{:.1f}", 1.0, False),
    "tcp_rr_p99_us": ("TCP request/response p99, us", "{:.1f}", None, False),
    "udp_rr_p50_us": ("UDP request/response p50, us", "{:.1f}", 1.0, False),
    "udp_rr_p99_us": ("UDP request/response p99, us", "{:.1f}", None, False),
}
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


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


def rows(results):
    names = sorted({name for by_name in results["medians"].values() for name in by_name}, key=order)
    stacked = results.get("bridge", {})
    extra = ["bridge / ib0"] if stacked else []
    yield ["median of %d rounds" % results["machine"]["rounds"], *names, f"ib0 / {REFERENCE}", "goal", *extra]
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


def order(name):
    known = ["ib0", "bridge", "tap-udp", "vxlan", "tap-tap", "veth"]
    return known.index(name)


def verdict(ratio, goal, more):
    if goal is None:
        return ""
    text = f"{'>=' if more else '<='} {goal:.2f}"
    if ratio is None:
        return text
    return text + (" reached" if (ratio >= goal) == more or ratio == goal else " missed")


def text_table(results):
    table = list(rows(results))
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return "\n".join(
        "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths)))
        for row in table
    )


def markdown(results):
    table = list(rows(results))
    lines = ["| " + " | ".join(table[0]) + " |", "|---" + "|---:" * (len(table[0]) - 1) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in table[1:]]
    machine = results["machine"]
    lines += [
        "",
        f"{machine['cpus']} CPUs ({machine['cpu']}), Linux {machine['kernel']}, underlay MTU "
        f"{machine['underlay_mtu']}, revision {machine['commit']}; "
        f"`scripts/bench --seconds {machine['seconds']:g} --rounds {machine['rounds']}`.",
    ]
    return "\n".join(lines)


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
        colour = "#1f6fb2" if name == "ib0" else "#b9c4cf"
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
    """Keeps JSON and plot in docs/performance/ and the table where the documents mark its place."""
    folder = root / "docs" / "performance"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / "bench.svg").write_text(plot(results))
    for name in ("docs/performance.md", "README.md"):
        path = root / name
        text = path.read_text()
        head, _, rest = text.partition(BEGIN)
        _, _, tail = rest.partition(END)
        if not rest or not tail:
            raise SystemExit(f"bench: {name} lacks the marks {BEGIN} and {END}")
        path.write_text(f"{head}{BEGIN}\n{markdown(results)}\n{END}{tail}")
