//! IPoIB interfaces.

use std::ops::{Deref, DerefMut};

use proto::{ClaimCheck, DhcpMode, Inspect, Mode, MssChoice, PKey, Pin, QKey};

use super::interface::InterfaceConfig;
use super::{KeyFault, PortName, QpnChoice, values};

/// The scope nibble of broadcast groups: link-local, as in the kernel (`ipoib_main.c ipv4_bcast_addr`).
pub const SCOPE: u8 = proto::mgid::LINK_LOCAL;

/// An IPoIB interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpoibConfig {
    /// Settings that VNICs share.
    pub interface: InterfaceConfig,
    /// The configured name of a child's parent. The parent comes first in the list.
    pub parent: Option<String>,
    /// The network namespace in [`IpoibConfig::identity`]: the interface's configured namespace or, for a
    /// child outside the configuration, the parent's. It does not change when the interface moves.
    pub origin: Option<String>,
    /// 802.1Q tags on its frames select partitions: VLAN n is P_Key 0x8000 | n.
    pub vlan_pkey: bool,
    /// Transport mode.
    pub mode: Mode,
    /// Maximum number of connections, incoming and outgoing; 0 disables them.
    pub connections: usize,
    /// The partition, as the user wrote it; without bit 15, membership is limited.
    pub pkey: PKey,
    /// The Q_Key of the broadcast group.
    pub qkey: QKey,
    /// The queue pair number.
    pub qpn: QpnChoice,
    /// The largest segment of TCP in connected mode.
    pub mss: MssChoice,
    /// Changes to DHCPv4.
    pub dhcp: DhcpMode,
    /// What a hardware address in ARP and neighbour discovery must have in common with its sender.
    pub claims: ClaimCheck,
    /// Whether requests for connections are refused in datagram mode.
    pub refuse_requests: bool,
    /// The action for claims that contradict `neighbours` or take over the address of a live neighbour.
    pub inspect: Inspect,
    /// The neighbours that have certain IP addresses, each address once.
    pub neighbours: Vec<Pin>,
    /// Whether the host does not verify the checksums of packets from connections.
    pub trust_checksums: bool,
    /// Whether frames for guests and groups also return to the TAP (reflective relay).
    pub reflect: bool,
}

impl Deref for IpoibConfig {
    type Target = InterfaceConfig;

    fn deref(&self) -> &InterfaceConfig {
        &self.interface
    }
}

impl DerefMut for IpoibConfig {
    fn deref_mut(&mut self) -> &mut InterfaceConfig {
        &mut self.interface
    }
}

impl IpoibConfig {
    /// An interface with the defaults.
    pub fn new(name: &str, port: PortName) -> IpoibConfig {
        IpoibConfig {
            interface: InterfaceConfig::new(name, port),
            parent: None,
            origin: None,
            vlan_pkey: false,
            mode: Mode::Datagram,
            connections: values::CONNECTIONS,
            pkey: PKey::DEFAULT,
            qkey: QKey::IPOIB_DEFAULT,
            qpn: QpnChoice::default(),
            mss: MssChoice::default(),
            dhcp: DhcpMode::default(),
            claims: ClaimCheck::default(),
            refuse_requests: false,
            inspect: Inspect::default(),
            neighbours: Vec::new(),
            trust_checksums: false,
            reflect: false,
        }
    }

    /// Sets the configured network namespace.
    pub(super) fn set_netns(&mut self, netns: Option<String>) {
        self.origin.clone_from(&netns);
        self.interface.netns = netns;
    }

    /// A child of this interface with the defaults. All other settings come from the parent. Bit 15 of its
    /// P_Key is set: the child is a full member if the port is.
    pub fn child(&self, pkey: PKey) -> IpoibConfig {
        IpoibConfig {
            interface: InterfaceConfig {
                name: values::child_name(&self.name, pkey),
                mtu: None,
                queues: Some(1),
                ..self.interface.clone()
            },
            parent: Some(self.name.clone()),
            vlan_pkey: false,
            // Other addresses are in use in another partition.
            neighbours: Vec::new(),
            pkey: pkey.full(),
            // Two queue pairs cannot share a number.
            qpn: match self.qpn {
                QpnChoice::Number(_) => QpnChoice::Stable,
                choice => choice,
            },
            ..self.clone()
        }
    }

    /// The text from which MAC and queue pair number are derived: `NETNS/NAME`, or `NAME` without an
    /// [`IpoibConfig::origin`].
    pub fn identity(&self) -> String {
        match &self.origin {
            // Names of interfaces have no slash.
            Some(netns) => format!("{netns}/{}", self.name),
            None => self.name.clone(),
        }
    }

    /// Checks the settings together, and against the other IPoIB interfaces.
    ///
    /// # Errors
    /// The first wrong setting.
    pub(super) fn check(&self, others: &[IpoibConfig]) -> Result<(), KeyFault> {
        self.interface.check(others.iter().map(|o| &o.interface))?;
        if self.inspect == Inspect::Off && !self.neighbours.is_empty() {
            let what = "inspect is \"off\", so neighbours has no effect; set inspect to \"warn\" or \"enforce\"";
            return Err(KeyFault::new("neighbours", what.into()));
        }
        let QpnChoice::Number(qpn) = self.qpn else {
            return Ok(());
        };
        if matches!(self.port, PortName::Rdma { .. }) {
            let what = format!(
                "an RDMA device chooses queue pair numbers itself and cannot use {qpn}; leave qpn out"
            );
            return Err(KeyFault::new("qpn", what));
        }
        let has_it = |o: &&IpoibConfig| o.port == self.port && o.qpn == self.qpn;
        match others.iter().find(has_it) {
            Some(other) => Err(KeyFault::new(
                "qpn",
                format!("{:?} has the queue pair number {qpn} already", other.name),
            )),
            None => Ok(()),
        }
    }

    /// Checks that a child's partition differs from those of its parent and of the parent's other children,
    /// which are in `others` (kernel ipoib_vlan.c, `is_child_unique`).
    pub(super) fn check_child(
        &self,
        parent: &IpoibConfig,
        others: &[IpoibConfig],
    ) -> Result<(), String> {
        if parent.pkey.full() == self.pkey {
            return Err(format!(
                "{:?} has the P_Key {} itself; a child needs another one",
                parent.name, self.pkey
            ));
        }
        let sibling = |o: &&IpoibConfig| o.parent == self.parent && o.pkey == self.pkey;
        match others.iter().find(sibling) {
            Some(other) => Err(format!(
                "{:?} is a child of {:?} with the P_Key {} already",
                other.name, parent.name, self.pkey
            )),
            None => Ok(()),
        }
    }
}
