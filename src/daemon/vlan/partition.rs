//! One partition that a tag selects, as the control thread knows it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use control::config::{QpnChoice, SCOPE};
use fabric::port::UdEndpoint;
use fabric::{FabricError, Gid, PKey, Port, QKey, Qpn, UdInit};
use ipoib::{Event, Time};

use super::pkey_of;
use crate::daemon::siblings::Link;
use crate::datapath::{
    Command, DeviceId, IpInit, IpParts, IpSettings, LaneInit, Mailbox, Sibling, VlanLane, now,
};
use crate::interface::groups::{self, Bounds, GroupSet};
use crate::interface::{Interface, drawn};
use crate::ip::{self, Guests, Ip};
use crate::port::PortId;

/// Addresses that are announced: more hosts than that answer for themselves when they are asked.
const ADDRESSES_MAX: usize = 1024;

/// What became another by following.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Changed {
    /// Its groups may be others.
    pub(super) groups: bool,
    /// Peers see it under another address.
    pub(super) address: bool,
}

/// See the module.
pub(in super::super) struct Partition {
    id: DeviceId,
    /// The interface.
    pub(super) trunk: DeviceId,
    /// The port.
    pub(in super::super) at: PortId,
    /// The VLAN id.
    pub(super) vid: u16,
    /// Bit 15 is set.
    pub(super) pkey: PKey,
    qkey: QKey,
    scope: u8,
    /// With the table entry that it uses now.
    pub(in super::super) endpoint: UdEndpoint,
    /// As the data threads have them.
    settings: IpSettings,
    /// The largest IP packet that the host takes, in bytes.
    mtu: u32,
    /// Whether the interface is up.
    up: bool,
    /// Devices of this daemon that it reaches without the wire, as last told.
    pub(in super::super) siblings: Arc<[Sibling]>,
    /// The groups of its endpoint, the broadcast group included.
    pub(in super::super) groups: GroupSet,
    /// Groups that had no room were told of.
    told_full: bool,
    /// When it was made.
    pub(super) created: Time,
    /// Addresses of hosts that have the tag and MACs of their own, to be announced when the address
    /// that peers see changes.
    pub(super) addresses: BTreeSet<IpAddr>,
    /// What has the tag: VLAN links, a bridge's ports.
    pub(super) guests: Guests,
}

/// Those of the interface whose TAP a partition has, but for the address. The tag may be of any number of
/// hosts.
fn lane_settings(interface: &Interface, trunk: &Ip, qpn: Qpn, gid: Gid) -> IpSettings {
    IpSettings {
        local: ip::hardware_address(trunk.mode, trunk.offers, qpn, gid),
        stacked: true,
        routes_multicast: false,
        ..trunk.lane_settings(interface)
    }
}

impl Partition {
    /// Makes the endpoint and hands a lane to each data thread.
    ///
    /// # Errors
    /// The fabric's. Nothing is left behind.
    pub(super) fn make(
        id: DeviceId,
        (interface, trunk): (&Interface, &Ip),
        vid: u16,
        port: &mut dyn Port,
        threads: &[Mailbox],
    ) -> Result<Partition, FabricError> {
        let (spec, gid, pkey) = (&trunk.spec, port.attributes().gid, pkey_of(vid));
        // Peers know it again after a restart, unless that is not wanted.
        let qpn = match spec.qpn {
            QpnChoice::Random => None,
            _ => Some(ipoib::local_qpn(
                gid,
                pkey,
                &format!("{}:{vid}", spec.identity()),
            )),
        };
        let endpoint = port.create_ud(UdInit {
            pkey,
            qkey: spec.qkey,
            qpn,
        })?;
        let settings = lane_settings(interface, trunk, endpoint.qpn, gid);
        let mut guests = Guests::new(ipoib::peer_mac(&settings.local));
        // The tag may be of any number of hosts.
        guests.set_stacked(now(), true);
        let partition = Partition {
            id,
            trunk: interface.id,
            at: interface.port,
            vid,
            pkey,
            qkey: spec.qkey,
            scope: SCOPE,
            endpoint,
            settings,
            mtu: interface.mtu,
            up: interface.up,
            siblings: Arc::default(),
            groups: GroupSet::new(Bounds::of(&port.capabilities()), drawn()),
            told_full: false,
            created: now(),
            addresses: BTreeSet::new(),
            guests,
        };
        partition.hand_out((interface, trunk), threads);
        Ok(partition)
    }

    /// Its IP link.
    pub(in super::super) fn link(&self) -> Link {
        (self.at, self.pkey.get(), self.qkey.get())
    }

    /// The table entry that it uses, while it can be used.
    pub(in super::super) fn usable_entry(&self) -> Option<PKey> {
        self.endpoint.pkey.filter(|_| self.up)
    }

    /// Its broadcast group.
    pub(super) fn broadcast(&self) -> Gid {
        ipoib::broadcast_mgid(self.pkey, self.scope)
    }

    /// What it is to others on its link.
    pub(in super::super) fn as_sibling(&self, device: DeviceId) -> Sibling {
        Sibling {
            device,
            qpn: self.endpoint.qpn,
            mtu: self.mtu,
        }
    }

    fn hand_out(&self, (interface, trunk): (&Interface, &Ip), threads: &[Mailbox]) {
        let of_trunk = trunk.lane_init(interface, threads.len());
        let init = IpInit {
            base: LaneInit {
                id: self.id,
                endpoint: self.endpoint.id,
                ..of_trunk.base
            },
            pkey: self.pkey,
            ..of_trunk
        };
        for thread in threads {
            thread.send(Command::AddVlan(Box::new(VlanLane {
                trunk: self.trunk,
                vid: self.vid,
                parts: IpParts::new(&init, self.settings.clone()),
            })));
        }
    }

    /// Tells the data threads what is another way now. `endpoint` is the entry of the P_Key table and the
    /// queue pair number that it has now.
    pub(super) fn follow(
        &mut self,
        (interface, trunk): (&Interface, &Ip),
        gid: Gid,
        endpoint: (Option<PKey>, Option<Qpn>),
        tell: impl Fn(&dyn Fn() -> Command),
    ) -> Changed {
        let (entry, qpn) = endpoint;
        self.endpoint.qpn = qpn.unwrap_or(self.endpoint.qpn);
        let (id, wanted) = (
            self.id,
            lane_settings(interface, trunk, self.endpoint.qpn, gid),
        );
        let moved = self.settings.local != wanted.local;
        if self.settings != wanted {
            tell(&|| Command::Ip(id, wanted.clone()));
            self.settings = wanted;
        }
        self.mtu = interface.mtu;
        let was_up = std::mem::replace(&mut self.up, interface.up);
        // Another partition's neighbours are no longer there, and who is down has none.
        let restarted = std::mem::replace(&mut self.endpoint.pkey, entry) != entry;
        if restarted || (was_up && !self.up) {
            tell(&|| Command::Flush(id));
        }
        Changed {
            groups: restarted || was_up != self.up,
            address: moved,
        }
    }

    /// The core has news. True if its groups may be others.
    pub(super) fn event(&mut self, event: &Event) -> bool {
        let now = now();
        match *event {
            // There is no list of the host's own memberships: a VLAN's are told by reports only.
            Event::GroupJoined { group, .. } => self.guests.joined(now, group),
            Event::GroupLeft { group, .. } => {
                self.guests.left(now, group);
                false
            }
            Event::GroupSeen { group } => self.guests.seen(now, group),
            Event::GuestLearned { ip, weak, .. } => {
                if !weak && self.addresses.len() < ADDRESSES_MAX {
                    self.addresses.insert(ip);
                }
                self.guests.guest_learned(now, ip, weak)
            }
            Event::GuestForgotten { ip } => {
                self.addresses.remove(&ip);
                self.guests.guest_forgotten(ip)
            }
            _ => false,
        }
    }

    /// Attaches and detaches; true if anything changed. `name` is for the log.
    pub(super) fn sync_groups(&mut self, port: &mut dyn Port, name: &str) -> bool {
        let most = ip::groups_with_behind_max(port.capabilities().groups_max);
        let none = BTreeSet::new();
        let (required, (wanted, too_many)) = match self.up {
            true => (
                Some(self.broadcast()),
                ip::groups_of(self.pkey, self.scope, &none, &self.guests, most),
            ),
            false => Default::default(),
        };
        if too_many && !std::mem::replace(&mut self.told_full, true) {
            log::warn!("{name}: some of its multicast groups find no room and are not received");
        }
        let (set, id) = (&mut self.groups, self.endpoint.id);
        let changes = groups::follow(set, now(), name, (required, wanted), |joins, leaves| {
            port.change_groups(id, joins, leaves)
        });
        !changes.is_empty()
    }
}
