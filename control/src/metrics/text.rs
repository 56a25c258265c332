//! The two text formats.

/// The classic text format of Prometheus, from text in the OpenMetrics format that has only counters and gauges.
///
/// The classic format has no units and no end mark, and describes a counter by the name of its samples, with
/// `_total`.
pub fn classic(open: &str) -> String {
    let mut out = String::with_capacity(open.len());
    let mut help = "";
    for line in open.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ').map_or("", |(_, text)| text);
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|typed| typed.split_once(' '))
        {
            let total = if kind == "counter" { "_total" } else { "" };
            out += &format!("# HELP {name}{total} {help}\n# TYPE {name}{total} {kind}\n");
        } else if !line.starts_with('#') {
            out += line;
            out += "\n";
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_described_by_the_name_of_its_samples() {
        let open = "# HELP rx_bytes Bytes received.\n# TYPE rx_bytes counter\n# UNIT rx_bytes bytes\n\
            rx_bytes_total{port=\"# a\"} 7\n# HELP up Whether up.\n# TYPE up gauge\nup 1\n# EOF\n";
        let expected = "# HELP rx_bytes_total Bytes received.\n# TYPE rx_bytes_total counter\n\
            rx_bytes_total{port=\"# a\"} 7\n# HELP up Whether up.\n# TYPE up gauge\nup 1\n";
        assert_eq!(classic(open), expected);
    }
}
