//! Comparison with the request and the reply of the kernel's IPoIB on an InfiniBand port: capture `03-connected`.

use proto::{Guid, IbMtu, Instant, Lid, PKey, Psn, Qpn, ServiceId};

use super::super::device::{Address, Event, Source};
use super::super::state::CmEvent;
use super::manager::{Datagram, Line, Manager};
use super::path::Own;
use crate::PKeyTable;
use crate::cm::CmConfig;
use crate::cm::tests::kernel::{IPOIB, captured};
use crate::pkeys::Entry;
use crate::subnet::SubnetPath;
use crate::umad::{AgentId, Received, To};

const NOW: Instant = Instant(1);

/// Port with LID 0x10 requests a connection of the service of port 0x11.
const SERVICE: ServiceId = ServiceId(0x1000_0000_0000_0011);

/// The hardware address's first bytes and the MTU, as both sides have them.
const PRIVATE_DATA: [u8; 8] = [0, 0, 0, 0x11, 0, 0, 0xff, 0xf4];

fn manager(lid: u8) -> Manager {
    let mut manager = Manager::new(CmConfig {
        ca_guid: Guid([0, 0x99, 0, 0xff, 0xfe, 0, 0, lid]),
        worker: 0,
        workers: 1,
        seed: [7, 7],
        half_open_max: 8,
        connections_max: 8,
    });
    manager.set_own(Own {
        number: 1,
        gid_index: 0,
        lid: Some(Lid(lid.into())),
        lmc: 0,
    });
    manager
}

/// The kernel's path.
fn path(slid: u16, dlid: u16) -> SubnetPath {
    SubnetPath {
        dlid: Lid(dlid),
        slid: Lid(slid),
        sl: 0,
        rate: 3,
        mtu: IbMtu::B2048,
        packet_life: 18,
        global: None,
    }
}

fn received(slid: u16, mad: &Datagram) -> Received {
    Received {
        agent: AgentId(0),
        status: 0,
        slid: Lid(slid),
        sqpn: Qpn::GSI,
        sl: 0,
        path_bits: 0,
        pkey_index: 0,
        grh: None,
        mad: mad.to_vec(),
    }
}

/// Requests the kernel's connection; returns the request with its address.
fn request(manager: &mut Manager) -> (Line, To, Datagram) {
    let (us, kernel, _) = captured(IPOIB, 11);
    let entry = Entry {
        index: 0,
        pkey: PKey::DEFAULT,
    };
    let to = Address {
        gid: kernel,
        scope: 0,
        service: SERVICE,
    };
    let line = manager.begin(1, &Source { gid: us, entry }, &to);
    manager.resolve_route(&line).unwrap();
    let wanted = manager.take_wanted();
    assert_eq!(wanted.len(), 1);
    manager.path_found(wanted[0], Some(&path(0x10, 0x11)));
    manager
        .ask(NOW, &line, Qpn::new(0x12), &PRIVATE_DATA)
        .unwrap();
    let (to, request) = manager.poll_transmit().unwrap();
    (line, to, request)
}

#[test]
fn c98_a_request_over_umad_is_the_kernels_but_for_times_and_retries() {
    let (_, to, ours) = request(&mut manager(0x10));
    assert_eq!(to, To::gsi(Lid(0x11), 0));
    let (_, _, mut expected) = captured(IPOIB, 11);
    // Transaction and communication ids are random; so is our first PSN, and the kernel's is 0.
    expected[8..16].copy_from_slice(&ours[8..16]);
    expected[24..28].copy_from_slice(&ours[24..28]);
    let (head, data) = expected.split_at_mut(24);
    assert_eq!(head[..8], ours[..8]);
    data[44..47].copy_from_slice(&ours[24 + 44..24 + 47]);
    // Shorter times and more retries: see `cm::times`.
    (data[43], data[47]) = (16 << 3, 16 << 3 | 7);
    data[50] |= 7;
    data[51] = 7 << 4 | 1 << 3;
    assert_eq!(ours, expected);
}

#[test]
fn the_kernels_reply_over_umad_is_taken() {
    let (kernel, _, mut rep) = captured(IPOIB, 12);
    let mut manager = manager(0x10);
    let (line, _, req) = request(&mut manager);
    // Behind the kernel's id: ours.
    rep[28..32].copy_from_slice(&req[24..28]);
    manager.receive(NOW, &received(0x11, &rep));
    let is_reply = |event: &Event<Line>| {
        matches!(
            event,
            Event::Of {
                event: CmEvent::ConnectResponse,
                ..
            }
        )
    };
    assert!(std::iter::from_fn(|| manager.poll_event()).any(|event| is_reply(&event)));
    let (parameters, agreed) = manager.agreed(&line).unwrap();
    assert_eq!((agreed.peer, agreed.remote_qpn), (kernel, Qpn::new(0x12)));
    assert_eq!(parameters.sq_psn, Psn::new(0x2f_86fb));
    assert_eq!(
        (parameters.path.dlid, parameters.path.dgid),
        (Lid(0x11), None)
    );
    assert_eq!(parameters.path.static_rate, 3);
}

#[test]
fn the_kernels_request_over_umad_is_taken_with_its_path() {
    let (kernel, _, req) = captured(IPOIB, 11);
    let mut manager = manager(0x11);
    let _listener = manager.listen(SERVICE);
    manager.receive(NOW, &received(0x10, &req));
    let Some(Event::Request {
        service,
        id,
        private_data,
    }) = manager.poll_event()
    else {
        panic!("no request");
    };
    assert_eq!((service, private_data.len()), (SERVICE, 92));
    assert_eq!(private_data[4..8], [0, 0, 0xff, 0xf4]);
    let found = manager.path(&id, &PKeyTable::default()).unwrap();
    assert_eq!((found.peer, found.remote_qpn), (kernel, Qpn::new(0x12)));
    assert_eq!(found.path_mtu, 2048);
    let (parameters, _) = manager.agreed(&id).unwrap();
    // The path back, and the PSN with which the kernel begins.
    let address = parameters.path;
    assert_eq!((address.dlid, address.dgid), (Lid(0x10), None));
    assert_eq!((address.sl, address.static_rate), (0, 3));
}
