//! Reads the state of a port and decides whether it is usable.

use proto::{Gid, Guid, IbMtu, Lid, LinkMtu, PKey};
use rtnl::Requests;

use super::config::VerbsConfig;
use super::gid::{self, Address};
use super::ibv::{Context, GidEntry, LinkLayer, PortInfo};
use super::unusable::Unusable;

/// The smallest link MTU of IPv6 (RFC 8200, 5), and the length of IPoIB's header (RFC 4391, 6).
const IPV6_LINK_MTU: u32 = 1280;
const ENCAPSULATION: u32 = 4;

/// State of a port as read from the device and the kernel.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Port attributes.
    pub info: PortInfo,
    /// The used entries of its GID table.
    pub gids: Vec<GidEntry>,
    /// Its P_Key table.
    pub pkeys: Vec<PKey>,
    /// Addresses of the network interfaces of its GIDs.
    pub addresses: Vec<Address>,
    /// Indexes and MTUs (in bytes) of these interfaces.
    pub mtus: Vec<(u32, u32)>,
}

/// Attributes of a usable port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Usable {
    /// Entry of the port's GID.
    pub gid: GidEntry,
    /// The largest UD payload in bytes.
    pub ud_payload_max: u32,
    /// The active MTU.
    pub active_mtu: IbMtu,
    /// Port GUID.
    pub guid: Guid,
    /// LID.
    pub lid: Option<Lid>,
    /// Number of low bits of the LID that select a path (LMC).
    pub lmc: u8,
    /// The LID of the subnet manager's port.
    pub sm_lid: Option<Lid>,
    /// The service level of packets to the subnet manager.
    pub sm_sl: u8,
    /// Link layer.
    pub link_layer: LinkLayer,
    /// MTU of the GID's network interface.
    pub underlay_mtu: Option<u32>,
}

/// Reads the state of a port.
///
/// # Errors
/// Errors of the device. An interface that cannot be read has no addresses.
pub fn see(context: &Context, port: u8, requests: &mut Requests) -> std::io::Result<Seen> {
    let info = context.query_port(port)?;
    let mut gids = Vec::new();
    for index in 0..info.gids {
        gids.extend(context.query_gid(port, index)?);
    }
    let mut pkeys = Vec::new();
    for index in 0..info.pkeys {
        pkeys.push(context.query_pkey(port, index)?);
    }
    let mut netdevs: Vec<u32> = gids.iter().filter_map(|g| g.netdev).collect();
    netdevs.sort_unstable();
    netdevs.dedup();
    let (mut addresses, mut mtus) = (Vec::new(), Vec::new());
    for ifindex in netdevs {
        // An interface that disappeared, or is in another namespace, has no addresses.
        let found = requests.addresses(ifindex).unwrap_or_default();
        addresses.extend(found.into_iter().map(|a| Address {
            ifindex,
            ip: a.ip,
            usable: a.is_usable(),
        }));
        mtus.extend(requests.link_by_index(ifindex).map(|l| (ifindex, l.mtu)));
    }
    Ok(Seen {
        info,
        gids,
        pkeys,
        addresses,
        mtus,
    })
}

/// Decides whether a port is usable. `current` is the GID in use.
///
/// # Errors
/// [`Unusable`]
pub fn evaluate(
    config: &VerbsConfig,
    seen: &Seen,
    current: Option<Gid>,
) -> Result<Usable, Unusable> {
    let name = config.name();
    let ethernet = seen.info.link_layer == LinkLayer::Ethernet;
    if !seen.info.active {
        let hint = match ethernet {
            true => "set its network interface up",
            false => "check the cable and the subnet manager",
        };
        let state = seen.info.state;
        return Err(Unusable::Waiting(format!("{name} is {state}: {hint}")));
    }
    let gid = gid::choose(
        &name,
        &seen.gids,
        &seen.addresses,
        ethernet,
        config.gid,
        current,
    )?;
    let active = seen.info.active_mtu.bytes();
    let first = seen.gids.iter().find(|g| g.index == 0);
    let mtu = seen
        .mtus
        .iter()
        .find(|(ifindex, _)| gid.netdev == Some(*ifindex));
    Ok(Usable {
        guid: first.unwrap_or(&gid).gid.interface_id(),
        gid,
        ud_payload_max: match config.link_mtu {
            LinkMtu::Bytes(bytes) => bytes.min(active),
            LinkMtu::Auto | LinkMtu::Exact => active,
        },
        active_mtu: seen.info.active_mtu,
        lid: seen.info.lid,
        lmc: seen.info.lmc,
        sm_lid: seen.info.sm_lid,
        sm_sl: seen.info.sm_sl,
        link_layer: seen.info.link_layer,
        underlay_mtu: mtu.map(|(_, mtu)| *mtu),
    })
}

impl Usable {
    /// A warning if the MTU is too small for IPv6: IB MTUs are powers of two, and the largest that fits
    /// into Ethernet's 1500 bytes is 1024.
    pub fn mtu_warning(&self, name: &str) -> Option<String> {
        let payload = self.ud_payload_max;
        if payload >= IPV6_LINK_MTU + ENCAPSULATION {
            return None;
        }
        let link = payload.saturating_sub(ENCAPSULATION);
        Some(match (self.link_layer, self.underlay_mtu) {
            (LinkLayer::Ethernet, Some(mtu)) => format!(
                "{name} carries {payload} bytes in a packet because its network interface has an MTU of \
                 {mtu}. The link MTU is {link}, IPv6 needs {IPV6_LINK_MTU}. An interface MTU of 2200 \
                 gives a link MTU of 2044, 4200 gives 4092"
            ),
            _ => format!(
                "{name} carries {payload} bytes in a packet: the link MTU is {link}, IPv6 needs \
                 {IPV6_LINK_MTU}"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::ibv::GidKind;
    use super::*;

    fn seen(link_layer: LinkLayer) -> Seen {
        let gid = "fe80::5054:ff:fe00:1".parse().unwrap();
        Seen {
            info: PortInfo {
                active: true,
                state: "ACTIVE",
                active_mtu: IbMtu::B1024,
                gids: 16,
                pkeys: 1,
                lid: None,
                lmc: 0,
                sm_lid: None,
                sm_sl: 0,
                link_layer,
            },
            gids: vec![GidEntry {
                index: 0,
                gid,
                kind: GidKind::RoceV2,
                netdev: Some(2),
            }],
            pkeys: vec![PKey::DEFAULT],
            addresses: vec![Address {
                ifindex: 2,
                ip: gid.to_ip(),
                usable: true,
            }],
            mtus: vec![(2, 1500)],
        }
    }

    #[test]
    fn the_mtu_is_the_active_one_unless_a_smaller_one_is_asked_for() {
        let mut config = VerbsConfig::new("rxe0", 1);
        let usable = evaluate(&config, &seen(LinkLayer::Ethernet), None).unwrap();
        assert_eq!(usable.ud_payload_max, 1024);
        assert_eq!(usable.guid.to_string(), "5054:00ff:fe00:0001");
        let warning = usable.mtu_warning("rxe0/1").unwrap();
        assert!(
            warning.contains("MTU of 1500") && warning.contains("1020"),
            "{warning}"
        );
        config.link_mtu = LinkMtu::Bytes(4096);
        let mut large = seen(LinkLayer::Ethernet);
        large.info.active_mtu = IbMtu::B2048;
        let usable = evaluate(&config, &large, None).unwrap();
        assert_eq!(usable.ud_payload_max, 2048);
        assert_eq!(usable.mtu_warning("rxe0/1"), None);
        config.link_mtu = LinkMtu::Bytes(1500);
        let usable = evaluate(&config, &large, None).unwrap();
        assert_eq!(usable.ud_payload_max, 1500);
    }

    #[test]
    fn a_down_port_is_waited_for_and_the_text_says_what_to_do() {
        let config = VerbsConfig::new("rxe0", 1);
        for (layer, hint) in [
            (LinkLayer::Ethernet, "interface up"),
            (LinkLayer::InfiniBand, "subnet manager"),
        ] {
            let mut down = seen(layer);
            (down.info.active, down.info.state) = (false, "DOWN");
            let why = evaluate(&config, &down, None).unwrap_err();
            assert!(
                matches!(&why, Unusable::Waiting(text) if text.contains(hint)),
                "{why:?}"
            );
        }
    }
}
