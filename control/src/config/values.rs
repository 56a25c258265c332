//! Values of a configuration. The command line and files share these parsers.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use proto::{GidChoice, GidPrefix, LinkMtu, MssChoice, PKey, PrefixError, QKey, Qpn, SaChoice};

use crate::api::Moderation;

/// The last index of a GID table (include/uapi/rdma/ib_user_verbs.h, `ib_uverbs_global_route`: 8 bits).
const GID_INDEX_MAX: u32 = 255;

/// What members of the control socket's group may do. Root and the user of the daemon may do everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupAccess {
    /// Everything.
    #[default]
    Change,
    /// Requests that change nothing and send nothing.
    Read,
}

/// The entry of the GID table at an index.
///
/// # Errors
/// A sentence if the index is out of range.
pub fn gid_from_index(index: u64) -> Result<GidChoice, String> {
    in_range(index, 0..=GID_INDEX_MAX)
        .map(GidChoice::Index)
        .ok_or_else(|| format!("the GID index {index} is out of range; use 0 to {GID_INDEX_MAX}"))
}

/// Parses a choice of a GID.
///
/// # Errors
/// A sentence for the user.
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

/// Parses a way to the subnet administrator.
///
/// # Errors
/// A sentence for the user.
pub fn parse_sa(text: &str) -> Result<SaChoice, String> {
    match text {
        "none" => Ok(SaChoice::None),
        "umad" => Ok(SaChoice::Umad),
        _ => match text.parse::<IpAddr>().map(|a| a.to_canonical()) {
            Ok(address) if is_unicast(address) => Ok(SaChoice::Port(address.into())),
            Ok(address) => Err(format!("{address} is not the address of one port")),
            Err(_) => Err(format!(
                "{text:?} is no way to a subnet administrator; use \"none\", \"umad\", or the address of \
                 the administrator's port"
            )),
        },
    }
}

/// Time that a data thread polls for the next packet before it sleeps, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll(u32);

impl BusyPoll {
    /// 0 to 1000 microseconds; 0 disables polling.
    ///
    /// # Errors
    /// A sentence for the user.
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
    /// A little longer than a hop through a halted virtual CPU takes (docs/performance.md).
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

/// The queue pair number of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QpnChoice {
    /// Derived from GID, P_Key and interface name: the same after a restart.
    #[default]
    Stable,
    /// A new number at each start.
    Random,
    /// This number.
    Number(Qpn),
}

impl QpnChoice {
    /// A number from 2 to 0xfffffe.
    ///
    /// # Errors
    /// A sentence for the user.
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

/// A link MTU in payload bytes.
///
/// # Errors
/// A sentence if the link MTU is out of range: the IP MTU is 4 bytes smaller.
pub fn link_mtu_from_bytes(bytes: u64) -> Result<LinkMtu, String> {
    in_range(bytes, 76..=65524)
        .map(LinkMtu::Bytes)
        .ok_or_else(|| format!("a link MTU of {bytes} bytes is out of range; use 76 to 65524"))
}

/// Parses a link MTU.
///
/// # Errors
/// A sentence for the user.
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

/// An MSS of a number of bytes.
///
/// # Errors
/// A sentence if the number is out of range. RFC 9293, 3.7.1, has 536 bytes as the default over IPv4.
pub fn mss_from_bytes(bytes: u64) -> Result<MssChoice, String> {
    in_range(bytes, 536..=65480)
        .and_then(|bytes| u16::try_from(bytes).ok())
        .map(MssChoice::Bytes)
        .ok_or_else(|| format!("an MSS of {bytes} bytes is out of range; use 536 to 65480"))
}

/// Parses the choice of an MSS.
///
/// # Errors
/// A sentence for the user.
pub fn parse_mss(text: &str) -> Result<MssChoice, String> {
    match text {
        "train" => Ok(MssChoice::Train),
        "mtu" => Ok(MssChoice::Mtu),
        _ => match parse_number(text) {
            Some(bytes) => mss_from_bytes(bytes),
            None => Err(format!(
                "{text:?} is not an MSS; use \"train\", \"mtu\" or a number of bytes"
            )),
        },
    }
}

/// Parses a decimal number, or a hexadecimal number with the prefix `0x`.
pub fn parse_number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // from_str_radix accepts a sign.
    if !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

fn in_range(n: u64, range: std::ops::RangeInclusive<u32>) -> Option<u32> {
    u32::try_from(n).ok().filter(|n| range.contains(n))
}

/// Whether the address is neither multicast, unspecified nor the IPv4 broadcast address.
fn is_unicast(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_multicast() || address.is_unspecified() || broadcast)
}

/// Parses the name of a network interface, as the kernel does (`net/core/dev.c`, `dev_valid_name`).
/// Also refuses `%`: the kernel replaces `%d` by a number.
///
/// # Errors
/// A sentence for the user.
pub fn parse_interface(name: &str) -> Result<String, String> {
    // The kernel reads names as Latin-1.
    let is_odd = |c: char| c.encode_utf8(&mut [0; 4]).bytes().any(|b| b == 0xa0);
    let bad = |c: char| c == ' ' || is_odd(c) || c.is_control() || "/:%".contains(c);
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
        let why = match is_odd(c) {
            true => ", whose byte 0xa0 is a space for the kernel",
            false => "",
        };
        Err(format!(
            "the interface name {name:?} contains {c:?}{why}; use no \"/\", \":\", \"%\" or space"
        ))
    } else {
        Ok(name.into())
    }
}

/// Parses the name of an RDMA device, as the kernel does (drivers/infiniband/core/device.c,
/// `ib_device_rename`: IB_DEVICE_NAME_MAX is 64 with the terminating zero).
///
/// # Errors
/// A sentence for the user.
pub fn parse_rdma_device(name: &str) -> Result<String, String> {
    let bad = |c: char| c.is_whitespace() || c.is_control() || c == '/';
    if name.is_empty() {
        Err("the name of an RDMA device cannot be empty; \"rdma link\" lists the devices".into())
    } else if name.len() > 63 {
        Err(format!(
            "the name of an RDMA device has {} bytes; the kernel takes at most 63",
            name.len()
        ))
    } else if matches!(name, "." | "..") || name.contains(bad) {
        Err(format!(
            "{name:?} cannot be the name of an RDMA device; use one that \"rdma link\" lists, such as \
             mlx5_0"
        ))
    } else {
        Ok(name.into())
    }
}

/// Parses a port of an RDMA device, 1 to 254 (IBA vol. 1, 14.2.5.1: NumPorts has eight bits; 255 is not a
/// port).
///
/// # Errors
/// A sentence for the user.
pub fn parse_rdma_port(text: &str) -> Result<u8, String> {
    match parse_number(text).and_then(|n| in_range(n, 1..=254)) {
        Some(port) => Ok(port as u8),
        None => Err(format!(
            "{text:?} is not a port of an RDMA device; ports are numbered from 1"
        )),
    }
}

/// Parses the name of a network namespace: the name of a file in `/run/netns` (ip-netns(8)).
///
/// # Errors
/// A sentence for the user.
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

/// The default name of a child of `parent`: the first ten bytes of the parent's name, a dot, and the P_Key
/// with bit 15 set in four hexadecimal digits (kernel drivers/infiniband/ulp/ipoib/ipoib_vlan.c,
/// `ipoib_vlan_add`; the kernel does not set the bit first).
pub fn child_name(parent: &str, pkey: PKey) -> String {
    format!("{}.{:04x}", in_childs_name(parent), pkey.full().get())
}

/// The part of a parent's name that its children's names start with: at most ten bytes, whole characters.
pub fn in_childs_name(parent: &str) -> &str {
    let mut end = parent.len().min(10);
    while !parent.is_char_boundary(end) {
        end -= 1;
    }
    &parent[..end]
}

/// Parses a P_Key; see [`pkey_from_number`].
///
/// # Errors
/// A sentence for the user.
pub fn parse_pkey(text: &str) -> Result<PKey, String> {
    match parse_number(text) {
        Some(number) => pkey_from_number(number),
        None => Err(format!(
            "{text:?} is not a P_Key; use a number such as 0xffff"
        )),
    }
}

/// A P_Key, 0x0001 to 0xffff except 0x8000 (IBA vol. 1, 10.9.2: partition 0 is invalid).
///
/// # Errors
/// A sentence for the user.
pub fn pkey_from_number(number: u64) -> Result<PKey, String> {
    match u16::try_from(number).map(PKey::new) {
        Ok(key) if key.is_valid() => Ok(key),
        Ok(key) => Err(format!(
            "P_Key {key} selects partition 0, which is invalid; \
            use 0x0001 to 0x7fff or 0x8001 to 0xffff"
        )),
        Err(_) => Err(format!(
            "P_Key {number:#x} is out of range; use 0x0001 to 0x7fff or 0x8001 to 0xffff"
        )),
    }
}

/// A Q_Key, 32 bits. A controlled Q_Key (bit 31) is refused: a send with such a key carries the queue
/// pair's Q_Key instead (IBA vol. 1, 10.2.5), so groups could not have different keys.
///
/// # Errors
/// A sentence for the user.
pub fn qkey_from_number(number: u64) -> Result<QKey, String> {
    match u32::try_from(number).map(QKey::new) {
        Ok(key) if !key.is_controlled() => Ok(key),
        _ => Err(format!(
            "Q_Key {number:#x} is out of range; use 0x00000000 to 0x7fffffff"
        )),
    }
}

/// Parses a Q_Key; see [`qkey_from_number`].
///
/// # Errors
/// A sentence for the user.
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
/// A sentence for the user.
pub fn mtu_from_number(bytes: u64) -> Result<u32, String> {
    in_range(bytes, 72..=65520)
        .ok_or_else(|| format!("an MTU of {bytes} bytes is out of range; use 72 to 65520"))
}

/// Parses an IP MTU; see [`mtu_from_number`].
///
/// # Errors
/// A sentence for the user.
pub fn parse_mtu(text: &str) -> Result<u32, String> {
    match parse_number(text) {
        Some(bytes) => mtu_from_number(bytes),
        None => Err(format!("{text:?} is not an MTU; use a number of bytes")),
    }
}

/// A number of TAP queues, 1 to 256 (`drivers/net/tun.c`, `MAX_TAP_QUEUES`).
///
/// # Errors
/// A sentence for the user.
pub fn queues_from_number(number: u64) -> Result<usize, String> {
    in_range(number, 1..=256)
        .map(|n| n as usize)
        .ok_or_else(|| format!("{number} queues are out of range; use 1 to 256"))
}

/// Parses a number of TAP queues; see [`queues_from_number`].
///
/// # Errors
/// A sentence for the user.
pub fn parse_queues(text: &str) -> Result<usize, String> {
    match parse_number(text) {
        Some(number) => queues_from_number(number),
        None => Err(format!("{text:?} is not a number of queues")),
    }
}

/// A value of completion moderation, 0 to 65535.
///
/// # Errors
/// A sentence for the user.
pub fn moderation_from_number(number: u64) -> Result<u32, String> {
    let max = Moderation::MAX;
    in_range(number, 0..=max).ok_or_else(|| format!("{number} is out of range; use 0 to {max}"))
}

/// Parses a value of completion moderation; see [`moderation_from_number`].
///
/// # Errors
/// A sentence for the user.
pub fn parse_moderation(text: &str) -> Result<u32, String> {
    match parse_number(text) {
        Some(number) => moderation_from_number(number),
        None => Err(format!("{text:?} is not a number")),
    }
}

/// Default of the maximum number of connections of an interface.
pub const CONNECTIONS: usize = 4096;

/// A maximum number of connections of an interface, 0 to 16384 (the size of the neighbour table).
///
/// # Errors
/// A sentence for the user.
pub fn connections_from_number(number: u64) -> Result<usize, String> {
    in_range(number, 0..=16_384)
        .map(|n| n as usize)
        .ok_or_else(|| format!("{number} connections are out of range; use 0 to 16384"))
}

/// Parses a number of connections; see [`connections_from_number`].
///
/// # Errors
/// A sentence for the user.
pub fn parse_connections(text: &str) -> Result<usize, String> {
    match parse_number(text) {
        Some(number) => connections_from_number(number),
        None => Err(format!("{text:?} is not a number of connections")),
    }
}

/// Parses the address of a peer: unicast; an IPv4-mapped address becomes IPv4.
///
/// # Errors
/// A sentence for the user.
pub fn parse_peer(text: &str) -> Result<IpAddr, String> {
    match text.parse::<IpAddr>().map(|a| a.to_canonical()) {
        Ok(address) if is_unicast(address) => Ok(address),
        Ok(address) => Err(format!("peer {address} is not a unicast address")),
        Err(_) => Err(format!("peer {text:?} is not an IPv6 or IPv4 address")),
    }
}

/// Parses the IP address of a host.
///
/// # Errors
/// A sentence for the user.
pub fn parse_host(text: &str) -> Result<IpAddr, String> {
    match text.parse::<IpAddr>() {
        Ok(address) if is_unicast(address) && !address.is_loopback() => Ok(address),
        Ok(address) => Err(format!("{address} cannot be the address of a neighbour")),
        Err(_) => Err(format!("{text:?} is not an IPv4 or IPv6 address")),
    }
}

/// Parses an address or a prefix of GIDs.
///
/// # Errors
/// A sentence for the user.
pub fn parse_prefix(text: &str) -> Result<GidPrefix, String> {
    text.parse().map_err(|e| match e {
        PrefixError::Address => format!(
            "{text:?} is not an address or a prefix; use for example \"fe80::2\" or \"192.0.2.0/24\""
        ),
        PrefixError::Len => format!(
            "the length of the prefix {text:?} is wrong; use 0 to 32 for IPv4, 0 to 128 for IPv6"
        ),
        PrefixError::HostBits => format!(
            "{text:?} has bits after the prefix; set these bits to 0, or make the prefix longer"
        ),
    })
}
