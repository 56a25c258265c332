//! Connected mode (RFC 4755): what goes over connections, what does not, and what becomes of it when
//! something changes or fails.

mod hostile;
mod loss;
mod mixed;
mod mode;
mod recovery;
mod traffic;
mod wire;

use std::time::Duration;

use crate::lab::Host;

/// The largest ICMP payload of an IPv4 packet of so many bytes.
fn v4_payload(mtu: u32) -> u32 {
    mtu - 20 - 8
}

/// The same of IPv6.
fn v6_payload(mtu: u32) -> u32 {
    mtu - 40 - 8
}

/// How soon traffic flows again after something came back.
const HEALED: Duration = Duration::from_secs(8);

/// Pings with packets of `mtu` bytes that nobody may cut, over both families; all must be answered.
fn full_packets_pass(from: &Host, to: &Host, mtu: u32) {
    for (payload, address) in [(v4_payload(mtu), to.v4()), (v6_payload(mtu), to.v6())] {
        from.ok(&format!(
            "ping -M do -q -c 3 -i 0.1 -W 5 -s {payload} {address}"
        ));
    }
}
