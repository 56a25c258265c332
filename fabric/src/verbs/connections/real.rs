//! A device of the kernel under the engine: rdma_cm's ids, and our queue pairs on the worker's queues.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proto::Qpn;

use super::device::{Address, Device as Calls, Event, Path, Shape};
use super::state::CmEvent;
use crate::verbs::device::Device;
use crate::verbs::ibv::cm::{CmEventKind, CmId, CmKey, ConnectionParameters, EventChannel};
use crate::verbs::ibv::{
    Emptied, Place, QueuePair, QueuePairInit, QueuePairKind, QueuePairState, StateChange,
};
use crate::verbs::transmit::Transmit;

/// How long the kernel may look for an address, and for a way there.
const RESOLVE: Duration = Duration::from_secs(2);

/// Requests that the kernel keeps for us; it rejects more.
const BACKLOG: u16 = 128;

/// How long a queue pair waits for an acknowledgement: 268 ms, twice what `rdma_rxe` says that it may
/// take to acknowledge (kernel drivers/infiniband/sw/rxe/rxe_param.h, RXE_LOCAL_CA_ACK_DELAY). What rdma_cm
/// would have is 2.1 s.
const ACK_TIMEOUT: u8 = 16;

/// How often it asks again: a peer that has gone is noticed after two seconds. IPoIB's 0 loses a
/// connection with a packet; with 7, `rdma_rxe` never gives up (rxe_comp.c, `rxe_completer`).
const RETRY_COUNT: u8 = 6;

/// How often it asks again while the peer has no receive buffer: for ever, and [`super::PROGRESS`] ends
/// it. How long to wait each time is the peer's to say; six times may be 4 ms or 4 s.
const RNR_RETRY: u8 = 7;

/// The least time that a peer is to wait after an RNR NAK of ours: code 12 is 0.64 ms (IBA vol. 1,
/// table 45). rdma_cm would have code 0, which is 655 ms. A buffer is free again as soon as the data thread
/// has handled its batch.
const MIN_RNR_TIMER: u8 = 12;

/// In the contexts of listeners; the port number is below.
const LISTENER: u64 = 2 << 32;

/// The contexts of the ids that there are.
type Contexts = Arc<Mutex<HashMap<CmKey, u64, foldhash::fast::RandomState>>>;

fn lock(contexts: &Contexts) -> MutexGuard<'_, HashMap<CmKey, u64, foldhash::fast::RandomState>> {
    contexts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An id. Its key may be another's as soon as it is gone.
#[derive(Debug)]
pub struct Line {
    id: CmId,
    contexts: Contexts,
}

impl Drop for Line {
    fn drop(&mut self) {
        lock(&self.contexts).remove(&self.id.key());
    }
}

/// A device, as far as connections go.
#[derive(Debug)]
pub struct RealDevice {
    channel: Arc<EventChannel>,
    device: Arc<Device>,
    port: u8,
    depth: u32,
    contexts: Contexts,
    /// Proofs that what was posted to queue pairs is forgotten.
    emptied: Vec<Emptied>,
}

impl RealDevice {
    /// With an event channel of its own. Queue pairs hold `depth` messages.
    ///
    /// # Errors
    /// Those of rdma_create_event_channel(3).
    pub fn new(device: &Arc<Device>, port: u8, depth: u32) -> io::Result<RealDevice> {
        Ok(RealDevice {
            channel: EventChannel::new(device.context.libraries())?,
            device: Arc::clone(device),
            port,
            depth,
            contexts: Contexts::default(),
            emptied: Vec::new(),
        })
    }

    /// Readable when there are events.
    ///
    /// # Errors
    /// InvalidData if the library gave no descriptor.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.channel.fd()
    }

    /// Queue pairs that were destroyed: their places can be had back.
    pub fn take_emptied(&mut self) -> Vec<Emptied> {
        std::mem::take(&mut self.emptied)
    }

    fn line(&self, id: CmId, context: u64) -> Line {
        lock(&self.contexts).insert(id.key(), context);
        Line {
            id,
            contexts: Arc::clone(&self.contexts),
        }
    }

    fn context(&self, key: CmKey) -> Option<u64> {
        lock(&self.contexts).get(&key).copied()
    }
}

/// The port number of a listener.
const fn listens_on(context: u64) -> Option<u16> {
    if context >> 32 == LISTENER >> 32 {
        Some(context as u16)
    } else {
        None
    }
}

/// As rdma_cm takes it.
pub fn socket_address(address: &Address) -> SocketAddr {
    match address.gid.to_ip() {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, address.port, 0, address.scope).into()
        }
        ip => SocketAddr::new(ip, address.port),
    }
}

fn nonsense() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the verbs library says nothing sensible about a connection",
    )
}

/// What attributes for RTR say about the way to the peer.
fn path(to_receive: &StateChange, pkey_index: u16) -> Option<Path> {
    Some(Path {
        peer: to_receive.dgid()?,
        pkey_index,
        path_mtu: to_receive.path_mtu()?.bytes(),
        remote_qpn: to_receive.dest_qpn()?,
    })
}

fn parameters(pair: &QueuePair) -> ConnectionParameters {
    ConnectionParameters {
        qpn: pair.qpn(),
        srq: true,
        retry_count: RETRY_COUNT,
        rnr_retry: RNR_RETRY,
    }
}

const fn event(kind: CmEventKind) -> Option<CmEvent> {
    Some(match kind {
        CmEventKind::AddressResolved => CmEvent::AddrResolved,
        CmEventKind::AddressError => CmEvent::AddrError,
        CmEventKind::RouteResolved => CmEvent::RouteResolved,
        CmEventKind::RouteError => CmEvent::RouteError,
        CmEventKind::ConnectResponse => CmEvent::ConnectResponse,
        CmEventKind::ConnectError => CmEvent::ConnectError,
        CmEventKind::Unreachable => CmEvent::Unreachable,
        CmEventKind::Rejected => CmEvent::Rejected,
        CmEventKind::Established => CmEvent::Established,
        CmEventKind::Disconnected => CmEvent::Disconnected,
        CmEventKind::DeviceRemoval => CmEvent::DeviceRemoval,
        CmEventKind::AddressChange => CmEvent::AddrChange,
        CmEventKind::TimewaitExit => CmEvent::TimewaitExit,
        CmEventKind::ConnectRequest | CmEventKind::Other(_) => return None,
    })
}

impl Calls for RealDevice {
    type Id = Line;
    type Pair = QueuePair;
    type Slot = Place;
    type Memory = Transmit;

    fn listen(&mut self, at: &Address) -> io::Result<Line> {
        let id = CmId::new(&self.channel)?;
        id.bind(socket_address(at))?;
        id.listen(BACKLOG)?;
        Ok(self.line(id, LISTENER | u64::from(at.port)))
    }

    fn begin(&mut self, context: u64, from: &Address, to: &Address) -> io::Result<Line> {
        let line = self.line(CmId::new(&self.channel)?, context);
        let (from, to) = (socket_address(from), socket_address(to));
        line.id.resolve_address(Some(from), to, RESOLVE)?;
        Ok(line)
    }

    fn set_context(&mut self, line: &mut Line, context: u64) {
        lock(&self.contexts).insert(line.id.key(), context);
    }

    fn resolve_route(&mut self, line: &Line) -> io::Result<()> {
        line.id.resolve_route(RESOLVE)
    }

    fn path(&mut self, line: &Line) -> io::Result<Path> {
        let to_init = line.id.state_change(QueuePairState::Init)?;
        let pkey_index = to_init.pkey_index().ok_or_else(nonsense)?;
        let to_receive = line.id.state_change(QueuePairState::Rtr)?;
        path(&to_receive, pkey_index).ok_or_else(nonsense)
    }

    fn make(&mut self, _: &Line, pkey_index: u16) -> io::Result<QueuePair> {
        let device = &self.device;
        let init = QueuePairInit {
            kind: QueuePairKind::Rc,
            send_cq: Arc::clone(&device.send_cq),
            receive_cq: Arc::clone(&device.receive_cq),
            srq: device.messages.clone(),
            max_send_wr: self.depth,
            max_recv_wr: 0,
            max_inline: device.limits.inline,
        };
        let pair = QueuePair::new(&device.domain, init)?;
        // The peer may send, and nothing else: rdma_cm would allow it to write.
        pair.modify(&StateChange::init_rc(self.port, pkey_index))?;
        Ok(pair)
    }

    fn qpn(&self, pair: &QueuePair) -> Qpn {
        pair.qpn()
    }

    fn bring_up(&mut self, line: &Line, pair: &QueuePair) -> io::Result<Path> {
        let to_receive = line.id.state_change(QueuePairState::Rtr)?;
        let path = path(&to_receive, 0).ok_or_else(nonsense)?;
        pair.modify(&to_receive.with_min_rnr_timer(MIN_RNR_TIMER))?;
        let to_send = line.id.state_change(QueuePairState::Rts)?;
        pair.modify(&to_send.with_retries(ACK_TIMEOUT, RETRY_COUNT, RNR_RETRY))?;
        Ok(path)
    }

    fn ask(&mut self, line: &Line, pair: &QueuePair, private_data: &[u8]) -> io::Result<()> {
        line.id.connect(&parameters(pair), private_data)
    }

    fn accept(&mut self, line: &Line, pair: &QueuePair, private_data: &[u8]) -> io::Result<()> {
        line.id.accept(&parameters(pair), private_data)
    }

    fn confirm(&mut self, line: &Line) -> io::Result<()> {
        line.id.establish()
    }

    fn reject(&mut self, line: &Line, private_data: &[u8]) -> io::Result<()> {
        line.id.reject(private_data)
    }

    fn disconnect(&mut self, line: &Line) -> io::Result<()> {
        line.id.disconnect()
    }

    fn stop(&mut self, pair: &QueuePair) -> io::Result<()> {
        pair.modify(&StateChange::error())
    }

    fn event(&mut self) -> io::Result<Option<Event<Line>>> {
        let Some(told) = self.channel.next_event()? else {
            return Ok(None);
        };
        let private_data = told.private_data.into_boxed_slice();
        if let Some(id) = told.request {
            let listener = told.listener.and_then(|key| self.context(key));
            // Its id ends here if nobody listens any more.
            return Ok(Some(match listener.and_then(listens_on) {
                Some(port) => Event::Request {
                    port,
                    id: self.line(id, 0),
                    private_data,
                },
                None => Event::Other,
            }));
        }
        let (Some(context), Some(event)) = (self.context(told.id), event(told.kind)) else {
            return Ok(Some(Event::Other));
        };
        Ok(Some(match (listens_on(context), event) {
            (Some(port), CmEvent::DeviceRemoval | CmEvent::AddrChange) => {
                Event::ListenerGone { port }
            }
            (Some(_), _) => Event::Other,
            (None, event) => Event::Of {
                context,
                event,
                status: told.status,
                private_data,
            },
        }))
    }

    fn post(
        &mut self,
        pair: &QueuePair,
        memory: &mut Transmit,
        slot: Place,
        shape: &Shape,
    ) -> io::Result<()> {
        memory.post_messages(pair, slot, shape)
    }

    fn destroy(&mut self, line: Line, pair: Option<QueuePair>) {
        // What cannot be ended keeps its memory for good.
        self.emptied.extend(pair.and_then(QueuePair::close));
        drop(line);
    }
}
