//! What every interface has, whatever it carries.

use std::fmt;

use super::{KeyFault, PortName};

/// What IPoIB interfaces and VNICs have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceConfig {
    /// Name of the TAP interface.
    pub name: String,
    /// The network namespace of `ip netns` that it goes to; `None`: the daemon's, or its parent's.
    pub netns: Option<String>,
    /// The fabric port that it is on.
    pub port: PortName,
    /// MTU in bytes; `None`: the largest that the port carries in the interface's mode, or that an
    /// Ethernet Manager allows.
    pub mtu: Option<u32>,
    /// TAP queues; `None`: [`PortName::default_queues`].
    pub queues: Option<usize>,
    /// Whether the TAP stays when the daemon ends.
    pub persist: bool,
    /// Whether the daemon sets the interface up. False leaves it as it is: a new one is down.
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

    /// How many TAP queues it has.
    pub fn queue_count(&self) -> usize {
        self.queues.unwrap_or_else(|| self.port.default_queues())
    }

    /// What tells it from the other interfaces.
    pub fn key(&self) -> InterfaceKey {
        InterfaceKey {
            netns: self.netns.clone(),
            name: self.name.clone(),
        }
    }

    /// Checks what one value alone cannot show, beside the other interfaces: no two of a network
    /// namespace have one name.
    ///
    /// # Errors
    /// The first setting that is wrong.
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
        match (&self.port, self.queues) {
            (PortName::Underlay(underlay), _) if underlay == name => {
                let what = format!("the interface {name:?} cannot be its own underlay");
                Err(KeyFault::new("underlay", what))
            }
            (PortName::Rdma { .. }, Some(queues)) if queues > 1 => Err(KeyFault::new(
                "queues",
                format!(
                    "{queues} queues: an interface on an RDMA device has one queue pair, and so \
                     one queue; leave queues out"
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// An interface's name in the configuration, and the network namespace that it is configured for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceKey {
    /// As [`InterfaceConfig::netns`].
    pub netns: Option<String>,
    /// As [`InterfaceConfig::name`].
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
