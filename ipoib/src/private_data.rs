//! The private data of connection requests and replies (RFC 4755, section 6; kernel
//! drivers/infiniband/ulp/ipoib/ipoib.h, `struct ipoib_cm_data`).

#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

use proto::Qpn;

use crate::wire::{ENCAP_LEN, array};

/// The largest IP packet of a connection, in bytes (`IPOIB_CM_MTU`): 64 KiB minus 16 bytes, as in the
/// kernel.
pub const CONNECTED_MTU: usize = 0x1_0000 - 0x10;

/// The private data, 8 bytes: a reserved byte, queue pair number, receive MTU; in network order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrivateData {
    /// The sender's UD queue pair.
    pub qpn: Qpn,
    /// The largest message that the sender accepts, in bytes, the encapsulation header included.
    pub receive_mtu: u32,
}

/// [`CONNECTED_MTU`] with the encapsulation header.
const RECEIVE_MTU: u32 = 0xfff4;
const _: () = assert!(RECEIVE_MTU as usize == CONNECTED_MTU + ENCAP_LEN);

impl PrivateData {
    /// Length in bytes.
    pub const LEN: usize = 8;

    /// The private data of an interface with the queue pair `qpn`, which accepts [`CONNECTED_MTU`].
    pub const fn new(qpn: Qpn) -> PrivateData {
        PrivateData {
            qpn,
            receive_mtu: RECEIVE_MTU,
        }
    }

    /// Parses the beginning of a message's private data; the rest is ignored. `None` if it is too short.
    /// The reserved byte is ignored.
    pub fn parse(bytes: &[u8]) -> Option<PrivateData> {
        let bytes: &[u8; PrivateData::LEN] = bytes.first_chunk()?;
        Some(PrivateData {
            qpn: Qpn::from_bytes(array(bytes, 1)),
            receive_mtu: u32::from_be_bytes(array(bytes, 4)),
        })
    }

    /// The bytes on the wire.
    pub fn to_bytes(self) -> [u8; PrivateData::LEN] {
        let mut bytes = [0; PrivateData::LEN];
        bytes[1..4].copy_from_slice(&self.qpn.to_bytes());
        bytes[4..].copy_from_slice(&self.receive_mtu.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn c94_private_data_is_the_queue_pair_and_the_mtu_with_its_header() {
        let ours = PrivateData::new(Qpn::new(0x4a));
        assert_eq!(ours.to_bytes(), [0, 0, 0, 0x4a, 0, 0, 0xff, 0xf4]);
        assert_eq!(ours.receive_mtu, 65524);
    }

    #[test]
    fn the_reserved_byte_and_what_follows_are_ignored() {
        let long = [0xee, 0, 0, 0x4a, 0, 0, 0xff, 0xf4, 1, 2, 3];
        assert_eq!(
            PrivateData::parse(&long),
            Some(PrivateData::new(Qpn::new(0x4a)))
        );
        for len in 0..PrivateData::LEN {
            assert_eq!(PrivateData::parse(&long[..len]), None);
        }
    }

    proptest! {
        #[test]
        fn private_data_reads_back(qpn in 0u32..1 << 24, receive_mtu in any::<u32>()) {
            let data = PrivateData { qpn: Qpn::new(qpn), receive_mtu };
            prop_assert_eq!(PrivateData::parse(&data.to_bytes()), Some(data));
        }
    }
}
