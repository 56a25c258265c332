//! Children, created and managed with `ip link` and with `ibtap child`.

mod input;
mod leaks;
mod life;
mod partition;
mod restart;
mod traffic;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::lab::{Done, Host, SOON, eventually};

/// Creates a child with `ip`, and waits until it is in service.
fn tuntap(host: &Host, name: &str) {
    host.ok(&format!("ip tuntap add dev {name} mode tap"));
    await_child(host, name);
}

/// Waits until the daemon serves an interface.
fn await_child(host: &Host, name: &str) {
    eventually(SOON, &format!("{name} to be served"), || {
        is_served(host, name).then_some(())
    });
}

fn await_gone(host: &Host, name: &str) {
    eventually(SOON, &format!("{name} to be out of service"), || {
        (!is_served(host, name)).then_some(())
    });
}

fn is_served(host: &Host, name: &str) -> bool {
    host.ibtap(&format!("show {name}")).code == Some(0)
}

/// This host's IPv4 address in a partition's subnet.
fn address(host: &Host, subnet: u8) -> String {
    let last = host.v4();
    let last = last.rsplit('.').next().expect("an IPv4 address");
    format!("10.91.{subnet}.{last}")
}

/// Gives a child an address in a subnet, and brings it up.
fn configure(host: &Host, name: &str, subnet: u8) {
    let address = address(host, subnet);
    host.ok(&format!("ip addr add {address}/24 dev {name}"));
    host.ok(&format!("ip link set {name} up"));
}

/// Waits until the other host answers in a subnet.
fn reaches(from: &Host, to: &Host, subnet: u8) {
    from.reaches_all(&[address(to, subnet)]);
}

fn alias(host: &Host, name: &str) -> String {
    let alias = host.link(name)["ifalias"].clone();
    alias.as_str().unwrap_or_default().to_owned()
}

/// Creates a child with `ibtap`, which must succeed; returns its name.
fn add(host: &Host, words: &str) -> String {
    done(&host.ibtap(&format!("child add {words}")))
}

fn done(done: &Done) -> String {
    assert_eq!(done.code, Some(0), "{done:?}");
    done.out.trim().to_owned()
}

/// The error number of a request that must be refused with one.
fn refused(host: &Host, method: &str, parameters: Value) -> i64 {
    let mut stream = UnixStream::connect(host.socket()).expect("a control socket");
    stream.set_read_timeout(Some(SOON)).expect("a timeout");
    let method = format!("org.ibtap.Daemon.{method}");
    let call = json!({ "method": method, "parameters": parameters });
    stream
        .write_all(format!("{call}\0").as_bytes())
        .expect("a call");
    let mut text = Vec::new();
    for byte in std::io::BufReader::new(stream).bytes() {
        match byte.expect("an answer") {
            0 => break,
            byte => text.push(byte),
        }
    }
    let answer: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(answer["error"], "org.ibtap.Daemon.Errno", "{answer}");
    let message = answer["parameters"]["message"].as_str();
    assert!(message.is_some_and(|text| text.len() > 10), "{answer}");
    answer["parameters"]["errno"].as_i64().expect("a number")
}

/// The IPoIB groups of a partition that the underlay has joined.
fn underlay_groups(host: &Host, pkey: &str) -> usize {
    let groups = host.ok("ip -6 maddr show dev eth0");
    groups.matches(&format!(":{pkey}:")).count()
}

/// Writes a configuration file for `ib0` on `eth0`.
fn configuration(host: &Host, port: &str, device: &str) -> String {
    let path = host.file("children.toml");
    let text =
        format!("[port.eth0]\n{port}\n[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n{device}\n");
    std::fs::write(&path, text).expect("written");
    path.to_str().expect("an ASCII path").to_owned()
}
