//! `neighbours` of an IPoIB interface: who has an IP address.

use std::net::IpAddr;

use proto::Pin;
use toml::Spanned;

use super::Fault;
use super::scalar::{Scalar, Value};
use super::vnic::{PeerQpn, Unicast};
use crate::config::values;

/// Maximum number of neighbours of an interface: the size of the neighbour table.
const NEIGHBOURS_MAX: usize = 16_384;

/// A neighbour as in the file.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Neighbour {
    ip: Value<HostIp>,
    gid: Value<Unicast>,
    qpn: Option<Value<PeerQpn>>,
}

struct HostIp(IpAddr);

impl Scalar for HostIp {
    const EXPECTED: &'static str = "an IPv4 or IPv6 address";
    fn from_text(text: &str) -> Result<HostIp, String> {
        values::parse_host(text).map(HostIp)
    }
}

/// Checks the neighbours of an interface.
pub(super) fn check(written: &[Spanned<Neighbour>]) -> Result<Vec<Pin>, Fault> {
    if let Some(more) = written.get(NEIGHBOURS_MAX) {
        let what = format!("neighbours has more than {NEIGHBOURS_MAX} entries; remove some");
        return Err(Fault::at(more, what));
    }
    let mut all = Vec::with_capacity(written.len());
    let mut known = std::collections::HashSet::new();
    for place in written {
        let raw = place.get_ref();
        let pin = Pin {
            ip: raw.ip.0.0,
            gid: raw.gid.0.0,
            qpn: raw.qpn.as_ref().map(|qpn| qpn.0.0),
        };
        if !known.insert(pin.ip) {
            let what = format!("{} occurs twice in neighbours; remove one", pin.ip);
            return Err(Fault::at(place, what));
        }
        all.push(pin);
    }
    Ok(all)
}
