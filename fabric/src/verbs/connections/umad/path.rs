//! Paths in requests, and the queue pair's and the datagrams' addresses on a path.

use proto::{Gid, IbMtu, Lid, QKey, Qpn};
use zerocopy::FromZeros;
use zerocopy::big_endian::{U16, U32};

use crate::mad::cm;
use crate::subnet::{GlobalRoute, SubnetPath};
use crate::umad::{Grh, To};
use crate::verbs::ibv::AhInit;

/// The LID in a request whose path leaves the subnet (kernel drivers/infiniband/core/cm.c,
/// `cm_format_req`).
const NO_LID: Lid = Lid(0xffff);

/// The largest time code.
const TIME_MAX: u8 = 31;

/// Our port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Own {
    /// Its number on the device.
    pub number: u8,
    /// Index of its GID.
    pub gid_index: u8,
    /// Its LID; `None` while it has none.
    pub lid: Option<Lid>,
    /// Number of low bits of LIDs that select a path (LMC).
    pub lmc: u8,
}

impl Own {
    /// The low bits of the source LID of a path.
    const fn path_bits(&self, path: &SubnetPath) -> u8 {
        // The mask leaves at most 7 bits.
        (path.slid.0 & !(u16::MAX << (self.lmc & 7))) as u8
    }

    /// Whether two paths have the same ends, whatever path bits lead there. LID 0 is any.
    pub fn has_ends_of(&self, path: &SubnetPath, other: &SubnetPath) -> bool {
        let bits = self.lmc & 7;
        let same = |a: Lid, b: Lid| a.0 == 0 || b.0 == 0 || a.0 >> bits == b.0 >> bits;
        same(path.dlid, other.dlid) && same(path.slid, other.slid)
    }

    /// The path in a request to `peer`.
    pub fn in_request(&self, path: &SubnetPath, local: Gid, peer: Gid) -> cm::Path {
        let mut all = cm::Path::new_zeroed();
        let is_local = !path.global.is_some_and(|g| g.leaves_subnet());
        let lid = |lid: Lid| U16::new(if is_local { lid } else { NO_LID }.0);
        let slid = match path.slid {
            Lid(0) => self.lid.unwrap_or(NO_LID),
            slid => slid,
        };
        all.local_lid = lid(slid);
        all.remote_lid = lid(path.dlid);
        all.local_gid = local.0;
        all.remote_gid = peer.0;
        let flow_label = path.global.map_or(0, |g| g.flow_label);
        all.flow_and_rate = U32::new(flow_label << 12 | u32::from(path.rate & 0x3f));
        all.traffic_class = path.global.map_or(0, |g| g.traffic_class);
        all.hop_limit = path.global.map_or(0, |g| g.hop_limit);
        all.set_service_level(path.sl);
        all.set_subnet_local(is_local.into());
        all.set_ack_timeout(path.packet_life.saturating_add(1).min(TIME_MAX));
        all
    }

    /// The address of the peer's QP1, in the partition at `pkey_index`.
    pub fn gsi_address(&self, path: &SubnetPath, peer: Gid, pkey_index: u16) -> To {
        To {
            dlid: path.dlid,
            sl: path.sl,
            path_bits: self.path_bits(path),
            qpn: Qpn::GSI,
            qkey: QKey::GSI,
            pkey_index,
            grh: path.global.map(|g| Grh {
                gid: peer,
                gid_index: self.gid_index,
                traffic_class: g.traffic_class,
                flow_label: g.flow_label,
                hop_limit: g.hop_limit,
            }),
        }
    }

    /// The address of the peer's queue pair.
    pub fn address(&self, path: &SubnetPath, peer: Gid) -> AhInit {
        let global = path.global;
        AhInit {
            port: self.number,
            dgid: global.map(|_| peer),
            sgid_index: self.gid_index,
            flow_label: global.map_or(0, |g| g.flow_label),
            hop_limit: global.map_or(0, |g| g.hop_limit),
            traffic_class: global.map_or(0, |g| g.traffic_class),
            dlid: path.dlid,
            sl: path.sl,
            source_path_bits: self.path_bits(path),
            static_rate: path.rate,
        }
    }
}

/// The reverse of the path in a request that arrived from `from`.
pub fn of_request(primary: &cm::Path, from: &To, mtu: IbMtu) -> SubnetPath {
    let is_local = primary.subnet_local() == 1;
    let lid = |lid: U16, other: Lid| if is_local { Lid(lid.get()) } else { other };
    SubnetPath {
        // The router is where the request came from.
        dlid: lid(primary.local_lid, from.dlid),
        slid: lid(primary.remote_lid, Lid(0)),
        sl: primary.service_level(),
        rate: primary.packet_rate(),
        mtu,
        packet_life: primary.ack_timeout().saturating_sub(1),
        global: GlobalRoute {
            flow_label: primary.flow_label(),
            hop_limit: primary.hop_limit,
            traffic_class: primary.traffic_class,
        }
        .if_needed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Own = Own {
        number: 1,
        gid_index: 4,
        lid: Some(Lid(0x12)),
        lmc: 2,
    };

    fn path() -> SubnetPath {
        SubnetPath {
            dlid: Lid(0x10),
            slid: Lid(0x13),
            sl: 3,
            rate: 7,
            mtu: IbMtu::B2048,
            packet_life: 18,
            global: None,
        }
    }

    fn gid(text: &str) -> Gid {
        text.parse().unwrap()
    }

    /// The request's fields for a path of the subnet, and the same path as the receiver sees it.
    #[test]
    fn a_path_of_the_subnet_has_lids_and_no_grh() {
        let (us, peer) = (gid("fe80::12"), gid("fe80::10"));
        let sent = OWN.in_request(&path(), us, peer);
        assert_eq!((sent.local_lid.get(), sent.remote_lid.get()), (0x13, 0x10));
        assert_eq!((sent.local_gid, sent.remote_gid), (us.0, peer.0));
        assert_eq!((sent.subnet_local(), sent.service_level()), (1, 3));
        assert_eq!((sent.packet_rate(), sent.flow_label()), (7, 0));
        assert_eq!((sent.ack_timeout(), sent.hop_limit), (19, 0));
        let back = of_request(&sent, &To::gsi(Lid(0x13), 3), IbMtu::B2048);
        let (slid, dlid) = (path().dlid, path().slid);
        let reverse = SubnetPath {
            dlid,
            slid,
            ..path()
        };
        assert_eq!(back, reverse);
        let to = OWN.gsi_address(&path(), peer, 2);
        assert_eq!((to.dlid, to.grh, to.pkey_index), (Lid(0x10), None, 2));
        assert_eq!((to.sl, to.path_bits), (3, 3));
        let to = OWN.address(&path(), peer);
        assert_eq!((to.dlid, to.dgid, to.sl), (Lid(0x10), None, 3));
        assert_eq!((to.static_rate, to.source_path_bits), (7, 3));
        // Any source LID: ours.
        let any = SubnetPath {
            slid: Lid(0),
            ..path()
        };
        assert_eq!(OWN.in_request(&any, us, peer).local_lid.get(), 0x12);
    }

    #[test]
    fn a_path_of_the_subnet_with_one_hop_has_lids_and_a_grh() {
        let (us, peer) = (gid("fe80::12"), gid("fe80::10"));
        let one_hop = SubnetPath {
            global: Some(GlobalRoute {
                flow_label: 5,
                hop_limit: 1,
                traffic_class: 0x20,
            }),
            ..path()
        };
        let sent = OWN.in_request(&one_hop, us, peer);
        assert_eq!((sent.local_lid.get(), sent.remote_lid.get()), (0x13, 0x10));
        assert_eq!((sent.subnet_local(), sent.hop_limit), (1, 1));
        let back = of_request(&sent, &To::gsi(Lid(0x77), 3), IbMtu::B2048);
        assert_eq!((back.dlid, back.slid), (Lid(0x13), Lid(0x10)));
        assert_eq!(back.global, one_hop.global);
        assert_eq!(OWN.address(&one_hop, peer).dgid, Some(peer));
    }

    #[test]
    fn a_path_through_a_router_has_a_grh() {
        let (us, peer) = (gid("fec0::12"), gid("fec0:0:0:7::10"));
        let route = GlobalRoute {
            flow_label: 0x12345,
            hop_limit: 9,
            traffic_class: 0x40,
        };
        let routed = SubnetPath {
            global: Some(route),
            ..path()
        };
        let sent = OWN.in_request(&routed, us, peer);
        let lids = (sent.local_lid.get(), sent.remote_lid.get());
        assert_eq!(lids, (0xffff, 0xffff));
        assert_eq!((sent.subnet_local(), sent.hop_limit), (0, 9));
        assert_eq!((sent.flow_label(), sent.traffic_class), (0x12345, 0x40));
        let back = of_request(&sent, &To::gsi(Lid(0x77), 3), IbMtu::B2048);
        assert_eq!((back.dlid, back.global), (Lid(0x77), Some(route)));
        let grh = OWN.gsi_address(&routed, peer, 2).grh.unwrap();
        assert_eq!((grh.gid, grh.gid_index, grh.hop_limit), (peer, 4, 9));
        assert_eq!(OWN.address(&routed, peer).dgid, Some(peer));
    }
}
