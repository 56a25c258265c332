//! An IP link's part in one data thread: a TAP queue, a replica of the protocol core, counters.

use std::sync::Arc;

use fabric::{Qpn, Room, Services, UdDestination, Worker};
use ipoib::{
    ClaimCheck, Config, DhcpMode, HardwareAddress, Inspect, Ipoib, Limits, Mode, Pins, Target, Time,
};
use netdev::mss::MssLimit;
use netdev::tap::TapQueue;

use super::super::command::Command;
use super::super::handle::Mailbox;
use super::super::lane::{LaneBase, LaneInit, Served};
use super::super::stats::IpStats;
use super::super::train::OpenTrain;

/// Variable settings of an IP link. The control thread sends the complete value after a change, and the lanes
/// apply the differences.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IpSettings {
    /// The link's address.
    pub local: HardwareAddress,
    /// Datagram or connected mode.
    pub mode: Mode,
    /// The MAC of the TAP.
    pub mac: [u8; 6],
    /// The link MTU: the largest IP packet in a datagram, in bytes.
    pub link_mtu: usize,
    /// The largest segment that TCP announces in either direction; `None`: any.
    pub mss: Option<MssLimit>,
    /// Whether the host does not verify the checksums of packets from connections.
    pub trust_checksums: bool,
    /// Whether received segments are coalesced (`ethtool -K gro`).
    pub coalesce: bool,
    /// Whether frames for guests and groups are also written back to the TAP.
    pub reflect: bool,
    /// How DHCPv4 is translated.
    pub dhcp: DhcpMode,
    /// What a hardware address in ARP and neighbour discovery must have in common with its sender.
    pub claims: ClaimCheck,
    /// Whether to refuse requests for connections in datagram mode.
    pub refuse_requests: bool,
    /// The action for suspicious claims.
    pub inspect: Inspect,
    /// Pinned IP addresses; `None`: none.
    pub pins: Option<Arc<Pins>>,
    /// Whether the TAP has stacked interfaces: a bridge, macvlans.
    pub stacked: bool,
    /// Whether the host routes multicast.
    pub routes_multicast: bool,
}

/// Constant properties of an IP link's lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpInit {
    /// The common part.
    pub base: LaneInit,
    /// The scope of the link's multicast groups.
    pub scope: u8,
    /// Accepted services of connection requests.
    pub services: Services,
    /// Maximum number of connections of this lane.
    pub connections: usize,
}

/// A lane without its TAP queue.
pub struct IpParts {
    init: LaneInit,
    settings: IpSettings,
    core: Ipoib,
}

impl IpParts {
    /// Creates a lane without its TAP queue.
    pub fn new(init: &IpInit, settings: IpSettings) -> IpParts {
        let mut core = Ipoib::new(Config {
            local: settings.local,
            mac: settings.mac,
            pkey: init.base.pkey,
            scope: init.scope,
            link_mtu: settings.link_mtu,
            mode: settings.mode,
            services: init.services,
            dhcp: settings.dhcp,
            claims: settings.claims,
            refuse_requests: settings.refuse_requests,
            limits: Limits {
                connections: init.connections,
                ..Limits::default()
            },
        });
        core.set_stacked(settings.stacked);
        core.route_multicast(settings.routes_multicast);
        core.set_inspection(settings.inspect, settings.pins.clone());
        IpParts {
            init: init.base,
            settings,
            core,
        }
    }

    /// Completes the lane with the queue that it writes to. `reads`: the lane also reads the queue.
    pub fn with_queue(self, tap: TapQueue, reads: bool) -> IpLane {
        let mut base = LaneBase::new(&self.init, tap, reads);
        base.set_coalesce(self.settings.coalesce);
        IpLane {
            base,
            settings: self.settings,
            core: self.core,
            vlan: None,
            stats: IpStats::default(),
        }
    }
}

/// The lane of an IP link.
pub struct IpLane {
    /// The common part.
    pub base: LaneBase,
    /// The settings last applied.
    pub settings: IpSettings,
    /// This thread's replica of the protocol core.
    pub core: Ipoib,
    /// The VLAN id of frames on the TAP, for the lane of a VLAN. Then another lane owns and reads the TAP.
    pub vlan: Option<u16>,
    /// Counters.
    pub stats: IpStats,
}

impl Served for IpLane {
    fn base(&self) -> &LaneBase {
        &self.base
    }

    fn qpn(&self) -> Option<Qpn> {
        Some(self.core.local().qpn())
    }

    /// The lanes of VLANs on the TAP have the same mode.
    #[inline]
    fn needs(&self) -> Room {
        match self.settings.mode {
            Mode::Datagram => Room::Datagrams,
            Mode::Connected => Room::Messages,
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.core.next_deadline()
    }

    fn release_ahs(&mut self, fabric: &mut dyn Worker, train: &mut OpenTrain) {
        let IpLane { base, core, .. } = self;
        base.release_ahs(fabric, train, || core.pop_released_ah());
    }

    fn release_all(&mut self, fabric: &mut dyn Worker, train: &mut OpenTrain) {
        self.base.priorities.release_all();
        self.core.release_all();
        self.release_ahs(fabric, train);
    }
}

impl IpLane {
    /// The destination of packets to a target; creates an address handle if needed.
    #[inline]
    pub fn destination(&mut self, fabric: &mut dyn Worker, to: Target) -> Option<UdDestination> {
        let IpLane { base, core, .. } = self;
        let known = core.ah(to);
        base.destination(fabric, core.address(to), known, |ah| core.set_ah(to, ah))
    }

    /// Applies the differences of new settings; true if the queue pair changed.
    pub fn apply(&mut self, now: Time, settings: IpSettings) -> bool {
        let IpLane { base, core, .. } = self;
        let was = std::mem::replace(&mut self.settings, settings);
        let is = &self.settings;
        if is.local != was.local {
            core.set_local(now, is.local);
        }
        if is.mode != was.mode {
            core.set_mode(is.mode);
        }
        core.set_mac(is.mac);
        core.set_link_mtu(is.link_mtu);
        core.set_dhcp(is.dhcp);
        core.set_claims(is.claims);
        core.set_refuse_requests(is.refuse_requests);
        core.set_inspection(is.inspect, is.pins.clone());
        core.set_stacked(is.stacked);
        core.route_multicast(is.routes_multicast);
        base.set_coalesce(is.coalesce);
        is.local.qpn() != was.local.qpn()
    }

    /// Whether the core has updates for other threads or events for the control thread.
    pub fn has_news(&self) -> bool {
        self.core.has_updates() || self.core.has_events()
    }

    /// Sends the core's updates to the other threads.
    pub fn publish(&mut self, replicas: &[Mailbox]) {
        let id = self.base.id;
        for update in self.core.drain_updates() {
            for replica in replicas {
                replica.send(Command::Update(id, update.clone()));
            }
        }
    }
}
