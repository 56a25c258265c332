//! Settings of every interface.

use std::fmt;

use super::{KeyFault, PortName};

/// Settings that IPoIB interfaces and VNICs share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceConfig {
    /// Name of the TAP interface.
    pub name: String,
    /// Network namespace, a name of `ip netns`; `None`: the daemon's, or the parent's.
    pub netns: Option<String>,
    /// The fabric port.
    pub port: PortName,
    /// MTU in bytes; `None`: the largest MTU of the port in the interface's mode, or the largest that an
    /// Ethernet Manager allows.
    pub mtu: Option<u32>,
    /// TAP queues; `None`: [`PortName::default_queues`].
    pub queues: Option<usize>,
    /// Whether the TAP stays when the daemon ends.
    pub persist: bool,
    /// Whether the daemon sets the interface up. False changes nothing; a new interface is down.
    pub up: bool,
}

impl InterfaceConfig {
    /// An interface with the defaults.
    pub fn new(name: &str, port: PortName) -> InterfaceConfig {
        InterfaceConfig {
            name: name.into(),
            netns: None,
            port,
            mtu: None,
            queues: None,
            persist: false,
            up: true,
        }
    }

    /// Number of TAP queues.
    pub fn queue_count(&self) -> usize {
        self.queues.unwrap_or_else(|| self.port.default_queues())
    }

    /// Namespace and name, which identify the interface.
    pub fn key(&self) -> InterfaceKey {
        InterfaceKey {
            netns: self.netns.clone(),
            name: self.name.clone(),
        }
    }

    /// Checks the settings together, and against the other interfaces: names are unique in a network
    /// namespace.
    ///
    /// # Errors
    /// The first wrong setting.
    pub(super) fn check<'c>(
        &self,
        mut others: impl Iterator<Item = &'c InterfaceConfig>,
    ) -> Result<(), KeyFault> {
        let name = &self.name;
        if others.any(|other| other.key() == self.key()) {
            let place = match &self.netns {
                Some(netns) => format!(" in the namespace {netns:?}"),
                None => String::new(),
            };
            let what = format!("another interface{place} is named {name:?} already");
            return Err(KeyFault::new("name", what));
        }
        match &self.port {
            PortName::Underlay(underlay) if underlay == name => {
                let what = format!("the interface {name:?} cannot be its own underlay");
                Err(KeyFault::new("underlay", what))
            }
            _ => Ok(()),
        }
    }
}

/// The name of an interface in the configuration, and its configured network namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceKey {
    /// See [`InterfaceConfig::netns`].
    pub netns: Option<String>,
    /// See [`InterfaceConfig::name`].
    pub name: String,
}

impl fmt::Display for InterfaceKey {
    /// `ib0`, or `blue/ib0` in the network namespace `blue`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.netns {
            Some(netns) => write!(f, "{netns}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
