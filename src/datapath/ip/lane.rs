//! An IP link's part in one data thread: a TAP queue, a replica of the protocol core, counters.

use fabric::{PKey, Qpn, Services, UdDestination, Worker};
use ipoib::{Config, DhcpMode, HardwareAddress, Ipoib, Limits, Mode, Target, Time};
use netdev::tap::TapQueue;

use super::super::command::Command;
use super::super::handle::Mailbox;
use super::super::lane::{LaneBase, LaneInit, Served};
use super::super::stats::IpStats;
use super::super::train::OpenTrain;

/// What may change of an IP link. It is sent whole when something of it is another way, and the lanes apply
/// the difference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IpSettings {
    /// The link's address.
    pub local: HardwareAddress,
    /// How unicast IP packets travel.
    pub mode: Mode,
    /// The MAC of the TAP.
    pub mac: [u8; 6],
    /// The largest IP packet that a datagram carries, in bytes.
    pub link_mtu: usize,
    /// Whether received segments are merged, as `ethtool -K gro` says.
    pub coalesce: bool,
    /// Whether frames for guests and groups go back to the TAP, too.
    pub reflect: bool,
    /// What is done to DHCPv4.
    pub dhcp: DhcpMode,
    /// Whether something is stacked on the TAP: a bridge, macvlans.
    pub stacked: bool,
    /// Whether the host routes multicast.
    pub routes_multicast: bool,
}

/// What stays as it is while the lane of an IP link is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpInit {
    /// What all lanes have.
    pub base: LaneInit,
    /// The partition.
    pub pkey: PKey,
    /// The scope of its multicast groups.
    pub scope: u8,
    /// The services that requests for connections may name.
    pub services: Services,
    /// How many connections this lane may have.
    pub connections: usize,
}

/// A lane that has no TAP queue yet.
pub struct IpParts {
    init: LaneInit,
    settings: IpSettings,
    core: Ipoib,
}

impl IpParts {
    /// Those of a lane with these settings.
    pub fn new(init: &IpInit, settings: IpSettings) -> IpParts {
        let mut core = Ipoib::new(Config {
            local: settings.local,
            mac: settings.mac,
            pkey: init.pkey,
            scope: init.scope,
            link_mtu: settings.link_mtu,
            mode: settings.mode,
            services: init.services,
            dhcp: settings.dhcp,
            limits: Limits {
                connections: init.connections,
                ..Limits::default()
            },
        });
        core.set_stacked(settings.stacked);
        core.route_multicast(settings.routes_multicast);
        IpParts {
            init: init.base,
            settings,
            core,
        }
    }

    /// The lane that writes to this queue, and reads it or does not.
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

/// What a data thread serves of one IP link.
pub struct IpLane {
    /// What all lanes have.
    pub base: LaneBase,
    /// As last applied.
    pub settings: IpSettings,
    /// This thread's replica of the protocol core.
    pub core: Ipoib,
    /// The VLAN id that frames have on the TAP, which is another lane's then, and not read here.
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
    /// Where a target is on the fabric, with an address handle made if there is none yet.
    #[inline]
    pub fn destination(&mut self, fabric: &mut dyn Worker, to: Target) -> Option<UdDestination> {
        let IpLane { base, core, .. } = self;
        let known = core.ah(to);
        base.destination(fabric, core.address(to), known, |ah| core.set_ah(to, ah))
    }

    /// Applies what is another way in new settings; true if the link's queue pair is.
    pub fn apply(&mut self, now: Time, settings: IpSettings) -> bool {
        let IpLane { base, core, .. } = self;
        let was = std::mem::replace(&mut self.settings, settings);
        let is = &self.settings;
        if is.local != was.local {
            core.set_local(is.local);
        }
        if is.mode != was.mode {
            core.set_mode(now, is.mode);
        }
        core.set_mac(is.mac);
        core.set_link_mtu(is.link_mtu);
        core.set_dhcp(is.dhcp);
        core.set_stacked(is.stacked);
        core.route_multicast(is.routes_multicast);
        base.set_coalesce(is.coalesce);
        is.local.qpn() != was.local.qpn()
    }

    /// Whether somebody is to hear from the core.
    pub fn has_news(&self) -> bool {
        self.core.has_updates() || self.core.has_events()
    }

    /// Sends what the core learned to the other threads.
    pub fn publish(&mut self, replicas: &[Mailbox]) {
        let id = self.base.id;
        for update in self.core.drain_updates() {
            for replica in replicas {
                replica.send(Command::Update(id, update.clone()));
            }
        }
    }
}
