//! The sending side of QP1: one management datagram at a time.

use proto::{PKey, Psn, QKey, Qpn};

use super::train::{self, Header};
use super::wire::{Bth, Deth, opcode};
use crate::mad::MAD_LEN;

/// Bytes of a management datagram in UDP.
pub const MAD_PACKET_LEN: usize = train::packet_len(MAD_LEN);

/// The sending side of QP1.
#[derive(Debug)]
pub struct Gsi {
    psn: Psn,
    /// The packet, from BTH to ICRC; the ICRC is written when the packet is sent.
    pub packet: Box<[u8; MAD_PACKET_LEN]>,
}

impl Gsi {
    /// Without a datagram. The first PSN follows from `random`.
    pub fn new(random: u64) -> Gsi {
        Gsi {
            psn: Psn::new(random as u32),
            packet: Box::new([0; MAD_PACKET_LEN]),
        }
    }

    /// Writes the packet of a datagram to QP1.
    pub fn load(&mut self, pkey: PKey, mad: &[u8; MAD_LEN]) {
        let header = Header {
            opcode: opcode::UD_SEND_ONLY,
            pkey,
            dest_qp: Qpn::GSI,
            qkey: QKey::GSI,
            src_qp: Qpn::GSI,
        };
        self.packet[..train::HEAD].copy_from_slice(&header.to_bytes(self.psn));
        self.packet[train::HEAD..][..MAD_LEN].copy_from_slice(mad);
        self.psn = self.psn.advance(1);
    }
}

const _: () = assert!(train::HEAD == size_of::<Bth>() + size_of::<Deth>());
