//! Partitions that 802.1Q tags select: VLAN n on the interface is the partition of P_Key 0x8000 | n. Each
//! has its own link and shares the interface's TAP.
//!
//! A tagged frame belongs to another lane, with its own core, queue pair and groups. The core of the TAP's
//! lane returns the frame unread. The data thread removes the tag in place; the TAP queue of the VLAN's
//! lane inserts it again, also into super-frames. Any host can be behind a tag, so the core of a VLAN
//! always works as if another interface were stacked on it.

use std::collections::BTreeSet;

use control::config::QpnChoice;
use fabric::{FabricError, PKey};

use super::{Ip, IpLink, hardware_address};
use crate::datapath::LinkId;
use crate::interface::groups::Bounds;
use crate::interface::{FabricLink, Interface};
use crate::port::PortRuntime;

/// State of the VLANs of an interface whose tags select partitions.
#[derive(Default)]
pub struct Trunk {
    /// VLAN ids that were seen and cannot be served yet.
    pub waiting: BTreeSet<u16>,
    /// The port's P_Key table at the last check of the waiting VLANs.
    pub table: Vec<PKey>,
    /// The warning about too many VLANs was logged.
    pub logged_full: bool,
}

/// The P_Key of a VLAN.
pub fn pkey_of(vid: u16) -> PKey {
    PKey::new(0x8000 | vid)
}

impl Ip {
    /// Creates the link of a VLAN, and gives each data thread a lane of it.
    ///
    /// # Errors
    /// Errors of the fabric. Nothing stays behind.
    pub fn add_vlan(
        &mut self,
        interface: &Interface,
        id: LinkId,
        vid: u16,
        port: &mut PortRuntime,
    ) -> Result<(), FabricError> {
        let (spec, gid, pkey) = (&self.spec, port.port.attributes().gid, pkey_of(vid));
        // The number is the same after a restart, unless configured as random.
        let qpn = match spec.qpn {
            QpnChoice::Random => None,
            _ => {
                let identity = format!("{}:{vid}", spec.identity());
                Some(ipoib::local_qpn(gid, pkey, &identity))
            }
        };
        let bounds = Bounds::of(&port.port.capabilities());
        let keys = (pkey, spec.qkey);
        let fabric = FabricLink::open(id, keys, qpn, bounds, &mut *port.port)?;
        let qpn = fabric.endpoint.qpn;
        let address = hardware_address(self.mode, self.offers, qpn, gid);
        let mut link = IpLink::new(fabric, Some(vid), address);
        self.hand_out_vlan(interface, vid, &mut link, &port.mailboxes());
        log::info!(
            "{}: VLAN {vid} is served, qpn={qpn} pkey={pkey}",
            interface.name
        );
        self.vlans.insert(vid, link);
        Ok(())
    }
}
