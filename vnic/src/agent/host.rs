//! Interface between an agent and its node.

use std::sync::Arc;

use proto::{Mac, Qpn};

use crate::attribute::VeswPortInfo;
use crate::counters::Counters;
use crate::directory::Directory;
use crate::mac_table::MacTable;

/// A virtual port of the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPort {
    /// Interface name.
    pub name: String,
    /// Queue pair number; 0: none.
    pub qpn: Qpn,
    /// Interface address.
    pub mac: Mac,
}

/// Owner of the interfaces. `index` is the index of a virtual port.
pub trait Host {
    /// Creates a virtual port that is not configured.
    ///
    /// # Errors
    /// Reason, for the log.
    fn create(&mut self, index: u8) -> Result<NewPort, String>;

    /// Returns a reason for the log if this node cannot accept `info`. The agent has made its own checks
    /// before.
    fn refuse(&self, index: u8, info: &VeswPortInfo) -> Option<String> {
        let _ = (index, info);
        None
    }

    /// Sets the interface address to the one that the manager assigned. The agent calls this only when the
    /// manager changes the address, so an administrator's address stays until then.
    fn set_mac(&mut self, index: u8, mac: Mac);

    /// Applies changed settings of the manager. [`mtu_limit`] is the largest MTU of the interface: a larger
    /// MTU is reduced, a smaller one stays.
    ///
    /// # Errors
    /// Reason, for the log. The port is then on no switch, as after [`Host::delete`].
    fn configure(&mut self, index: u8, info: &VeswPortInfo) -> Result<(), String>;

    /// Replaces the MAC table.
    fn set_table(&mut self, index: u8, table: Arc<MacTable>);

    /// Replaces the directory of the switch's members.
    fn set_directory(&mut self, index: u8, directory: Arc<Directory>);

    /// Removes the port from its switch, with its table and directory. The interface stays.
    fn delete(&mut self, index: u8);

    /// Counters of the port.
    fn counters(&mut self, index: u8) -> Counters;
}

/// Largest MTU of the interface, in bytes (kernel opa_vnic_netdev.c, `opa_vnic_process_vema_config`).
#[must_use]
pub const fn mtu_limit(info: &VeswPortInfo) -> u16 {
    if info.eth_mtu < MTU_MIN {
        MTU_MIN
    } else {
        info.eth_mtu
    }
}

/// Minimum MTU of an Ethernet interface, in bytes (ETH_MIN_MTU).
pub const MTU_MIN: u16 = 68;
