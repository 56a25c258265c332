//! What the control thread sends to a data thread, and what a data thread reports.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use fabric::{EndpointId, Gid};
use ipoib::{EchoRequest, Event, Update};
use vnic::Lid;
use vnic::directory::Directory;
use vnic::mac_table::MacTable;

use super::ethernet::{Datagram, EthernetLane, EthernetSettings, Place};
use super::ip::{IpLane, IpParts, IpSettings};
use super::lane::LinkId;
use super::stats::{EthernetSnapshot, IpSnapshot, WorkerSnapshot};

/// From the control thread, or from another data thread of the port ([`Command::Update`]).
pub enum Command {
    /// Serve an IP link from now on.
    AddLane(Box<IpLane>),
    /// Serve a VNIC's link from now on.
    AddEthernet(Box<EthernetLane>),
    /// Report what arrives at an endpoint of management, which has this name and this Q_Key, from now on.
    /// Every thread gets this, since datagrams arrive at any.
    AddManagement(LinkId, fabric::EndpointId, fabric::QKey),
    /// Stop serving an IP link, a VNIC, or an endpoint of management, and close its queue; the sender, which
    /// gets what was counted of a VNIC, is dropped when that is done.
    RemoveLane(LinkId, Sender<EthernetSnapshot>),
    /// What an IP link is like from now on.
    Ip(LinkId, IpSettings),
    /// What a VNIC is like from now on. It may be on another switch then.
    Ethernet(LinkId, Box<EthernetSettings>),
    /// Another thread's replica learned something.
    Update(LinkId, Update),
    /// Likewise of a VNIC.
    EthernetUpdate(LinkId, vnic::port::Update),
    /// The manager's MAC table of a VNIC.
    SetTable(LinkId, Arc<MacTable>),
    /// Where the members of a VNIC's switch are.
    SetDirectory(LinkId, Arc<Directory>),
    /// The VNICs of this daemon on the same switch and port, which are reached without the fabric.
    SetEthernetSiblings(LinkId, Arc<[EthernetSibling]>),
    /// The links of this daemon that are reached without the wire: of the same partition on the same port,
    /// limited members only by full ones.
    SetSiblings(LinkId, Arc<[Sibling]>),
    /// Forget neighbours, paths and connections: the interface went down, or its partition changed
    /// (kernel ipoib_ib.c, `__ipoib_ib_dev_flush`, normal and heavy).
    Flush(LinkId),
    /// Whether 802.1Q tags on the TAP select a partition: then the lane of a tag's partition, whose
    /// [`IpLane::vlan`] it is, sends the frame, and writes what comes there to this TAP with the tag.
    /// A tag that was reported and still has none is reported anew.
    SetVlans(LinkId, bool),
    /// Serve a partition that a tag selects, from now on. [`Command::RemoveLane`] ends it.
    AddVlan(Box<VlanLane>),
    /// Send a datagram from an endpoint of management, to a queue pair of a port, or to a group
    /// ([`fabric::Qpn::MULTICAST`]). It is lost if the fabric has no room.
    SendManagement(LinkId, Gid, fabric::Qpn, Box<[u8]>),
    /// Groups that the endpoint is attached to, for the tables that people see.
    SetJoined(LinkId, Vec<Gid>),
    /// Announce an address of the host on the link.
    Announce(LinkId, IpAddr),
    /// Announce an address no more, which the host no longer has.
    Withdraw(LinkId, IpAddr),
    /// The host itself has an address on the TAP; sent when something is stacked on it.
    HostHas(LinkId, IpAddr),
    /// How long to look for the next packet before sleeping.
    SetBusyPoll(Duration),
    /// Completion moderation of this thread's part of the port.
    SetModeration(control::api::Moderation),
    /// Whether somebody wants to hear about neighbours, of any link.
    Watch(bool),
    /// Ask a peer for an echo, stamped when it is sent; [`ipoib::Event::Echo`] is the answer.
    Echo(LinkId, EchoRequest),
    /// Write an Ethernet frame to the TAP.
    ToTap(LinkId, Box<[u8]>),
    /// Copy the counters of all links, and the neighbour and group tables of some.
    Snapshot {
        /// Of which.
        tables: Tables,
        /// Where to.
        reply: Sender<Snapshot>,
    },
    /// Close everything and end the thread.
    Stop,
}

/// An [`IpLane`] for a partition that a tag on another link's TAP selects.
pub struct VlanLane {
    /// The link whose TAP it is.
    pub trunk: LinkId,
    /// The tag's VLAN id.
    pub vid: u16,
    /// The lane, which shares that TAP.
    pub parts: IpParts,
}

/// An interface that is reached without the fabric: of the same port and partition, in this daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sibling {
    /// Its link.
    pub device: LinkId,
    /// Its UD queue pair, which with the port's GID is its address.
    pub qpn: fabric::Qpn,
    /// The largest IP packet that it takes, in bytes.
    pub mtu: u32,
}

/// A VNIC of the same switch, in this daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EthernetSibling {
    /// Its link.
    pub device: LinkId,
    /// Its LID.
    pub lid: Lid,
}

/// Whose tables are copied. One link may have a hundred thousand entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tables {
    /// Nobody's.
    None,
    /// Those of one link.
    Of(LinkId),
    /// Everybody's.
    All,
}

impl Tables {
    /// Whether those of a link are.
    pub fn has(self, id: LinkId) -> bool {
        match self {
            Tables::None => false,
            Tables::Of(one) => one == id,
            Tables::All => true,
        }
    }
}

/// One data thread's answer to [`Command::Snapshot`].
pub struct Snapshot {
    /// The thread's own counters.
    pub worker: WorkerSnapshot,
    /// One for each IP link.
    pub ip: Vec<IpSnapshot>,
    /// One for each VNIC.
    pub ethernet: Vec<EthernetSnapshot>,
}

/// From a data thread to the control thread.
#[derive(Debug)]
pub enum Report {
    /// The TAP went away under us.
    TapGone(LinkId),
    /// An IP link's core has news. For [`Event::Echo`], with the round trip in nanoseconds.
    Event(LinkId, Event, u64),
    /// A VNIC's core has news, of the switch that it had this endpoint for.
    Ethernet(LinkId, EndpointId, vnic::port::Event),
    /// A datagram arrived at an endpoint of management. It waits until the report is dropped.
    Management(Box<Datagram>, Place),
    /// A frame from the TAP has a tag, by VLAN id, that no lane serves. Reported once of each by
    /// each thread, until [`Command::SetVlans`].
    Vlan(LinkId, u16),
    /// An echo request could not be sent: id and sequence.
    EchoRefused(LinkId, u16, u32),
    /// The data thread cannot go on; the text says why.
    Failed(String),
}
