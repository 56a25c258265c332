//! Traffic through several children at once.

use serde_json::Value;

use super::*;
use crate::lab::{Lab, Load, iperf_server};

/// Bytes that a host's stack has sent through an interface.
fn sent(host: &Host, name: &str) -> u64 {
    let bytes = host.link(name)["stats64"]["tx"]["bytes"].clone();
    bytes.as_u64().expect("a count")
}

#[test]
fn iperf3_runs_through_two_children_at_once() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let names = ["ib0.8001", "ib0.8002"];
    for host in [&*a, &*b] {
        tuntap(host, names[0]);
        assert_eq!(add(host, "ib0 0x8002 --mode connected"), names[1]);
        configure(host, names[0], 1);
        configure(host, names[1], 2);
    }
    reaches(a, b, 1);
    reaches(a, b, 2);

    let _turn = Load::begin();
    let [(_first, first), (_second, second)] = [iperf_server(b), iperf_server(b)];
    let report = |subnet: u8| a.file(&format!("iperf3-{subnet}.json"));
    let client = |subnet: u8, port: u16| {
        format!(
            "iperf3 -J -n 200M -c {} -p {port} >{} &",
            address(b, subnet),
            report(subnet).display()
        )
    };
    let parent = sent(a, "ib0");
    let done = a.run_script(&format!("{} {} wait", client(1, first), client(2, second)));
    assert_eq!(done.code, Some(0), "{done:?}");
    for (subnet, name) in (1..).zip(names) {
        let text = std::fs::read_to_string(report(subnet)).expect("a report");
        let report: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(report["error"], Value::Null, "{name}: {text}");
        let received = &report["end"]["sum_received"];
        let bytes = received["bytes"].as_u64().expect("a count");
        assert!(sent(a, name) > bytes, "{name} carried its own");
    }
    let parent = sent(a, "ib0") - parent;
    assert!(parent < 100_000, "{parent} bytes went through the parent");
}
