//! The port's QP1 as the carrier of subnet administration: requests go to the QP1 of a port with a known
//! GID, by the path of all packets to this GID.
//!
//! A worker that receives a datagram of subnet administration puts the datagram into a bounded queue for
//! the control thread. As in the kernel (drivers/infiniband/core/user_mad.c), the upper half of the
//! transaction id of each request is a number of the carrier. The number is unpredictable: strangers cannot
//! answer a request that they do not see.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use proto::Gid;

use super::address_handle::Address;
use super::counts::Counts;
use super::gsi::{Gsi, MAD_PACKET_LEN};
use super::snapshot::Shared;
use super::train::{self, Route};
use super::transmitter::{Outcome, Shape, Transmitter};
use crate::administration::{Abilities, Carrier, Place};
use crate::kernel::random;
use crate::mad::{MAD_LEN, method};
use crate::port::FabricError;
use crate::ready_queue::ReadyQueue;

/// Maximum number of datagrams that wait for the control thread; further datagrams are dropped. The window
/// of a table has 64 segments.
const WAITING_MAX: usize = 256;

/// The upper half of the transaction id in the common header (IBA vol. 1, 13.4.2).
const NUMBER: std::ops::Range<usize> = 8..12;

/// Received datagrams of subnet administration, from all workers.
#[derive(Debug)]
pub struct Inbox {
    /// The port of the subnet administrator. Datagrams of other ports are not for this queue.
    pub from: Gid,
    queue: ReadyQueue<[u8; MAD_LEN]>,
}

impl Inbox {
    fn new(from: Gid) -> io::Result<Inbox> {
        Ok(Inbox {
            from,
            queue: ReadyQueue::new()?,
        })
    }

    /// Adds a datagram; false if the queue is full.
    pub fn put(&self, mad: &[u8; MAD_LEN]) -> bool {
        self.queue
            .put_if(*mad, |waiting| waiting.len() < WAITING_MAX)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Qp1Carrier {
    inbox: Arc<Inbox>,
    shared: Arc<Shared>,
    gsi: Gsi,
    transmitter: Transmitter,
    number: [u8; 4],
}

impl Qp1Carrier {
    /// A carrier to the port `administrator`, and the queue for the workers.
    pub(super) fn new(
        shared: &Arc<Shared>,
        administrator: Gid,
    ) -> io::Result<(Qp1Carrier, Arc<Inbox>)> {
        let inbox = Arc::new(Inbox::new(administrator)?);
        let carrier = Qp1Carrier {
            inbox: Arc::clone(&inbox),
            shared: Arc::clone(shared),
            gsi: Gsi::new(random()),
            transmitter: Transmitter {
                segmentation: false,
            },
            number: (random() as u32).to_be_bytes(),
        };
        Ok((carrier, inbox))
    }

    /// Whether a datagram answers a request of this carrier, or is a request itself.
    fn concerns(&self, mad: &[u8; MAD_LEN]) -> bool {
        let is_report = mad[3] == method::REPORT;
        is_report || mad[NUMBER] == self.number
    }
}

impl Carrier for Qp1Carrier {
    fn event_fd(&self) -> BorrowedFd<'_> {
        self.inbox.queue.as_fd()
    }

    fn receive(&mut self) -> Result<Option<Vec<u8>>, FabricError> {
        let concerning =
            std::iter::from_fn(|| self.inbox.queue.take()).find(|mad| self.concerns(mad));
        Ok(concerning.map(Vec::from))
    }

    fn send(&mut self, mad: &[u8; MAD_LEN], _: Duration) {
        let table = self.shared.table();
        let Some(sockets) = table.sockets.first() else {
            return;
        };
        let mut mad = *mad;
        if mad[3] & method::RESPONSE == 0 {
            mad[NUMBER].copy_from_slice(&self.number);
        }
        let to = Address::port(self.inbox.from);
        let shape = Shape {
            stride: MAD_PACKET_LEN,
            count: 1,
            first: 0,
        };
        self.gsi.load(table.pkeys.management().pkey, &mad);
        let seal =
            |memory: &mut [u8], route: &Route| train::seal_run(memory, MAD_PACKET_LEN, route);
        let out = (&sockets.management, table.ifindex);
        let memory = &mut self.gsi.packet[..];
        // The client repeats a request without an answer.
        let sent = self
            .transmitter
            .send(&mut Counts::default(), out, &to, shape, memory, seal);
        if sent != Outcome::Done {
            log::debug!("cannot send to the subnet administrator {}", to.ip);
        }
    }

    fn place(&self) -> Option<Place> {
        Some(Place::Port(self.inbox.from))
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            reports: true,
            segments: true,
            // The software fabric has no QP0, so no subnet manager requests a reregistration.
            losses: false,
        }
    }
}
