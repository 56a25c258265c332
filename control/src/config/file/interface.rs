//! Keys that `[[ipoib]]` and `[[vnic]]` share.

use toml::Spanned;

use super::Fault;
use super::scalar::{Name, Netns, Queues, RdmaName, Value};
use crate::config::{InterfaceConfig, KeyFault, PortName};

/// Borrows the common keys of an `Ipoib` or `Vnic` whose table begins at byte `$at`.
macro_rules! common {
    ($raw:expr, $at:expr) => {
        Common {
            at: $at,
            name: &$raw.name,
            underlay: $raw.underlay.as_ref(),
            rdma: $raw.rdma.as_ref(),
            netns: $raw.netns.as_ref(),
            mtu: $raw.mtu.as_ref().map(|mtu| mtu.0.0),
            queues: $raw.queues.as_ref(),
            persist: $raw.persist,
            up: $raw.up,
        }
    };
}
pub(super) use common;

/// The common keys as in the file, in the table that begins at byte `at`.
pub(super) struct Common<'r> {
    pub(super) at: usize,
    pub(super) name: &'r Spanned<Value<Name>>,
    pub(super) underlay: Option<&'r Spanned<Value<Name>>>,
    pub(super) rdma: Option<&'r Spanned<Value<RdmaName>>>,
    pub(super) netns: Option<&'r Value<Netns>>,
    pub(super) mtu: Option<u32>,
    pub(super) queues: Option<&'r Spanned<Value<Queues>>>,
    pub(super) persist: bool,
    pub(super) up: Option<bool>,
}

impl Common<'_> {
    /// The port of the interface.
    pub(super) fn port(&self) -> Result<PortName, Fault> {
        match (self.underlay, self.rdma) {
            (Some(underlay), None) => Ok(PortName::Underlay(underlay.get_ref().0.0.clone())),
            (None, Some(rdma)) => Ok(rdma.get_ref().0.0.clone()),
            (Some(_), Some(rdma)) => Err(Fault::at(
                rdma,
                "the interface has both `underlay` and `rdma`; leave one of them out",
            )),
            (None, None) => Err(Fault {
                what: "the interface has no port; add `underlay`, an Ethernet interface, or `rdma`, an \
                       RDMA device such as \"mlx5_0\""
                    .into(),
                at: Some(self.at),
            }),
        }
    }

    /// The settings of the interface.
    pub(super) fn read(&self) -> Result<InterfaceConfig, Fault> {
        let defaults = InterfaceConfig::new(&self.name.get_ref().0.0, self.port()?);
        Ok(InterfaceConfig {
            netns: self.netns.map(|netns| netns.0.0.clone()),
            mtu: self.mtu,
            queues: self.queues.map(|queues| queues.get_ref().0.0),
            persist: self.persist,
            up: self.up.unwrap_or(defaults.up),
            ..defaults
        })
    }

    /// Adds the place of a fault: that of its key, or `own` for keys that are not common. Without
    /// one, that of the name.
    pub(super) fn locate(&self, fault: KeyFault, own: Option<usize>) -> Fault {
        let at = match fault.key {
            "underlay" => self.underlay.map(|underlay| underlay.span().start),
            "queues" => self.queues.map(|queues| queues.span().start),
            "name" => None,
            _ => own,
        };
        Fault {
            what: fault.what,
            at: at.or(Some(self.name.span().start)),
        }
    }
}
