//! The values that a configuration is made of, the same on the command line and in a file.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use proto::{Gid, GidChoice, Lid, LinkMtu, PKey, QKey, Qpn};

/// The last index of a GID table (include/uapi/rdma/ib_user_verbs.h, `ib_uverbs_global_route`: 8 bits).
const GID_INDEX_MAX: u32 = 255;

/// The entry at an index.
///
/// # Errors
/// A sentence if no GID table is so long.
pub fn gid_from_index(index: u64) -> Result<GidChoice, String> {
    in_range(index, 0..=GID_INDEX_MAX)
        .map(GidChoice::Index)
        .ok_or_else(|| format!("the GID index {index} is out of range; use 0 to {GID_INDEX_MAX}"))
}

/// A choice of a GID from text.
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn parse_gid(text: &str) -> Result<GidChoice, String> {
    match text {
        "auto" => Ok(GidChoice::Auto),
        "ipv4" => Ok(GidChoice::Ipv4),
        _ => match text.parse::<IpAddr>().map(|a| a.to_canonical()) {
            Ok(address) if is_unicast(address) => Ok(GidChoice::Address(address)),
            Ok(address) => Err(format!(
                "{address} is not a unicast address of one interface"
            )),
            Err(_) => match parse_number(text) {
                Some(index) => gid_from_index(index),
                None => Err(format!(
                    "{text:?} is not a GID; use \"auto\", \"ipv4\", an IPv6 or IPv4 address, or an index"
                )),
            },
        },
    }
}

/// How long a data thread looks for the next packet before it sleeps, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll(u32);

impl BusyPoll {
    /// 0 to 1000 microseconds; 0 never looks.
    ///
    /// # Errors
    /// A sentence about what is wrong with it.
    pub fn from_micros(micros: u64) -> Result<BusyPoll, String> {
        in_range(micros, 0..=1000).map(BusyPoll).ok_or_else(|| {
            format!("a busy poll of {micros} microseconds is out of range; use 0 to 1000")
        })
    }

    /// As a duration.
    pub fn duration(self) -> Duration {
        Duration::from_micros(self.0.into())
    }
}

impl Default for BusyPoll {
    /// A little more than what a hop through a halted virtual CPU takes (docs/performance.md).
    fn default() -> BusyPoll {
        BusyPoll(100)
    }
}

impl FromStr for BusyPoll {
    type Err = String;

    fn from_str(text: &str) -> Result<BusyPoll, String> {
        match parse_number(text) {
            Some(micros) => BusyPoll::from_micros(micros),
            None => Err(format!("{text:?} is not a number of microseconds")),
        }
    }
}

impl fmt::Display for BusyPoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which number a device's queue pair has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QpnChoice {
    /// Made from GID, P_Key and interface name: the same after a restart, which peers then do not
    /// notice.
    #[default]
    Stable,
    /// Another one at each start.
    Random,
    /// This number.
    Number(Qpn),
}

impl QpnChoice {
    /// A number from 2 to 0xfffffe.
    ///
    /// # Errors
    /// A sentence about what is wrong with it.
    pub fn from_number(number: u64) -> Result<QpnChoice, String> {
        in_range(number, 0..=0xff_ffff)
            .map(Qpn::new)
            .filter(|qpn| !qpn.is_reserved())
            .map(QpnChoice::Number)
            .ok_or_else(|| {
                format!(
                    "the queue pair number {number:#x} is out of range; use 0x000002 to 0xfffffe"
                )
            })
    }
}

impl FromStr for QpnChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<QpnChoice, String> {
        match text {
            "stable" => Ok(QpnChoice::Stable),
            "random" => Ok(QpnChoice::Random),
            _ => match parse_number(text) {
                Some(number) => QpnChoice::from_number(number),
                None => Err(format!(
                    "{text:?} is not a queue pair number; use \"stable\", \"random\" or a number"
                )),
            },
        }
    }
}

impl fmt::Display for QpnChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QpnChoice::Stable => f.write_str("stable"),
            QpnChoice::Random => f.write_str("random"),
            QpnChoice::Number(qpn) => qpn.fmt(f),
        }
    }
}

/// A number of payload bytes.
///
/// # Errors
/// A sentence when no IPoIB datagram with a legal IP MTU fits.
pub fn link_mtu_from_bytes(bytes: u64) -> Result<LinkMtu, String> {
    in_range(bytes, 76..=65524)
        .map(LinkMtu::Bytes)
        .ok_or_else(|| format!("a link MTU of {bytes} bytes is out of range; use 76 to 65524"))
}

/// A link MTU from text.
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn parse_link_mtu(text: &str) -> Result<LinkMtu, String> {
    match text {
        "auto" => Ok(LinkMtu::Auto),
        "exact" => Ok(LinkMtu::Exact),
        _ => match parse_number(text) {
            Some(bytes) => link_mtu_from_bytes(bytes),
            None => Err(format!(
                "{text:?} is not a link MTU; use \"auto\", \"exact\" or a number of bytes"
            )),
        },
    }
}

/// A decimal number, or a hexadecimal one behind `0x`.
pub(crate) fn parse_number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // from_str_radix would take a sign.
    if !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

fn in_range(n: u64, range: std::ops::RangeInclusive<u32>) -> Option<u32> {
    u32::try_from(n).ok().filter(|n| range.contains(n))
}

/// Neither a group nor unspecified nor the IPv4 broadcast.
fn is_unicast(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_multicast() || address.is_unspecified() || broadcast)
}

/// The name of a network interface, as the kernel checks it (`net/core/dev.c`, `dev_valid_name`);
/// `%`, which the kernel would replace by a number, is refused too.
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn parse_interface(name: &str) -> Result<String, String> {
    let bad = |c: char| c.is_whitespace() || c.is_control() || "/:%".contains(c);
    if name.is_empty() {
        Err("an interface name cannot be empty".into())
    } else if name.len() > 15 {
        Err(format!(
            "the interface name {name:?} has {} characters; the kernel takes at most 15",
            name.len()
        ))
    } else if name == "." || name == ".." {
        Err(format!("{name:?} cannot be the name of an interface"))
    } else if let Some(c) = name.chars().find(|&c| bad(c)) {
        Err(format!(
            "the interface name {name:?} holds {c:?}; the kernel takes no \"/\", \":\", \"%\" or space"
        ))
    } else {
        Ok(name.into())
    }
}

/// The name of an RDMA device, as the kernel has them (drivers/infiniband/core/device.c,
/// `ib_device_rename`: IB_DEVICE_NAME_MAX, 64 with the zero at its end).
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn parse_rdma_device(name: &str) -> Result<String, String> {
    let bad = |c: char| c.is_whitespace() || c.is_control() || c == '/';
    if name.is_empty() {
        Err("the name of an RDMA device cannot be empty; rdma link lists them".into())
    } else if name.len() > 63 {
        Err(format!(
            "the name of an RDMA device has {} bytes; the kernel takes at most 63",
            name.len()
        ))
    } else if matches!(name, "." | "..") || name.contains(bad) {
        Err(format!(
            "{name:?} cannot be the name of an RDMA device; rdma link lists them, such as mlx5_0"
        ))
    } else {
        Ok(name.into())
    }
}

/// A port of an RDMA device, 1 to 254 (IBA vol. 1, 14.2.5.1: NumPorts has eight bits, and port 255
/// is none).
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn parse_rdma_port(text: &str) -> Result<u8, String> {
    match parse_number(text).and_then(|n| in_range(n, 1..=254)) {
        Some(port) => Ok(port as u8),
        None => Err(format!(
            "{text:?} is not a port of an RDMA device; they are numbered from 1"
        )),
    }
}

/// The LID of a port, 0x0001 to 0xbfff, or of a multicast group, 0xc000 to 0xfffe (IBA vol. 1,
/// 4.1.3).
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn lid_from_number(number: u64) -> Result<Lid, String> {
    in_range(number, 1..=0xfffe)
        .map(|lid| Lid(lid as u16))
        .ok_or_else(|| format!("the LID {number:#x} is out of range; use 0x0001 to 0xfffe"))
}

/// A group has a multicast LID, a port another one.
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn check_lid(gid: Gid, lid: Lid) -> Result<(), String> {
    let of_group = lid.0 >= 0xc000;
    match (gid.is_multicast(), of_group) {
        (true, false) => Err(format!(
            "{gid} is a multicast GID, whose LID is 0xc000 to 0xfffe, not {:#06x}",
            lid.0
        )),
        (false, true) => Err(format!(
            "{gid} is the GID of a port, whose LID is 0x0001 to 0xbfff, not {:#06x}",
            lid.0
        )),
        _ => Ok(()),
    }
}

/// A LID from text; see [`lid_from_number`].
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn parse_lid(text: &str) -> Result<Lid, String> {
    match parse_number(text) {
        Some(number) => lid_from_number(number),
        None => Err(format!(
            "{text:?} is not a LID; use a number such as 0x0003"
        )),
    }
}

/// The name of a network namespace, as ip-netns(8) has them: that of a file in `/run/netns`.
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn parse_netns(name: &str) -> Result<String, String> {
    let bad = |c: char| c == '/' || c.is_control();
    if name.is_empty() {
        Err("the name of a network namespace cannot be empty".into())
    } else if matches!(name, "." | "..") || name.contains(bad) {
        Err(format!(
            "{name:?} cannot be the name of a network namespace"
        ))
    } else if name.len() > 255 {
        Err(format!(
            "the name of a network namespace has {} bytes; a file name has at most 255",
            name.len()
        ))
    } else {
        Ok(name.into())
    }
}

/// The name of a child of `parent` unless another one is asked for (kernel
/// drivers/infiniband/ulp/ipoib/ipoib_vlan.c, `ipoib_vlan_add`, which does not set the bit first): the
/// first ten bytes of the parent's, a dot, and the P_Key with bit 15 set in four hexadecimal digits.
pub fn child_name(parent: &str, pkey: PKey) -> String {
    format!("{}.{:04x}", in_childs_name(parent), pkey.full().get())
}

/// As much of a parent's name as is in its children's, never a part of a character.
pub fn in_childs_name(parent: &str) -> &str {
    let mut end = parent.len().min(10);
    while !parent.is_char_boundary(end) {
        end -= 1;
    }
    &parent[..end]
}

/// A P_Key of 0x0001 to 0xffff but 0x8000, from text.
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn parse_pkey(text: &str) -> Result<PKey, String> {
    match parse_number(text) {
        Some(number) => pkey_from_number(number),
        None => Err(format!(
            "{text:?} is not a P_Key; use a number such as 0xffff"
        )),
    }
}

/// A P_Key of 0x0001 to 0xffff but 0x8000 (IBA vol. 1, 10.9.2: partition 0 is invalid).
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn pkey_from_number(number: u64) -> Result<PKey, String> {
    match u16::try_from(number).map(PKey::new) {
        Ok(key) if key.is_valid() => Ok(key),
        Ok(key) => Err(format!(
            "P_Key {key} names partition 0, which is invalid; \
            use 0x0001 to 0x7fff or 0x8001 to 0xffff"
        )),
        Err(_) => Err(format!(
            "P_Key {number:#x} is out of range; use 0x0001 to 0x7fff or 0x8001 to 0xffff"
        )),
    }
}

/// A Q_Key, 32 bits. A controlled one (bit 31) is refused: a send with such a key carries the
/// queue pair's own key instead (IBA vol. 1, 10.2.5), and no group could be told from another.
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn qkey_from_number(number: u64) -> Result<QKey, String> {
    match u32::try_from(number).map(QKey::new) {
        Ok(key) if !key.is_controlled() => Ok(key),
        _ => Err(format!(
            "Q_Key {number:#x} is out of range; use 0x00000000 to 0x7fffffff"
        )),
    }
}

/// A Q_Key from text; see [`qkey_from_number`].
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn parse_qkey(text: &str) -> Result<QKey, String> {
    match parse_number(text) {
        Some(number) => qkey_from_number(number),
        None => Err(format!(
            "{text:?} is not a Q_Key; use a number such as 0x0b1b"
        )),
    }
}

/// An IP MTU of 72 to 65520 bytes: the kernel's limits (`drivers/infiniband/ulp/ipoib`,
/// `ipoib_change_mtu`, and `IPOIB_CM_MTU` for connected mode).
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn mtu_from_number(bytes: u64) -> Result<u32, String> {
    in_range(bytes, 72..=65520)
        .ok_or_else(|| format!("an MTU of {bytes} bytes is out of range; use 72 to 65520"))
}

/// An IP MTU from text; see [`mtu_from_number`].
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn parse_mtu(text: &str) -> Result<u32, String> {
    match parse_number(text) {
        Some(bytes) => mtu_from_number(bytes),
        None => Err(format!("{text:?} is not an MTU; use a number of bytes")),
    }
}

/// A number of TAP queues, 1 to 256 (`drivers/net/tun.c`, `MAX_TAP_QUEUES`).
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn queues_from_number(number: u64) -> Result<usize, String> {
    in_range(number, 1..=256)
        .map(|n| n as usize)
        .ok_or_else(|| format!("{number} queues are out of range; use 1 to 256"))
}

/// A number of TAP queues from text; see [`queues_from_number`].
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn parse_queues(text: &str) -> Result<usize, String> {
    match parse_number(text) {
        Some(number) => queues_from_number(number),
        None => Err(format!("{text:?} is not a number of queues")),
    }
}

/// How many connections an interface may have unless something else is asked for.
pub const CONNECTIONS: usize = 4096;

/// A number of connections of an interface, 0 to 16384: as many as it knows neighbours.
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn connections_from_number(number: u64) -> Result<usize, String> {
    in_range(number, 0..=16_384)
        .map(|n| n as usize)
        .ok_or_else(|| format!("{number} connections are out of range; use 0 to 16384"))
}

/// A number of connections from text; see [`connections_from_number`].
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn parse_connections(text: &str) -> Result<usize, String> {
    match parse_number(text) {
        Some(number) => connections_from_number(number),
        None => Err(format!("{text:?} is not a number of connections")),
    }
}

/// A peer's address: unicast, IPv4-mapped ones as IPv4.
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn parse_peer(text: &str) -> Result<IpAddr, String> {
    match text.parse::<IpAddr>().map(|a| a.to_canonical()) {
        Ok(address) if is_unicast(address) => Ok(address),
        Ok(address) => Err(format!("peer {address} is not a unicast address")),
        Err(_) => Err(format!("peer {text:?} is not an IPv6 or IPv4 address")),
    }
}
