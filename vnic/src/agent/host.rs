//! What an agent asks of the node that it is on.

use std::sync::Arc;

use proto::{Mac, Qpn};

use crate::attribute::VeswPortInfo;
use crate::counters::Counters;
use crate::directory::Directory;
use crate::mac_table::MacTable;

/// A virtual port that the host has, or has made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPort {
    /// Its interface's name.
    pub name: String,
    /// Its queue pair; 0 while it has none.
    pub qpn: Qpn,
    /// Its interface's address.
    pub mac: Mac,
}

/// Who has the interfaces. All calls are about a virtual port by its index.
pub trait Host {
    /// Makes a virtual port that nobody has named.
    ///
    /// # Errors
    /// Why it cannot, for people.
    fn create(&mut self, index: u8) -> Result<NewPort, String>;

    /// Whether something on this node speaks against what a manager wants, that the agent does not know
    /// of: why, for people.
    fn refuse(&self, index: u8, info: &VeswPortInfo) -> Option<String> {
        let _ = (index, info);
        None
    }

    /// The manager gives the interface another address than before. An address that an administrator
    /// has given it stays until this is called.
    fn set_mac(&mut self, index: u8, mac: Mac);

    /// The manager has changed something in this. [`mtu_limit`] says what MTUs the interface may have; a
    /// larger one shrinks to that, a smaller one stays.
    ///
    /// # Errors
    /// Why it cannot, for people. The port is in no switch then, as after [`Host::delete`].
    fn configure(&mut self, index: u8, info: &VeswPortInfo) -> Result<(), String>;

    /// The MAC table is another one.
    fn set_table(&mut self, index: u8, table: Arc<MacTable>);

    /// Where the members of the switch are has been told anew, and completely.
    fn set_directory(&mut self, index: u8, directory: Arc<Directory>);

    /// The port is in no switch any longer: it has neither table nor directory, and its interface stays.
    fn delete(&mut self, index: u8);

    /// The port's counters.
    fn counters(&mut self, index: u8) -> Counters;
}

/// The largest MTU that an interface may have (kernel opa_vnic_netdev.c, `opa_vnic_process_vema_config`).
#[must_use]
pub const fn mtu_limit(info: &VeswPortInfo) -> u16 {
    if info.eth_mtu < MTU_MIN {
        MTU_MIN
    } else {
        info.eth_mtu
    }
}

/// The least MTU of an Ethernet interface (ETH_MIN_MTU).
pub const MTU_MIN: u16 = 68;
