//! Membership reports, DHCP and echoes, from the TAP and from the fabric, with time and a querier that
//! receives the interface's reports.
//!
//! Input: a byte for the DHCP mode, then records of a flag byte, a length of two bytes, and an Ethernet
//! frame. Flags: 1 from the fabric, 2 multicast, 4 the host leaves the checksum to us, 8 correct checksums of
//! IPv4 and IGMP, the rest is time.

use fabric::Qpn;
use ipoib::{DhcpMode, Event, Incoming, Ipoib, Meta, Outgoing, Snooper, Time};

use crate::{interface, records};

const GROUPS_MAX: usize = 8;

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let word = |w: &[u8]| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// Corrects the checksums of the IPv4 header and of IGMP, which no mutation would guess.
fn sum(frame: &mut [u8]) {
    let Some((_, l3)) = frame.split_at_mut_checked(14) else {
        return;
    };
    let head = l3.first().map_or(0, |b| usize::from(b & 0x0f) * 4);
    let Some((header, message)) = l3.split_at_mut_checked(head).filter(|_| head >= 20) else {
        return;
    };
    header[10..12].fill(0);
    let right = checksum(header);
    header[10..12].copy_from_slice(&right);
    if header[9] == 2 && message.len() >= 8 {
        let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let len = len.saturating_sub(head).clamp(8, message.len());
        message[2..4].fill(0);
        let right = checksum(&message[..len]);
        message[2..4].copy_from_slice(&right);
    }
}

fn from_tap(ipoib: &mut Ipoib, now: Time, flags: u8, frame: &[u8]) {
    let mut prefix = [0; 12];
    prefix[0] = flags >> 2 & 1;
    match ipoib.from_tap(now, &prefix, frame) {
        Outgoing::Rewritten { packet, .. } => assert!(packet.len() <= 2048),
        Outgoing::Forward { encap, .. }
        | Outgoing::Message { encap, .. }
        | Outgoing::Sibling { encap, .. } => {
            assert_eq!(encap[2..], [0, 0])
        }
        Outgoing::Held | Outgoing::Tagged | Outgoing::Dropped(_) => {}
    }
}

fn from_fabric(ipoib: &mut Ipoib, now: Time, flags: u8, frame: &[u8]) {
    let Some((ethernet, l3)) = frame.split_first_chunk::<14>() else {
        return;
    };
    let multicast = flags & 2 != 0;
    let meta = Meta {
        src_qpn: Qpn::new(0x43),
        src_gid: interface::peer_gid(flags >> 4 & 3),
        has_src_gid: true,
        dst_gid: if multicast {
            ipoib.broadcast_mgid()
        } else {
            ipoib.local().gid()
        },
        multicast,
    };
    let payload = [&ethernet[12..], &[0, 0], l3].concat();
    if let Incoming::Frame(frame) = ipoib.from_fabric(now, &meta, &payload) {
        assert!(frame.len() >= 14);
    }
}

/// Passes the interface's reports to the querier, and takes its queries.
fn tell(ipoib: &mut Ipoib, snooper: &mut Snooper, now: Time) {
    while let Some(event) = ipoib.pop_event() {
        match event {
            Event::GroupJoined { group, .. } | Event::GroupSeen { group } => {
                snooper.joined(now, group);
            }
            Event::GroupLeft { group, .. } => snooper.left(now, group),
            _ => {}
        }
    }
    snooper.handle_timeout(now);
    let mut query = Vec::new();
    while snooper.poll_query(&mut query) {
        assert!(query.len() == 50 || query.len() == 90);
        // Our own query is not a report.
        from_tap(ipoib, now, 0, &query);
        assert!(!ipoib.has_events());
    }
    assert!(snooper.groups().count() <= GROUPS_MAX);
}

pub fn run(data: &[u8]) {
    let Some((mode, data)) = data.split_first() else {
        return;
    };
    let mut ipoib = interface::new();
    ipoib.set_dhcp(match mode % 3 {
        0 => DhcpMode::Off,
        1 => DhcpMode::Broadcast,
        _ => DhcpMode::Rfc4390,
    });
    ipoib.route_multicast(mode & 0x80 != 0);
    let mut snooper = Snooper::new([6, 0, 0, 0, 0, 1], GROUPS_MAX);
    snooper.set_querying(Time(0), mode & 0x40 != 0);
    let mut now = 0;
    for (flags, record) in records(data) {
        now += u64::from(flags >> 4) * 100;
        let mut frame = record.to_vec();
        if flags & 8 != 0 {
            sum(&mut frame);
        }
        if flags & 1 == 0 {
            from_tap(&mut ipoib, Time(now), flags, &frame);
        } else {
            from_fabric(&mut ipoib, Time(now), flags, &frame);
        }
        tell(&mut ipoib, &mut snooper, Time(now));
        interface::drain(&mut ipoib, Time(now));
    }
}
