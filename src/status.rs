//! Answers to the control socket, from the control thread's state and snapshots of the data threads.

mod children;
mod connections;
mod metrics;
mod resources;
mod subnet;
mod vnics;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process;

use control::api::{
    ApiError, Counters, GroupInfo, InterfaceInfo, InterfaceStats, LinkAddress, LogLevel,
    NeighbourState, Reply, Selection, VersionInfo, WorkerStats,
};
use control::logging;
use fabric::EndpointId;
use fabric::subnet::Destination;
use ipoib::NeighbourInfo;
use netdev::netns::NamespaceId;
use proto::counters::Description;

use crate::datapath::{LinkId, Snapshot, now};
use crate::interface::{Interface, Names};
use crate::interfaces::{Interfaces, Payload};
use crate::ip::{Ip, IpLink, VLAN};
use crate::port::{PortId, Ports};

/// The version of the daemon.
pub(crate) fn version() -> Reply {
    Reply::Version(VersionInfo {
        product: "ibtapd".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        pid: process::id(),
        log_level: logging::level(),
    })
}

pub(crate) fn set_level(level: LogLevel) -> Reply {
    logging::set_level(level);
    Reply::LogLevel {}
}

/// A read-only view of the daemon, for answers.
pub struct View<'d> {
    /// The interfaces in service.
    pub interfaces: &'d Interfaces,
    /// The fabric ports.
    pub ports: &'d Ports,
    /// The daemon's own network namespace.
    pub home: NamespaceId,
}

/// The counter of groups for which an interface had no room.
const GROUPS_REFUSED: Description = (
    "groups_refused",
    "Multicast groups of guests not joined: too many.",
);

/// An IPoIB interface to show.
type Shown<'d> = (&'d Interface, &'d Ip);

/// A link to show, and its interface.
type ShownLink<'d> = (&'d Interface, &'d IpLink);

impl View<'_> {
    fn selected(&self, which: &Selection) -> Result<Vec<Shown<'_>>, ApiError> {
        match &which.interface {
            Some(name) => Ok(vec![self.interfaces.named_ip(self.home, name)?]),
            None => Ok(self.interfaces.ips().collect()),
        }
    }

    pub(crate) fn show(&self, which: &Selection) -> Result<Reply, ApiError> {
        let selected = self.selected(which)?;
        let connections = self.connection_counts(&selected);
        let names = Names::read();
        let interfaces = selected
            .into_iter()
            .map(|(i, ip)| {
                let mut info = self.interface(i, ip, connections.get(&i.id.link()).copied());
                info.netns = i.namespace.as_ref().map(|there| names.of(there));
                info
            })
            .collect();
        Ok(Reply::Show { interfaces })
    }

    fn interface(&self, i: &Interface, ip: &Ip, connections: Option<u32>) -> InterfaceInfo {
        let port = self.ports[i.port].port.attributes();
        let runs_on = self.ports[i.port].port.device();
        let subnet = self.ports[i.port].port.subnet();
        let broadcast = ip.link.broadcast();
        InterfaceInfo {
            name: i.name.clone(),
            ifindex: i.ifindex,
            port: port.name,
            underlay: runs_on.netdev,
            link_layer: runs_on.link_layer,
            lid: port.lid.map(|lid| lid.0),
            sm_lid: subnet.and_then(subnet::sm_lid),
            sm_sl: subnet.and_then(subnet::sm_sl),
            sa_gid: subnet.and_then(subnet::sa_gid),
            state: port.state,
            reason: self.interfaces.ip_no_carrier(self.ports, i, ip),
            up: i.up,
            carrier: i.carrier,
            mode: ip.mode,
            connections: connections.filter(|_| ip.mode == ipoib::Mode::Connected),
            connections_max: ip.connections as u32,
            pkey: ip.link.fabric.endpoint.pkey.unwrap_or(ip.spec.pkey),
            parent: ip.parent_name.clone(),
            netns: None,
            qkey: ip.link.fabric.qkey,
            qpn: ip.link.fabric.endpoint.qpn,
            gid: ip.link.address.gid(),
            address: LinkAddress(ip.link.address.0),
            mac: LinkAddress(i.mac),
            broadcast,
            broadcast_record: subnet.and_then(|subnet| subnet::record(subnet, broadcast)),
            mtu: i.mtu,
            link_mtu: port.ud_payload_max,
            queues: i.queues.len() as u32,
            persist: ip.spec.persist,
            dhcp: ip.spec.dhcp,
            reflect: ip.spec.reflect,
            umcast: ip.umcast,
            vlan_pkey: ip.spec.vlan_pkey,
            pid: process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }

    /// The counters of links.
    ///
    /// # Errors
    /// As [`Interfaces::named_ip`] and [`Ports::snapshots`].
    pub(crate) fn stats(&self, which: &Selection) -> Result<Reply, ApiError> {
        let links: Vec<ShownLink<'_>> = match &which.interface {
            Some(name) => vec![self.named_link(name)?],
            None => {
                let own = self.interfaces.ips().map(|(i, ip)| (i, &ip.link));
                let all = self.interfaces.ips();
                let vlans = all.flat_map(|(i, ip)| ip.vlans.values().map(move |link| (i, link)));
                own.chain(vlans).collect()
            }
        };
        let ports = links.iter().map(|(i, _)| i.port).collect();
        let snapshots = self.ports.snapshots(ports, false)?;
        let names = Names::read();
        let stats = links.into_iter().map(|(i, link)| {
            let port = &self.ports[i.port].port;
            let name = link.name(i);
            let snapshots = &snapshots[&i.port];
            let mut stats = link_stats(link.id(), &name, &port.attributes().name, snapshots);
            let subnet = port.subnet();
            stats
                .subnet
                .add(subnet.iter().flat_map(|s| s.subnet.counts().named()));
            stats.netns = i.namespace.map(|there| names.of(&there));
            if link.vid.is_none() {
                let refused = link.guests.turned_away();
                stats.device.add([(GROUPS_REFUSED.0, refused)]);
            }
            stats
        });
        Ok(Reply::Stats {
            stats: stats.collect(),
        })
    }

    /// The link of this name: an interface's own, or a VLAN's.
    fn named_link(&self, name: &str) -> Result<ShownLink<'_>, ApiError> {
        if let Some((trunk, vid)) = name.rsplit_once(VLAN)
            && let Ok(vid) = vid.parse::<u16>()
            && let Ok((interface, ip)) = self.interfaces.named_ip(self.home, trunk)
            && let Some(link) = ip.vlans.get(&vid)
        {
            return Ok((interface, link));
        }
        self.interfaces
            .named_ip(self.home, name)
            .map(|(i, ip)| (i, &ip.link))
    }

    /// The link's snapshots of all data threads, with tables.
    pub(crate) fn tables(&self, name: &str) -> Result<Vec<crate::datapath::IpSnapshot>, ApiError> {
        let (interface, link) = self.named_link(name)?;
        self.ports.tables_of(interface.port, link.id())
    }

    pub(crate) fn neighbours(&self, name: &str) -> Result<Reply, ApiError> {
        let mut all: BTreeMap<[u8; 6], control::api::NeighbourInfo> = BTreeMap::new();
        for n in self.tables(name)?.into_iter().flat_map(|t| t.neighbours) {
            let info = neighbour(&n);
            match all.get_mut(&n.mac) {
                Some(known) => merge(known, info),
                None => {
                    all.insert(n.mac, info);
                }
            }
        }
        Ok(Reply::Neighbours {
            neighbours: all.into_values().collect(),
        })
    }

    pub(crate) fn guests(&self, name: &str) -> Result<Reply, ApiError> {
        let mut all: BTreeMap<IpAddr, control::api::GuestInfo> = BTreeMap::new();
        for g in self.tables(name)?.into_iter().flat_map(|t| t.guests) {
            let info = guest(&g);
            let known = all.entry(g.ip).or_insert_with(|| info.clone());
            // The latest observation counts.
            if info.idle_ms < known.idle_ms {
                *known = info;
            }
        }
        Ok(Reply::Guests {
            guests: all.into_values().collect(),
        })
    }

    pub(crate) fn groups(&self, name: &str) -> Result<Reply, ApiError> {
        let (interface, link) = self.named_link(name)?;
        let subnet = self.ports[interface.port].port.subnet();
        let (broadcast, made, joined) = (link.broadcast(), link.created, &link.fabric.groups);
        let mut all: BTreeMap<_, GroupInfo> = BTreeMap::new();
        let listed = self.tables(name)?.into_iter().flat_map(|t| t.groups);
        // The core always lists the broadcast group, but an interface that is down has left it.
        for g in listed.filter(|g| g.send_only || joined.is_attached(g.mgid)) {
            let record = subnet.and_then(|subnet| subnet::record(subnet, g.mgid));
            let info = GroupInfo {
                mgid: g.mgid,
                // The core has no creation time of the broadcast group; the link's is used.
                created: g.created.max(made).0 / 10,
                queuelen: 0,
                // On a subnet, the MLID makes the address handle.
                complete: subnet.is_none() || record.is_some(),
                send_only: g.send_only,
                record,
            };
            let known = all.entry(g.mgid).or_insert_with(|| info.clone());
            known.created = known.created.min(info.created);
            known.send_only &= info.send_only;
        }
        let mut groups: Vec<GroupInfo> = all.into_values().collect();
        groups.sort_by_key(|g| (g.mgid != broadcast, g.mgid));
        Ok(Reply::Groups { groups })
    }

    pub(crate) fn paths(&self, name: &str) -> Result<Reply, ApiError> {
        let (interface, link) = self.named_link(name)?;
        let subnet = self.ports[interface.port].port.subnet();
        let pkey = link.fabric.pkey.full();
        let mut gids: BTreeMap<_, bool> = BTreeMap::new();
        for n in self.tables(name)?.into_iter().flat_map(|t| t.neighbours) {
            *gids.entry(n.address.gid()).or_default() |= n.ah.is_some();
        }
        let paths = gids
            .into_iter()
            .map(|(gid, complete)| {
                let destination = Destination { gid, pkey };
                let path = subnet.and_then(|subnet| subnet.subnet.path(destination));
                subnet::path_info(gid, complete, path)
            })
            .collect();
        Ok(Reply::Paths { paths })
    }

    /// The name of the interface with this endpoint on a port.
    fn with_endpoint(&self, at: PortId, endpoint: EndpointId) -> Option<String> {
        let on_port = self.interfaces.iter().filter(|(i, _)| i.port == at);
        on_port
            .filter_map(|(interface, payload)| match payload {
                Payload::Ip(ip) => {
                    let mut links = ip.links();
                    let link = links.find(|link| link.fabric.endpoint.id == endpoint)?;
                    Some(link.name(interface))
                }
                Payload::Ethernet(e) => {
                    let link = e.link.as_ref();
                    let has_it = link.is_some_and(|link| link.endpoint.id == endpoint);
                    has_it.then(|| interface.name.clone())
                }
            })
            .next()
    }
}

fn link_stats(id: LinkId, name: &str, port: &str, snapshots: &[Snapshot]) -> InterfaceStats {
    let mut stats = InterfaceStats {
        name: name.to_owned(),
        ..InterfaceStats::default()
    };
    for snapshot in snapshots {
        for lane in snapshot.ip.iter().filter(|lane| lane.id == id) {
            stats.add(lane.stats.named());
            stats.add(lane.tap.named());
            stats.protocol.add(lane.core.iter().copied());
        }
    }
    stats.workers = worker_stats(port, snapshots);
    stats
}

/// The counters of a port's data threads.
pub(crate) fn worker_stats(port: &str, snapshots: &[Snapshot]) -> Vec<WorkerStats> {
    let stats = snapshots.iter().map(|snapshot| {
        let mut counters = Counters::default();
        counters.add(snapshot.worker.thread.named());
        counters.add(snapshot.worker.fabric.iter().copied());
        WorkerStats {
            worker: snapshot.worker.worker as u32,
            port: port.to_owned(),
            counters,
        }
    });
    stats.collect()
}

fn neighbour(n: &NeighbourInfo) -> control::api::NeighbourInfo {
    control::api::NeighbourInfo {
        mac: LinkAddress(n.mac),
        address: LinkAddress(n.address.0),
        gid: n.address.gid(),
        qpn: n.address.qpn(),
        ips: n.ips.clone(),
        state: if n.confirmed {
            NeighbourState::Confirmed
        } else {
            NeighbourState::Learned
        },
        idle_ms: now().0.saturating_sub(n.used.0),
        queuelen: None,
    }
}

fn guest(g: &ipoib::GuestInfo) -> control::api::GuestInfo {
    control::api::GuestInfo {
        ip: g.ip,
        mac: LinkAddress(g.mac),
        state: if g.weak {
            NeighbourState::Learned
        } else {
            NeighbourState::Confirmed
        },
        idle_ms: now().0.saturating_sub(g.used.0),
    }
}

/// Merges the entries of two data threads for one neighbour.
fn merge(known: &mut control::api::NeighbourInfo, other: control::api::NeighbourInfo) {
    known.idle_ms = known.idle_ms.min(other.idle_ms);
    if other.state == NeighbourState::Confirmed {
        known.state = NeighbourState::Confirmed;
    }
    let new: Vec<IpAddr> = other
        .ips
        .into_iter()
        .filter(|ip| !known.ips.contains(ip))
        .collect();
    known.ips.extend(new);
}
