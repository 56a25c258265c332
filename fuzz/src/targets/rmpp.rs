//! Receiver and sender of long answers, with segments and acknowledgements of any content.
//!
//! Input: bytes of records of the sender (two bytes), then steps of 8 bytes: 0x01 to the sender or the
//! receiver, 0x02 pass what the sender sends on instead; version, type, flags, status, segment number, two
//! bytes of length.

use fabric::Instant;
use fabric::mad::sa::CLASS_VERSION;
use fabric::mad::{BASE_VERSION, Header, MAD_LEN, Mad, class, method};
use fabric::rmpp::{Receiver, Sender};
use zerocopy::FromZeros;

const SEGMENTS_MAX: u32 = 80;

pub fn run(data: &[u8]) {
    let Some((length, steps)) = data.split_first_chunk::<2>() else {
        return;
    };
    let now = Instant(1);
    let mut header = Header::new_zeroed();
    header.base_version = BASE_VERSION;
    header.mgmt_class = class::SUBN_ADM;
    header.class_version = CLASS_VERSION;
    header.method = method::GET_TABLE_RESP;
    let records = vec![7; usize::from(u16::from_be_bytes(*length)) % 20_000];
    let mut sender = Sender::new(now, header, FromZeros::new_zeroed(), records);
    let first = sender
        .poll_transmit()
        .expect("the first segment needs no acknowledgement");
    let mut receiver = Receiver::new(now, &first, SEGMENTS_MAX).expect("a datagram of the class");
    let mut ends = 0;
    for step in steps.chunks_exact(8) {
        let mut mad: [u8; MAD_LEN] = first;
        if step[0] & 2 != 0 {
            match sender.poll_transmit() {
                Some(sent) => mad = sent,
                None => continue,
            }
        } else {
            mad[24..28].copy_from_slice(&[step[1] & 3, step[2] & 7, step[3], step[4]]);
            mad[31] = step[5];
            mad[34..36].copy_from_slice(&step[6..8]);
        }
        if step[0] & 1 != 0 {
            sender.receive(now, &mad);
        } else {
            let done = receiver.receive(now, &mad);
            ends += usize::from(done.end.is_some());
            assert!(receiver.held() <= SEGMENTS_MAX as usize * 200);
            if let Some(reply) = done.reply {
                let parsed = Mad::parse(&reply).expect("a reply is a datagram");
                assert_eq!(parsed.header.method, method::GET_TABLE);
                sender.receive(now, &reply);
            }
        }
    }
    assert!(ends <= 1, "a transfer ends once");
    for _ in 0..20 {
        let Some(at) = sender.next_deadline() else {
            break;
        };
        while sender.poll_transmit().is_some() {}
        sender.handle_timeout(at);
    }
    assert!(sender.end().is_some(), "the sender gives up");
}
