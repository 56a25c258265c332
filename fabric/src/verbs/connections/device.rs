//! What the engine wants of a device and of rdma_cm: each method is a call or two, and none waits.
//! [`super::real::RealDevice`] makes the calls, tests have a network of their own.

use std::fmt::Debug;
use std::io;

use proto::{Gid, Qpn};

use super::state::CmEvent;

/// Where a connection begins or ends: a GID of the port as rdma_cm names it, by its IP address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The address: GIDs of RoCE are IP addresses, `::ffff:a.b.c.d` an IPv4 one.
    pub gid: Gid,
    /// The index of the network interface, which a link-local address means nothing without.
    pub scope: u32,
    /// The port number; 0: any.
    pub port: u16,
}

/// What is known of a request's way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Where the queue pair's packets go, and come from.
    pub peer: Gid,
    /// The index of the request's P_Key in the port's table.
    pub pkey_index: u16,
    /// The path MTU in bytes.
    pub path_mtu: u32,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
}

/// What rdma_cm tells.
#[derive(Debug)]
pub enum Event<I> {
    /// RDMA_CM_EVENT_CONNECT_REQUEST.
    Request {
        /// The port number that it came to.
        port: u16,
        /// The new id; it has the context of the listener.
        id: I,
        /// 56 bytes.
        private_data: Box<[u8]>,
    },
    /// What happened to a connection.
    Of {
        /// The context of its id.
        context: u64,
        /// What.
        event: CmEvent,
        /// A negative errno, or the reason of a REJ.
        status: i32,
        /// A REP has 196 bytes of it.
        private_data: Box<[u8]>,
    },
    /// RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_ADDR_CHANGE: the listener is none any more.
    ListenerGone {
        /// Its port number.
        port: u16,
    },
    /// What concerns nobody here.
    Other,
}

/// Messages side by side in one piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Bytes between the beginnings of two messages.
    pub stride: usize,
    /// How many.
    pub count: usize,
    /// Bytes of each but the last.
    pub len: usize,
    /// Bytes of the last.
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
    /// The pieces of transmit memory, and what posting takes.
    type Memory;

    /// rdma_create_id, rdma_bind_addr and rdma_listen.
    fn listen(&mut self, at: &Address) -> io::Result<Self::Id>;

    /// rdma_create_id and rdma_resolve_addr; `context` comes back with the events.
    fn begin(&mut self, context: u64, from: &Address, to: &Address) -> io::Result<Self::Id>;

    /// Gives the id of a request the context of its own.
    fn set_context(&mut self, id: &mut Self::Id, context: u64);

    /// rdma_resolve_route.
    fn resolve_route(&mut self, id: &Self::Id) -> io::Result<()>;

    /// Where a request came from, by rdma_init_qp_attr.
    fn path(&mut self, id: &Self::Id) -> io::Result<Path>;

    /// Makes a queue pair and takes it to INIT with this P_Key.
    fn make(&mut self, id: &Self::Id, pkey_index: u16) -> io::Result<Self::Pair>;

    /// Its number.
    fn qpn(&self, pair: &Self::Pair) -> Qpn;

    /// Takes a queue pair to RTR and RTS with what the peer said.
    fn bring_up(&mut self, id: &Self::Id, pair: &Self::Pair) -> io::Result<Path>;

    /// rdma_connect, with at most 56 bytes of private data.
    fn ask(&mut self, id: &Self::Id, pair: &Self::Pair, private_data: &[u8]) -> io::Result<()>;

    /// rdma_accept, with at most 196 bytes of private data.
    fn accept(&mut self, id: &Self::Id, pair: &Self::Pair, private_data: &[u8]) -> io::Result<()>;

    /// rdma_establish.
    fn confirm(&mut self, id: &Self::Id) -> io::Result<()>;

    /// rdma_reject, with at most 148 bytes of private data.
    fn reject(&mut self, id: &Self::Id, private_data: &[u8]) -> io::Result<()>;

    /// rdma_disconnect.
    fn disconnect(&mut self, id: &Self::Id) -> io::Result<()>;

    /// Takes a queue pair to ERR.
    fn stop(&mut self, pair: &Self::Pair) -> io::Result<()>;

    /// The next event, if there is one.
    fn event(&mut self) -> io::Result<Option<Event<Self::Id>>>;

    /// Posts messages as one list, of which the last is signalled. After a failure the memory is either
    /// back or comes back by [`Device::destroy`], and the queue pair is of no use any more.
    fn post(
        &mut self,
        pair: &Self::Pair,
        memory: &mut Self::Memory,
        slot: Self::Slot,
        shape: &Shape,
    ) -> io::Result<()>;

    /// Destroys a queue pair, if there is one, and then its id. What was posted comes back, and the
    /// device no longer uses its memory.
    fn destroy(&mut self, id: Self::Id, pair: Option<Self::Pair>);
}
