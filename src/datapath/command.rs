//! Commands of the control thread to a data thread, and reports of a data thread.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use fabric::{EndpointId, Gid};
use ipoib::{EchoRequest, Event, Time, Update};
use vnic::Lid;
use vnic::directory::Directory;
use vnic::mac_table::MacTable;

use super::allowed::AllowList;
use super::ethernet::{Datagram, EthernetLane, EthernetSettings, Place};
use super::ip::{IpLane, IpParts, IpSettings};
use super::lane::LinkId;
use super::stats::{EthernetSnapshot, IpSnapshot, WorkerSnapshot};

/// A command of the control thread, or of another data thread of the port ([`Command::Update`]).
pub enum Command {
    /// Add the lane of an IP link.
    AddLane(Box<IpLane>),
    /// Add the lane of a VNIC.
    AddEthernet(Box<EthernetLane>),
    /// Add a management endpoint in a partition: report its datagrams under this name. Sent to all threads, because
    /// datagrams arrive at any thread.
    AddManagement(LinkId, fabric::EndpointId, fabric::PKey),
    /// Remove an IP link, a VNIC or a management endpoint, and close its queue. The thread sends the last
    /// counters of a VNIC, then drops the sender.
    RemoveLane(LinkId, Sender<EthernetSnapshot>),
    /// Change the settings of an IP link.
    Ip(LinkId, IpSettings),
    /// Change the settings of a VNIC on its switch. On another switch, the VNIC gets new lanes.
    Ethernet(LinkId, Box<EthernetSettings>),
    /// News from a replica in another thread.
    Update(LinkId, Update),
    /// News from a replica of a VNIC in another thread.
    EthernetUpdate(LinkId, vnic::port::Update),
    /// Set the MAC table that the manager assigned to a VNIC.
    SetTable(LinkId, Arc<MacTable>),
    /// Set the addresses of the members of a VNIC's switch.
    SetDirectory(LinkId, Arc<Directory>),
    /// Set the siblings of a VNIC: same daemon, port and switch.
    SetEthernetSiblings(LinkId, Arc<[EthernetSibling]>),
    /// Set the siblings of an IP link: same daemon, port and partition. Limited members have only full
    /// members as siblings.
    SetSiblings(LinkId, Arc<[Sibling]>),
    /// Forget neighbours, paths and connections: the interface is down, or its partition changed
    /// (kernel ipoib_ib.c, `__ipoib_ib_dev_flush`, normal and heavy).
    Flush(LinkId),
    /// Set whether 802.1Q tags on the TAP select partitions. The lane with the tag's VLAN id in
    /// [`IpLane::vlan`] sends tagged frames, and writes received packets to this TAP with the tag. Tags
    /// without a lane are reported again.
    SetVlans(LinkId, bool),
    /// Add the lane of a partition that a tag selects. [`Command::RemoveLane`] removes it.
    AddVlan(Box<VlanLane>),
    /// Send a datagram from a management endpoint to a queue pair of a port, or to a group
    /// ([`fabric::Qpn::MULTICAST`]). The datagram is lost if the fabric has no room.
    SendManagement(LinkId, Gid, fabric::Qpn, Box<[u8]>),
    /// Set the groups that the endpoint is attached to, for status tables.
    SetJoined(LinkId, Vec<Gid>),
    /// Announce an address of the host on the link; true: the host is an IPv6 router there.
    Announce(LinkId, IpAddr, bool),
    /// Announce the addresses of guests on the link that were heard since that time; the core announces the others
    /// when it hears them.
    AnnounceGuests(LinkId, Time),
    /// Cancel the announcements of guests; the core announces each guest when it hears the guest.
    PostponeAnnouncements(LinkId),
    /// Stop announcing an address: the host no longer has it.
    Withdraw(LinkId, IpAddr),
    /// The host itself has this address on the TAP. Sent only if the TAP has stacked interfaces.
    HostHas(LinkId, IpAddr),
    /// Set the longest time to poll for the next packet before sleeping.
    SetBusyPoll(Duration),
    /// Set who may send datagrams and ask for connections; `None`: all. Neighbours, paths and connections of all
    /// IP links are forgotten.
    SetAllowed(Option<Arc<AllowList>>),
    /// Set completion moderation.
    SetModeration(control::api::Moderation),
    /// Set whether to report events of neighbours, for all links.
    Watch(bool),
    /// Send an echo request with a time stamp. The answer is [`ipoib::Event::Echo`].
    Echo(LinkId, EchoRequest),
    /// Write an Ethernet frame to the TAP.
    ToTap(LinkId, Box<[u8]>),
    /// Copy the counters of all links, and the neighbour and group tables of some.
    Snapshot {
        /// The links whose tables to copy.
        tables: Tables,
        /// Receives the copy.
        reply: Sender<Snapshot>,
    },
    /// Close everything and end the thread.
    Stop,
}

/// An [`IpLane`] for a partition that a tag on another link's TAP selects.
pub struct VlanLane {
    /// The link of the TAP.
    pub trunk: LinkId,
    /// The tag's VLAN id.
    pub vid: u16,
    /// The lane; it shares the TAP.
    pub parts: IpParts,
}

/// An IP link of the same daemon, port and partition. Unicast to it does not use the fabric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sibling {
    /// The link.
    pub link: LinkId,
    /// Its UD queue pair. With the port's GID it forms the address.
    pub qpn: fabric::Qpn,
    /// Its MTU: the largest IP packet, in bytes.
    pub mtu: u32,
}

/// A VNIC of the same daemon, port and switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EthernetSibling {
    /// The link.
    pub link: LinkId,
    /// Its LID.
    pub lid: Lid,
}

/// The links whose tables are copied. One link may have 100,000 entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tables {
    /// No link.
    None,
    /// One link.
    Of(LinkId),
    /// All links.
    All,
}

impl Tables {
    /// Whether the tables of a link are copied.
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

/// A report of a data thread to the control thread.
#[derive(Debug)]
pub enum Report {
    /// The TAP was deleted.
    TapGone(LinkId),
    /// An event of an IP link's core, and for [`Event::Echo`] the round trip in nanoseconds.
    Event(LinkId, Event, u64),
    /// An event of a VNIC's core, on the switch to which the endpoint belongs.
    Ethernet(LinkId, EndpointId, vnic::port::Event),
    /// A datagram arrived at a management endpoint. Dropping the report frees its place in the queue.
    Management(Box<Datagram>, Place),
    /// A frame from the TAP has a VLAN id that no lane serves. Each thread reports a VLAN id once, until
    /// [`Command::SetVlans`].
    Vlan(LinkId, u16),
    /// An echo request could not be sent: id and sequence.
    EchoRefused(LinkId, u16, u32),
    /// The data thread stopped with this error.
    Failed(String),
}
