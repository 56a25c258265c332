//! Interfaces in the kernel's messages (RTM_NEWLINK, RTM_DELLINK; kernel net/core/rtnetlink.c).

use std::fmt;

use netlink_packet_route::link::{LinkFlags, LinkHeader};

use crate::attributes::{attributes, text_of, u8_of, u16_of, u32_of};

/// Bytes of `struct ifinfomsg` (kernel include/uapi/linux/rtnetlink.h).
const HEADER_LEN: usize = 16;

// Attribute numbers of kernel include/uapi/linux/if_link.h.
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_TXQLEN: u16 = 13;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_PROMISCUITY: u16 = 30;
const IFLA_CARRIER: u16 = 33;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_GSO_MAX_SIZE: u16 = 41;
const IFLA_NEW_NETNSID: u16 = 45;
const IFLA_MIN_MTU: u16 = 50;
const IFLA_MAX_MTU: u16 = 51;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
const IFLA_GRO_MAX_SIZE: u16 = 58;
const IFLA_ALLMULTI: u16 = 61;
const IFLA_GSO_IPV4_MAX_SIZE: u16 = 63;
/// In IFLA_AF_SPEC, attributes are numbered by address family.
const AF_INET6: u16 = 10;
/// The interface's IPv6 settings as an array of `int`, indexed by DEVCONF_ numbers (kernel
/// include/uapi/linux/ipv6.h). The first, DEVCONF_FORWARDING, is `forwarding`.
const IFLA_INET6_CONF: u16 = 2;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_MACVLAN_MODE: u16 = 1;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_PROTOCOL: u16 = 5;
const IFLA_TUN_OWNER: u16 = 1;
const IFLA_TUN_TYPE: u16 = 3;
const IFLA_TUN_VNET_HDR: u16 = 5;
const IFLA_TUN_PERSIST: u16 = 6;
const IFLA_TUN_MULTI_QUEUE: u16 = 7;
const IFLA_TUN_NUM_QUEUES: u16 = 8;
const IFLA_TUN_NUM_DISABLED_QUEUES: u16 = 9;
const IFLA_BR_MCAST_SNOOPING: u16 = 23;
const IFLA_BR_MCAST_QUERIER: u16 = 25;
const IFLA_BR_MCAST_QUERIER_STATE: u16 = 47;
const BRIDGE_QUERIER_IPV6_ADDRESS: u16 = 5;

/// The value of IFLA_TUN_TYPE for a TAP (kernel include/uapi/linux/if_tun.h, IFF_TAP).
const TYPE_TAP: u8 = 2;

/// The operational state (RFC 2863, 3.1.14; kernel Documentation/networking/operstates.rst).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OperState {
    /// Not reported by the driver, as for most virtual interfaces; use the flags.
    #[default]
    Unknown,
    /// A component is missing.
    NotPresent,
    /// Administratively down, or no carrier.
    Down,
    /// The interface below is down.
    LowerLayerDown,
    /// Under test.
    Testing,
    /// Waiting for an external event, such as authentication.
    Dormant,
    /// Ready.
    Up,
}

impl OperState {
    fn from_code(code: u8) -> OperState {
        match code {
            1 => OperState::NotPresent,
            2 => OperState::Down,
            3 => OperState::LowerLayerDown,
            4 => OperState::Testing,
            5 => OperState::Dormant,
            6 => OperState::Up,
            _ => OperState::Unknown,
        }
    }
}

impl fmt::Display for OperState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OperState::Unknown => "UNKNOWN",
            OperState::NotPresent => "NOTPRESENT",
            OperState::Down => "DOWN",
            OperState::LowerLayerDown => "LOWERLAYERDOWN",
            OperState::Testing => "TESTING",
            OperState::Dormant => "DORMANT",
            OperState::Up => "UP",
        })
    }
}

/// State of a TUN or TAP interface (kernel drivers/net/tun.c, tun_fill_info).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tun {
    /// TAP (Ethernet frames), not TUN (IP packets).
    pub tap: bool,
    /// The interface remains when its last queue is closed.
    pub persist: bool,
    /// All queues must be opened with IFF_MULTI_QUEUE; if false, none may be.
    pub multi_queue: bool,
    /// Frames carry a virtio-net header.
    pub vnet_hdr: bool,
    /// Attached queues; 0 if not reported (single-queue interfaces).
    pub queues: u32,
    /// Open but detached queues.
    pub disabled_queues: u32,
    /// The user id of the owner. Without an owner, and without a group, every user may open queues.
    pub owner: Option<u32>,
}

impl Tun {
    /// The queues that processes have open. Any number of processes can open those of a multi-queue interface; only this
    /// number shows it.
    pub fn open_queues(&self) -> u32 {
        self.queues + self.disabled_queues
    }
}

/// Multicast state of a bridge (kernel net/bridge/br_netlink.c, br_fill_info).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bridge {
    /// IGMP and MLD snooping: the bridge sends multicast only to ports with members.
    pub snooping: bool,
    /// The bridge itself sends membership queries.
    pub querier: bool,
    /// There is an MLD querier: the bridge itself, or another one on the segment (Linux 5.16 and later).
    pub mld_querier_seen: bool,
}

/// The mode of a macvlan (kernel include/uapi/linux/if_link.h, `enum macvlan_mode`; drivers/net/macvlan.c).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MacvlanMode {
    /// Macvlans of an interface never reach each other.
    Private,
    /// Macvlans reach each other through the network, which must send frames back (reflective relay).
    Vepa,
    /// Macvlans reach each other directly.
    Bridge,
    /// A single macvlan has the interface for itself.
    Passthru,
    /// The source address of a received frame selects the macvlan.
    Source,
}

impl MacvlanMode {
    fn from_code(code: u32) -> Option<MacvlanMode> {
        match code {
            1 => Some(MacvlanMode::Private),
            2 => Some(MacvlanMode::Vepa),
            4 => Some(MacvlanMode::Bridge),
            8 => Some(MacvlanMode::Passthru),
            16 => Some(MacvlanMode::Source),
            _ => None,
        }
    }
}

/// The tag of a VLAN interface (kernel net/8021q/vlan_netlink.c, vlan_fill_info).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vlan {
    /// The VLAN id, 0 to 4094.
    pub id: u16,
    /// The EtherType of the tag: 0x8100 (802.1Q), or 0x88a8 (802.1ad).
    pub protocol: u16,
}

/// An interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Link {
    /// The interface index.
    pub index: u32,
    /// The interface name.
    pub name: String,
    /// The hardware type, ARPHRD_ETHER = 1 (kernel include/uapi/linux/if_arp.h).
    pub hardware_type: u16,
    /// The MTU in bytes.
    pub mtu: u32,
    /// The smallest allowed MTU; 0 if not reported.
    pub mtu_min: u32,
    /// The largest allowed MTU; 0 if unlimited or not reported.
    pub mtu_max: u32,
    /// IFF_UP: administratively up.
    pub up: bool,
    /// IFF_RUNNING: up, and the operational state allows traffic.
    pub running: bool,
    /// IFF_LOWER_UP: up, with carrier.
    pub lower_up: bool,
    /// The carrier; a down interface may have it too.
    pub carrier: bool,
    /// IFF_MULTICAST.
    pub multicast: bool,
    /// The operational state.
    pub operstate: OperState,
    /// The MAC address, if the hardware address has 6 bytes.
    pub address: Option<[u8; 6]>,
    /// The link kind, such as `veth`, `tun` or `vxlan`; none for hardware.
    pub kind: Option<String>,
    /// The alias, any text.
    pub alias: Option<String>,
    /// The alternative names (`ip link property add`), in the kernel's order.
    pub altnames: Vec<String>,
    /// The index of the interface's bridge, bond or VRF.
    pub master: Option<u32>,
    /// The index of the lower interface of a VLAN, macvlan or ipvlan, or of a veth's peer, if it is in the
    /// same namespace.
    pub link: Option<u32>,
    /// The number of users that want all frames, for any MAC: a bridge, a packet capture, a macvlan.
    pub promiscuity: u32,
    /// The number of users that want the frames of all groups. Before Linux 6.0, which does not report it,
    /// 1 if an administrator set IFF_ALLMULTI.
    pub allmulti: u32,
    /// The largest super-frame that the stack sends to the interface, in bytes; 0 if not reported.
    pub gso_max_size: u32,
    /// The limit for IPv4, on kernels that have two limits; else 0.
    pub gso_ipv4_max_size: u32,
    /// The largest super-frame that receive offload makes, in bytes; 0 if not reported.
    pub gro_max_size: u32,
    /// The transmit queue length in packets.
    pub tx_queue_len: u32,
    /// State of a TUN or TAP interface.
    pub tun: Option<Tun>,
    /// State of a bridge.
    pub bridge: Option<Bridge>,
    /// Mode of a macvlan or macvtap.
    pub macvlan: Option<MacvlanMode>,
    /// Tag of a VLAN interface.
    pub vlan: Option<Vlan>,
}

impl Link {
    /// Whether packets can flow: up, with carrier, and an operational state that allows traffic.
    pub fn is_usable(&self) -> bool {
        self.up && self.running && self.lower_up
    }
}

/// The contents of RTM_NEWLINK or RTM_DELLINK.
pub(crate) struct LinkMessage {
    pub(crate) link: Link,
    /// With RTM_DELLINK: the interface moved to another namespace.
    pub(crate) moved: bool,
    /// The lower interface is in another namespace.
    lower_elsewhere: bool,
}

/// Decodes the payload of RTM_NEWLINK or RTM_DELLINK; `None` if it is not about the interface as a whole.
/// (Bridges report changes of their ports in the same message, with another family.)
pub(crate) fn decode(payload: &[u8]) -> Option<LinkMessage> {
    let header = LinkHeader::parse(payload).ok()?;
    if i32::from(u8::from(header.interface_family)) != libc::AF_UNSPEC {
        return None;
    }
    let mut message = LinkMessage {
        link: from_header(&header),
        moved: false,
        lower_elsewhere: false,
    };
    for (kind, value) in attributes(payload.get(HEADER_LEN..)?) {
        message.set(kind, value);
    }
    if message.lower_elsewhere {
        message.link.link = None;
    }
    Some(message)
}

/// The setting `net.ipv6.conf.IF.forwarding` in the payload of RTM_NEWLINK; `None` without IPv6.
pub(crate) fn forwards_ipv6(payload: &[u8]) -> Option<bool> {
    let settings = nested(payload.get(HEADER_LEN..)?, IFLA_AF_SPEC)
        .and_then(|families| nested(families, AF_INET6))
        .and_then(|family| nested(family, IFLA_INET6_CONF))?;
    u32_of(settings).map(|forwarding| forwarding != 0)
}

/// The value of an attribute.
fn nested(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut all = attributes(bytes);
    all.find_map(|(kind, value)| (kind == wanted).then_some(value))
}

fn from_header(header: &LinkHeader) -> Link {
    let has = |flag| header.flags.contains(flag);
    Link {
        index: header.index,
        hardware_type: header.link_layer_type.into(),
        up: has(LinkFlags::Up),
        running: has(LinkFlags::Running),
        lower_up: has(LinkFlags::LowerUp),
        carrier: has(LinkFlags::LowerUp),
        multicast: has(LinkFlags::Multicast),
        allmulti: has(LinkFlags::Allmulti).into(),
        ..Link::default()
    }
}

impl LinkMessage {
    fn set(&mut self, kind: u16, value: &[u8]) {
        let number = u32_of(value);
        let link = &mut self.link;
        match kind {
            IFLA_IFNAME => link.name = text_of(value),
            IFLA_ADDRESS => link.address = value.try_into().ok(),
            IFLA_OPERSTATE => {
                link.operstate = u8_of(value).map_or(OperState::Unknown, OperState::from_code);
            }
            IFLA_CARRIER => link.carrier = u8_of(value) == Some(1),
            IFLA_IFALIAS => link.alias = Some(text_of(value)).filter(|alias| !alias.is_empty()),
            IFLA_PROP_LIST => link.altnames = altnames(value),
            IFLA_MASTER => link.master = number.filter(|&index| index != 0),
            IFLA_LINK => link.link = number.filter(|&index| index != 0),
            IFLA_LINK_NETNSID => self.lower_elsewhere = true,
            IFLA_PROMISCUITY => link.promiscuity = number.unwrap_or_default(),
            IFLA_ALLMULTI => link.allmulti = number.unwrap_or_default(),
            IFLA_MTU => link.mtu = number.unwrap_or_default(),
            IFLA_MIN_MTU => link.mtu_min = number.unwrap_or_default(),
            IFLA_MAX_MTU => link.mtu_max = number.unwrap_or_default(),
            IFLA_TXQLEN => link.tx_queue_len = number.unwrap_or_default(),
            IFLA_GSO_MAX_SIZE => link.gso_max_size = number.unwrap_or_default(),
            IFLA_GSO_IPV4_MAX_SIZE => link.gso_ipv4_max_size = number.unwrap_or_default(),
            IFLA_GRO_MAX_SIZE => link.gro_max_size = number.unwrap_or_default(),
            IFLA_LINKINFO => set_info(link, value),
            IFLA_NEW_NETNSID => self.moved = true,
            _ => {}
        }
    }
}

fn set_info(link: &mut Link, nested: &[u8]) {
    let mut data = None;
    for (kind, value) in attributes(nested) {
        match kind {
            IFLA_INFO_KIND => link.kind = Some(text_of(value)),
            IFLA_INFO_DATA => data = Some(value),
            _ => {}
        }
    }
    let data = data.unwrap_or_default();
    match link.kind.as_deref() {
        Some("tun") => link.tun = Some(tun(data)),
        Some("bridge") => link.bridge = Some(bridge(data)),
        Some("vlan") => link.vlan = vlan(data),
        Some("macvlan" | "macvtap") => link.macvlan = macvlan_mode(data),
        _ => {}
    }
}

fn bridge(nested: &[u8]) -> Bridge {
    let mut bridge = Bridge::default();
    for (kind, value) in attributes(nested) {
        match kind {
            IFLA_BR_MCAST_SNOOPING => bridge.snooping = u8_of(value) == Some(1),
            IFLA_BR_MCAST_QUERIER => bridge.querier = u8_of(value) == Some(1),
            IFLA_BR_MCAST_QUERIER_STATE => {
                bridge.mld_querier_seen =
                    attributes(value).any(|(kind, _)| kind == BRIDGE_QUERIER_IPV6_ADDRESS);
            }
            _ => {}
        }
    }
    bridge
}

fn altnames(nested: &[u8]) -> Vec<String> {
    let names = attributes(nested).filter(|(kind, _)| *kind == IFLA_ALT_IFNAME);
    names.map(|(_, value)| text_of(value)).collect()
}

fn vlan(nested: &[u8]) -> Option<Vlan> {
    let (mut id, mut protocol) = (None, None);
    for (kind, value) in attributes(nested) {
        match kind {
            IFLA_VLAN_ID => id = u16_of(value),
            IFLA_VLAN_PROTOCOL => protocol = u16_of(value).map(u16::from_be),
            _ => {}
        }
    }
    Some(Vlan {
        id: id?,
        protocol: protocol?,
    })
}

fn macvlan_mode(nested: &[u8]) -> Option<MacvlanMode> {
    attributes(nested)
        .find(|(kind, _)| *kind == IFLA_MACVLAN_MODE)
        .and_then(|(_, value)| MacvlanMode::from_code(u32_of(value)?))
}

fn tun(nested: &[u8]) -> Tun {
    let mut tun = Tun::default();
    for (kind, value) in attributes(nested) {
        let set = u8_of(value) == Some(1);
        match kind {
            IFLA_TUN_OWNER => tun.owner = u32_of(value),
            IFLA_TUN_TYPE => tun.tap = u8_of(value) == Some(TYPE_TAP),
            IFLA_TUN_VNET_HDR => tun.vnet_hdr = set,
            IFLA_TUN_PERSIST => tun.persist = set,
            IFLA_TUN_MULTI_QUEUE => tun.multi_queue = set,
            IFLA_TUN_NUM_QUEUES => tun.queues = u32_of(value).unwrap_or_default(),
            IFLA_TUN_NUM_DISABLED_QUEUES => {
                tun.disabled_queues = u32_of(value).unwrap_or_default();
            }
            _ => {}
        }
    }
    tun
}
