//! A sequence of datagrams from the fabric: a frame for the TAP is never longer than its datagram, apart from
//! the translation of addresses, and the tables stay within their limits.
//!
//! Input: records of a flag byte, a length of two bytes, and a payload. Flags: 128 multicast, 64 something is
//! stacked on the interface, 32 from a host behind the interface, 16 from a sibling; the rest is the sender.

use fabric::{Gid, Qpn};
use ipoib::{Incoming, Ipoib, Meta, Outgoing, Sibling, Time};

use crate::{interface, records};

/// Maximum size for a sibling, in bytes.
const SIBLING_MTU: usize = 1500;

fn siblings() -> [Sibling; 4] {
    [0x10, 0x11, 0x12, 0x13].map(|qpn| Sibling {
        qpn: Qpn::new(qpn),
        mtu: SIBLING_MTU,
    })
}

/// A packet from a sibling's host, and an answer with the same bytes to its sender.
fn from_sibling(ipoib: &mut Ipoib, now: Time, who: u8, payload: &[u8]) {
    let Some((&[t0, t1, _, _], l3)) = payload.split_first_chunk::<4>() else {
        return;
    };
    let meta = Meta {
        src_qpn: Qpn::new(0x10 + u32::from(who)),
        src_gid: Gid(interface::LOCAL_GID),
        has_src_gid: true,
        dst_gid: Gid(interface::LOCAL_GID),
        multicast: false,
    };
    let ethertype = u16::from_be_bytes([t0, t1]);
    let Some(header) = ipoib.from_sibling(now, &meta, ethertype, l3) else {
        // Otherwise it arrives as a datagram.
        let _ = ipoib.from_fabric(now, &meta, payload);
        return;
    };
    assert_eq!(header[12..], [t0, t1]);
    let frame = [&header[6..12], &header[..6], &header[12..], l3].concat();
    if let Outgoing::Sibling { qpn, mtu, .. } = ipoib.from_tap(now, &[0; 12], &frame) {
        assert!(siblings().iter().any(|sibling| sibling.qpn == qpn));
        assert!(mtu <= SIBLING_MTU);
    }
}

pub fn run(data: &[u8]) {
    let mut ipoib = interface::new();
    ipoib.set_siblings(siblings());
    let mut now = 0;
    for (flags, payload) in records(data) {
        now += 10;
        let multicast = flags & 0x80 != 0;
        ipoib.set_stacked(flags & 0x40 != 0);
        if flags & 0x20 != 0 {
            // The same bytes from a host behind the interface.
            let head = [
                0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x52, 0x54, 0, 0, 0, flags,
            ];
            let (ethertype, l3) = payload.split_at(payload.len().min(2));
            let l3 = l3.get(2..).unwrap_or_default();
            let frame = [&head[..], ethertype, l3].concat();
            let _ = ipoib.from_tap(Time(now), &[0; 12], &frame);
            interface::drain(&mut ipoib, Time(now));
            continue;
        }
        if flags & 0x10 != 0 {
            from_sibling(&mut ipoib, Time(now), flags & 0x0f, payload);
            interface::drain(&mut ipoib, Time(now));
            continue;
        }
        let meta = Meta {
            src_qpn: Qpn::new(0x10 + u32::from(flags & 0x0f)),
            src_gid: interface::peer_gid(flags & 0x0f),
            has_src_gid: flags & 0x10 == 0,
            dst_gid: if multicast {
                ipoib.broadcast_mgid()
            } else {
                Gid(interface::LOCAL_GID)
            },
            multicast,
        };
        match ipoib.from_fabric(Time(now), &meta, payload) {
            Incoming::Packet { l3, .. } => assert!(l3.len() + 4 <= payload.len()),
            Incoming::Frame(frame) => {
                assert!(frame.len() >= 14 && frame.len() <= payload.len() + 14)
            }
            Incoming::Dropped(_) | Incoming::Held | Incoming::Consumed => {}
        }
        interface::drain(&mut ipoib, Time(now));
    }
    interface::check(&ipoib);
}
