//! What the control thread tells a data thread about VNICs.

use std::sync::Arc;

use vnic::Lid;
use vnic::attribute::VeswPortInfo;
use vnic::directory::{Directory, NodeAddress};
use vnic::port::Update;
use vnic::table::MacTable;

use super::super::lane::LinkId;

/// About one VNIC.
pub enum EthernetCommand {
    /// Another thread's replica learned something.
    Update(Update),
    /// What the manager, or the configuration, says of it. It may be on another switch then, with another
    /// Q_Key.
    Configure(Box<VeswPortInfo>),
    /// The manager's MAC table.
    SetTable(Arc<MacTable>),
    /// Where the members of its switch are.
    SetDirectory(Arc<Directory>),
    /// Whether its interface is up.
    SetUp(bool),
    /// The interface's own address.
    SetMac(vnic::Mac),
    /// The interface's MTU, in bytes.
    SetMtu(u16),
    /// Where it is on the fabric.
    SetLocal(NodeAddress),
    /// Whether addresses are learned from what is received.
    SetLearning(bool),
    /// After how many milliseconds what was learned and not heard of again is forgotten; 0: never.
    SetAgeing(u64),
    /// The VNICs of this daemon on the same switch and port, which are reached without the fabric.
    SetSiblings(Arc<[EthernetSibling]>),
    /// The largest UD payload of the fabric, in bytes.
    SetPayloadMax(usize),
    /// Receive coalescing was switched, for TCP and for UDP.
    SetCoalesce(bool),
}

/// A VNIC of the same switch, in this daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EthernetSibling {
    /// Its name here.
    pub device: LinkId,
    /// Its LID.
    pub lid: Lid,
}
