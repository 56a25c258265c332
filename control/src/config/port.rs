//! Fabric ports: what they are called, and their settings.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroUsize;

use proto::{Gid, GidChoice, Lid, LinkMtu, PKey};

use super::KeyFault;
use super::values::{self, BusyPoll};

/// The largest payload of a packet on a fabric of adapters, in bytes (IBA vol. 1, 9.2: the IB MTUs
/// end there).
const IB_MTU_MAX: u32 = 4096;

/// What a device is on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortName {
    /// The software fabric's port on an Ethernet interface.
    Underlay(String),
    /// A port of an RDMA device of the kernel.
    Rdma {
        /// The device's name, as `rdma link` has it.
        device: String,
        /// Counted from 1.
        port: u8,
    },
}

impl PortName {
    /// As the table of its settings is called: an interface's name or `mlx5_0/1`. No interface's name
    /// has a slash.
    ///
    /// # Errors
    /// A sentence about what is wrong with it.
    pub fn parse(name: &str) -> Result<PortName, String> {
        match name.contains('/') {
            true => PortName::parse_rdma(name),
            false => values::parse_interface(name).map(PortName::Underlay),
        }
    }

    /// A port of an RDMA device: `mlx5_0/1`, or `mlx5_0` for its first.
    ///
    /// # Errors
    /// A sentence about what is wrong with it.
    pub fn parse_rdma(name: &str) -> Result<PortName, String> {
        let (device, port) = name.split_once('/').unwrap_or((name, "1"));
        Ok(PortName::Rdma {
            device: values::parse_rdma_device(device)?,
            port: values::parse_rdma_port(port)?,
        })
    }

    /// The port that a running daemon calls so: `soft/eth0` or `mlx5_0/1`.
    pub fn of_running(name: &str) -> Option<PortName> {
        match name.strip_prefix("soft/") {
            Some(underlay) => values::parse_interface(underlay)
                .ok()
                .map(PortName::Underlay),
            None => PortName::parse_rdma(name).ok(),
        }
    }

    /// The key that puts a device on it, and the command line's option.
    pub fn key(&self) -> &'static str {
        match self {
            PortName::Underlay(_) => "underlay",
            PortName::Rdma { .. } => "rdma",
        }
    }

    /// How many queues a device on it has unless it asks for a number. Of the software fabric one
    /// for each CPU, at most 4: beyond that, streams of one pair of hosts rarely spread further,
    /// while each queue costs a thread and its receive memory. A queue pair of an adapter has one
    /// receive queue.
    pub fn default_queues(&self) -> usize {
        match self {
            PortName::Underlay(_) => std::thread::available_parallelism()
                .map_or(1, NonZeroUsize::get)
                .min(4),
            PortName::Rdma { .. } => 1,
        }
    }

    /// Its table in a file.
    pub(super) fn table(&self) -> String {
        match self {
            PortName::Underlay(name) => format!("[port.{name}]"),
            PortName::Rdma { .. } => format!("[port.\"{self}\"]"),
        }
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortName::Underlay(name) => f.write_str(name),
            PortName::Rdma { device, port } => write!(f, "{device}/{port}"),
        }
    }
}

/// Settings of a fabric port. Which of them it can have, [`PortConfig::check`] says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortConfig {
    /// Which of its addresses is the port's GID.
    pub gid: GidChoice,
    /// Where multicast goes as unicast copies; empty: multicast on the underlay. Of the same
    /// address family as the GID.
    pub peers: Vec<IpAddr>,
    /// The largest UD payload.
    pub link_mtu: LinkMtu,
    /// How long data threads look for the next packet before they sleep.
    pub busy_poll: BusyPoll,
    /// The P_Key table; `None`: what the devices ask for.
    pub pkeys: Option<Vec<PKey>>,
    /// Where ports and groups are, on an InfiniBand link layer.
    pub lids: BTreeMap<Gid, Lid>,
    /// Peers may be the kernel's IPoIB, whose requests for connections do not reach this daemon.
    pub kernel_peers: bool,
    /// Ports whose Ethernet Managers may configure VNICs; empty: any.
    pub managers: Vec<Gid>,
    /// An Ethernet Manager may make VNICs that nobody has named.
    pub vnic_create: bool,
}

/// Who may manage the VNICs of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagementSettings {
    /// Ports whose Ethernet Managers may; empty: any.
    pub managers: Vec<Gid>,
    /// A manager may make VNICs that nobody has named.
    pub vnic_create: bool,
}

impl PortConfig {
    /// Who may manage its VNICs.
    pub fn management(&self) -> ManagementSettings {
        ManagementSettings {
            managers: self.managers.clone(),
            vnic_create: self.vnic_create,
        }
    }

    /// Checks what one value alone cannot show.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub fn check(&self, name: &PortName) -> Result<(), KeyFault> {
        match name {
            PortName::Underlay(_) => self.check_soft(),
            PortName::Rdma { .. } => self.check_verbs(),
        }
    }

    fn check_soft(&self) -> Result<(), KeyFault> {
        let fault = |key, what: String| Err(KeyFault { key, what });
        if let GidChoice::Index(index) = self.gid {
            return fault(
                "gid",
                format!(
                    "GID index {index}: only the GID table of an RDMA device has indexes; name an \
                     address of the underlay"
                ),
            );
        }
        if !self.lids.is_empty() {
            return fault(
                "lids",
                "there are LIDs on InfiniBand only; leave lids out for an underlay".into(),
            );
        }
        if self.kernel_peers {
            return fault(
                "kernel_peers",
                "an underlay takes the kernel's requests for connections as any others; leave \
                 kernel_peers out"
                    .into(),
            );
        }
        if self.gid.is_ipv4() && self.peers.is_empty() {
            return fault(
                "gid",
                "an IPv4 GID needs peers, since IPoIB's multicast GIDs are IPv6 addresses; \
                list the other hosts' addresses in peers, or use an IPv6 GID"
                    .into(),
            );
        }
        let other = |p: &&IpAddr| p.is_ipv4() != self.gid.is_ipv4();
        match self.peers.iter().find(other) {
            Some(peer) if peer.is_ipv4() => fault(
                "peers",
                format!(
                    "peer {peer} is an IPv4 address but the port's GID is an IPv6 one; \
                    use gid \"ipv4\", or the peer's IPv6 address"
                ),
            ),
            Some(peer) => fault(
                "peers",
                format!(
                    "peer {peer} is an IPv6 address but the port's GID is an IPv4 one; \
                    use gid \"auto\", or the peer's IPv4 address"
                ),
            ),
            None => Ok(()),
        }
    }

    fn check_verbs(&self) -> Result<(), KeyFault> {
        let fault = |key, what: String| Err(KeyFault { key, what });
        if self.gid.is_ipv4() {
            return fault(
                "gid",
                "an RDMA device cannot have an IPv4 GID here, since IPoIB's multicast GIDs are IPv6 \
                 addresses; use \"auto\", an IPv6 address or an index"
                    .into(),
            );
        }
        if !self.peers.is_empty() {
            return fault(
                "peers",
                "an RDMA device sends multicast to groups, and no copies to peers; leave peers out"
                    .into(),
            );
        }
        if self.pkeys.is_some() {
            return fault(
                "pkeys",
                "the P_Key table of an RDMA device is its subnet manager's, or fixed; leave pkeys out"
                    .into(),
            );
        }
        match self.link_mtu {
            LinkMtu::Exact => fault(
                "link_mtu",
                "the packets of an RDMA device have IB MTUs: use \"auto\" or a number of bytes"
                    .into(),
            ),
            LinkMtu::Bytes(bytes) if bytes > IB_MTU_MAX => fault(
                "link_mtu",
                format!(
                    "a link MTU of {bytes} bytes is over the largest IB MTU; use 76 to {IB_MTU_MAX}"
                ),
            ),
            _ => Ok(()),
        }
    }
}
