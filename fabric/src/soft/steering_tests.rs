use proptest::prelude::*;

use super::*;

/// Runs a program as the kernel does (net/core/filter.c); only the statements that our program uses.
fn run(program: &[sock_filter], packet: &[u8]) -> u32 {
    let (mut a, mut pc) = (0u32, 0);
    let load = |at: u32, len: usize| {
        let bytes = packet.get(at as usize..at as usize + len)?;
        Some(bytes.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)))
    };
    loop {
        let s = &program[pc];
        pc += 1;
        let test = |yes: bool| usize::from(if yes { s.jt } else { s.jf });
        match u32::from(s.code) {
            // LD ABS of 1, 2 and 4 bytes.
            code @ (0x30 | 0x28 | 0x20) => {
                let len = match code {
                    0x30 => 1,
                    0x28 => 2,
                    _ => 4,
                };
                match load(s.k, len) {
                    Some(value) => a = value,
                    None => return 0,
                }
            }
            0x54 => a &= s.k,
            0x94 => a %= s.k,
            0x05 => pc += s.k as usize,
            0x15 => pc += test(a == s.k),
            0x35 => pc += test(a >= s.k),
            0x16 => return a,
            0x06 => return s.k,
            other => panic!("{other:#x} is not used by our program"),
        }
    }
}

fn mad(attribute: u16, local: u32, remote: u32) -> Vec<u8> {
    let mut packet = vec![0; HEAD + 256 + 4];
    packet[0] = opcode::UD_SEND_ONLY;
    packet[7] = 1;
    packet[MGMT_CLASS] = class::COM_MGT;
    packet[ATTRIBUTE_ID..][..2].copy_from_slice(&attribute.to_be_bytes());
    packet[LOCAL_COMM_ID..][..4].copy_from_slice(&local.to_be_bytes());
    packet[REMOTE_COMM_ID..][..4].copy_from_slice(&remote.to_be_bytes());
    packet
}

#[test]
fn messages_go_to_the_worker_of_the_communication_id() {
    let cases = [
        (cm::REQ, 5, 0, 2),
        (cm::REQ, 5, 7, 2),
        (cm::REP, 5, 7, 1),
        (cm::RTU, 0x0100, 0x0102, 2),
        (cm::REJ, 5, 0, 2),
        (cm::REJ, 5, 7, 1),
        (cm::DREQ, 5, 6, 0),
        (cm::SIDR_REP, 5, 6, 2),
    ];
    for (attribute, local, remote, worker) in cases {
        let packet = mad(attribute, local, remote);
        assert_eq!(owner(&packet, 3), Some(worker), "{attribute:#x}");
        assert_eq!(run(&program(3), &packet), worker as u32, "{attribute:#x}");
    }
}

#[test]
fn other_datagrams_may_go_to_any_worker() {
    let mut packet = mad(cm::REQ, 5, 0);
    packet[MGMT_CLASS] = class::SUBN_ADM;
    assert_eq!((owner(&packet, 3), run(&program(3), &packet)), (None, ANY));
    let mut packet = mad(cm::REQ, 5, 0);
    packet[7] = 2;
    assert_eq!((owner(&packet, 3), run(&program(3), &packet)), (None, ANY));
}

fn packets() -> impl Strategy<Value = Vec<u8>> {
    let any = prop::collection::vec(any::<u8>(), 40..80);
    (any, 0..6u8, 0..0x1cu16).prop_map(|(mut packet, kind, attribute)| {
        match kind {
            0 => packet[0] &= 0x1f,
            1 => packet[0] = opcode::CNP,
            2 | 3 => {
                packet[0] = opcode::UD_SEND_ONLY;
                packet[5..8].copy_from_slice(&[0, 0, 1]);
                packet[MGMT_CLASS] = class::COM_MGT;
                packet[ATTRIBUTE_ID..][..2].copy_from_slice(&attribute.to_be_bytes());
                if kind == 3 {
                    packet.resize(HEAD + 256 + 4, 0);
                    packet[REMOTE_COMM_ID..][..4].fill(0);
                }
            }
            _ => {}
        }
        packet.resize(packet.len().max(HEAD + 32), 0);
        packet
    })
}

proptest! {
    /// Kernel and worker must agree, or workers would pass packets on for ever.
    #[test]
    fn both_forms_of_the_rule_agree(packet in packets(), workers in 1..17usize) {
        let there = run(&program(workers), &packet);
        let here = owner(&packet, workers).map_or(ANY, |w| w as u32);
        prop_assert_eq!(there, here);
    }

    #[test]
    fn anything_has_an_owner_or_none(packet in prop::collection::vec(any::<u8>(), 0..80)) {
        prop_assert!(owner(&packet, 4).is_none_or(|w| w < 4));
    }
}
