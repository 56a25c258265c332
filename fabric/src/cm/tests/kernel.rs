//! Comparison with datagrams of the Linux kernel: capture `03-connected`, where its IPoIB sets up and
//! ends a connection in each direction, and captures `cm_*` of rdma-core's programs.

use std::fs::File;
use std::path::Path;

use pcap_file::pcap::PcapReader;
use proto::QKey;

use super::*;
use crate::soft::icrc::L3;
use crate::soft::wire::Packet;

/// A datagram of a capture, with source and destination.
pub(crate) fn captured(file: &str, number: usize) -> (Gid, Gid, Datagram) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/captures");
    let mut reader = PcapReader::new(File::open(root.join(file)).unwrap()).unwrap();
    for _ in 1..number {
        reader.next_raw_packet().unwrap().unwrap();
    }
    let frame = reader.next_raw_packet().unwrap().unwrap();
    let l3 = L3::parse(&frame.data[14..]).unwrap();
    let packet = Packet::parse(l3.transport).unwrap();
    let mad = packet.payload.try_into().unwrap();
    (l3.source.into(), l3.destination.into(), mad)
}

/// A request of the kernel's IPoIB is packet 11, the reply packet 12.
pub(crate) const IPOIB: &str = "kernel-ipoib/03-connected.pcap";

fn cm_of(guid: [u8; 8]) -> Cm {
    Cm::new(CmConfig {
        ca_guid: Guid(guid),
        ..config(7)
    })
}

/// Changes the receiver's id in a message of the kernel to ours.
fn to_us(mut mad: Datagram, id: CmId) -> Datagram {
    mad[28..32].copy_from_slice(&id.0.to_be_bytes());
    mad
}

/// Changes the sender's id in a message of the kernel to ours: the kernel's view of our message.
fn from_us(mut mad: Datagram, id: CmId) -> Datagram {
    mad[24..28].copy_from_slice(&id.0.to_be_bytes());
    mad
}

#[test]
fn c103_the_kernels_connection_is_replied_to_and_ended_as_the_kernel_does() {
    let (kernel, us, req) = captured(IPOIB, 11);
    let (_, _, rep) = captured(IPOIB, 12);
    let (_, _, rtu) = captured(IPOIB, 14);
    let now = Instant(1);
    let mut cm = cm_of([0, 0x99, 0, 0xff, 0xfe, 0, 0, 0x11]);
    cm.receive(now, kernel, &req, |s| s == ServiceId(0x1000_0000_0000_0011));
    let Some(CmEvent::Requested {
        id,
        peer,
        remote,
        private_data,
        ..
    }) = cm.poll_event()
    else {
        panic!("no request");
    };
    assert_eq!(peer, kernel);
    assert_eq!(
        remote,
        Remote {
            qpn: Qpn::new(0x12),
            starting_psn: Psn::new(0),
            pkey: PKey::DEFAULT,
            path_mtu: IbMtu::B2048,
            retry_count: 0,
            rnr_retry: 0,
            // The kernel's code 19 is two seconds.
            ack_timeout: times::ACK_TIMEOUT_MAX,
        }
    );
    assert_eq!(private_data.len(), 92);
    let answer = Consent {
        qpn: Qpn::new(0x12),
        starting_psn: Psn::new(0x2f_86fb),
        srq: true,
        private_data: &[0, 0, 0, 0x11, 0, 0, 0xff, 0xf4],
    };
    cm.accept(now, id, &answer);
    let out = cm.poll_transmit().unwrap();
    assert_eq!(out.to, kernel);
    let ours = out.datagram;
    // Differences of ours: faster acknowledgements, and unlimited retransmissions after RNR NAKs.
    let mut expected = from_us(rep, id);
    expected[24 + 26] = times::TARGET_ACK_DELAY << 3;
    expected[24 + 27] = 7 << 5 | 1 << 4;
    assert_eq!(ours, expected);

    cm.receive(now, kernel, &to_us(rtu, id), |_| true);
    assert_eq!(cm.poll_event(), Some(CmEvent::Established { id }));
    let (_, _, dreq) = captured(IPOIB, 104);
    let (_, _, drep) = captured(IPOIB, 105);
    cm.receive(now, kernel, &to_us(dreq, id), |_| true);
    assert_eq!(only(&mut cm), from_us(drep, id));
    assert_eq!(cm.poll_event(), Some(CmEvent::Disconnected { id }));
    assert_eq!(
        us,
        Gid([
            0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x99, 0, 0xff, 0xfe, 0, 0, 0x11
        ])
    );
}

/// We request shorter times and more retries: see `super::times`.
#[test]
fn c98_a_request_is_the_kernels_but_for_times_retries_and_the_path() {
    let (us, kernel, theirs) = captured(IPOIB, 11);
    let mut cm = cm_of([0, 0x99, 0, 0xff, 0xfe, 0, 0, 0x10]);
    let asked = Ask {
        service: ServiceId(0x1000_0000_0000_0011),
        local_gid: us,
        remote_gid: kernel,
        primary: None,
        qpn: Qpn::new(0x12),
        starting_psn: Psn::new(0),
        pkey: PKey::DEFAULT,
        path_mtu: IbMtu::B2048,
        srq: true,
        private_data: &[0, 0, 0, 0x11, 0, 0, 0xff, 0xf4],
    };
    let id = cm.connect(Instant(1), &asked).unwrap();
    let ours = only(&mut cm);
    let mut expected = from_us(theirs, id);
    expected[8..16].copy_from_slice(&ours[8..16]);
    let data = &mut expected[24..];
    (data[43], data[47]) = (16 << 3, 16 << 3 | 7);
    data[50] |= 7;
    data[51] = 7 << 4 | 1 << 3;
    // As rdma_cm on RoCE, frame 1 of cm_rping: no LIDs, and a routed path.
    let (_, _, rping) = captured("cm_rping_v4.pcap", 1);
    for at in [52, 53, 54, 55, 93, 94] {
        data[at] = rping[24 + at];
    }
    // The kernel takes its packet rate from a PathRecord.
    assert_eq!(std::mem::take(&mut data[91]), 3);
    data[95] = 15 << 3;
    assert_eq!(ours, expected);
}

#[test]
fn the_kernels_reply_and_disconnection_are_taken() {
    let (kernel, us, rep) = captured(IPOIB, 12);
    let now = Instant(1);
    let mut cm = cm_of([0, 0x99, 0, 0xff, 0xfe, 0, 0, 0x10]);
    let id = cm.connect(now, &ask(us, kernel, 0x13)).unwrap();
    only(&mut cm);
    cm.receive(now, kernel, &to_us(rep, id), |_| true);
    let Some(CmEvent::Replied {
        remote,
        private_data,
        ..
    }) = cm.poll_event()
    else {
        panic!("no reply");
    };
    assert_eq!(
        (remote.qpn, remote.starting_psn),
        (Qpn::new(0x12), Psn::new(0x2f_86fb))
    );
    // The kernel echoes the RNR retries of its own request, 0, and would echo our 7.
    assert_eq!((remote.retry_count, remote.rnr_retry), (7, 0));
    // rdma_rxe's acknowledgement delay is as long as our timeout.
    assert_eq!(remote.ack_timeout, 16);
    assert_eq!(
        (private_data.len(), &private_data[4..8]),
        (196, &[0, 0, 0xff, 0xf4][..])
    );
    cm.establish(id);
    let (_, _, rtu) = captured(IPOIB, 14);
    let mut expected = from_us(rtu, id);
    let ours = only(&mut cm);
    expected[8..16].copy_from_slice(&ours[8..16]);
    assert_eq!(ours, expected);

    // The kernel ends it: a DisconnectRequest of the capture's other connection.
    let (_, _, mut dreq) = captured(IPOIB, 104);
    dreq[24..28].copy_from_slice(&rep[24..28]);
    dreq[32..35].copy_from_slice(&Qpn::new(0x13).to_bytes());
    cm.receive(now, kernel, &to_us(dreq, id), |_| true);
    let drep = only(&mut cm);
    assert_eq!(name(&drep), "DREP");
    assert_eq!(drep[8..16], dreq[8..16]);
    assert_eq!(cm.poll_event(), Some(CmEvent::Disconnected { id }));
}

/// Checklist 99: the exact bytes of the kernel's rejection of an unknown service.
#[test]
fn an_unknown_service_is_refused_as_the_kernel_does() {
    let (client, server, req) = captured("cm_reject_v4.pcap", 1);
    let (_, _, rej) = captured("cm_reject_v4.pcap", 2);
    let mut cm = Cm::new(config(1));
    cm.receive(Instant(1), client, &req, |_| false);
    assert_eq!(drain(&mut cm), [(client, rej)]);
    assert_eq!(cm.poll_event(), None);
    assert_ne!(client, server);
}

/// REQs of rdma_cm over IPv4 are accepted too, although the reserved bits of their paths are not 0.
#[test]
fn requests_of_user_programs_are_taken() {
    for (file, rnr_retry) in [("cm_rping_v4.pcap", 7), ("cm_ucmatose_v4.pcap", 0)] {
        let (client, _, req) = captured(file, 1);
        let mut cm = Cm::new(config(1));
        cm.receive(Instant(1), client, &req, |_| true);
        let Some(CmEvent::Requested { peer, remote, .. }) = cm.poll_event() else {
            panic!("{file}: no request");
        };
        assert_eq!((peer, remote.rnr_retry), (client, rnr_retry));
    }
}

/// Checklist 99 for datagram services, with the kernel's request.
#[test]
fn an_unknown_datagram_service_is_not_supported() {
    let (client, _, req) = captured("cm_udaddy_v4.pcap", 1);
    let mut cm = Cm::new(config(1));
    cm.receive(Instant(1), client, &req, |_| false);
    assert_eq!(cm.poll_sidr(), None);
    let rep = only(&mut cm);
    let mad = Mad::parse(&rep).unwrap();
    let Some(Message::SidrRep(m)) = mad.communication_management() else {
        panic!("{}", mad.header);
    };
    assert_eq!((m.request_id.get(), m.status), (0x252e_3dde, 1));
    assert_eq!(m.service_id.get(), 0x0111_1c06);
}

/// The exact bytes of the kernel's answer for the program udaddy.
#[test]
fn a_datagram_service_is_answered_as_the_kernel_does() {
    let (client, _, req) = captured("cm_udaddy_v4.pcap", 1);
    let (_, _, rep) = captured("cm_udaddy_v4.pcap", 2);
    let mut cm = Cm::new(config(1));
    cm.receive(Instant(1), client, &req, |s| {
        s == ServiceId::rdma_cm_datagrams(0x1c06)
    });
    let Some(SidrEvent::Requested {
        request,
        private_data,
    }) = cm.poll_sidr()
    else {
        panic!("no request");
    };
    assert_eq!((request.peer, request.pkey), (client, PKey::DEFAULT));
    assert_eq!(private_data[..], req[24 + 16..]);
    let service = DatagramService {
        qpn: Qpn::new(0x14),
        qkey: QKey::new(0x0123_4567),
    };
    cm.answer(&request, Ok(service));
    assert_eq!(only(&mut cm), rep);
}

/// Our request equals the kernel's, except for the request's ids.
#[test]
fn a_datagram_service_is_asked_for_as_the_kernel_does() {
    let (client, server, req) = captured("cm_udaddy_v4.pcap", 1);
    let (_, _, rep) = captured("cm_udaddy_v4.pcap", 2);
    let mut cm = Cm::new(config(1));
    let ask = SidrAsk {
        service: ServiceId::rdma_cm_datagrams(0x1c06),
        peer: server,
        pkey: PKey::DEFAULT,
        private_data: &req[24 + 16..],
    };
    let id = cm.ask_for_datagrams(Instant(1), &ask).unwrap();
    let ours = only(&mut cm);
    let mut expected = from_us(req, CmId(id.0));
    expected[8..16].copy_from_slice(&ours[8..16]);
    assert_eq!(ours, expected);
    cm.receive(Instant(2), server, &from_us(rep, CmId(id.0)), |_| true);
    let service = DatagramService {
        qpn: Qpn::new(0x14),
        qkey: QKey::new(0x0123_4567),
    };
    let answered = SidrEvent::Answered {
        id,
        service: Ok(service),
    };
    assert_eq!(cm.poll_sidr(), Some(answered));
    assert_eq!(cm.next_deadline(), None);
    assert_ne!(client, server);
}
