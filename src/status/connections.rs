//! The reliable connections of IPoIB interfaces, for `ibtap conn`, `show` and `res`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::process;

use control::api::{
    ApiError, CmIdInfo, ConnectionInfo, ConnectionRole, QueuePairInfo, Reply, ResourcesInfo,
    Selection,
};
use fabric::{ConnectionId, Gid, Instant, Qpn};
use rustix::time::{ClockId, clock_gettime};

use super::{Shown, View};
use crate::datapath::{LinkId, Snapshot};
use crate::interface::{Interface, Names};
use crate::port::PortId;

/// Maximum number of connections in one reply. With about 700 bytes each, the reply stays below the limit
/// of clients.
const CONNECTIONS_MAX: usize = 20_000;

/// The state of an ended connection that only reserves its queue pair number (IBA vol. 1, 12.9.8.4).
const TIMEWAIT: &str = "TIMEWAIT";

impl View<'_> {
    /// The connections of all interfaces or of one, by interface, peer, role and queue pair.
    ///
    /// # Errors
    /// [`ApiError::Refused`] if there are more connections than one answer may have; as [`View::all_connections`].
    pub(crate) fn connections(&self, which: &Selection) -> Result<Reply, ApiError> {
        bounded(self.all_connections(which)?)
    }

    /// As [`View::connections`], any number.
    ///
    /// # Errors
    /// As [`Interfaces::named_ip`] and [`Ports::snapshots`].
    ///
    /// [`Interfaces::named_ip`]: crate::interfaces::Interfaces::named_ip
    /// [`Ports::snapshots`]: crate::port::Ports::snapshots
    pub(super) fn all_connections(
        &self,
        which: &Selection,
    ) -> Result<Vec<ConnectionInfo>, ApiError> {
        let selected = self.selected(which)?;
        let ports = selected.iter().map(|(i, _)| i.port).collect();
        let snapshots = self.ports.snapshots(ports, true)?;
        let (now, names) = (monotonic(), Names::read());
        let connections = selected
            .into_iter()
            .flat_map(|(interface, _)| {
                let netns = interface.namespace.map(|there| names.of(&there));
                let mut all = of_interface(interface, &snapshots[&interface.port], now);
                all.iter_mut().for_each(|c| c.netns.clone_from(&netns));
                all
            })
            .collect();
        Ok(connections)
    }

    /// The number of connections of each interface in connected mode.
    pub(super) fn connection_counts(&self, interfaces: &[Shown<'_>]) -> BTreeMap<LinkId, u32> {
        let connected = interfaces.iter();
        let connected = connected.filter(|(_, ip)| ip.mode == ipoib::Mode::Connected);
        let ports: BTreeSet<PortId> = connected.map(|(i, _)| i.port).collect();
        let mut counts = BTreeMap::new();
        for snapshot in ports
            .into_iter()
            .flat_map(|at| self.ports[at].snapshots(false))
        {
            for lane in snapshot.ip {
                *counts.entry(lane.id).or_default() += lane.connection_count as u32;
            }
        }
        counts
    }

    /// Adds the connections of a port to the provider's list of resources: their queue pairs and identifiers of
    /// communication management.
    pub(super) fn add_connections(&self, at: PortId, to: &mut ResourcesInfo) {
        let known: BTreeSet<Qpn> = to.queue_pairs.iter().map(|qp| qp.qpn).collect();
        let snapshots = self.ports[at].snapshots(true);
        let lanes = snapshots.iter().flat_map(|s| {
            let worker = s.worker.worker as u32;
            s.ip.iter().map(move |lane| (worker, lane))
        });
        for (worker, lane) in lanes {
            let found = self.interfaces.with_link(lane.id);
            let own = found.filter(|(i, _)| i.id.link() == lane.id);
            let interface = own.map(|(i, _)| i.name.clone());
            for c in lane.connections.iter().filter(|c| c.state != TIMEWAIT) {
                to.cm_ids.push(CmIdInfo {
                    qpn: c.local_qpn,
                    peer_qpn: known_qpn(c.remote_qpn),
                    state: c.state.into(),
                    role: role(c),
                    gid: c.local_gid,
                    peer_gid: c.remote_gid,
                    interface: interface.clone(),
                    worker,
                });
                if known.contains(&c.local_qpn) {
                    continue;
                }
                to.queue_pairs.push(QueuePairInfo {
                    qpn: c.local_qpn,
                    kind: "RC".into(),
                    state: c.qp_state.into(),
                    pkey: c.pkey,
                    qkey: None,
                    peer_qpn: known_qpn(c.remote_qpn),
                    lanes: 1,
                    interface: interface.clone(),
                });
            }
        }
    }
}

/// A reply within the limit of clients.
fn bounded(connections: Vec<ConnectionInfo>) -> Result<Reply, ApiError> {
    check_count(connections.len())?;
    Ok(Reply::Connections { connections })
}

/// Refuses a reply with more connections than clients read.
///
/// # Errors
/// [`ApiError::Refused`]
pub(super) fn check_count(connections: usize) -> Result<(), ApiError> {
    match connections {
        0..=CONNECTIONS_MAX => Ok(()),
        found => Err(ApiError::Refused {
            message: format!(
                "{found} connections are too many for one answer; use ibtap conn with an interface"
            ),
        }),
    }
}

/// CLOCK_MONOTONIC, the clock of the connections' times.
fn monotonic() -> Instant {
    let t = clock_gettime(ClockId::Monotonic);
    Instant(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

fn role(c: &fabric::ConnectionInfo) -> ConnectionRole {
    match c.active {
        true => ConnectionRole::Active,
        false => ConnectionRole::Passive,
    }
}

/// A queue pair number; 0 means not known.
fn known_qpn(qpn: Qpn) -> Option<Qpn> {
    (qpn.get() != 0).then_some(qpn)
}

/// The IP addresses of neighbours, by GID and UD queue pair.
type Neighbours = BTreeMap<(Gid, Qpn), BTreeSet<IpAddr>>;

fn of_interface(
    interface: &Interface,
    snapshots: &[Snapshot],
    now: Instant,
) -> Vec<ConnectionInfo> {
    let parts = || {
        snapshots.iter().flat_map(|s| {
            let lanes = s.ip.iter().filter(|lane| lane.id == interface.id.link());
            lanes.map(|lane| (s.worker.worker, lane))
        })
    };
    let mut neighbours = Neighbours::new();
    for n in parts().flat_map(|(_, lane)| &lane.neighbours) {
        let ips = neighbours.entry((n.address.gid(), n.address.qpn()));
        ips.or_default().extend(&n.ips);
    }
    let mut all: Vec<ConnectionInfo> = parts()
        .flat_map(|(worker, lane)| {
            let peers = lane.peers.iter().map(|(c, p)| (*c, p.address.qpn()));
            let peers: BTreeMap<ConnectionId, Qpn> = peers.collect();
            let shown = |c: &fabric::ConnectionInfo| {
                let peer = peers.get(&c.connection).copied();
                connection(&interface.name, worker, c, peer, &neighbours, now)
            };
            lane.connections.iter().map(shown).collect::<Vec<_>>()
        })
        .collect();
    all.sort_by_key(|c| (c.peer_gid, c.role == ConnectionRole::Passive, c.qpn));
    all
}

/// One connection; `peer` is the UD queue pair of the peer's interface, if known.
fn connection(
    interface: &str,
    worker: usize,
    c: &fabric::ConnectionInfo,
    peer: Option<Qpn>,
    neighbours: &Neighbours,
    now: Instant,
) -> ConnectionInfo {
    let milliseconds = |since| now.since(since).as_millis() as u64;
    let ips = peer.and_then(|qpn| neighbours.get(&(c.remote_gid, qpn)));
    ConnectionInfo {
        interface: interface.to_owned(),
        netns: None,
        worker: worker as u32,
        role: role(c),
        state: c.state.into(),
        qp_state: c.qp_state.into(),
        qpn: c.local_qpn,
        gid: c.local_gid,
        peer_qpn: known_qpn(c.remote_qpn),
        peer_gid: c.remote_gid,
        peer_ud_qpn: peer,
        ips: ips.into_iter().flatten().copied().collect(),
        pkey: c.pkey,
        path_mtu: c.path_mtu,
        age_ms: milliseconds(c.created),
        idle_ms: milliseconds(c.used),
        tx_messages: c.tx_messages,
        tx_bytes: c.tx_bytes,
        rx_messages: c.rx_messages,
        rx_bytes: c.rx_bytes,
        retransmits: c.retransmits,
        in_flight: c.in_flight,
        window: c.window,
        srtt_ns: (c.srtt != 0).then_some(c.srtt),
        pid: process::id(),
    }
}

#[cfg(test)]
mod tests {
    use fabric::{EndpointId, PKey};

    use super::*;
    use control::REPLY_MAX;

    fn established(peer: Gid) -> fabric::ConnectionInfo {
        fabric::ConnectionInfo {
            connection: ConnectionId(1),
            endpoint: EndpointId(0),
            local_qpn: Qpn::new(0x11),
            remote_qpn: Qpn::new(0x22),
            local_gid: "fe80::1".parse().unwrap(),
            remote_gid: peer,
            pkey: PKey::DEFAULT,
            active: true,
            state: "ESTABLISHED",
            qp_state: "RTS",
            path_mtu: 4096,
            created: Instant(1_000_000_000),
            used: Instant(3_500_000_000),
            tx_messages: 2,
            tx_bytes: 131_048,
            rx_messages: 0,
            rx_bytes: 0,
            retransmits: 3,
            in_flight: 4,
            window: 64,
            srtt: 50_000,
        }
    }

    #[test]
    fn times_are_ages_and_the_peer_is_the_interface_at_the_other_end() {
        let gid: Gid = "fe80::2".parse().unwrap();
        let [ip, other]: [IpAddr; 2] = ["10.9.0.2", "10.7.0.2"].map(|ip| ip.parse().unwrap());
        // Two interfaces behind one GID.
        let neighbours = Neighbours::from([
            ((gid, Qpn::new(0x4a)), [ip].into()),
            ((gid, Qpn::new(0x4b)), [other].into()),
        ]);
        let now = Instant(5_000_000_000);
        let shown =
            |peer: Option<Qpn>| connection("ib0", 1, &established(gid), peer, &neighbours, now);
        let nameless = shown(None);
        assert_eq!((nameless.age_ms, nameless.idle_ms), (4000, 1500));
        assert_eq!((nameless.peer_ud_qpn, nameless.ips.len()), (None, 0));
        assert_eq!(nameless.peer_qpn, Some(Qpn::new(0x22)));
        for (qpn, ips) in [(0x4a, vec![ip]), (0x4b, vec![other]), (0x4c, vec![])] {
            let qpn = Some(Qpn::new(qpn));
            let named = shown(qpn);
            assert_eq!((named.peer_ud_qpn, named.ips), (qpn, ips));
        }
    }

    #[test]
    fn an_answer_is_one_that_clients_read() {
        let peer: Gid = "fe80::0123:4567:89ab:cdef".parse().unwrap();
        let longest = fabric::ConnectionInfo {
            created: Instant(0),
            used: Instant(0),
            tx_messages: u64::MAX,
            tx_bytes: u64::MAX,
            rx_messages: u64::MAX,
            rx_bytes: u64::MAX,
            retransmits: u64::MAX,
            ..established(peer)
        };
        let ip = "fd09:0123:4567:89ab:cdef:0123:4567:89ab".parse().unwrap();
        let qpn = Qpn::new(0xff_fffe);
        let neighbours = Neighbours::from([((peer, qpn), [ip].into())]);
        let end = Instant(u64::MAX);
        let mut one = connection(
            "fifteen-letters",
            255,
            &longest,
            Some(qpn),
            &neighbours,
            end,
        );
        one.netns = Some("a-name-that-nobody-will-have".into());
        let most = bounded(vec![one.clone(); CONNECTIONS_MAX]).unwrap();
        assert!(serde_json::to_vec(&most).unwrap().len() < REPLY_MAX - 64);
        let refused = bounded(vec![one; CONNECTIONS_MAX + 1]).unwrap_err();
        assert!(
            refused.to_string().contains("20001 connections"),
            "{refused}"
        );
    }

    #[test]
    fn what_is_not_known_yet_is_absent() {
        let peer: Gid = "fe80::2".parse().unwrap();
        let begun = fabric::ConnectionInfo {
            remote_qpn: Qpn::new(0),
            state: "REQ_SENT",
            qp_state: "INIT",
            srtt: 0,
            active: false,
            ..established(peer)
        };
        let shown = connection("ib0", 0, &begun, None, &Neighbours::new(), Instant(0));
        assert_eq!((shown.peer_qpn, shown.srtt_ns), (None, None));
        assert_eq!((shown.age_ms, shown.role), (0, ConnectionRole::Passive));
    }
}
