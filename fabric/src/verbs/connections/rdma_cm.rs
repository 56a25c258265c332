//! Communication management by the kernel: ids of rdma_cm, over IP addresses on Ethernet and over GIDs
//! (AF_IB) on InfiniBand.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proto::{Gid, PKey, ServiceId};

use super::device::{Address, Event, Path, Source};
use super::state::CmEvent;
use crate::verbs::ibv::cm::{
    CmAddress, CmEventKind, CmId, CmKey, ConnectionParameters, EventChannel, IbAddress, PortSpace,
};
use crate::verbs::ibv::{QueuePair, QueuePairState, StateChange};
use crate::verbs::lock;
use crate::verbs::sys::Library;

/// Maximum time of the kernel to resolve an address, and a route.
const RESOLVE: Duration = Duration::from_secs(2);

/// Maximum number of pending requests in the kernel; it rejects more.
const BACKLOG: u16 = 128;

/// Marks the contexts of listeners, which hold the port number in the low bits.
const LISTENER: u64 = 2 << 32;

/// The contexts of the existing ids.
type Contexts = Arc<Mutex<HashMap<CmKey, u64, foldhash::fast::RandomState>>>;

/// An id. Another id may reuse its key after its end.
#[derive(Debug)]
pub struct Line {
    pub id: CmId,
    contexts: Contexts,
}

impl Drop for Line {
    fn drop(&mut self) {
        lock(&self.contexts).remove(&self.id.key());
    }
}

/// The ids of a worker.
#[derive(Debug)]
pub struct RdmaCm {
    channel: Arc<EventChannel>,
    contexts: Contexts,
}

/// The address of a service, or of a port without one, in rdma_cm's form. `space` decides which.
pub fn cm_address(
    space: PortSpace,
    gid: Gid,
    scope: u32,
    pkey: PKey,
    service: Option<ServiceId>,
) -> CmAddress {
    if space == PortSpace::Ib {
        return CmAddress::Ib(IbAddress { gid, pkey, service });
    }
    let port = service.and_then(ServiceId::rdma_cm_port).unwrap_or(0);
    CmAddress::Ip(match gid.to_ip() {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, port, 0, scope).into()
        }
        ip => SocketAddr::new(ip, port),
    })
}

fn nonsense() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "invalid connection attributes from the verbs library",
    )
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
        CmEventKind::ConnectRequest
        | CmEventKind::MulticastJoin
        | CmEventKind::MulticastError
        | CmEventKind::Other(_) => return None,
    })
}

impl RdmaCm {
    /// Creates an event channel, for ids in one port space.
    ///
    /// # Errors
    /// Errors of rdma_create_event_channel(3).
    pub fn new(library: &Arc<dyn Library>, space: PortSpace) -> io::Result<RdmaCm> {
        Ok(RdmaCm {
            channel: EventChannel::new(library, space)?,
            contexts: Contexts::default(),
        })
    }

    /// Readable when there are events.
    ///
    /// # Errors
    /// InvalidData if the library gave no descriptor.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.channel.fd()
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

    fn space(&self) -> PortSpace {
        self.channel.space()
    }

    /// The service in a listener's context.
    fn listens_on(&self, context: u64) -> Option<ServiceId> {
        let port = context as u16;
        (context >> 32 == LISTENER >> 32).then(|| match self.space() {
            PortSpace::Tcp => ServiceId::rdma_cm(port),
            PortSpace::Ib | PortSpace::Ipoib => ServiceId::rdma_ib(port),
        })
    }

    /// rdma_create_id, rdma_bind_addr and rdma_listen.
    pub fn listen(&self, at: &Address) -> io::Result<Line> {
        let port = match self.space() {
            PortSpace::Tcp => at.service.rdma_cm_port(),
            PortSpace::Ib | PortSpace::Ipoib => at.service.rdma_ib_port(),
        };
        let port = port.ok_or(io::ErrorKind::Unsupported)?;
        let id = CmId::new(&self.channel)?;
        // The default partition stands for any (kernel drivers/infiniband/core/cma.c, `cma_translate_ib`
        // and `cma_match_private_data`: listeners have no P_Key).
        let address = cm_address(
            self.space(),
            at.gid,
            at.scope,
            PKey::DEFAULT,
            Some(at.service),
        );
        id.bind(address)?;
        id.listen(BACKLOG)?;
        Ok(self.line(id, LISTENER | u64::from(port)))
    }

    /// rdma_create_id and rdma_resolve_addr.
    pub fn begin(&self, context: u64, from: &Source, to: &Address) -> io::Result<Line> {
        let line = self.line(CmId::new(&self.channel)?, context);
        let (space, pkey) = (self.space(), from.entry.pkey);
        let from = cm_address(space, from.gid, to.scope, pkey, None);
        let to = cm_address(space, to.gid, to.scope, pkey, Some(to.service));
        line.id.resolve_address(Some(from), to, RESOLVE)?;
        Ok(line)
    }

    /// Sets the context of a request's id.
    pub fn set_context(&self, line: &Line, context: u64) {
        lock(&self.contexts).insert(line.id.key(), context);
    }

    /// rdma_resolve_route.
    pub fn resolve_route(line: &Line) -> io::Result<()> {
        line.id.resolve_route(RESOLVE)
    }

    /// The path of a request, by rdma_init_qp_attr.
    pub fn path(&self, line: &Line) -> io::Result<Path> {
        let to_init = line.id.state_change(QueuePairState::Init)?;
        let pkey_index = to_init.pkey_index().ok_or_else(nonsense)?;
        let to_receive = line.id.state_change(QueuePairState::Rtr)?;
        self.path_in(line, &to_receive, pkey_index)
    }

    /// The path to the peer in attributes for RTR. On InfiniBand they have no GID without a router on
    /// the path.
    fn path_in(&self, line: &Line, to_receive: &StateChange, pkey_index: u16) -> io::Result<Path> {
        let peer = match self.space() {
            PortSpace::Tcp => to_receive.dgid(),
            PortSpace::Ib | PortSpace::Ipoib => Some(line.id.path().dgid),
        };
        let path = || {
            Some(Path {
                peer: peer?,
                pkey_index,
                path_mtu: to_receive.path_mtu()?.bytes(),
                remote_qpn: to_receive.dest_qpn()?,
            })
        };
        path().ok_or_else(nonsense)
    }

    /// Changes a queue pair to RTR, and if it `sends` to RTS, as both sides have agreed. `adapt` may
    /// change the attributes.
    pub fn bring_up(
        &self,
        line: &Line,
        pair: &QueuePair,
        sends: bool,
        adapt: impl Fn(StateChange) -> StateChange,
    ) -> io::Result<Path> {
        let to_receive = line.id.state_change(QueuePairState::Rtr)?;
        let path = self.path_in(line, &to_receive, 0)?;
        pair.modify(&adapt(to_receive))?;
        if sends {
            pair.modify(&adapt(line.id.state_change(QueuePairState::Rts)?))?;
        }
        Ok(path)
    }

    /// rdma_connect.
    pub fn ask(line: &Line, parameters: &ConnectionParameters, data: &[u8]) -> io::Result<()> {
        line.id.connect(parameters, data)
    }

    /// rdma_accept.
    pub fn accept(line: &Line, parameters: &ConnectionParameters, data: &[u8]) -> io::Result<()> {
        line.id.accept(parameters, data)
    }

    /// The next event, if any.
    pub fn event(&self) -> io::Result<Option<Event<Line>>> {
        let Some(received) = self.channel.next_event()? else {
            return Ok(None);
        };
        let private_data = received.private_data.into_boxed_slice();
        if let Some(id) = received.request {
            let listener = received.listener.and_then(|key| self.context(key));
            // Without a listener, its id ends here.
            return Ok(Some(match listener.and_then(|c| self.listens_on(c)) {
                Some(service) => Event::Request {
                    service,
                    id: self.line(id, 0),
                    private_data,
                },
                None => Event::Other,
            }));
        }
        let (Some(context), Some(event)) = (self.context(received.id), event(received.kind)) else {
            return Ok(Some(Event::Other));
        };
        Ok(Some(match (self.listens_on(context), event) {
            (Some(service), CmEvent::DeviceRemoval | CmEvent::AddrChange) => {
                Event::ListenerGone { service }
            }
            (Some(_), _) => Event::Other,
            (None, event) => Event::Of {
                context,
                event,
                status: received.status,
                private_data,
            },
        }))
    }
}
