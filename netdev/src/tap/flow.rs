//! The flow of a written frame: its IP addresses, and its ports if it is TCP or UDP and no fragment.

use std::io::IoSlice;

use super::VNET_HEADER_LEN;

/// Offset of the Ethernet type in a frame with its virtio-net header.
const ETHERTYPE: usize = VNET_HEADER_LEN + 12;
/// Offset of the IP header.
const IP: usize = ETHERTYPE + 2;
/// Offset of the ports behind an IPv6 header.
const IPV6_PORTS: usize = IP + 40;
/// Bytes that decide: up to the ports behind an IPv6 header.
const HEAD: usize = IPV6_PORTS + 4;

/// A number that is the same for all frames of a flow; 0 for a frame without IP.
pub(super) fn of(parts: &[IoSlice<'_>]) -> u32 {
    let mut head = [0; HEAD];
    let mut rest = &mut head[..];
    for part in parts {
        let (here, behind) = rest.split_at_mut(part.len().min(rest.len()));
        here.copy_from_slice(&part[..here.len()]);
        rest = behind;
        if rest.is_empty() {
            break;
        }
    }
    let is_transport = |protocol: u8| matches!(protocol, 6 | 17);
    match u16::from_be_bytes([head[ETHERTYPE], head[ETHERTYPE + 1]]) {
        0x0800 => {
            let is_fragment = head[IP + 6] & 0x3f != 0 || head[IP + 7] != 0;
            let has_ports = head[IP] == 0x45 && is_transport(head[IP + 9]) && !is_fragment;
            mixed(&head[IP + 12..IP + if has_ports { 24 } else { 20 }])
        }
        0x86dd => {
            let has_ports = is_transport(head[IP + 6]);
            mixed(&head[IP + 8..IPV6_PORTS + if has_ports { 4 } else { 0 }])
        }
        _ => 0,
    }
}

/// A hash whose low bits depend on all bytes: FNV-1a with words, and the last steps of MurmurHash3.
fn mixed(bytes: &[u8]) -> u32 {
    let words = bytes.as_chunks().0.iter().map(|w| u32::from_le_bytes(*w));
    let mut hash = words.fold(0x811c_9dc5_u32, |hash, word| {
        (hash ^ word).wrapping_mul(0x0100_0193).rotate_left(15)
    });
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// A frame of UDP over IPv4 with this fragment field and these ports.
    fn ipv4(fragment: [u8; 2], ports: [u8; 4]) -> Vec<u8> {
        let mut frame = vec![0; ETHERTYPE];
        frame.extend([
            8,
            0,
            0x45,
            0,
            0,
            28,
            0,
            0,
            fragment[0],
            fragment[1],
            64,
            17,
            0,
            0,
        ]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(ports);
        frame
    }

    fn flow(frame: &[u8]) -> u32 {
        of(&[IoSlice::new(frame)])
    }

    #[test]
    fn fragments_of_a_packet_are_one_flow_and_ports_make_others() {
        for ports in [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]] {
            let flows: BTreeSet<u32> = (0..64)
                .map(|n| flow(&ipv4([0x40, 0], ports.map(|p| p * n))))
                .collect();
            assert_eq!(flows.len(), 64);
            for queues in [2, 3, 4] {
                let count = |at| flows.iter().filter(|f| **f % queues == at).count() as u32;
                assert!((0..queues).all(|at| count(at) >= 32 / queues), "{ports:?}");
            }
        }
        let first = flow(&ipv4([0x20, 0], [1, 2, 3, 4]));
        assert_eq!(first, flow(&ipv4([0, 185], [5, 6, 7, 8])));
        assert_ne!(first, flow(&ipv4([0, 0], [1, 2, 3, 4])));
    }

    proptest! {
        /// The parts of a frame do not matter, and no frame is too short.
        #[test]
        fn any_frame_in_any_parts(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            ethertype in prop::sample::select(vec![0x0800_u16, 0x86dd, 0x0806]),
            cuts in prop::collection::vec(0..100usize, 0..4),
        ) {
            let mut bytes = bytes;
            if let Some(place) = bytes.get_mut(ETHERTYPE..IP) {
                place.copy_from_slice(&ethertype.to_be_bytes());
            }
            let mut cuts = cuts;
            cuts.push(0);
            cuts.push(bytes.len());
            cuts.sort_unstable();
            let parts: Vec<IoSlice<'_>> = cuts
                .windows(2)
                .filter_map(|w| Some(IoSlice::new(bytes.get(w[0]..w[1])?)))
                .collect();
            // Cuts behind the end leave the rest out of the parts, so they are not compared.
            if parts.iter().map(|p| p.len()).sum::<usize>() == bytes.len() {
                prop_assert_eq!(of(&parts), flow(&bytes));
            }
        }
    }
}
