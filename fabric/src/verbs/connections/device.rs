//! The calls of the engine to a device and to communication management; each method makes one or two calls
//! and none waits. The names are those of rdma_cm. [`super::real::RealDevice`] makes the real calls, tests
//! have their own network.

use std::fmt::Debug;
use std::io;

use proto::{Gid, Instant, Qpn, RejectReason, ServiceId};

use super::state::CmEvent;
use crate::pkeys::{Entry, PKeyTable};
use crate::worker::Counters;

/// A service at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The port's GID. RoCE GIDs are IP addresses, `::ffff:a.b.c.d` an IPv4 address.
    pub gid: Gid,
    /// Index of the network interface, for link-local IP addresses.
    pub scope: u32,
    /// The service.
    pub service: ServiceId,
}

/// The requesting end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    /// The port's GID.
    pub gid: Gid,
    /// The P_Key of the connection, and its index.
    pub entry: Entry,
}

/// Path of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// The peer's GID: destination and source of the queue pair's packets.
    pub peer: Gid,
    /// Index of the request's P_Key in the port's table.
    pub pkey_index: u16,
    /// Path MTU in bytes.
    pub path_mtu: u32,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
}

/// Events of communication management, named as in rdma_cm.
#[derive(Debug)]
pub enum Event<I> {
    /// RDMA_CM_EVENT_CONNECT_REQUEST.
    Request {
        /// The requested service.
        service: ServiceId,
        /// The new id; it has the listener's context.
        id: I,
        /// Private data: 92 bytes, or 56 after rdma_cm's header.
        private_data: Box<[u8]>,
    },
    /// An event of a connection.
    Of {
        /// Context of its id.
        context: u64,
        /// Kind of the event.
        event: CmEvent,
        /// A negative errno, or the reason of a REJ.
        status: i32,
        /// Private data; 196 bytes in a REP.
        private_data: Box<[u8]>,
    },
    /// RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_ADDR_CHANGE: the listener does not work any more.
    ListenerGone {
        /// The listener's service.
        service: ServiceId,
    },
    /// Any other event.
    Other,
}

impl<I> Event<I> {
    /// The event with its id in another type.
    pub fn with_id<J>(self, wrap: impl FnOnce(I) -> J) -> Event<J> {
        match self {
            Event::Request {
                service,
                id,
                private_data,
            } => Event::Request {
                service,
                id: wrap(id),
                private_data,
            },
            Event::Of {
                context,
                event,
                status,
                private_data,
            } => Event::Of {
                context,
                event,
                status,
                private_data,
            },
            Event::ListenerGone { service } => Event::ListenerGone { service },
            Event::Other => Event::Other,
        }
    }
}

/// Messages side by side in a piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Distance between the starts of two messages in bytes.
    pub stride: usize,
    /// Number of messages.
    pub count: usize,
    /// Bytes of each message except the last.
    pub len: usize,
    /// Bytes of the last message.
    pub last: usize,
}

/// A device.
pub trait Device {
    /// An rdma_cm id.
    type Id: Debug;
    /// An RC queue pair.
    type Pair: Debug;
    /// A piece of transmit memory.
    type Slot: Debug;
    /// Transmit memory and the state for posting.
    type Memory;

    /// rdma_create_id, rdma_bind_addr and rdma_listen.
    fn listen(&mut self, at: &Address) -> io::Result<Self::Id>;

    /// rdma_create_id and rdma_resolve_addr; events carry `context`.
    fn begin(&mut self, context: u64, from: &Source, to: &Address) -> io::Result<Self::Id>;

    /// Sets the context of a request's id.
    fn set_context(&mut self, id: &mut Self::Id, context: u64);

    /// rdma_resolve_route.
    fn resolve_route(&mut self, id: &Self::Id) -> io::Result<()>;

    /// The path of a request, by rdma_init_qp_attr. `pkeys` is the port's table.
    fn path(&mut self, id: &Self::Id, pkeys: &PKeyTable) -> io::Result<Path>;

    /// Creates a queue pair in INIT with this P_Key.
    fn make(&mut self, id: &Self::Id, pkey_index: u16) -> io::Result<Self::Pair>;

    /// Queue pair number.
    fn qpn(&self, pair: &Self::Pair) -> Qpn;

    /// Changes a queue pair to RTR with the peer's parameters, and to RTS if it `sends`.
    fn bring_up(&mut self, id: &Self::Id, pair: &Self::Pair, sends: bool) -> io::Result<Path>;

    /// rdma_connect, with at most 92 bytes of private data, or 56 after rdma_cm's header.
    fn ask(&mut self, id: &Self::Id, pair: &Self::Pair, private_data: &[u8]) -> io::Result<()>;

    /// rdma_accept, with at most 196 bytes of private data.
    fn accept(&mut self, id: &Self::Id, pair: &Self::Pair, private_data: &[u8]) -> io::Result<()>;

    /// rdma_establish.
    fn confirm(&mut self, id: &Self::Id) -> io::Result<()>;

    /// rdma_reject, with at most 148 bytes of private data. rdma_cm always sends
    /// [`RejectReason::CONSUMER`] (kernel drivers/infiniband/core/ucma.c, `ucma_reject`).
    fn reject(
        &mut self,
        id: &Self::Id,
        reason: RejectReason,
        private_data: &[u8],
    ) -> io::Result<()>;

    /// rdma_disconnect.
    fn disconnect(&mut self, id: &Self::Id) -> io::Result<()>;

    /// Changes a queue pair to ERR.
    fn stop(&mut self, pair: &Self::Pair) -> io::Result<()>;

    /// The next event, if any.
    fn event(&mut self) -> io::Result<Option<Event<Self::Id>>>;

    /// When to call [`Device::handle_timeout`] and then [`Device::event`].
    fn next_deadline(&self) -> Option<Instant>;

    /// Handles the timers of communication management, unless the kernel does.
    fn handle_timeout(&mut self, now: Instant);

    /// Counters of communication management by name, unless the kernel counts.
    fn counters(&self) -> Counters {
        Counters::new()
    }

    /// Posts messages as one list; the last one is signalled. After a failure the memory is returned
    /// now or by [`Device::destroy`], and the queue pair is unusable.
    fn post(
        &mut self,
        pair: &Self::Pair,
        memory: &mut Self::Memory,
        slot: Self::Slot,
        shape: &Shape,
    ) -> io::Result<()>;

    /// Destroys a queue pair, if there is one, and then its id, which notifies a peer that waits. The posted places come back, and the
    /// device no longer uses their memory.
    fn destroy(&mut self, id: Self::Id, pair: Option<Self::Pair>);
}
