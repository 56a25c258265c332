//! Uses all objects of `ibv`: datagrams from a device to itself, messages over a connection, and the
//! setup and end of a connection.

use std::io;
use std::net::{IpAddr, SocketAddrV6};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::verbs::ibv::cm::{
    CmAddress, CmEvent, CmEventKind, CmId, ConnectionParameters, EventChannel, PortSpace,
};
use fabric::verbs::ibv::*;
use fabric::verbs::sys::Library;
use fabric::{Gid, IbMtu, Lid, PKey, Psn, QKey, WcStatus};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const QKEY: QKey = QKey::new(0x0b1b);
/// Bytes of the GRH before a datagram (IBA vol. 1, 11.4.1.2).
const GRH: usize = 40;
const PAYLOAD: usize = 1000;
const DATAGRAMS: usize = 7;
const MESSAGE: usize = 65_524;
/// How long to wait for events that the library may have suppressed.
const PATIENCE: Duration = Duration::from_secs(2);

fn wrong(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}

fn wait(fd: BorrowedFd<'_>, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left))?;
    Ok(())
}

/// An open port of a device, with the objects that all queue pairs share.
pub struct Opened {
    context: Arc<Context>,
    domain: Arc<ProtectionDomain>,
    channel: Arc<CompletionChannel>,
    send_cq: Arc<CompletionQueue>,
    receive_cq: Arc<CompletionQueue>,
    srq: Arc<SharedReceiveQueue>,
    gid: GidEntry,
    pkey_index: u16,
    mtu: IbMtu,
}

impl Opened {
    pub fn new(library: &Arc<dyn Library>, device: &str) -> io::Result<Opened> {
        let context = Context::open(library, device)?;
        let attributes = context.query_device()?;
        let port = context.query_port(1)?;
        if attributes.ports == 0 || port.link_layer != LinkLayer::Ethernet {
            return Err(wrong("not a port on Ethernet"));
        }
        let (gid, mtu) = (choose_gid(&context, &port)?, port.active_mtu);
        let pkey_index = choose_pkey(&context, &port)?;
        let domain = ProtectionDomain::new(&context)?;
        let channel = CompletionChannel::new(&context)?;
        Ok(Opened {
            send_cq: CompletionQueue::new(&channel, 64)?,
            receive_cq: CompletionQueue::new(&channel, 64)?,
            srq: SharedReceiveQueue::new(&domain, 32)?,
            context,
            domain,
            channel,
            gid,
            pkey_index,
            mtu,
        })
    }

    fn queue_pair(&self, kind: QueuePairKind) -> io::Result<QueuePair> {
        QueuePair::new(
            &self.domain,
            QueuePairInit {
                kind,
                send_cq: self.send_cq.clone(),
                receive_cq: self.receive_cq.clone(),
                srq: Some(self.srq.clone()),
                max_send_wr: 32,
                max_recv_wr: 0,
                max_inline: 64,
            },
        )
    }

    fn path(&self) -> AhInit {
        AhInit {
            port: 1,
            dgid: Some(self.gid.gid),
            sgid_index: self.gid.index as u8,
            flow_label: 0,
            hop_limit: 64,
            traffic_class: 0,
            dlid: Lid(0),
            sl: 0,
            source_path_bits: 0,
            static_rate: 0,
        }
    }

    /// Sleeps until the channel reports a completion on an armed queue.
    fn wake(&self) -> io::Result<()> {
        wait(self.channel.fd()?, Instant::now() + PATIENCE)?;
        match self.channel.drain(u32::MAX)? {
            0 => Err(wrong("woken for nothing")),
            _ => Ok(()),
        }
    }

    /// Sleeps until a queue has completions, by the rule of arming.
    fn next(&self, queue: &CompletionQueue, into: &mut Completions) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            if queue.poll(into)? > 0 {
                return Ok(());
            }
            queue.arm()?;
            if queue.poll(into)? > 0 {
                return Ok(());
            }
            wait(self.channel.fd()?, until)?;
            self.channel.drain(u32::MAX)?;
        }
    }

    /// Received datagrams by place, until there are `count`.
    fn receive(&self, pool: &mut Pool, count: usize) -> io::Result<Vec<(Place, usize)>> {
        let mut completions = Completions::new(16);
        let mut received = Vec::new();
        while received.len() < count {
            self.next(&self.receive_cq, &mut completions)?;
            for completion in completions.iter() {
                match pool.completed(&completion) {
                    Completed::Place(place) if completion.status() == WcStatus::Success => {
                        received.push((place, completion.byte_len()));
                    }
                    Completed::Place(_) => return Err(wrong("a receive failed")),
                    Completed::Part(_) | Completed::Unknown => {}
                }
            }
        }
        Ok(received)
    }

    /// The place of the completed send.
    fn sent(&self, pool: &mut Pool) -> io::Result<Place> {
        let mut completions = Completions::new(16);
        loop {
            self.next(&self.send_cq, &mut completions)?;
            for completion in completions.iter() {
                match pool.completed(&completion) {
                    Completed::Place(place) if completion.status() == WcStatus::Success => {
                        return Ok(place);
                    }
                    Completed::Place(_) => return Err(wrong("a send failed")),
                    Completed::Part(_) | Completed::Unknown => {}
                }
            }
        }
    }
}

fn choose_gid(context: &Context, port: &PortInfo) -> io::Result<GidEntry> {
    for index in 0..port.gids.min(8) {
        match context.query_gid(1, index)? {
            Some(entry) if entry.kind == GidKind::RoceV2 && entry.gid.ipv4().is_none() => {
                return Ok(entry);
            }
            _ => {}
        }
    }
    Err(wrong("no IPv6 GID of RoCE v2"))
}

fn choose_pkey(context: &Context, port: &PortInfo) -> io::Result<u16> {
    for index in 0..port.pkeys {
        if context.query_pkey(1, index)? == PKey::DEFAULT {
            return Ok(index);
        }
    }
    Err(wrong("no default P_Key"))
}

/// Runs all parts in turn.
pub fn all(library: &Arc<dyn Library>, device: &str) -> io::Result<()> {
    let opened = Opened::new(library, device)?;
    let (mut receive_pool, mut places) = Pool::new(&opened.domain, 8, 1 << 16)?;
    let (mut send_pool, mut free) = Pool::new(&opened.domain, 2, 1 << 16)?;
    let mut list = ReceiveList::new(8);
    opened
        .srq
        .receive(&mut list, &mut receive_pool, &mut places)?;
    datagrams(&opened, &mut receive_pool, &mut send_pool, &mut free)?;
    messages(&opened, &mut receive_pool, &mut send_pool, &mut free)?;
    while opened.context.next_event()?.is_some() {}
    drop(opened);
    connection(library, device)
}

fn datagrams(
    opened: &Opened,
    receive_pool: &mut Pool,
    send_pool: &mut Pool,
    free: &mut Vec<Place>,
) -> io::Result<()> {
    let ah = AddressHandle::new(&opened.domain, &opened.path())?;
    let qp = opened.queue_pair(QueuePairKind::Ud)?;
    qp.modify(&StateChange::init_ud(1, opened.pkey_index, QKEY))?;
    qp.modify(&StateChange::rtr_ud())?;
    qp.modify(&StateChange::rts_ud(Psn::new(77)))?;
    if qp.state()? != QueuePairState::Rts {
        return Err(wrong("the queue pair is not in RTS"));
    }
    let group: Gid = "ff12:401b:ffff::99"
        .parse()
        .map_err(|_| wrong("not a GID"))?;
    qp.attach(group, Lid(0))?;
    let mut place = free.pop().ok_or_else(|| wrong("no place to send from"))?;
    for (i, bytes) in place.chunks_exact_mut(PAYLOAD).take(DATAGRAMS).enumerate() {
        bytes.fill(i as u8 + 1);
    }
    let sends = Sends {
        to: Some(UdTarget {
            ah: &ah,
            qpn: qp.qpn(),
            qkey: QKEY,
        }),
        stride: PAYLOAD,
        count: DATAGRAMS,
        payload: PAYLOAD,
        last: 10,
    };
    let mut list = SendList::new(DATAGRAMS);
    opened.receive_cq.arm()?;
    qp.send(&mut list, send_pool, place, &sends)
        .map_err(|refused| refused.source)?;
    opened.wake()?;
    let mut received = opened.receive(receive_pool, DATAGRAMS)?;
    for (i, (place, len)) in received.iter().enumerate() {
        let expected = if i + 1 == DATAGRAMS { 10 } else { PAYLOAD };
        let payload = place.get(GRH..*len).ok_or_else(|| wrong("too long"))?;
        if payload != vec![i as u8 + 1; expected] {
            return Err(wrong("not the datagram that was sent"));
        }
    }
    let mut again: Vec<Place> = received.drain(..).map(|(place, _)| place).collect();
    opened
        .srq
        .receive(&mut ReceiveList::new(8), receive_pool, &mut again)?;
    free.push(opened.sent(send_pool)?);
    qp.detach(group, Lid(0))?;
    // Places that were posted and flushed return.
    let emptied = qp.reset()?;
    if !send_pool.reclaim(&emptied).is_empty() {
        return Err(wrong("places that had completed came back again"));
    }
    qp.close().map(drop).ok_or_else(|| wrong("not closed"))
}

fn messages(
    opened: &Opened,
    receive_pool: &mut Pool,
    send_pool: &mut Pool,
    free: &mut Vec<Place>,
) -> io::Result<()> {
    let (a, b) = (
        opened.queue_pair(QueuePairKind::Rc)?,
        opened.queue_pair(QueuePairKind::Rc)?,
    );
    for (from, to) in [(&a, &b), (&b, &a)] {
        let parameters = RcParameters {
            path: opened.path(),
            path_mtu: opened.mtu,
            dest_qpn: to.qpn(),
            rq_psn: Psn::new(5),
            sq_psn: Psn::new(5),
            min_rnr_timer: 12,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
        };
        from.modify(&StateChange::init_rc(1, opened.pkey_index))?;
        from.modify(&StateChange::rtr_rc(&parameters))?;
        from.modify(&StateChange::rts_rc(&parameters))?;
    }
    let mut place = free.pop().ok_or_else(|| wrong("no place to send from"))?;
    place.fill(0x5a);
    let sends = Sends {
        to: None,
        stride: 0,
        count: 1,
        payload: MESSAGE,
        last: MESSAGE,
    };
    a.send(&mut SendList::new(1), send_pool, place, &sends)
        .map_err(|refused| refused.source)?;
    let received = opened.receive(receive_pool, 1)?;
    let whole = |(place, len): &(Place, usize)| {
        *len == MESSAGE && place[..MESSAGE].iter().all(|byte| *byte == 0x5a)
    };
    if !received.iter().all(whole) {
        return Err(wrong("not the message that was sent"));
    }
    free.push(opened.sent(send_pool)?);
    b.modify(&StateChange::error())
}

/// The next event of communication management.
fn event(channel: &Arc<EventChannel>) -> io::Result<CmEvent> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(event) = channel.next_event()? {
            return Ok(event);
        }
        wait(channel.fd()?, until)?;
    }
}

fn expect(channel: &Arc<EventChannel>, kind: CmEventKind) -> io::Result<CmEvent> {
    // Duplicate events are skipped.
    for _ in 0..4 {
        let event = event(channel)?;
        if event.kind == kind {
            return Ok(event);
        }
    }
    Err(wrong("another event"))
}

fn connection(library: &Arc<dyn Library>, device: &str) -> io::Result<()> {
    let opened = Opened::new(library, device)?;
    let (theirs, ours) = (
        EventChannel::new(library, PortSpace::Tcp)?,
        EventChannel::new(library, PortSpace::Tcp)?,
    );
    let IpAddr::V6(ip) = opened.gid.gid.to_ip() else {
        return Err(wrong("not an IPv6 GID"));
    };
    let scope = opened.gid.netdev.ok_or_else(|| wrong("no interface"))?;
    let address = |port| CmAddress::Ip(SocketAddrV6::new(ip, port, 0, scope).into());
    let listener = CmId::new(&theirs)?;
    listener.reuse_address()?;
    listener.ipv6_only()?;
    listener.bind(address(0))?;
    let port = listener
        .local_address()
        .ok_or_else(|| wrong("bound to nothing"))?
        .port();
    listener.listen(8)?;

    let (a, b) = (
        opened.queue_pair(QueuePairKind::Rc)?,
        opened.queue_pair(QueuePairKind::Rc)?,
    );
    let parameters = |qp: &QueuePair| ConnectionParameters {
        qpn: qp.qpn(),
        srq: true,
        retry_count: 7,
        rnr_retry: 7,
    };
    let caller = CmId::new(&ours)?;
    caller.resolve_address(Some(address(0)), address(port), PATIENCE)?;
    expect(&ours, CmEventKind::AddressResolved)?;
    caller.resolve_route(PATIENCE)?;
    expect(&ours, CmEventKind::RouteResolved)?;
    if caller.device() != Some((device.to_owned(), 1)) || caller.path().dgid != opened.gid.gid {
        return Err(wrong("bound to another device"));
    }
    a.modify(&caller.state_change(QueuePairState::Init)?)?;
    caller.connect(&parameters(&a), b"who")?;

    let request = expect(&theirs, CmEventKind::ConnectRequest)?;
    let called = request.request.ok_or_else(|| wrong("no identifier"))?;
    if request.private_data.get(..3) != Some(b"who") || request.qpn != a.qpn() {
        return Err(wrong("another request"));
    }
    for state in [
        QueuePairState::Init,
        QueuePairState::Rtr,
        QueuePairState::Rts,
    ] {
        b.modify(&called.state_change(state)?)?;
    }
    called.accept(&parameters(&b), b"me")?;

    let response = expect(&ours, CmEventKind::ConnectResponse)?;
    if response.private_data.get(..2) != Some(b"me") || response.qpn != b.qpn() {
        return Err(wrong("another response"));
    }
    for state in [QueuePairState::Rtr, QueuePairState::Rts] {
        a.modify(&caller.state_change(state)?)?;
    }
    caller.establish()?;
    expect(&theirs, CmEventKind::Established)?;
    caller.disconnect()?;
    expect(&theirs, CmEventKind::Disconnected)?;
    called.disconnect()?;

    let refused = CmId::new(&ours)?;
    refused.resolve_address(Some(address(0)), address(port), PATIENCE)?;
    expect(&ours, CmEventKind::AddressResolved)?;
    refused.resolve_route(PATIENCE)?;
    expect(&ours, CmEventKind::RouteResolved)?;
    refused.connect(&parameters(&a), b"again")?;
    let request = expect(&theirs, CmEventKind::ConnectRequest)?;
    let called = request.request.ok_or_else(|| wrong("no identifier"))?;
    called.reject(b"no")?;
    let rejected = expect(&ours, CmEventKind::Rejected)?;
    if rejected.private_data.get(..2) != Some(b"no") {
        return Err(wrong("another rejection"));
    }
    Ok(())
}
