//! Connected mode (RFC 4755): traffic with and without connections, and the effects of changes and failures.

mod hostile;
mod loss;
mod mixed;
mod mode;
mod recovery;
mod segments;
mod traffic;
mod wire;

use crate::lab::Host;

/// The largest ICMP payload of an IPv4 packet of `mtu` bytes.
fn v4_payload(mtu: u32) -> u32 {
    mtu - 20 - 8
}

/// The largest ICMPv6 payload of an IPv6 packet of `mtu` bytes.
fn v6_payload(mtu: u32) -> u32 {
    mtu - 40 - 8
}

/// Sends three pings with unfragmentable packets of `mtu` bytes over each family; one must be answered. Others may be
/// dropped under load, while the window of a connection is full.
fn full_packets_pass(from: &Host, to: &Host, mtu: u32) {
    for (payload, address) in [(v4_payload(mtu), to.v4()), (v6_payload(mtu), to.v6())] {
        from.ok(&format!(
            "ping -M do -q -c 3 -i 0.1 -W 5 -s {payload} {address}"
        ));
    }
}
