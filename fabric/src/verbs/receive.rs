//! Receives datagrams.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use proto::{Lid, Qpn, WcStatus};

use super::counts::Counts;
use super::device::Device;
use super::grh::{self, GRH_LEN, Route};
use super::ibv::{
    Completed, Emptied, Place, Pool, ReceiveList, SharedReceiveQueue, WorkCompletion,
};
use super::shares::Shares;
use super::snapshot::{Endpoint, Table};
use super::sources::Sources;
use crate::memory::ReceivePlaces;
use crate::worker::UdReceived;

/// The places of one batch, returned by completions.
#[derive(Debug, Default)]
pub struct Taken {
    pub places: Vec<Place>,
    /// Bytes of each place.
    pub len: usize,
}

impl ReceivePlaces for Taken {
    fn bytes(&self, range: &Range<usize>) -> &[u8] {
        let (Some(index), len) = (range.start.checked_div(self.len), range.len()) else {
            return &[];
        };
        let at = range.start - index * self.len;
        let place = self.places.get(index);
        place.and_then(|p| p.get(at..at + len)).unwrap_or(&[])
    }
}

/// The receive queues of the places.
#[derive(Debug)]
enum Queues {
    /// A queue shared by all queue pairs.
    Shared(Arc<SharedReceiveQueue>),
    /// A queue for each queue pair.
    Own {
        shares: Shares,
        /// Places being posted to one queue.
        some: Vec<Place>,
        /// The queue pair whose receives fail.
        failed: Option<Qpn>,
    },
}

/// The places, and the contents of a batch.
#[derive(Debug)]
pub struct Receive {
    pool: Pool,
    queues: Queues,
    list: ReceiveList,
    /// Places for the next list.
    idle: Vec<Place>,
    /// Places of the batch.
    pub taken: Taken,
    /// Datagrams of the batch.
    pub received: Vec<UdReceived>,
    /// GIDs of senders by LID, on InfiniBand.
    pub sources: Sources,
}

impl Receive {
    /// Takes the places of a device; none is posted yet.
    pub fn new(device: &Device, (pool, idle): (Pool, Vec<Place>)) -> Receive {
        Receive {
            queues: match &device.datagrams {
                Some(queue) => Queues::Shared(Arc::clone(queue)),
                None => Queues::Own {
                    shares: Shares::new(idle.len(), device.limits.own_datagrams),
                    some: Vec::with_capacity(device.limits.own_datagrams),
                    failed: None,
                },
            },
            list: ReceiveList::new(idle.len()),
            taken: Taken {
                places: Vec::with_capacity(idle.len()),
                len: pool.place_len(),
            },
            received: Vec::with_capacity(idle.len()),
            sources: Sources::default(),
            pool,
            idle,
        }
    }

    /// Whether a completion belongs to one of these places.
    pub fn owns(&self, completion: &WorkCompletion) -> bool {
        self.pool.owns(completion)
    }

    /// Posts the places of the last batch, and those left over before, as one list for each queue.
    ///
    /// # Errors
    /// Errors of ibv_post_srq_recv(3) and ibv_post_recv(3).
    pub fn repost(&mut self, endpoints: &[Endpoint], counts: &mut Counts) -> io::Result<()> {
        self.received.clear();
        self.idle.append(&mut self.taken.places);
        if self.idle.is_empty() {
            return Ok(());
        }
        if let Queues::Shared(queue) = &self.queues {
            counts.post_lists += 1;
            counts.verbs_calls += 1;
            return queue.receive(&mut self.list, &mut self.pool, &mut self.idle);
        }
        endpoints.iter().try_for_each(|e| self.fill(e, counts))
    }

    /// Posts the missing places of an endpoint to its own queue, if it can receive.
    fn fill(&mut self, e: &Endpoint, counts: &mut Counts) -> io::Result<()> {
        let Queues::Own { shares, some, .. } = &mut self.queues else {
            return Ok(());
        };
        // Posting to a queue pair in RESET is not allowed (IBA vol. 1, 10.8.2).
        let ready = e.pkey.is_some() && !e.pair.is_behind(e.starts);
        let count = shares.missing(e.id).min(self.idle.len());
        if !ready || count == 0 {
            return Ok(());
        }
        some.extend(self.idle.drain(self.idle.len() - count..));
        for place in some.iter() {
            shares.gives(e.id, place.index());
        }
        counts.post_lists += 1;
        counts.verbs_calls += 1;
        let posted = e.pair.qp.receive(&mut self.list, &mut self.pool, some);
        for place in some.drain(..) {
            shares.comes_back(place.index());
            self.idle.push(place);
        }
        posted
    }

    /// Whether each queue pair has its own queue.
    pub const fn has_own_queues(&self) -> bool {
        matches!(self.queues, Queues::Own { .. })
    }

    /// Takes a queue pair with its own queue whose receives fail; it would fail all further receives.
    pub fn take_failed(&mut self) -> Option<Qpn> {
        match &mut self.queues {
            Queues::Own { failed, .. } => failed.take(),
            Queues::Shared(_) => None,
        }
    }

    /// Reclaims the places of an emptied queue.
    pub fn reclaim(&mut self, emptied: &Emptied) {
        let Queues::Own { shares, .. } = &mut self.queues else {
            return;
        };
        for place in self.pool.reclaim(emptied) {
            shares.comes_back(place.index());
            self.idle.push(place);
        }
    }

    /// Adds the place of a completion to the batch.
    pub fn completed(&mut self, completion: &WorkCompletion, table: &Table, counts: &mut Counts) {
        let place = match self.pool.completed(completion) {
            Completed::Place(place) => place,
            Completed::Part(_) | Completed::Unknown => {
                counts.cq_unknown += 1;
                return;
            }
        };
        if let Queues::Own { shares, .. } = &mut self.queues {
            shares.comes_back(place.index());
        }
        if completion.status() != WcStatus::Success {
            counts.cq_errors += 1;
            counts.rx_failed += 1;
            if let Queues::Own { failed, .. } = &mut self.queues {
                *failed = Some(completion.qpn());
            }
            self.idle.push(place);
            return;
        }
        let base = self.taken.places.len() * self.taken.len;
        match datagram(completion, &place, base, table, &mut self.sources) {
            Ok(received) => {
                counts.rx_packets += 1;
                counts.rx_bytes += received.range.len() as u64;
                counts.rx_multicast += u64::from(received.multicast);
                self.received.push(received);
                self.taken.places.push(place);
            }
            Err(why) => {
                match why {
                    Dropped::Malformed => counts.rx_malformed += 1,
                    Dropped::BadQp => counts.rx_bad_qp += 1,
                    Dropped::Own => counts.rx_own_multicast += 1,
                }
                self.idle.push(place);
            }
        }
    }
}

/// Why a datagram was dropped.
enum Dropped {
    Malformed,
    BadQp,
    Own,
}

/// Reads a datagram at `base` of the batch.
fn datagram(
    completion: &WorkCompletion,
    place: &Place,
    base: usize,
    table: &Table,
    sources: &mut Sources,
) -> Result<UdReceived, Dropped> {
    let len = completion.byte_len();
    if !(GRH_LEN..=place.len()).contains(&len) {
        return Err(Dropped::Malformed);
    }
    let endpoint = table
        .endpoints
        .by_qpn(completion.qpn())
        .ok_or(Dropped::BadQp)?;
    let (pkey, _) = endpoint.pkey.ok_or(Dropped::BadQp)?;
    let header = place.first_chunk().ok_or(Dropped::Malformed)?;
    let header = completion.has_grh().then_some(header);
    let route = route(header, completion.slid(), table, sources).ok_or(Dropped::Malformed)?;
    let multicast = route.dst.is_multicast();
    // By verbs, a multicast packet reaches its sender too, unless the device can suppress that; not all
    // can (IBA vol. 1, 10.5.2).
    if multicast && route.src == table.gid && endpoint.sends_from(completion.src_qpn()) {
        return Err(Dropped::Own);
    }
    Ok(UdReceived {
        endpoint: endpoint.id,
        src_qpn: completion.src_qpn(),
        src_gid: route.src,
        has_src_gid: completion.has_grh(),
        dst_gid: route.dst,
        multicast,
        pkey,
        checksum_ok: completion.checksum_ok() && table.checks_checksums(),
        range: base + GRH_LEN..base + len,
    })
}

/// Source and destination of a datagram, from its GRH if there is one. On InfiniBand, unicast within a
/// subnet may have none: other packets told the GID of the source LID.
fn route(
    header: Option<&[u8; GRH_LEN]>,
    slid: Lid,
    table: &Table,
    sources: &mut Sources,
) -> Option<Route> {
    let Some(header) = header else {
        return Some(Route {
            src: sources.gid(slid, table.lmc),
            dst: table.gid,
        });
    };
    let route = grh::parse(header)?;
    if !table.ethernet && route.dst.is_multicast() {
        sources.learn(slid, table.lmc, route.src);
    }
    Some(route)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proto::Gid;

    use super::*;

    fn gid(text: &str) -> Gid {
        text.parse().unwrap()
    }

    fn table() -> Table {
        Table {
            gid: gid("fe80::1"),
            ..Table::default()
        }
    }

    fn sources() -> Sources {
        let mut sources = Sources::default();
        sources.learn(Lid(3), 0, gid("fe80::2:c903:e7:7e12"));
        sources.learn(Lid(5), 0, gid("fe80::5"));
        sources
    }

    /// The bytes may have any content, e.g. from an earlier datagram.
    #[test]
    fn c34_without_a_grh_the_40_bytes_before_the_payload_mean_nothing() {
        let (table, mut sources) = (table(), sources());
        let mut header = [0; GRH_LEN];
        header[0] = 0x60;
        header[8..24].copy_from_slice(&gid("fe80::6").0);
        header[24..].copy_from_slice(&gid("ff12:401b:ffff::1").0);
        let with = route(Some(&header), Lid(7), &table, &mut sources).unwrap();
        assert_eq!(
            (with.src, with.dst),
            (gid("fe80::6"), gid("ff12:401b:ffff::1"))
        );
        let without = route(None, Lid(3), &table, &mut sources).unwrap();
        assert_eq!(
            (without.src, without.dst),
            (gid("fe80::2:c903:e7:7e12"), table.gid)
        );
        let unknown = route(None, Lid(4), &table, &mut sources).unwrap();
        assert_eq!((unknown.src, unknown.dst), (Gid::UNSPECIFIED, table.gid));
        // A multicast packet has a GRH, and its sender the LID.
        let learned = route(None, Lid(7), &table, &mut sources).unwrap();
        assert_eq!(learned.src, gid("fe80::6"));
    }

    proptest! {
        #[test]
        fn no_header_panics(bytes: [u8; 32], more: [u8; 8], slid: u16) {
            let mut header = [0; GRH_LEN];
            header[..32].copy_from_slice(&bytes);
            header[32..].copy_from_slice(&more);
            let found = route(Some(&header), Lid(slid), &table(), &mut sources());
            prop_assert_eq!(found, grh::parse(&header));
        }
    }
}
