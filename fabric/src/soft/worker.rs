//! One worker: its receive memory, its transmit memory, its view of the table.

use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::address_handle::{Address, AddressHandles};
use super::counts::Counts;
use super::icrc_check::IcrcCheck;
use super::qp::Posted;
use super::socket::scope;
use super::sys::{self, Destination, SLOT_LEN, SendOptions, Slab};
use super::table::{Shared, Sockets, Table};
use super::train::{self, HEAD, Header, Ipv4Id, Route, packet_len};
use super::ud::{self, Delivery, Path, Refusal};
use super::wire::ROCE_V2_PORT;
use crate::port::EndpointId;
use crate::types::{Gid, Psn};
use crate::worker::{
    AddressHandle, AhAttributes, Batch, Counters, Sent, Train, TrainTicket, UdDestination,
    UdReceived, Worker,
};

/// Deliveries that one batch holds: every slot full of small packets, and copies of multicast
/// packets for several endpoints.
pub(super) const DELIVERIES: usize = 2048;

/// Bytes of transmit memory: the largest UDP payload, rounded up.
const TRANSMIT_LEN: usize = 1 << 16;

/// A blocked train.
#[derive(Clone, Copy, Debug)]
struct Pending {
    from: EndpointId,
    to: UdDestination,
    /// What the destination's address handle stood for: the handle may end, and its number be used
    /// again, before the train has left.
    address: Address,
    train: TrainTicket,
    psn: Psn,
    progress: Progress,
}

/// How far a train has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Progress {
    /// Copies that are done, when it goes to a list of peers.
    copies: usize,
    /// Packets of the present copy that are sent.
    packets: usize,
}

/// What became of one copy of a train.
enum Copied {
    Done,
    Failed,
    /// Blocked after this many packets.
    Blocked(usize),
}

/// One data thread's part of a soft port.
pub struct SoftWorker {
    index: usize,
    shared: Arc<Shared>,
    /// Becomes readable when the sockets change.
    wake: Arc<OwnedFd>,
    generation: u64,
    table: Arc<Table>,
    /// The sockets that are in the epoll instance.
    sockets: Arc<[Sockets]>,
    epoll: Option<(OwnedFd, u64)>,
    writable_armed: bool,
    slab: Slab,
    icrc: IcrcCheck,
    received: Vec<UdReceived>,
    socket_drops: u32,
    transmit: Vec<u8>,
    pending: Option<Pending>,
    segmentation: bool,
    handles: AddressHandles,
    /// The next PSN of each endpoint's lane, in the order of the table's endpoints.
    psns: Vec<(EndpointId, Psn)>,
    counts: Counts,
}

impl SoftWorker {
    pub(super) fn new(index: usize, shared: Arc<Shared>, wake: Arc<OwnedFd>) -> SoftWorker {
        let mut worker = SoftWorker {
            index,
            shared,
            wake,
            generation: 0,
            table: Arc::default(),
            sockets: Arc::default(),
            epoll: None,
            writable_armed: false,
            slab: Slab::new(),
            icrc: IcrcCheck::default(),
            received: Vec::with_capacity(DELIVERIES),
            socket_drops: 0,
            transmit: vec![0; TRANSMIT_LEN],
            pending: None,
            segmentation: true,
            handles: AddressHandles::default(),
            psns: Vec::new(),
            counts: Counts::default(),
        };
        worker.follow();
        worker
    }

    /// Takes the newest table if there is a newer one.
    fn follow(&mut self) {
        let newest = self.shared.generation();
        if newest == self.generation {
            return;
        }
        self.generation = newest;
        self.table = self.shared.table();
        let old = std::mem::take(&mut self.psns);
        let known = |id: EndpointId| old.iter().find(|(e, _)| *e == id).map(|&(_, psn)| psn);
        let endpoints = self.table.endpoints.iter();
        self.psns = endpoints
            .map(|e| (e.id, known(e.id).unwrap_or(e.qp.sq_psn())))
            .collect();
        if !Arc::ptr_eq(&self.sockets, &self.table.sockets) {
            self.change_sockets();
        }
    }

    fn change_sockets(&mut self) {
        self.disarm();
        if let (Some((epoll, _)), Some(s)) = (&self.epoll, self.sockets.get(self.index)) {
            // The socket may live on in a sibling's table for a moment; it must not wake us.
            let _ = epoll::delete(epoll, &s.receive);
        }
        self.sockets = Arc::clone(&self.table.sockets);
        self.socket_drops = 0;
        self.segmentation = true;
        // What was blocked was meant for a network that is gone.
        if self.pending.take().is_some() {
            self.counts.tx_failed += 1;
        }
        if let Err(e) = self.watch_receive() {
            log::error!("a worker cannot wait for its new socket: {e}");
        }
    }

    fn watch_receive(&self) -> io::Result<()> {
        if let (Some((epoll, token)), Some(s)) = (&self.epoll, self.sockets.get(self.index)) {
            epoll::add(
                epoll,
                &s.receive,
                EventData::new_u64(*token),
                EventFlags::IN,
            )?;
        }
        Ok(())
    }

    fn arm(&mut self) {
        if self.writable_armed {
            return;
        }
        if let (Some((epoll, token)), Some(s)) = (&self.epoll, self.sockets.get(self.index)) {
            let data = EventData::new_u64(*token);
            match epoll::add(epoll, &s.transmit, data, EventFlags::OUT) {
                Ok(()) => self.writable_armed = true,
                Err(e) => log::error!("a worker cannot wait for room to send: {e}"),
            }
        }
    }

    fn disarm(&mut self) {
        if !std::mem::take(&mut self.writable_armed) {
            return;
        }
        if let (Some((epoll, _)), Some(s)) = (&self.epoll, self.sockets.get(self.index)) {
            let _ = epoll::delete(epoll, &s.transmit);
        }
    }

    fn receive(&mut self, depth: usize) -> io::Result<()> {
        let sockets = Arc::clone(&self.sockets);
        let Some(socket) = sockets.get(self.index) else {
            return Ok(());
        };
        for i in 0..self.slab.receive(&socket.receive, depth)? {
            self.arrival(i);
        }
        Ok(())
    }

    /// Takes the datagrams of one slot apart.
    fn arrival(&mut self, i: usize) {
        let SoftWorker {
            slab,
            table,
            icrc,
            received,
            counts,
            socket_drops,
            ..
        } = self;
        let (arrival, bytes) = slab.slot(i);
        counts.rx_trains += 1;
        if let Some(drops) = arrival.socket_drops {
            counts.rx_socket_drops += u64::from(drops.wrapping_sub(*socket_drops));
            *socket_drops = drops;
        }
        let (Some(dst), 1..) = (arrival.dst, arrival.segment) else {
            counts.rx_truncated += 1;
            return;
        };
        let path = Path {
            src: Gid(arrival.src),
            dst: Gid(dst),
            src_port: arrival.src_port,
        };
        let segment = arrival.segment;
        icrc.start_run();
        for (k, packet) in bytes.chunks(segment).enumerate() {
            let base = i * SLOT_LEN + k * segment;
            let mut full = false;
            icrc.at(k);
            let outcome = ud::receive(table, &path, icrc, packet, |d| {
                full |= !note(received, counts, &path, base, d);
            });
            let refusal = outcome.err().or(full.then_some(Refusal::NoRoom));
            if let Some(refusal) = refusal {
                counts.refused[refusal as usize] += 1;
            }
        }
    }

    /// Sends a train, or what is left of it, to everyone it is for.
    fn transmit(&mut self, mut p: Pending) -> Sent {
        let table = Arc::clone(&self.table);
        let sockets = Arc::clone(&self.sockets);
        let Some(socket) = sockets.get(self.index) else {
            return self.failed();
        };
        let address = p.address;
        let Some(header) = header(&table, p.from, &p.to) else {
            return self.failed();
        };
        let copies = address.multicast && table.copies;
        let one = [address.ip];
        let destinations = if copies { &table.peers[..] } else { &one };
        let mut any = p.progress.copies > 0;
        for &ip in destinations.iter().skip(p.progress.copies) {
            match self.copy(&table, socket, &p, &header, &Address { ip, ..address }) {
                Copied::Done => any = true,
                Copied::Failed => {}
                Copied::Blocked(packets) => {
                    p.progress.packets = packets;
                    self.pending = Some(p);
                    self.counts.tx_blocked += 1;
                    self.arm();
                    return Sent::Blocked;
                }
            }
            p.progress.copies += 1;
            p.progress.packets = 0;
        }
        if any { Sent::Done } else { self.failed() }
    }

    fn failed(&mut self) -> Sent {
        self.counts.tx_failed += 1;
        Sent::Failed
    }

    /// Sends one copy of a train, from the packet on that its progress says.
    fn copy(
        &mut self,
        table: &Table,
        socket: &Sockets,
        p: &Pending,
        header: &Header,
        to: &Address,
    ) -> Copied {
        let options = options(to);
        let scope = match to.ip {
            IpAddr::V6(a) => scope(a, table.ifindex),
            IpAddr::V4(_) => 0,
        };
        let destination = Destination::new(to.ip, ROCE_V2_PORT, scope);
        let mut first = p.progress.packets;
        loop {
            let whole = self.segmentation || p.train.count == 1;
            let route = Route {
                source: socket.source,
                destination: to.ip,
                ids: if whole { Ipv4Id::Segment } else { Ipv4Id::Zero },
            };
            let Some(total) = train::seal(&mut self.transmit, &p.train, header, p.psn, &route)
            else {
                return Copied::Failed;
            };
            let stride = packet_len(p.train.payload);
            let sent = if whole {
                let mut options = options;
                if p.train.count > 1 {
                    options.segment(stride as u16);
                }
                sys::send(
                    &socket.transmit,
                    &destination,
                    &self.transmit[..total],
                    &options,
                )
                .map(|()| p.train.count)
            } else {
                let rest = &self.transmit[first * stride..total];
                sys::send_each(&socket.transmit, &destination, rest, stride, &options)
            };
            match sent {
                Ok(count) => {
                    first += count;
                    if first >= p.train.count {
                        self.count_sent(&p.train, total);
                        return Copied::Done;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Copied::Blocked(first),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if whole && p.train.count > 1 && refuses_segmentation(&e) => {
                    log::info!("the underlay refuses UDP_SEGMENT ({e}); sending one by one");
                    self.segmentation = false;
                }
                Err(e) => {
                    let too_long = e.raw_os_error() == Some(libc::EMSGSIZE);
                    if !whole && first == 0 && (too_long || refuses_segmentation(&e)) {
                        // It was not the segmentation, then: older kernels answer EINVAL, too,
                        // to segments over the MTU of the route.
                        self.segmentation = true;
                    }
                    log::trace!("a send to {} failed: {e}", to.ip);
                    self.counts.tx_too_big += u64::from(too_long);
                    return Copied::Failed;
                }
            }
        }
    }

    fn count_sent(&mut self, train: &TrainTicket, total: usize) {
        self.counts.tx_trains += 1;
        self.counts.tx_packets += train.count as u64;
        self.counts.tx_bytes += total as u64;
        if !self.segmentation && train.count > 1 {
            self.counts.tx_unsegmented += 1;
        }
    }

    /// The PSN of a train's first packet.
    fn take_psn(&mut self, from: EndpointId, count: usize) -> Option<Psn> {
        let at = self
            .psns
            .binary_search_by_key(&from.0, |(id, _)| id.0)
            .ok()?;
        let (_, next) = self.psns.get_mut(at)?;
        let psn = *next;
        *next = psn.advance(count as u32);
        Some(psn)
    }
}

/// Notes a delivery; false if there is no room.
fn note(
    received: &mut Vec<UdReceived>,
    counts: &mut Counts,
    path: &Path,
    base: usize,
    d: Delivery<'_>,
) -> bool {
    let Some(endpoint) = d.to else {
        counts.rx_mads_unhandled += 1;
        return true;
    };
    if received.len() == DELIVERIES {
        return false;
    }
    counts.rx_packets += 1;
    counts.rx_bytes += d.payload.len() as u64;
    counts.rx_multicast += u64::from(d.multicast);
    received.push(UdReceived {
        endpoint: endpoint.id,
        src_qpn: d.src_qpn,
        src_gid: path.src,
        dst_gid: path.dst,
        multicast: d.multicast,
        pkey: d.pkey,
        range: base + d.payload.start..base + d.payload.end,
    });
    true
}

/// The headers of a train, if the endpoint is there and may send.
fn header(table: &Table, from: EndpointId, to: &UdDestination) -> Option<Header> {
    let endpoint = table.endpoint(from)?;
    (endpoint.qp.post_send() == Posted::Processed).then(|| Header {
        pkey: endpoint.pkey,
        dest_qp: to.qpn,
        qkey: endpoint.qp.qkey_to_send(to.qkey),
        src_qp: endpoint.qp.qpn(),
    })
}

fn options(to: &Address) -> SendOptions {
    let mut options = SendOptions::new();
    let (level, class, hops) = match to.ip {
        IpAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
        IpAddr::V4(_) => (libc::SOL_IP, libc::IP_TOS, libc::IP_TTL),
    };
    if to.traffic_class != 0 {
        options.int(level, class, to.traffic_class.into());
    }
    if to.hop_limit != 0 {
        options.int(level, hops, to.hop_limit.into());
    }
    options
}

/// EIO: the device has no transmit checksums, or the route goes through IPsec; EINVAL: the kernel
/// knows no UDP_SEGMENT or takes fewer segments (net/ipv4/udp.c, `udp_send_skb`).
fn refuses_segmentation(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EIO | libc::EINVAL))
}

impl Worker for SoftWorker {
    fn register(&mut self, epoll: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let epoll = epoll.try_clone_to_owned()?;
        // Edge-triggered: its count is never read, every write wakes once.
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &self.wake, EventData::new_u64(token), edge)?;
        self.epoll = Some((epoll, token));
        self.watch_receive()?;
        if self.pending.is_some() {
            self.arm();
        }
        Ok(())
    }

    fn poll(&mut self, depth: usize) -> io::Result<Batch<'_>> {
        self.follow();
        if let Some(p) = self.pending.take()
            && self.transmit(p) != Sent::Blocked
        {
            self.disarm();
        }
        self.received.clear();
        self.receive(depth)?;
        Ok(Batch::new(self.slab.memory(), &self.received))
    }

    fn create_ah(&mut self, attributes: &AhAttributes) -> io::Result<AddressHandle> {
        self.follow();
        self.handles
            .create(attributes, &self.table.gid, self.table.copies)
    }

    fn destroy_ah(&mut self, ah: AddressHandle) {
        self.handles.destroy(ah);
    }

    fn train(&mut self, payload: usize) -> Option<Train<'_>> {
        if self.pending.is_some() {
            return None;
        }
        Some(self.resume(TrainTicket {
            count: 0,
            payload,
            last: 0,
        }))
    }

    fn resume(&mut self, ticket: TrainTicket) -> Train<'_> {
        let stride = packet_len(ticket.payload);
        let capacity = if ticket.payload > self.table.payload_max {
            0
        } else {
            train::capacity(ticket.payload, self.table.send_max)
        };
        // The limits may have shrunk since the train was begun; `send` looks again.
        let capacity = capacity.max(ticket.count);
        Train::new(&mut self.transmit, HEAD, stride, capacity, ticket)
    }

    fn send(&mut self, from: EndpointId, to: &UdDestination, train: TrainTicket) -> Sent {
        self.follow();
        if train.count == 0 {
            return Sent::Done;
        }
        // An MTU that shrank since the train was begun, too.
        let too_big = train.payload.max(train.last) > self.table.payload_max;
        self.counts.tx_too_big += u64::from(too_big);
        let psn = self.take_psn(from, train.count);
        let (false, Some(psn), Some(address)) = (too_big, psn, self.handles.get(to.ah)) else {
            return self.failed();
        };
        self.transmit(Pending {
            from,
            to: *to,
            address,
            train,
            psn,
            progress: Progress::default(),
        })
    }

    fn has_room(&self) -> bool {
        self.pending.is_none()
    }

    fn counters(&self) -> Counters {
        self.counts.named()
    }
}

impl Drop for SoftWorker {
    fn drop(&mut self) {
        self.disarm();
        if let Some((epoll, _)) = &self.epoll {
            let _ = epoll::delete(epoll, &self.wake);
            if let Some(s) = self.sockets.get(self.index) {
                let _ = epoll::delete(epoll, &s.receive);
            }
        }
    }
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
