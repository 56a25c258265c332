//! Records of a frame: finds the IP packet, splits large sends, reads headers and ICRC.

use fabric::Qpn;
use fabric::mad::Mad;
use fabric::soft::icrc::{self, Ipv4IdSolver, L3, NotRoce};
use fabric::soft::wire::{Bth, Extended, ICRC_LEN, Packet, ROCE_V2_PORT, opcode};

use super::capture::Frame;
use super::link::{self, Stripped};
use super::record::{
    AethRecord, AtomicEthRecord, BthRecord, Content, DethRecord, Headers, Icrc, Record, RethRecord,
    Roce, Segment, Verdict,
};
use super::{aeth, gso, inner, mads, vnic};

/// The largest IP packet.
const IP_MAX: usize = 65_535 + 40;

/// The records of `frame`, number `number` of its file: one record, or one for each packet of a large send.
pub fn records(number: u64, frame: &Frame) -> Vec<Record> {
    let (ethernet, contents) = match link::strip(frame.link, &frame.data) {
        _ if frame.link == vnic::LINK_TYPE => {
            (None, vec![Content::Raw(Box::new(vnic::raw(frame)))])
        }
        Ok(stripped) => {
            let missing = frame.original_len.saturating_sub(frame.data.len());
            (stripped.ethernet.clone(), contents(&stripped, missing))
        }
        Err(summary) => (None, vec![Content::Other { summary }]),
    };
    let count = contents.len();
    let segment = |index| (count > 1).then_some(Segment { index, count });
    let record = |(index, content)| Record {
        number,
        time: frame.time.as_secs_f64(),
        segment: segment(index),
        ethernet: ethernet.clone(),
        content,
    };
    contents.into_iter().enumerate().map(record).collect()
}

fn contents(stripped: &Stripped<'_>, missing: usize) -> Vec<Content> {
    let packet = stripped.payload;
    let other = || Content::Other {
        summary: inner::summary(stripped.ethertype, packet),
    };
    if ![link::IPV4, link::IPV6].contains(&stripped.ethertype) {
        return vec![other()];
    }
    match L3::parse(packet) {
        Ok(l3) => whole(&l3),
        Err(NotRoce::Length) if missing > 0 => {
            vec![cut_short(packet, missing).unwrap_or_else(other)]
        }
        Err(why @ NotRoce::Length) if is_to_roce_port(packet) => vec![broken(packet, why)],
        Err(_) => vec![other()],
    }
}

/// A completely captured packet.
fn whole(l3: &L3<'_>) -> Vec<Content> {
    let wrap = |roce| Content::Roce(Box::new(roce));
    if l3.verify() != icrc::Verdict::Good
        && let Some(segments) = gso::split(l3)
    {
        let segment = |l3: &L3<'_>| wrap(roce(l3, Captured::Segment));
        return segments.iter().map(segment).collect();
    }
    vec![wrap(roce(l3, Captured::Whole))]
}

/// The captured part of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Captured {
    /// The whole packet.
    Whole,
    /// The whole packet, but with the IP and UDP headers of its large send.
    Segment,
    /// Only so many bytes from the BTH on; a snap length cut the rest.
    Front(usize),
}

/// A packet that a snap length has cut; zeros replace the missing bytes.
fn cut_short(packet: &[u8], missing: usize) -> Option<Content> {
    let mut padded = packet.to_vec();
    padded.resize((packet.len() + missing).min(IP_MAX), 0);
    let l3 = L3::parse(&padded).ok()?;
    // A record needs a BTH.
    let captured = l3.transport.len().checked_sub(missing)?;
    if captured < size_of::<Bth>() {
        return None;
    }
    Some(Content::Roce(Box::new(roce(
        &l3,
        Captured::Front(captured),
    ))))
}

fn roce(l3: &L3<'_>, captured: Captured) -> Roce {
    let mut roce = Roce {
        source: l3.source,
        destination: l3.destination,
        source_port: l3.source_port,
        ipv4_identification: l3.ipv4.map(|(id, _)| id),
        length: l3.transport.len(),
        headers: None,
        fragment: None,
        mad: None,
        ipoib: None,
        vnic: None,
        icrc: judge(l3, captured),
        malformed: None,
    };
    match Packet::parse(l3.transport) {
        Ok(mut packet) => match captured {
            Captured::Front(bytes) => {
                let behind = packet.payload.len() + packet.pad.len() + ICRC_LEN;
                if bytes < l3.transport.len() - behind {
                    packet.extended = Extended::default();
                }
                roce.headers = Some(headers(&packet));
            }
            Captured::Whole | Captured::Segment => {
                roce.headers = Some(headers(&packet));
                payload(&mut roce, &packet);
            }
        },
        Err(why) => roce.malformed = Some(why.to_string()),
    }
    roce
}

/// Reads the payload.
fn payload(roce: &mut Roce, packet: &Packet<'_>) {
    let qkey = packet.extended.deth.map(|deth| deth.qkey());
    let is_gsi = packet.extended.deth.is_some() && packet.bth.dest_qp() == Qpn::GSI;
    if is_gsi {
        match Mad::parse(packet.payload) {
            Ok(mad) => roce.mad = Some(mads::record(&mad)),
            Err(why) => roce.malformed = Some(why.to_string()),
        }
    } else if qkey.is_some_and(vnic::is_data) {
        (roce.vnic, roce.malformed) = vnic::read(packet.payload);
    } else if qkey.is_some_and(vnic::is_management) {
        roce.fragment = vnic::fragment(packet.payload);
        let none = || "not a piece of a VNIC management datagram".to_owned();
        roce.malformed = roce.fragment.is_none().then(none);
    } else if begins_message(packet.bth.opcode) {
        roce.ipoib = inner::ipoib(packet.payload);
    }
}

/// Whether the payload is the start of a SEND, where IPoIB's encapsulation header is.
fn begins_message(op: u8) -> bool {
    match op {
        opcode::UD_SEND_ONLY | opcode::UD_SEND_ONLY_IMM | opcode::RC_SEND_ONLY_INVALIDATE => true,
        // Connected transports: First, Only, Only with Immediate.
        0x00..=0x3f => matches!(op & 0x1f, 0x00 | 0x04 | 0x05),
        _ => false,
    }
}

fn headers(packet: &Packet<'_>) -> Headers {
    let Bth { opcode, .. } = packet.bth;
    let bth = &packet.bth;
    let Extended {
        deth,
        reth,
        atomic_eth,
        aeth,
        atomic_ack_eth,
        imm_dt,
        ieth,
        cnp: _,
    } = packet.extended;
    Headers {
        bth: BthRecord {
            opcode,
            name: opcode::name(opcode).unwrap_or("unknown"),
            solicited: bth.solicited(),
            mig_req: bth.mig_req(),
            pad_count: bth.pad_count(),
            pkey: bth.pkey(),
            fecn: bth.fecn(),
            becn: bth.becn(),
            dest_qp: bth.dest_qp(),
            ack_req: bth.ack_req(),
            psn: bth.psn().get(),
        },
        deth: deth.map(|d| DethRecord {
            qkey: d.qkey(),
            src_qp: d.src_qp(),
        }),
        aeth: aeth.map(|a| AethRecord {
            syndrome: a.syndrome,
            meaning: aeth::meaning(&a),
            msn: a.msn(),
        }),
        reth: reth.map(|r| RethRecord {
            va: r.va.get(),
            rkey: r.rkey.get(),
            dma_length: r.dma_length.get(),
        }),
        atomic_eth: atomic_eth.map(|a| AtomicEthRecord {
            va: a.va.get(),
            rkey: a.rkey.get(),
            swap_add: a.swap_add.get(),
            compare: a.compare.get(),
        }),
        atomic_ack_eth: atomic_ack_eth.map(|a| a.original.get()),
        imm_dt: imm_dt.map(|i| u32::from_be_bytes(i.0)),
        ieth: ieth.map(|i| i.rkey.get()),
        payload_length: packet.payload.len(),
    }
}

fn judge(l3: &L3<'_>, captured: Captured) -> Icrc {
    if matches!(captured, Captured::Front(_)) {
        return Icrc {
            value: None,
            verdict: Verdict::Unknown,
            reason: Some("the capture has only the start of the packet".to_owned()),
        };
    }
    let found = l3.transport.last_chunk::<ICRC_LEN>().copied();
    let (verdict, reason) = match l3.verify() {
        icrc::Verdict::Good => (Verdict::Good, None),
        icrc::Verdict::Bad { computed } => explain(l3, captured, computed),
        icrc::Verdict::NotRoce(why) => (Verdict::Unknown, Some(why.to_string())),
    };
    Icrc {
        value: found.map(|v| format!("{:08x}", u32::from_be_bytes(v))),
        verdict,
        reason,
    }
}

/// Explains a wrong ICRC. Over IPv4 it may be correct for another identification. The identification of a
/// whole packet is that of the wire, so the packet is bad; that of a segment is a guess.
fn explain(l3: &L3<'_>, captured: Captured, computed: [u8; ICRC_LEN]) -> (Verdict, Option<String>) {
    let right = format!("expected {:08x}", u32::from_be_bytes(computed));
    let Some(((id, _), (covered, found))) = l3.ipv4.zip(l3.transport.split_last_chunk()) else {
        return (Verdict::Bad, Some(right));
    };
    let solved = Ipv4IdSolver::new().recover(computed, *found, covered.len(), id);
    match (solved, captured) {
        (Some(other), Captured::Segment) => (
            Verdict::Unknown,
            Some(format!(
                "packet of a large send, whose IPv4 identification is not captured; correct for \
                 {other:#06x}"
            )),
        ),
        (Some(other), _) => (
            Verdict::Bad,
            Some(format!(
                "{right}; correct for IPv4 identification {other:#06x}"
            )),
        ),
        (None, _) => (Verdict::Bad, Some(right)),
    }
}

/// Whether this is UDP to the RoCEv2 port; length fields are ignored.
fn is_to_roce_port(packet: &[u8]) -> bool {
    let (protocol, port) = match packet.first() {
        Some(0x45) => (packet.get(9), packet.get(22..24)),
        _ => (packet.get(6), packet.get(42..44)),
    };
    protocol == Some(&17) && port == Some(&ROCE_V2_PORT.to_be_bytes()[..])
}

/// A packet to the RoCEv2 port with wrong lengths.
fn broken(packet: &[u8], why: NotRoce) -> Content {
    let (source, destination) = inner::addresses(packet).unwrap_or_else(|| {
        let none = std::net::Ipv6Addr::UNSPECIFIED.into();
        (none, none)
    });
    let at = if packet[0] == 0x45 { 20 } else { 40 };
    let port = packet
        .get(at..at + 2)
        .map_or(0, |p| u16::from_be_bytes([p[0], p[1]]));
    Content::Roce(Box::new(Roce {
        source,
        destination,
        source_port: port,
        ipv4_identification: None,
        length: packet.len().saturating_sub(at + 8),
        headers: None,
        fragment: None,
        mad: None,
        ipoib: None,
        vnic: None,
        icrc: Icrc {
            value: None,
            verdict: Verdict::Unknown,
            reason: None,
        },
        malformed: Some(why.to_string()),
    }))
}
