//! iperf3 between two stations.

use serde_json::Value;

use super::{SOON, Station, eventually};

/// What both ends counted.
#[derive(Debug)]
pub struct IperfReport {
    /// Bits per second that arrived.
    pub bits_per_second: f64,
    /// Percentage of datagrams lost (UDP only).
    pub lost_percent: Option<f64>,
}

/// Runs iperf3 from `client` to `address` of `server`, with further client options.
pub fn iperf(client: &Station, server: &Station, address: &str, options: &str) -> IperfReport {
    let _server = server.spawn("iperf3 -s -1 --forceflush");
    eventually(SOON, "the iperf3 server", || {
        let listening = server.ok("ss -Hltn sport = :5201");
        (!listening.trim().is_empty()).then_some(())
    });
    let report = client.json(&format!("iperf3 -J -c {address} {options}"));
    // With -J, iperf3 exits with 0 even when it was refused.
    assert_eq!(report["error"], Value::Null, "iperf3 {options}: {report}");
    let end = &report["end"];
    let (received, lost_percent) = match &end["sum_received"] {
        Value::Null => (&end["sum"], end["sum"]["lost_percent"].as_f64()),
        received => (received, end["sum"]["lost_percent"].as_f64()),
    };
    IperfReport {
        bits_per_second: received["bits_per_second"].as_f64().expect("a rate"),
        lost_percent,
    }
}
