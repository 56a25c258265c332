//! The settings of VNICs with a configured switch.
//!
//! A change of switch needs a new queue pair with new lanes. First the carrier goes off, and the VNIC
//! leaves the lists of its siblings. After the old lanes have released the queues, the new lanes start;
//! each drops the frames that wait in its queue before it reads, so no frame of the old switch reaches the
//! new one.

use fabric::{Guid, PortAttributes};
use vnic::attribute::{ConfigState, VeswPortInfo};
use vnic::directory::{Directory, NodeAddress};
use vnic::{Lid, generated_mac};

use control::config::vnic::SwitchConfig;

use super::carried_mtu;

/// Number of unicast LIDs.
const UNICAST: u64 = 0xef_ffff;

/// The LID of a VNIC without a configured one, the same after a restart. There are about sixteen million,
/// so two VNICs of a switch may have the same one.
#[must_use]
pub fn default_lid(guid: Guid, index: u8) -> Lid {
    // FNV-1a, 64 bits; the upper half is better distributed.
    let bytes = guid.0.into_iter().chain([index]);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Lid::new(1 + ((hash ^ hash >> 32) % UNICAST) as u32)
}

/// The settings for the virtual port with this index on a configured switch, as an Ethernet Manager would
/// send them, and the directory of the other members. `port` is the fabric port.
#[must_use]
pub fn configured_switch(
    switch: &SwitchConfig,
    index: u8,
    port: &PortAttributes,
) -> (VeswPortInfo, Directory) {
    static_switch(switch, port.guid, index, carried_mtu(port.ud_payload_max))
}

/// [`configured_switch`] on a port that has this GUID and carries an MTU of `eth_mtu` bytes.
fn static_switch(
    switch: &SwitchConfig,
    guid: Guid,
    index: u8,
    eth_mtu: u32,
) -> (VeswPortInfo, Directory) {
    let lid = switch.lid.unwrap_or_else(|| default_lid(guid, index));
    let generated = generated_mac(switch.fabric_id, switch.vesw, lid, false);
    let info = VeswPortInfo {
        fabric_id: switch.fabric_id,
        vesw_id: switch.vesw,
        pkey: switch.pkey,
        // As the Ethernet Manager numbers the groups of its switches.
        u_mcast_dlid: Lid::new(Lid::MULTICAST.get() + u32::from(switch.vesw)),
        eth_mtu: u16::try_from(eth_mtu).unwrap_or(u16::MAX),
        port_num: lid.get(),
        base_mac_addr: switch.mac.unwrap_or(generated),
        config_state: ConfigState::Forwarding,
        encap_slid: lid,
        ..VeswPortInfo::default()
    };
    let peers = switch.peers.as_deref().unwrap_or_default();
    let nodes = peers.iter().map(|peer| {
        let address = NodeAddress {
            gid: peer.gid,
            // 0: learned later.
            qpn: peer.qpn.unwrap_or_else(|| fabric::Qpn::new(0)),
        };
        (peer.lid, address)
    });
    let directory = Directory {
        nodes: nodes.collect(),
        closed: switch.peers.is_some(),
    };
    (info, directory)
}

/// Why a VNIC cannot have a manager's LID: another VNIC of this port, `configured` on the same switch, has
/// it, and each would get the other's packets. `configured` has their names and settings.
#[must_use]
pub fn lid_of_another<'v>(
    mut configured: impl Iterator<Item = (&'v str, &'v VeswPortInfo)>,
    wanted: &VeswPortInfo,
) -> Option<String> {
    let place = |i: &VeswPortInfo| (i.pkey.full(), i.fabric_id, i.vesw_id, i.encap_slid);
    if wanted.vesw_id == 0 || wanted.encap_slid == Lid::NONE {
        return None;
    }
    let (name, _) = configured.find(|(_, info)| place(info) == place(wanted))?;
    Some(format!(
        "the LID {} is that of {name}, which the configuration of this node puts on that switch",
        wanted.encap_slid
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use control::config::vnic::VnicPeer;

    #[test]
    fn lids_are_unicast_lasting_and_rarely_alike() {
        let of = |n: u8, index| default_lid(Guid([0x02, 0, 0, 0xff, 0xfe, 0, 0, n]), index);
        assert_eq!(of(1, 0), of(1, 0));
        let all: BTreeSet<Lid> = (0..255)
            .flat_map(|n| [of(n, 0), of(n, 1), of(n, 254)])
            .collect();
        assert!(all.iter().all(|lid| lid.is_unicast()));
        // 765 draws of 15.7 million: the chance of two equal ones is 1 in 50.
        assert!(all.len() >= 764, "{}", all.len());
    }

    #[test]
    fn a_static_switch_is_one_that_forwards() {
        let mut switch = SwitchConfig::new(7);
        let guid = Guid([2, 0, 0, 0xff, 0xfe, 0, 0, 1]);
        let (info, directory) = static_switch(&switch, guid, 3, 4053);
        assert_eq!(info.encap_slid, default_lid(guid, 3));
        assert_eq!((info.vesw_id, info.eth_mtu), (7, 4053));
        assert_eq!(info.u_mcast_dlid, Lid::new(0xf0_0007));
        let mac = generated_mac(0, 7, info.encap_slid, false);
        assert_eq!(info.base_mac_addr, mac);
        assert!(!directory.closed && directory.nodes.is_empty());
        switch.lid = Some(Lid::new(5));
        switch.mac = Some([2, 0, 0, 0, 0, 9]);
        switch.peers = Some(vec![VnicPeer {
            lid: Lid::new(6),
            gid: "fe80::6".parse().unwrap(),
            qpn: None,
        }]);
        let (info, directory) = static_switch(&switch, guid, 3, 4053);
        assert_eq!(info.encap_slid, Lid::new(5));
        assert_eq!(info.base_mac_addr, [2, 0, 0, 0, 0, 9]);
        assert!(directory.closed);
        assert_eq!(directory.nodes[&Lid::new(6)].qpn.get(), 0);
    }

    #[test]
    fn a_manager_may_not_give_the_lid_of_a_configured_vnic_of_the_same_switch() {
        let mut switch = SwitchConfig::new(7);
        switch.lid = Some(Lid::new(5));
        let guid = Guid([2, 0, 0, 0xff, 0xfe, 0, 0, 1]);
        let (own, _) = static_switch(&switch, guid, 3, 4053);
        let refused = |wanted: &VeswPortInfo| lid_of_another([("lan0", &own)].into_iter(), wanted);
        let text = refused(&own).unwrap();
        assert!(text.contains("0x000005") && text.contains("lan0"), "{text}");
        let limited = VeswPortInfo {
            pkey: fabric::PKey::new(own.pkey.get() & 0x7fff),
            ..own.clone()
        };
        assert!(
            refused(&limited).is_some(),
            "a limited member is of the same partition"
        );
        for other in [
            VeswPortInfo {
                encap_slid: Lid::new(6),
                ..own.clone()
            },
            VeswPortInfo {
                vesw_id: 8,
                ..own.clone()
            },
            VeswPortInfo {
                fabric_id: 1,
                ..own.clone()
            },
            VeswPortInfo {
                pkey: fabric::PKey::new(0x8001),
                ..own.clone()
            },
            VeswPortInfo::default(),
        ] {
            assert_eq!(refused(&other), None);
        }
    }
}
