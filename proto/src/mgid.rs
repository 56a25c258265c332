//! Multicast GIDs of IP over InfiniBand (RFC 4391, section 4).

use crate::{Gid, PKey};

/// The scope of groups on a link of IPoIB, as the kernel's: link-local.
pub const LINK_LOCAL: u8 = 2;

/// The signature of groups of IPv4, and of broadcast groups.
pub const SIGNATURE_IPV4: [u8; 2] = [0x40, 0x1b];
/// The signature of groups of IPv6.
pub const SIGNATURE_IPV6: [u8; 2] = [0x60, 0x1b];

/// A GID without group ID: `ff`, transient flag and scope, signature, P_Key of a full member (figure 1).
pub fn base(pkey: PKey, scope: u8, signature: [u8; 2]) -> [u8; 16] {
    let mut g = [0; 16];
    g[0] = 0xff;
    g[1] = 0x10 | (scope & 0x0f);
    g[2..4].copy_from_slice(&signature);
    g[4..6].copy_from_slice(&pkey.full().get().to_be_bytes());
    g
}

/// The broadcast GID of a link (figure 2): `ff1s:401b:PPPP::ffff:ffff`, with the P_Key of a full member.
pub fn broadcast(pkey: PKey, scope: u8) -> Gid {
    let mut g = base(pkey, scope, SIGNATURE_IPV4);
    g[12..].fill(0xff);
    Gid(g)
}

/// The broadcast GID with the partition and scope of a group of IP; `None` for groups of other protocols.
pub fn broadcast_of(mgid: Gid) -> Option<Gid> {
    let [_, scope, a, b, high, low, ..] = mgid.0;
    let is_ip = [SIGNATURE_IPV4, SIGNATURE_IPV6].contains(&[a, b]);
    let pkey = PKey::new(u16::from_be_bytes([high, low]));
    is_ip.then(|| broadcast(pkey, scope))
}
