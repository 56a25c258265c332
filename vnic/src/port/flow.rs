//! Entropy and default port of a flow.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::FixedState;

use super::frame::Flow;
use crate::Lid;

/// Entries of the flow table; the last one is never used (kernel opa_vnic_internal.h,
/// `OPA_VNIC_FLOW_TBL_SIZE`).
const FLOW_TABLE_LEN: usize = 32;
/// An entry without a default port.
const NO_PORT: u8 = 0xff;

/// Hash of flows, with a secret key.
pub struct FlowHash(FixedState);

impl FlowHash {
    /// Creates the hash. All replicas use the same key, so that a flow has one entropy.
    pub const fn new(key: u64) -> FlowHash {
        FlowHash(FixedState::with_seed(key))
    }

    /// Entropy of a flow: an arbitrary value, equal for all packets of the flow.
    #[inline]
    pub fn entropy(&self, flow: &Flow) -> u8 {
        let mut hasher = self.0.build_hasher();
        hasher.write(flow.bytes());
        entropy(hasher.finish() as u32)
    }
}

/// Folds a hash to 8 bits (kernel opa_vnic_encap.c, `opa_vnic_calc_entropy`).
const fn entropy(hash: u32) -> u8 {
    let [a, b, c, d] = hash.to_be_bytes();
    a ^ b ^ c ^ d
}

/// Index in the flow table for an entropy (kernel opa_vnic_encap.c, `opa_vnic_get_def_port`).
const fn place(entropy: u8) -> usize {
    (entropy & 0xf) as usize + (entropy >> 4) as usize
}

/// Default port (0 to 15) of each entry of the flow table.
fn flow_table(mask: u16) -> [u8; FLOW_TABLE_LEN] {
    let mut table = [NO_PORT; FLOW_TABLE_LEN];
    if mask != 0 {
        let ports = (0..16_u8).filter(|port| mask >> port & 1 != 0);
        for (place, port) in table.iter_mut().zip(ports.cycle()) {
            *place = port;
        }
    }
    table
}

/// Default ports of a switch: gateways for unknown globally administered addresses.
pub struct DefaultPorts([Lid; FLOW_TABLE_LEN]);

impl DefaultPorts {
    /// Creates the default ports: those of `lids` whose bit in `mask` is set.
    pub fn new(mask: u16, lids: &[Lid; 16]) -> DefaultPorts {
        DefaultPorts(flow_table(mask).map(|port| {
            let lid = lids.get(usize::from(port));
            lid.copied().unwrap_or(Lid::NONE)
        }))
    }

    /// LID for a flow, or [`Lid::NONE`].
    #[inline]
    pub fn lid(&self, entropy: u8) -> Lid {
        self.0[place(entropy)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::frame::Frame;
    use crate::port::testing::vectors;

    /// Parses a number of the vectors: "0x...".
    fn number(value: &serde_json::Value) -> u32 {
        let digits = value.as_str().unwrap().trim_start_matches("0x");
        u32::from_str_radix(digits, 16).unwrap()
    }

    #[test]
    fn t12_t13_entropies_and_places_are_those_of_the_vectors() {
        let vectors = vectors();
        let vectors = vectors["entropy_vectors"].as_array().unwrap();
        assert!(!vectors.is_empty());
        for v in vectors {
            let entropy = entropy(number(&v["hash32"]));
            assert_eq!(u64::from(entropy), v["entropy"], "{v}");
            assert_eq!(place(entropy) as u64, v["flow_id"], "{v}");
        }
        assert_eq!(place(0xff), 30);
    }

    #[test]
    fn t11_flow_tables_are_those_of_the_vectors() {
        let vectors = vectors();
        let vectors = vectors["flow_table_vectors"].as_array().unwrap();
        assert!(!vectors.is_empty());
        for v in vectors {
            let mask = v["def_port_mask"].as_u64().unwrap() as u16;
            let expected: Vec<u8> = serde_json::from_value(v["flow_tbl"].clone()).unwrap();
            assert_eq!(flow_table(mask).to_vec(), expected, "{mask:#x}");
        }
        let expected = [0, 15].into_iter().cycle().take(FLOW_TABLE_LEN);
        assert_eq!(flow_table(0x8001).to_vec(), expected.collect::<Vec<u8>>());
    }

    #[test]
    fn t13_entropy_depends_on_the_flow_and_on_the_key_alone() {
        let flow = |port: u8| {
            let mut frame = vec![0; 54];
            frame[12..15].copy_from_slice(&[8, 0, 0x45]);
            frame[23] = 6;
            frame[37] = port;
            Frame::parse(&frame).unwrap().flow
        };
        let (one, other) = (FlowHash::new(1), FlowHash::new(2));
        let all = |hash: &FlowHash| (0..64).map(|port| hash.entropy(&flow(port))).collect();
        let (first, again): (Vec<u8>, Vec<u8>) = (all(&one), all(&FlowHash::new(1)));
        assert_eq!(first, again);
        assert_ne!(first, all(&other));
        let mut different = first;
        different.sort_unstable();
        different.dedup();
        assert!(different.len() > 32, "64 flows share {different:?}");
    }
}
