//! What every interface has, whatever it carries.

use std::fmt;

use super::PortName;

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

    /// An interface cannot carry its own packets; `what` says what kind of interface it is.
    pub(super) fn check_port(&self, what: &str) -> Result<(), String> {
        match &self.port {
            PortName::Underlay(underlay) if *underlay == self.name => Err(format!(
                "the {what} {:?} cannot be its own underlay",
                self.name
            )),
            _ => Ok(()),
        }
    }

    /// A queue pair of an adapter has one receive queue.
    pub(super) fn check_queues(&self) -> Result<(), String> {
        match (&self.port, self.queues) {
            (PortName::Rdma { .. }, Some(queues)) if queues > 1 => Err(format!(
                "{queues} queues: an interface on an RDMA device has one queue pair, and so one \
                 queue; leave queues out"
            )),
            _ => Ok(()),
        }
    }

    /// No two interfaces of a network namespace have one name; `kind` says what the others are.
    pub(super) fn check_name<'c>(
        &self,
        kind: &str,
        mut others: impl Iterator<Item = &'c InterfaceConfig>,
    ) -> Result<(), String> {
        let key = self.key();
        if others.all(|other| other.key() != key) {
            return Ok(());
        }
        Err(match &self.netns {
            Some(netns) => format!(
                "{kind} in the namespace {netns:?} is named {:?} already",
                self.name
            ),
            None => format!("{kind} is named {:?} already", self.name),
        })
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
