//! Fabric ports: names and settings.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroUsize;

use proto::{CmChoice, Gid, GidChoice, GidPrefix, LinkMtu, PKey, SaChoice};

use super::values::{self, BusyPoll};
use super::{KeyFault, ManagementKeys};
use crate::api::Moderation;

/// The largest IB MTU: payload bytes of a packet of an adapter (IBA vol. 1, 9.2).
const IB_MTU_MAX: u32 = 4096;

/// The name of a port in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortName {
    /// The software fabric's port on an Ethernet interface.
    Underlay(String),
    /// A port of an RDMA device of the kernel.
    Rdma {
        /// The name of the device, as in `rdma link`.
        device: String,
        /// The port number, from 1.
        port: u8,
    },
}

impl PortName {
    /// Parses the name of a port's table: the name of an underlay, or `mlx5_0/1`. Names of interfaces have
    /// no slash.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn parse(name: &str) -> Result<PortName, String> {
        match name.contains('/') {
            true => PortName::parse_rdma(name),
            false => values::parse_interface(name).map(PortName::Underlay),
        }
    }

    /// Parses a port of an RDMA device: `mlx5_0/1`, or `mlx5_0` for the first port.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn parse_rdma(name: &str) -> Result<PortName, String> {
        let (device, port) = name.split_once('/').unwrap_or((name, "1"));
        Ok(PortName::Rdma {
            device: values::parse_rdma_device(device)?,
            port: values::parse_rdma_port(port)?,
        })
    }

    /// Parses the name that a running daemon reports: `soft/eth0` or `mlx5_0/1`.
    pub fn of_running(name: &str) -> Option<PortName> {
        match name.strip_prefix("soft/") {
            Some(underlay) => values::parse_interface(underlay)
                .ok()
                .map(PortName::Underlay),
            None => PortName::parse_rdma(name).ok(),
        }
    }

    /// The key of an interface that names the port.
    pub fn key(&self) -> &'static str {
        match self {
            PortName::Underlay(_) => "underlay",
            PortName::Rdma { .. } => "rdma",
        }
    }

    /// The default number of TAP queues of an interface. Software fabric: one for each CPU, at most 4.
    /// Streams of one pair of hosts rarely spread over more queues, and each queue costs a thread and
    /// receive memory. RDMA device: 1, because only sending uses further ones.
    pub fn default_queues(&self) -> usize {
        match self {
            PortName::Underlay(_) => std::thread::available_parallelism()
                .map_or(1, NonZeroUsize::get)
                .min(4),
            PortName::Rdma { .. } => 1,
        }
    }

    /// The number of data threads of the port, from the numbers of TAP queues of its interfaces.
    pub fn data_threads(&self, queues: impl IntoIterator<Item = usize>) -> usize {
        let most = queues.into_iter().max();
        most.unwrap_or_else(|| self.default_queues())
    }

    /// The head of its table in a file.
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

/// Settings of a fabric port. [`PortConfig::check`] refuses settings that a port cannot have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortConfig {
    /// The choice of the port's GID.
    pub gid: GidChoice,
    /// Destinations of multicast as unicast copies, of the GID's address family; empty: multicast on the
    /// underlay.
    pub peers: Vec<IpAddr>,
    /// The largest UD payload.
    pub link_mtu: LinkMtu,
    /// Time that data threads poll for the next packet before they sleep.
    pub busy_poll: BusyPoll,
    /// Completion moderation of the data threads.
    pub moderation: Moderation,
    /// The P_Key table; `None`: the P_Keys of the interfaces.
    pub pkeys: Option<Vec<PKey>>,
    /// How the port reaches the subnet administrator; `None`: by umad on InfiniBand, not at all elsewhere.
    pub sa: Option<SaChoice>,
    /// Whether peers may run the kernel's IPoIB. Its connection requests do not reach this daemon.
    pub kernel_peers: bool,
    /// The manager of reliable connections, on an InfiniBand link layer.
    pub cm: CmChoice,
    /// Ports whose Ethernet Managers may configure VNICs; empty: all.
    pub managers: Vec<Gid>,
    /// The keys that authenticate the management of VNICs.
    pub management_key: ManagementKeys,
    /// Whether Ethernet Managers may create VNICs.
    pub vnic_create: bool,
    /// Who may send datagrams and ask for connections; `None`: all.
    pub allow: Option<Vec<GidPrefix>>,
}

/// Permissions of Ethernet Managers on a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagementSettings {
    /// Ports whose managers may configure VNICs; empty: all.
    pub managers: Vec<Gid>,
    /// The keys that authenticate managers and agents.
    pub management_key: ManagementKeys,
    /// Whether managers may create VNICs.
    pub vnic_create: bool,
}

impl PortConfig {
    /// The permissions of Ethernet Managers.
    pub fn management(&self) -> ManagementSettings {
        ManagementSettings {
            managers: self.managers.clone(),
            management_key: self.management_key.clone(),
            vnic_create: self.vnic_create,
        }
    }

    /// Checks the settings together.
    ///
    /// # Errors
    /// The first wrong setting.
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
        if self.kernel_peers {
            return fault(
                "kernel_peers",
                "connection requests of the kernel's IPoIB reach ibtapd on an underlay; leave \
                 kernel_peers out"
                    .into(),
            );
        }
        if let Some(SaChoice::Port(sa)) = self.sa
            && sa.ipv4().is_some() != self.gid.is_ipv4()
        {
            return fault(
                "sa",
                format!(
                    "the subnet administrator {} and the port's GID have different address families; use \
                     IPv6 for both, or IPv4 for both",
                    sa.to_ip()
                ),
            );
        }
        if self.cm != CmChoice::Auto {
            return fault(
                "cm",
                "connections on an underlay are always managed by ibtapd; leave cm out".into(),
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
                "an RDMA device sends multicast to groups, not as copies to peers; leave peers out"
                    .into(),
            );
        }
        let why = match self.sa {
            Some(SaChoice::None) => Some(
                "an InfiniBand port needs the subnet administrator, and a RoCE port has none; leave sa out",
            ),
            Some(SaChoice::Port(_)) => Some(
                "an RDMA device reaches the subnet administrator by umad, at the LID of the subnet manager; \
                 leave sa out",
            ),
            Some(SaChoice::Umad) | None => None,
        };
        if let Some(why) = why {
            return fault("sa", why.into());
        }
        if self.pkeys.is_some() {
            return fault(
                "pkeys",
                "ibtapd cannot set the P_Key table of an RDMA device; leave pkeys out".into(),
            );
        }
        match self.link_mtu {
            LinkMtu::Exact => fault(
                "link_mtu",
                "\"exact\" is for the software fabric only; use \"auto\" or a number of bytes"
                    .into(),
            ),
            LinkMtu::Bytes(bytes) if bytes > IB_MTU_MAX => fault(
                "link_mtu",
                format!(
                    "a link MTU of {bytes} bytes exceeds the largest IB MTU; use 76 to {IB_MTU_MAX}"
                ),
            ),
            _ => Ok(()),
        }
    }
}
