//! The contents of address handles (IBA vol. 1, 11.2.2.1).

use std::io;
use std::net::IpAddr;

use proto::Gid;

use crate::subnet::SubnetPath;
use crate::worker::AhAttributes;

/// The contents of an address handle.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// The destination.
    pub ip: IpAddr,
    /// Whether the destination is a group.
    pub multicast: bool,
    /// Traffic class; 0 is the default.
    pub traffic_class: u8,
    /// Hop limit; 0 means the socket's default.
    pub hop_limit: u8,
    /// The largest payload of a datagram in bytes that the group allows.
    pub payload_max: usize,
}

impl Address {
    /// The address for a handle with these attributes. `path` is the path to a group on a subnet.
    pub fn of(attributes: &AhAttributes, path: Option<&SubnetPath>) -> Address {
        Address {
            ip: attributes.dgid.to_ip(),
            multicast: attributes.dgid.is_multicast(),
            traffic_class: attributes.traffic_class,
            hop_limit: attributes.hop_limit,
            payload_max: path.map_or(usize::MAX, |path| path.mtu.bytes() as usize),
        }
    }

    /// The address of a port.
    pub fn port(gid: Gid) -> Address {
        Address::of(&AhAttributes::to(gid, proto::PKey::DEFAULT), None)
    }
}

/// Checks a handle for a port with the GID `sgid`. With `copies`, multicast packets go to a list of peers, so
/// a group of either address family is accepted: IPoIB groups are always IPv6.
///
/// # Errors
/// EAFNOSUPPORT if both GIDs are not of one address family: the source GID decides the address family on the
/// wire (kernel drivers/infiniband/sw/rxe/rxe_av.c). EADDRNOTAVAIL for the zero GID.
pub fn check(attributes: &AhAttributes, sgid: &Gid, copies: bool) -> io::Result<()> {
    let dgid = attributes.dgid;
    if dgid == Gid::UNSPECIFIED {
        return Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL));
    }
    let known = *sgid != Gid::UNSPECIFIED;
    let other_family = known && dgid.ipv4().is_some() != sgid.ipv4().is_some();
    if other_family && !(dgid.is_multicast() && copies) {
        return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conformance item 47: source and destination GID must have one address family.
    #[test]
    fn t47_gid_families_do_not_mix() {
        let gid = |s: &str| s.parse::<Gid>().unwrap();
        let v4 = gid("192.0.2.1");
        let refused = |dgid: &str, sgid: &Gid, copies| {
            let attributes = AhAttributes::to(gid(dgid), proto::PKey::DEFAULT);
            let checked = check(&attributes, sgid, copies);
            checked.err().and_then(|e| e.raw_os_error())
        };
        assert_eq!(refused("fe80::2", &v4, true), Some(libc::EAFNOSUPPORT));
        assert_eq!(refused("ff12::2", &v4, false), Some(libc::EAFNOSUPPORT));
        assert_eq!(refused("ff12::2", &v4, true), None);
        assert_eq!(refused("192.0.2.2", &v4, false), None);
        assert_eq!(
            refused("192.0.2.2", &gid("fe80::1"), true),
            Some(libc::EAFNOSUPPORT)
        );
    }
}
