//! The 20-byte link-layer address, and the MACs of peers on the TAP.

use std::fmt;
use std::net::Ipv6Addr;

use proto::{Gid, Guid, Mac, PKey, Qpn};

/// `ff:ff:ff:ff:ff:ff`.
pub const MAC_BROADCAST: Mac = [0xff; 6];

/// The first byte of the MAC of any peer: unicast, locally administered.
const PEER_PREFIX: u8 = 0x02;
/// The first byte of the interface's default MAC. It differs from [`PEER_PREFIX`], so that no peer gets the
/// interface's MAC.
const LOCAL_PREFIX: u8 = 0x06;

/// The flag of a peer that accepts reliable connections (`IPOIB_FLAGS_RC`).
pub const FLAG_RC: u8 = 0x80;

/// An IPoIB link-layer address: flags, 24-bit queue pair number and GID; 20 bytes in network order (RFC
/// 4391, section 9.1.1; flags: RFC 4755, section 3.1).
///
/// Equality compares all 20 bytes, as in the kernel (`ipoib_neigh_get`). Only [`HardwareAddress::qpn`] and
/// [`HardwareAddress::gid`] identify a peer: datagram mode ignores the flags.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HardwareAddress(pub [u8; 20]);

impl HardwareAddress {
    /// Bytes of an address.
    pub const LEN: usize = 20;

    /// Creates an address from its parts.
    pub fn new(flags: u8, qpn: Qpn, gid: Gid) -> HardwareAddress {
        let mut b = [0; 20];
        b[0] = flags;
        b[1..4].copy_from_slice(&qpn.to_bytes());
        b[4..].copy_from_slice(&gid.0);
        HardwareAddress(b)
    }

    /// Byte 0: bit 7 if the peer accepts reliable connections, bit 6 if it accepts unreliable ones.
    pub const fn flags(&self) -> u8 {
        self.0[0]
    }

    /// Whether the peer accepts reliable connections (RFC 4755, section 3.1).
    pub const fn takes_connections(&self) -> bool {
        self.flags() & FLAG_RC != 0
    }

    /// The unreliable-datagram queue pair.
    pub const fn qpn(&self) -> Qpn {
        Qpn::from_bytes([self.0[1], self.0[2], self.0[3]])
    }

    /// The GID.
    pub fn gid(&self) -> Gid {
        let mut g = [0; 16];
        g.copy_from_slice(&self.0[4..]);
        Gid(g)
    }

    /// Whether datagrams can be sent to the address: a unicast GID and an ordinary queue pair.
    pub fn is_unicast(&self) -> bool {
        let gid = self.gid();
        gid != Gid::UNSPECIFIED
            && !gid.is_multicast()
            && self.qpn() != Qpn::MULTICAST
            && self.qpn().get() > Qpn::GSI.get()
    }

    /// Whether both addresses have the same queue pair and GID, regardless of flags.
    pub fn same_peer(&self, other: &HardwareAddress) -> bool {
        self.0[1..] == other.0[1..]
    }
}

impl fmt::Display for HardwareAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, b) in self.0.iter().enumerate() {
            let colon = if i == 0 { "" } else { ":" };
            write!(f, "{colon}{b:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for HardwareAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HardwareAddress({self})")
    }
}

/// FNV-1a over `parts`, with a final mix, so that the low 40 bits depend on all input.
///
/// Peers see the result, so the function is defined here: it must not change between runs, machines or
/// compilers.
fn stable_hash(parts: &[&[u8]]) -> u64 {
    let mut h: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in parts.iter().copied().flatten() {
        h = (h ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^ (h >> 33)
}

fn mac_of(prefix: u8, low40: u64) -> Mac {
    let [_, _, _, a, b, c, d, e] = low40.to_be_bytes();
    [prefix, a, b, c, d, e]
}

/// The default MAC of a peer on the TAP: `02` and 40 bits of a hash of queue pair number and GID, without
/// flags.
pub fn peer_mac(address: &HardwareAddress) -> Mac {
    mac_of(PEER_PREFIX, stable_hash(&[&address.0[1..]]))
}

/// The next candidate of the 2^40 addresses if `mac` is taken.
pub(crate) fn next_peer_mac(mac: Mac) -> Mac {
    mac_of(PEER_PREFIX, mac_key(mac).wrapping_add(1))
}

/// The default MAC of the interface: `06` and 40 bits of a hash of the port's GID, the partition and the
/// interface's name. Constant across runs, and never the MAC of a peer.
pub fn local_mac(gid: Gid, pkey: PKey, name: &str) -> Mac {
    let pkey = pkey.full().get().to_be_bytes();
    mac_of(LOCAL_PREFIX, stable_hash(&[&gid.0, &pkey, name.as_bytes()]))
}

/// The preferred queue pair number of the interface, derived like [`local_mac`]: constant across runs, so
/// that peers' caches remain valid after a restart. Never a reserved number. Two interfaces of a port may
/// prefer the same number.
pub fn local_qpn(gid: Gid, pkey: PKey, name: &str) -> Qpn {
    let pkey = pkey.full().get().to_be_bytes();
    // The MAC uses the low 40 bits; the others are independent of it.
    let high = stable_hash(&[&gid.0, &pkey, name.as_bytes()]) >> 40;
    let usable = u64::from(Qpn::MULTICAST.get() - QPN_MIN);
    Qpn::new(QPN_MIN + (high % usable) as u32)
}

/// The lowest number of an ordinary queue pair.
const QPN_MIN: u32 = Qpn::GSI.get() + 1;

/// The MAC as a number, for fast hashing.
pub(crate) fn mac_key(mac: Mac) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// The link-local address of a MAC (RFC 2464, section 5).
pub(crate) fn link_local(mac: Mac) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets[..2].copy_from_slice(&[0xfe, 0x80]);
    octets[8..].copy_from_slice(&Guid::from_mac(mac).0);
    octets.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(flags: u8) -> HardwareAddress {
        HardwareAddress::new(
            flags,
            Qpn::new(0x4a),
            "fe80::2:c903:e7:7e12".parse().unwrap(),
        )
    }

    #[test]
    fn c05_address_is_flags_qpn_gid() {
        let a = address(0x80);
        assert_eq!(
            a.to_string(),
            "80:00:00:4a:fe:80:00:00:00:00:00:00:00:02:c9:03:00:e7:7e:12"
        );
        assert_eq!((a.flags(), a.qpn()), (0x80, Qpn::new(0x4a)));
        assert_eq!(a.gid().to_string(), "fe80::2:c903:e7:7e12");
    }

    #[test]
    fn c07_flags_do_not_make_another_peer() {
        assert_eq!(peer_mac(&address(0)), peer_mac(&address(0xc3)));
        assert!(address(0).same_peer(&address(0xc3)));
        assert_ne!(address(0), address(0xc3));
    }

    #[test]
    fn synthetic_addresses_never_change() {
        // These MACs are in the caches of hosts: a change here breaks running systems on upgrade.
        assert_eq!(peer_mac(&address(0)), [0x02, 0x1d, 0x17, 0xc8, 0xcc, 0x6d]);
    }

    #[test]
    fn our_own_address_is_outside_the_peers_space() {
        let gid = address(0).gid();
        let mac = local_mac(gid, PKey::DEFAULT, "ib0");
        assert_eq!(mac[0], 0x06);
        assert_ne!(mac, local_mac(gid, PKey::DEFAULT, "ib1"));
        assert_ne!(mac, local_mac(gid, PKey::new(0x8001), "ib0"));
        assert_eq!(
            local_mac(gid, PKey::new(1), "ib0"),
            local_mac(gid, PKey::new(0x8001), "ib0")
        );
    }

    #[test]
    fn our_own_number_never_changes_and_is_no_reserved_one() {
        let gid = address(0).gid();
        assert_eq!(local_qpn(gid, PKey::DEFAULT, "ib0"), Qpn::new(0x889108));
        let names = (0..2000).map(|n| format!("ib{n}"));
        let numbers: std::collections::BTreeSet<Qpn> = names
            .map(|name| local_qpn(gid, PKey::DEFAULT, &name))
            .collect();
        assert!(numbers.iter().all(|qpn| !qpn.is_reserved()));
        assert!(numbers.len() > 1990, "they spread: {}", numbers.len());
    }

    #[test]
    fn probing_wraps_inside_the_prefix() {
        assert_eq!(
            next_peer_mac([2, 0xff, 0xff, 0xff, 0xff, 0xff]),
            [2, 0, 0, 0, 0, 0]
        );
    }

    #[test]
    fn only_real_queue_pairs_of_real_ports_are_unicast() {
        assert!(address(0).is_unicast());
        let gid = address(0).gid();
        for qpn in [0, 1, 0xff_ffff] {
            assert!(!HardwareAddress::new(0, Qpn::new(qpn), gid).is_unicast());
        }
        assert!(!HardwareAddress([0; 20]).is_unicast());
        let group = "ff12:401b:ffff::1".parse().unwrap();
        assert!(!HardwareAddress::new(0, Qpn::new(7), group).is_unicast());
    }
}
