//! The verbs provider: RDMA devices of the kernel (InfiniBand HCAs, RoCE NICs, `rdma_rxe`) over
//! libibverbs and librdmacm, which are loaded when a port is opened.
//!
//! Layers, lowest first: `sys` (libibverbs and librdmacm: types generated from their headers, functions
//! found at run time as `Library`; tests insert a library that counts, fails and gives wrong answers);
//! `ibv` (an owner for each object, destroyed in the order that the libraries require; unsafe code ends
//! here); `port`, `port_state`, `gid`, `groups` (control side); `worker`, `lane`, `receive`, `transmit`,
//! `crate::handles` (data side, datagrams); `connections` (data side, RC: an engine that decides and reads no
//! clock, over a trait that makes the calls).
//!
//! A worker has one completion channel, a completion queue for receives and one for sends, a shared
//! receive queue for datagrams and one for messages. An endpoint has a queue pair for each worker; the
//! first one is advertised and attached to groups, so the first worker receives. Without shared
//! receive queues, each UD queue pair has a receive queue of 128 places; there are at most 32 endpoints,
//! and no connections.
//!
//! * **Memory** (`receive`, `transmit`). Memory is registered once and cut into places. A place has
//!   one owner: posting takes it, its completion returns it, and only the owner can make a slice,
//!   so no slice covers memory that the device may write. Work requests name a place by pool, index
//!   and generation; a late, repeated or foreign completion names none. Places in the queues of
//!   a queue pair return when it reaches RESET. Those in a shared receive queue stay there; but some drivers free the
//!   places of completions that were not polled, so the worker changes the queue pair to ERR and takes all receive
//!   completions before RESET, and before a removed queue pair is destroyed. The only copies are those to and from
//!   the TAP.
//! * **Sending** (`transmit`). A train is one `ibv_post_send` of chained work requests, the last
//!   one signalled; fitting payloads are inline. Outstanding work never exceeds the send queue and
//!   the completion queue.
//! * **Sleeping** (`worker`). `poll` never arms. Before a data thread sleeps it calls
//!   `Worker::arm`, which posts the places of the last batch, arms the completion queue and polls once
//!   more, because earlier completions make no event. The thread waits for sends only while there is no room. Events are
//!   acknowledged in batches.
//! * **Address handles** (`maker`, `crate::handles`). On RoCE `ibv_create_ah` resolves a MAC and waits for
//!   the peer, so separate threads create and destroy handles. A handle has its number at once; up
//!   to four trains for it, 32 in total, wait. A failed handle is tried again after 250 ms,
//!   doubling to 10 s. Equal attributes share one handle; 1024 unused ones are kept. A
//!   handle in use is created again after 5 minutes, and one without users with its next user: the MAC or the path
//!   may be another. The old object sends until then, and at most two of the four threads do this. After a change of
//!   the GID or the device a handle is created again with its next packet.
//! * **Checksums** (`receive`). With `IBV_DEVICE_UD_IP_CSUM` on InfiniBand, packets that the device
//!   verified (`UdReceived::checksum_ok`) are coalesced without another check. On Ethernet the flag
//!   is ignored: it may mean RoCE's outer IP header. `IBV_SEND_IP_CSUM` is not used: segments are
//!   copied out of the TAP's buffer anyway and summed in that pass. Large sends are not used:
//!   `ibv_device_attr_ex.tso_caps` is for raw packets, not for UD.
//! * **Multicast** (`groups`). Queue pairs attach with `ibv_attach_mcast`. The port's interface
//!   also joins the IPv6 group, because `rdma_rxe` and RoCE NICs leave membership reports to the
//!   host.
//! * **Connections** (`connections`). Queue pairs are on the worker's queues, moved by
//!   `ibv_modify_qp`. On InfiniBand, communication management is our own, over management datagrams
//!   (`connections::umad`), and serves all service IDs but those of rdma_cm. On RoCE the kernel owns QP1, and on InfiniBand it
//!   may: there communication management uses rdma_cm, and nothing else does. rdma_cm receives requests
//!   for services of its port spaces only, so interfaces listen on port 4755: of the TCP port space on RoCE,
//!   of the IB port space on InfiniBand. RFC 4755's eight bytes are the head of the request's private data
//!   (56 bytes on RoCE); the last four have the requested queue pair, because all interfaces of a port
//!   share the listener. The software fabric does the same (`fabric/src/mad/cm/rdma_cm.rs`).
//! * **Events** (`port_state`). Asynchronous events, rtnetlink and a timer wake the control side, which
//!   reads the whole port: state, MTU, GID table, P_Key table, LID; and twice more, a second apart,
//!   because the kernel announces some changes before they are visible. It reports differences, so
//!   a missed or repeated event does no harm. The worker, which knows the posted work, resets a
//!   failed queue pair.
//! * **Removal** (`presence`, `held`). When the device fails (`IBV_EVENT_DEVICE_FATAL`, a failed
//!   call of the data path, ten seconds without a completion) or its node disappears, everything is
//!   closed: groups, queue pairs, then their owners, the context last, then librdmacm's references
//!   (`held`): drivers such as `rdma_rxe` delay a removal while the device is open. It is opened
//!   again after 1 s, doubling to 30 s; endpoints keep ids and groups and get new queue pair
//!   numbers (`PortEvent::QpnChange`), which are announced to peers.
//! * **InfiniBand** (`port::subnet`, `port::joining`, `worker::destinations`). The port joins groups with
//!   the subnet administrator, and asks it for the paths to the destinations of all workers: of address
//!   handles, and of connections that we manage. RoCE and InfiniBand differ in that, in
//!   communication management, and in the 40 bytes before a datagram (`grh`), which may have an IPv4
//!   header on RoCE. Without a GRH the sender's GID is the one last seen with the LID (`sources`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use proto::counters::Description;

mod config;
mod connections;
mod counts;
mod device;
mod endpoint;
mod gid;
mod grh;
mod groups;
mod held;
pub mod ibv;
mod kernel_groups;
mod lane;
pub mod look;
mod maker;
mod nodes;
mod open;
mod port;
mod port_state;
mod presence;
mod receive;
mod shares;
mod snapshot;
mod sources;
pub mod sys;
pub(crate) mod sysfs;
mod transmit;
mod unusable;
mod worker;

pub use config::VerbsConfig;
#[doc(hidden)]
pub use connections::fuzzed;
pub use nodes::only_these_nodes;
pub use port::VerbsPort;

/// Names and descriptions of a worker's counters.
pub fn counter_descriptions() -> impl Iterator<Item = &'static Description> {
    let packets = counts::Counts::DESCRIPTIONS.iter();
    packets.chain(connections::counter_descriptions())
}

/// Locks a mutex, also after a panic of its last owner: the values here are valid at any time.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
