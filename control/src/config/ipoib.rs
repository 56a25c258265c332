//! IPoIB interfaces.

use std::ops::{Deref, DerefMut};

use proto::{DhcpMode, Mode, PKey, QKey};

use super::interface::InterfaceConfig;
use super::{KeyFault, PortName, QpnChoice, values};

/// The scope nibble of broadcast groups: link-local, as the kernel has it
/// (`ipoib_main.c ipv4_bcast_addr`).
pub const SCOPE: u8 = 2;

/// One IPoIB interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpoibConfig {
    /// What a VNIC has, too.
    pub interface: InterfaceConfig,
    /// The configured name of the interface that it is a child of, which is before it in the list.
    pub parent: Option<String>,
    /// The network namespace that tells its MAC and its queue pair number from those of an interface
    /// of the same name: the one that the configuration gives it or, if that does not know it, its
    /// parent. Not where it is, since it may move.
    pub origin: Option<String>,
    /// 802.1Q tags on its frames select partitions: VLAN n is P_Key 0x8000 | n.
    pub vlan_pkey: bool,
    /// Transport mode.
    pub mode: Mode,
    /// How many connections it may have, asked for by it or by peers; 0: none.
    pub connections: usize,
    /// The partition, as the user wrote it; without bit 15 it is a limited member's.
    pub pkey: PKey,
    /// The Q_Key of the broadcast group.
    pub qkey: QKey,
    /// The queue pair number.
    pub qpn: QpnChoice,
    /// What is done to DHCPv4.
    pub dhcp: DhcpMode,
    /// Whether frames for guests and groups go back to the TAP, too (reflective relay).
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
            dhcp: DhcpMode::default(),
            reflect: false,
        }
    }

    /// Has the configuration give it a network namespace.
    pub(super) fn set_netns(&mut self, netns: Option<String>) {
        self.origin.clone_from(&netns);
        self.interface.netns = netns;
    }

    /// A child of this interface with the defaults: what it does not have of its own, it has of its
    /// parent. It is a full member wherever the port is one.
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
            pkey: pkey.full(),
            // One number cannot be two queue pairs'.
            qpn: match self.qpn {
                QpnChoice::Number(_) => QpnChoice::Stable,
                choice => choice,
            },
            ..self.clone()
        }
    }

    /// The name that its MAC and its queue pair number are made from: `NETNS/NAME`, or `NAME` without
    /// an [`IpoibConfig::origin`].
    pub fn identity(&self) -> String {
        match &self.origin {
            // No interface's name has a slash.
            Some(netns) => format!("{netns}/{}", self.name),
            None => self.name.clone(),
        }
    }

    /// Checks what one value alone cannot show, beside the other IPoIB interfaces.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub(super) fn check(&self, others: &[IpoibConfig]) -> Result<(), KeyFault> {
        self.interface.check(others.iter().map(|o| &o.interface))?;
        let QpnChoice::Number(qpn) = self.qpn else {
            return Ok(());
        };
        if matches!(self.port, PortName::Rdma { .. }) {
            let what = format!(
                "an RDMA device draws queue pair numbers itself, and cannot be asked for {qpn}; \
                 leave qpn out"
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

    /// A child has a partition of its own (kernel ipoib_vlan.c, `is_child_unique`); `others` has the
    /// parent's other children.
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
