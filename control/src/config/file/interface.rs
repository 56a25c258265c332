//! The keys that `[[ipoib]]` and `[[vnic]]` both have.

use toml::Spanned;

use super::Fault;
use super::scalar::{Name, Netns, Queues, RdmaName, Value};
use crate::config::{InterfaceConfig, KeyFault, PortName};

/// They as they are written, in the table that begins at byte `at`.
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
    /// What the interface is on.
    pub(super) fn port(&self) -> Result<PortName, Fault> {
        match (self.underlay, self.rdma) {
            (Some(underlay), None) => Ok(PortName::Underlay(underlay.get_ref().0.0.clone())),
            (None, Some(rdma)) => Ok(rdma.get_ref().0.0.clone()),
            (Some(_), Some(rdma)) => Err(Fault::at(
                rdma,
                "an interface is on an underlay or on an RDMA device, not on both; leave one out",
            )),
            (None, None) => Err(Fault {
                what:
                    "the interface has neither `underlay`, an Ethernet interface, nor `rdma`, an \
                       RDMA device such as \"mlx5_0\"; add one of them"
                        .into(),
                at: Some(self.at),
            }),
        }
    }

    /// The interface.
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

    /// A fault and its place; what is not written is where the name is, or at `own` for keys that are
    /// not common.
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
