//! What a worker receives datagrams with.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::counts::Counts;
use super::device::Device;
use super::grh::{self, GRH_LEN, Route};
use super::ibv::{Completed, Place, Pool, ReceiveList, SharedReceiveQueue, WorkCompletion};
use super::table::Table;
use crate::connection::WcStatus;
use crate::memory::ReceivePlaces;
use crate::types::{Gid, Lid};
use crate::worker::UdReceived;

/// The places of one batch, which completions have given back.
#[derive(Debug, Default)]
pub struct Taken {
    places: Vec<Place>,
    /// Bytes of each place.
    len: usize,
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

/// The places, and what a batch holds of them.
#[derive(Debug)]
pub struct Receive {
    pool: Pool,
    queue: Arc<SharedReceiveQueue>,
    list: ReceiveList,
    /// To be posted with the next list.
    idle: Vec<Place>,
    /// Those of the batch.
    pub taken: Taken,
    /// The datagrams of the batch.
    pub received: Vec<UdReceived>,
}

impl Receive {
    /// With the places of a device; none is posted yet.
    pub fn new(device: &Device, (pool, idle): (Pool, Vec<Place>)) -> Receive {
        Receive {
            queue: Arc::clone(&device.datagrams),
            list: ReceiveList::new(idle.len()),
            taken: Taken {
                places: Vec::with_capacity(idle.len()),
                len: pool.place_len(),
            },
            received: Vec::with_capacity(idle.len()),
            pool,
            idle,
        }
    }

    /// Whether a completion is for one of these places.
    pub fn owns(&self, completion: &WorkCompletion) -> bool {
        self.pool.owns(completion)
    }

    /// Posts the places of the last batch, and those that could not be posted before, as one list.
    ///
    /// # Errors
    /// Those of ibv_post_srq_recv(3).
    pub fn repost(&mut self, counts: &mut Counts) -> io::Result<()> {
        self.received.clear();
        self.idle.append(&mut self.taken.places);
        if self.idle.is_empty() {
            return Ok(());
        }
        counts.post_lists += 1;
        counts.verbs_calls += 1;
        self.queue
            .receive(&mut self.list, &mut self.pool, &mut self.idle)
    }

    /// Takes what a completion gives back into the batch.
    pub fn completed(&mut self, completion: &WorkCompletion, table: &Table, counts: &mut Counts) {
        let place = match self.pool.completed(completion) {
            Completed::Place(place) => place,
            Completed::Part | Completed::Unknown => {
                counts.cq_unknown += 1;
                return;
            }
        };
        if completion.status() != WcStatus::Success {
            counts.cq_errors += 1;
            counts.rx_failed += 1;
            self.idle.push(place);
            return;
        }
        let base = self.taken.places.len() * self.taken.len;
        match datagram(completion, &place, base, table) {
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

/// Reads a datagram that lies at `base` of the batch.
fn datagram(
    completion: &WorkCompletion,
    place: &Place,
    base: usize,
    table: &Table,
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
    let route = match completion.has_grh() {
        true => grh::parse(header).ok_or(Dropped::Malformed)?,
        false => without_route(completion.slid(), table),
    };
    let multicast = route.dst.is_multicast();
    // By verbs a packet to a group reaches its sender, too, unless the device was told otherwise,
    // which not all take (IBA vol. 1, 10.5.2).
    if multicast && completion.src_qpn() == completion.qpn() && route.src == table.gid {
        return Err(Dropped::Own);
    }
    Ok(UdReceived {
        endpoint: endpoint.id,
        src_qpn: completion.src_qpn(),
        src_gid: route.src,
        dst_gid: route.dst,
        multicast,
        pkey,
        checksum_ok: completion.checksum_ok() && table.checks_checksums(),
        range: base + GRH_LEN..base + len,
    })
}

/// InfiniBand within a subnet has no GRH: the sender is who is known to have the LID.
fn without_route(slid: Lid, table: &Table) -> Route {
    let known = table.lids.iter().find(|(_, lid)| **lid == slid);
    Route {
        src: known.map_or(Gid::UNSPECIFIED, |(gid, _)| *gid),
        dst: table.gid,
    }
}
