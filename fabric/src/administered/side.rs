//! What stands for a port on its subnet.

use proto::{IbMtu, Lid};

use crate::administration::Carrier;
use crate::port::{Port, PortAttributes, PortEvent};
use crate::soft::{Qp1Carrier, SoftPort};
use crate::subnet::LocalPort;

/// Changes of the subnet since the last look.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Events of the port.
    pub events: Vec<PortEvent>,
    /// The subnet administrator has no membership of the port any more.
    pub lost: bool,
}

impl Changes {
    /// Adds later changes.
    pub fn extend(&mut self, later: Changes) {
        self.events.extend(later.events);
        self.lost |= later.lost;
    }
}

/// A carrier, and the attributes that the subnet gives the port. A port that reaches its subnet
/// administrator by its own QP1 has its own attributes only.
pub(super) trait Side: Carrier {
    /// Follows changes of the subnet.
    fn look(&mut self, _: &mut SoftPort) -> Changes {
        Changes::default()
    }

    /// Why the port, with these attributes, is not usable on the subnet.
    fn trouble(&self, _: &PortAttributes) -> Option<String> {
        None
    }

    /// The LID of the port.
    fn lid(&self) -> Option<Lid> {
        None
    }

    /// Whether a subnet manager sets the P_Key table.
    fn sets_pkeys(&self) -> bool {
        false
    }
}

impl Side for Qp1Carrier {}

/// The port for its subnet administrator.
pub(super) fn local(port: &SoftPort) -> LocalPort {
    let PortAttributes {
        gid,
        ud_payload_max,
        ..
    } = port.attributes();
    LocalPort {
        gid,
        mtu: IbMtu::fitting(ud_payload_max).unwrap_or(IbMtu::B256),
        kernel_pkeys: Vec::new(),
    }
}
