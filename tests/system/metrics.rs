//! Metrics for Prometheus: the text, the listener, the rules and the dashboard of docs/monitoring.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::lab::{Host, Lab};

/// Whether Debian's package `prometheus` is installed; without it, a test says so and passes.
fn has_promtool() -> bool {
    let found = Command::new("promtool").arg("--version").output().is_ok();
    if !found {
        kit::skip("promtool is not installed (Debian package prometheus)");
    }
    found
}

/// Runs promtool with a text as its input; returns what it says if it is not content.
fn promtool(arguments: &[&str], input: &str) -> Result<(), String> {
    let mut child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("written");
    drop(stdin);
    let done = child.wait_with_output().expect("promtool ends");
    let said = [done.stdout, done.stderr].concat();
    match done.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&said).into_owned()),
    }
}

/// A configuration in datagram and connected mode, with a VNIC and this key at its top.
fn configuration(host: &Host, key: &str) -> String {
    let path = host.file("metrics.toml");
    let text = format!(
        "{key}\n[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\nmode = \"connected\"\n\
         [[vnic]]\nname = \"lan0\"\nunderlay = \"eth0\"\nvesw = 1\n"
    );
    fs::write(&path, text).expect("written");
    path.to_str().expect("ASCII").to_owned()
}

const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n";

/// The value of a sample.
fn value(text: &str, sample: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(sample))?;
    line.trim().parse().ok()
}

#[test]
fn promtool_accepts_all_counters_and_they_agree_with_stats() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        let path = configuration(host, "");
        host.start_with(&["--config", &path]);
        host.configure("ib0");
    }
    a.reaches(b);
    a.ok(&format!("ping -q -c 20 -i 0.01 -W 2 -s 10000 {}", b.v4()));
    let text = a.ibtap("metrics").out;
    for sample in [
        r#"ibtap_interface_up{interface="ib0",netns="",port="soft/eth0"} 1"#,
        r#"ibtap_port_active{port="soft/eth0"} 1"#,
        "# TYPE ibtap_interface_rx_bytes_total counter",
        "# TYPE ibtap_worker_rx_icrc_errors_total counter",
        "# TYPE ibtap_vnic_rx_bad_veswid_total counter",
    ] {
        assert!(text.lines().any(|line| line == sample), "{sample}\n{text}");
    }
    let established = |role: &str| {
        let labels = format!(r#"interface="ib0",netns="",role="{role}",state="ESTABLISHED""#);
        value(&text, &format!("ibtap_connections{{{labels}}}")).unwrap_or(0)
    };
    assert!(established("active") + established("passive") > 0, "{text}");
    let counted = r#"ibtap_interface_tx_packets_total{interface="ib0",netns="",port="soft/eth0"}"#;
    let before = value(&text, counted).expect("a number");
    assert!(before >= 20, "{before}");
    a.ok(&format!("ping -q -c 20 -i 0.01 -W 2 {}", b.v4()));
    let after = value(&a.ibtap("metrics").out, counted).expect("a number");
    assert!(after >= before + 20, "{before} {after}");
    let shown = a.ask("stats ib0")[0]["tx_packets"].as_u64();
    assert!(
        shown.is_some_and(|shown| shown >= after),
        "{shown:?} {after}"
    );

    // Every counter of `ibtap stats` has a metric.
    for of in a.ask("stats") {
        let sets = ["device", "protocol", "driver", "port", "management"];
        let counters = sets.iter().filter_map(|set| of[*set].as_object());
        for name in counters.flat_map(|set| set.keys()) {
            let ending = format!("_{name}_total{{");
            assert!(text.contains(&ending), "{name} has no metric");
        }
    }
    if has_promtool() {
        promtool(&["check", "metrics"], &text).expect("promtool is content");
        // It is not content with everything.
        promtool(&["check", "metrics"], "no_help 1\n").expect_err("no help");
    }
}

/// The sandbox allows no new listener; the listener exists before.
#[test]
fn a_confined_daemon_serves_metrics_over_tcp_and_a_unix_socket() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let path = configuration(a, "metrics = \"127.0.0.1:9345\"");
    a.start_with(&["--config", &path]);
    let mut answer = String::new();
    a.ok("ip link set lo up");
    a.namespace().within(|| {
        // Connections that say nothing do not keep others out.
        let silent: Vec<_> = (0..40)
            .map(|_| TcpStream::connect("127.0.0.1:9345").expect("accepted"))
            .collect();
        let mut stream = TcpStream::connect("127.0.0.1:9345").expect("accepted");
        stream.write_all(REQUEST).expect("sent");
        stream.read_to_string(&mut answer).expect("an answer");
        drop(silent);
    });
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let (_, text) = answer.split_once("\r\n\r\n").expect("a head");
    assert_eq!(
        value(text, r#"ibtap_port_active{port="soft/eth0"}"#),
        Some(1)
    );
    if has_promtool() {
        promtool(&["check", "metrics"], text).expect("promtool is content");
    }
    let log = a.daemon().log();
    assert!(!log.contains("ibtapd::sandbox"), "{log}");

    let socket = b.file("run/metrics.sock");
    let path = configuration(b, &format!("metrics = {socket:?}"));
    b.start_with(&["--config", &path]);
    let mut stream = UnixStream::connect(&socket).expect("accepted");
    stream.write_all(REQUEST).expect("sent");
    answer.clear();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains("ibtap_port_active"), "{answer}");
    b.stop();
    let directory = socket.parent().expect("a directory");
    assert!(
        !directory.exists(),
        "the socket and its directory are removed"
    );
}

/// The daemon starts before the manager that assigns the address, and interfaces do not wait for it.
#[test]
fn the_host_may_get_the_address_after_the_start() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    let path = configuration(host, "metrics = \"192.0.2.1:9345\"");
    host.start_with(&["--config", &path]);
    let log = host.daemon().log();
    assert!(log.contains("metrics wait for 192.0.2.1"), "{log}");
    host.ok("ip link set lo up");
    host.ok("ip addr add 192.0.2.1/32 dev lo");
    let mut answer = String::new();
    host.namespace().within(|| {
        let mut stream = TcpStream::connect("192.0.2.1:9345").expect("accepted");
        stream.write_all(REQUEST).expect("sent");
        stream.read_to_string(&mut answer).expect("an answer");
    });
    assert!(answer.contains("ibtap_port_active"), "{answer}");
}

#[test]
fn a_wrong_address_ends_the_start_with_advice() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    let path = configuration(host, "metrics = \"localhost:9345\"");
    let done = host.daemon_run(&["--config", &path]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("use ADDRESS:PORT"), "{done:?}");
}

/// Any local user can take a TCP port.
#[test]
fn a_taken_address_keeps_no_interface_from_its_service() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    host.ok("ip link set lo up");
    let taken = host
        .namespace()
        .within(|| TcpListener::bind("127.0.0.1:9345"));
    let _taken = taken.expect("a free port");
    let socket = host.file("taken.sock");
    let _taken_too = UnixListener::bind(&socket).expect("a free path");
    let socket = socket.to_str().expect("ASCII");
    for address in ["127.0.0.1:9345", socket] {
        let path = configuration(host, &format!("metrics = {address:?}"));
        host.start_with(&["--config", &path]);
        host.show("ib0");
        let log = host.daemon().log();
        assert!(log.contains("no metrics until the next start"), "{log}");
        host.stop();
    }
}

/// The names of metrics in an expression.
fn metrics_in(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    // A pattern of names ends with an underscore here.
    words.filter(|word| word.starts_with("ibtap_") && !word.ends_with('_'))
}

/// The expressions of the dashboard and of the alert rules.
fn expressions() -> [Vec<String>; 2] {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/monitoring");
    let dashboard = fs::read_to_string(folder.join("grafana-dashboard.json")).expect("a file");
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array());
    let of_dashboard = targets.flatten().filter_map(|t| t["expr"].as_str());
    let of_dashboard = of_dashboard.map(str::to_owned).collect();
    let rules = fs::read_to_string(folder.join("ibtap.rules.yml")).expect("a file");
    let of_rules = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "));
    [of_dashboard, of_rules.map(str::to_owned).collect()]
}

/// Metrics of a running daemon.
fn metrics() -> Option<String> {
    let mut lab = Lab::pair()?;
    let host = lab.host(0);
    let path = configuration(host, "");
    host.start_with(&["--config", &path]);
    Some(host.ibtap("metrics").out)
}

/// Metrics of connections, which exist only while there are connections.
const CONDITIONAL: [&str; 2] = ["ibtap_connections", "ibtap_connections_in_flight_packets"];

#[test]
fn the_rules_and_the_dashboard_use_metrics_that_exist() {
    if has_promtool() {
        let rules = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/docs/monitoring/ibtap.rules.yml"
        );
        promtool(&["check", "rules", rules], "").expect("promtool is content");
    }
    let Some(text) = metrics() else { return };
    let described = |name: &str| text.contains(&format!("# TYPE {name} "));
    let mut count = 0;
    for expression in expressions().concat() {
        for name in metrics_in(&expression) {
            assert!(described(name) || CONDITIONAL.contains(&name), "{name}");
            count += 1;
        }
    }
    assert!(count > 10, "{count}");
}

/// A sample as a time series with a growing value, in the language of promtool's tests.
fn series(sample: &str) -> Option<Value> {
    let (name, _) = sample.rsplit_once(' ')?;
    let (name, labels) = name.split_once('{').unwrap_or((name, "}"));
    let comma = if labels == "}" { "" } else { "," };
    let name = format!("{name}{{instance=\"x\"{comma}{labels}");
    Some(json!({ "series": name, "values": "0+1x20" }))
}

#[test]
fn prometheus_evaluates_the_rules_and_the_dashboard() {
    if !has_promtool() {
        return;
    }
    let Some(text) = metrics() else { return };
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let series: Vec<_> = samples.filter_map(series).collect();
    let [dashboard, rules] = expressions();
    for expression in dashboard.iter().chain(&rules) {
        let filled = expression.replace("$instance", ".*");
        let filled = filled.replace("$__rate_interval", "1m");
        // As JSON, which is YAML, too. No sample is expected, so that promtool shows the result.
        let test = json!({ "tests": [{
            "interval": "15s",
            "input_series": series,
            "promql_expr_test": [{ "expr": filled, "eval_time": "4m" }],
        }] });
        let file = tempfile::Builder::new().suffix(".yml").tempfile();
        let file = file.expect("a file");
        fs::write(file.path(), test.to_string()).expect("written");
        let path = file.path().to_str().expect("UTF-8");
        let said = promtool(&["test", "rules", path], "").err();
        let said = said.unwrap_or_default();
        assert!(!said.contains(", err: "), "{expression}: {said}");
        let is_conditional = CONDITIONAL.iter().any(|name| expression.starts_with(name));
        if dashboard.contains(expression) && !is_conditional {
            assert!(said.contains("got:"), "{expression}: {said}");
        }
    }
}
