//! iperf3 between two stations.

use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::Value;

use super::{Background, Host, Load, SOON, Station, eventually};

/// Results of both ends.
#[derive(Debug)]
pub struct IperfReport {
    /// Received bytes.
    pub bytes: u64,
    /// Received bits per second.
    pub bits_per_second: f64,
    /// Percentage of datagrams lost (UDP only).
    pub lost_percent: Option<f64>,
}

/// Runs iperf3 from `client` to `server`, and `interrupt` in the middle. The connection must survive, and carry data
/// afterwards.
pub fn iperf_across(
    client: &mut Host,
    server: &Host,
    options: &str,
    interrupt: impl FnOnce(&mut Host),
) {
    let _turn = Load::begin();
    let (_server, port) = iperf_server(server);
    let report = client.file("iperf3.json");
    let running = client.spawn(&format!(
        "iperf3 -J --logfile {} -t 60 -c {} -p {port} {options}",
        report.display(),
        server.v4()
    ));
    let goes_on = |client: &Host| {
        let receives = options.contains("-R");
        more_arrives(if receives { client } else { server }, port);
    };
    goes_on(client);
    interrupt(client);
    goes_on(client);
    running.interrupt();
    let text = std::fs::read_to_string(&report).expect("its report");
    std::fs::remove_file(&report).expect("its report");
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let error = "interrupt - the client has terminated";
    assert_eq!(report["error"], error, "iperf3 {options}: {report}");
}

/// Waits until another mebibyte has arrived over the TCP connections of an iperf3 server's port.
pub fn more_arrives(receiver: &Station, port: u16) {
    let received = || -> u64 {
        let shown = receiver.ok(&format!("ss -Htin sport = :{port} or dport = :{port}"));
        let words = shown.split_whitespace();
        let counts =
            words.filter_map(|word| word.strip_prefix("bytes_received:")?.parse::<u64>().ok());
        counts.sum()
    };
    let before = received();
    eventually(SOON, "more from iperf3", || {
        (received() >= before + (1 << 20)).then_some(())
    });
}

/// Starts a server for one client. Each has a port of its own: a server takes any datagram as the first of its client,
/// also a late one of the client before. tshark knows no protocol of these ports; it takes 5246 for CAPWAP.
pub fn iperf_server(server: &Station) -> (Background, u16) {
    static PORT: AtomicU16 = AtomicU16::new(30300);
    let port = PORT.fetch_add(1, Ordering::Relaxed);
    let running = server.spawn(&format!("iperf3 -s -1 --forceflush -p {port}"));
    eventually(SOON, "the iperf3 server", || {
        let listening = server.ok(&format!("ss -Hltn sport = :{port}"));
        (!listening.trim().is_empty()).then_some(())
    });
    (running, port)
}

/// Runs iperf3 from `client` to `address` of `server`, with further client options.
pub fn iperf(client: &Station, server: &Station, address: &str, options: &str) -> IperfReport {
    try_iperf(client, server, address, options)
        .unwrap_or_else(|why| panic!("iperf3 {address} {options}: {why}"))
}

/// The same for a run that may fail; the error is what iperf3 printed.
fn try_iperf(
    client: &Station,
    server: &Station,
    address: &str,
    options: &str,
) -> Result<IperfReport, String> {
    let _turn = Load::begin();
    let (_server, port) = iperf_server(server);
    let done = client.run(&format!("iperf3 -J -c {address} -p {port} {options}"));
    let report = serde_json::from_str(&done.out);
    let report: Value = report.map_err(|e| format!("{e}: {done:?}"))?;
    // With -J, iperf3 exits with 0 also when the server refuses.
    if done.code != Some(0) || report["error"] != Value::Null {
        return Err(format!("{done:?}"));
    }
    let end = &report["end"];
    let (received, lost_percent) = match &end["sum_received"] {
        Value::Null => (&end["sum"], end["sum"]["lost_percent"].as_f64()),
        received => (received, end["sum"]["lost_percent"].as_f64()),
    };
    Ok(IperfReport {
        bytes: received["bytes"].as_u64().expect("a number"),
        bits_per_second: received["bits_per_second"].as_f64().expect("a rate"),
        lost_percent,
    })
}

/// Runs iperf3 until more than `floor` bits per second arrive. Another load on the machine slows down a
/// single run; a fault of ibtap slows down each of three.
pub fn iperf_above(
    client: &Station,
    server: &Station,
    address: &str,
    options: &str,
    floor: f64,
) -> IperfReport {
    let _turn = Load::begin();
    let mut slow = Vec::new();
    while slow.len() < 3 {
        let report = iperf(client, server, address, options);
        if report.bits_per_second > floor {
            return report;
        }
        slow.push(report);
    }
    panic!("iperf3 {address} {options}: not above {floor} in any of {slow:?}")
}

/// UDP datagrams of each of the lengths in bytes arrive over both families, sent at a rate in Mbit/s for a quarter of a
/// second.
pub fn udp_arrives(from: &Host, to: &Host, rate: u32, lengths: &[usize]) {
    let _turn = Load::begin();
    let bytes = rate * 1_000_000 / 8 / 4;
    for address in [to.v4(), to.v6()] {
        for length in lengths {
            // Another load on the machine sometimes overruns the TAP's ring; a fault of ibtap loses in every
            // run. A stream begins with one datagram and one answer. If one of these is lost, iperf3 fails after 30 s.
            let what = format!("{length} bytes to {address} unlost");
            eventually(4 * SOON, &what, || {
                let options = format!("-u -b {rate}M -l {length} -n {bytes}");
                let report = try_iperf(from, to, &address, &options);
                // Shown only if the test fails.
                let report = report.inspect_err(|why| println!("{what}: {why}")).ok()?;
                let lost = report.lost_percent.expect("iperf3 counts UDP losses");
                (lost < 1.0).then_some(())
            });
        }
    }
}
