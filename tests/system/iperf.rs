//! Bulk TCP and UDP traffic.

use serde_json::Value;

use crate::lab::{Host, Lab, arrives_whole, iperf_above, udp_arrives};

/// Far below the speed of any machine with super-frames, far above the speed without them and with a fault:
/// only a broken data path misses it.
const FLOOR: f64 = 200e6;

/// Interface counters that must stay 0.
fn errors(host: &Host) -> Vec<(String, u64)> {
    let stats = host.link("ib0")["stats64"].clone();
    let mut found = Vec::new();
    for direction in ["rx", "tx"] {
        if let Value::Object(counters) = &stats[direction] {
            for (name, value) in counters {
                let value = value.as_u64().unwrap_or(0);
                if name.contains("error") && value != 0 {
                    found.push((format!("{direction} {name}"), value));
                }
            }
        }
    }
    found
}

#[test]
fn tcp_runs_both_ways_over_both_families_without_errors() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    for address in [b.v4(), b.v6()] {
        for options in ["-n 64M", "-n 64M -R", "-n 64M -P 4"] {
            iperf_above(a, b, &address, options, FLOOR);
        }
    }
    for host in [a, b] {
        assert_eq!(errors(host), []);
        assert_eq!(host.counter("ib0", "rx_icrc_errors"), 0);
    }
}

#[test]
fn udp_of_one_packet_and_of_several_fragments_arrives() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    udp_arrives(a, b, 10, &[64, 1400, 12_000]);
}

#[test]
fn one_queue_and_four_queues_carry_tcp() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.start(&["--queues", "1"]);
    b.start(&["--queues", "4"]);
    for host in [&*a, &*b] {
        host.configure("ib0");
    }
    a.reaches(b);
    for options in ["-n 64M -P 4", "-n 64M -P 4 -R"] {
        iperf_above(a, b, &b.v4(), options, FLOOR);
    }
}

#[test]
fn bytes_arrive_as_they_were_sent() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    arrives_whole(a, b, &b.v4());
}
