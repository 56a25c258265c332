//! The RoCEv2 packet above UDP: Base Transport Header, extended transport headers, padding, ICRC
//! (IBA vol. 1, chapter 9, and annex A17).
//!
//! The structures have the layout of the wire: all fields big-endian, no padding, no alignment. A
//! receive path borrows them from a buffer; [`Packet`] and [`Repr`] read and write whole packets of
//! every opcode of the kernel's `rdma_rxe` (drivers/infiniband/sw/rxe/rxe_opcode.c).

#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

pub mod opcode;
mod packet;
#[cfg(test)]
mod tests;

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use packet::{Extended, Malformed, Packet, Repr};
use proto::{PKey, Psn, QKey, Qpn};

/// The UDP destination port of RoCEv2 (IANA `roce`; include/rdma/ib_verbs.h, ROCE_V2_UDP_DPORT).
pub const ROCE_V2_PORT: u16 = 4791;

/// Bytes of the Invariant CRC, the last ones of every packet.
pub const ICRC_LEN: usize = 4;

/// Pad bytes that bring a payload of `payload_len` bytes to a multiple of four (IBA vol. 1,
/// 9.2.3): 0 to 3.
pub const fn pad_count(payload_len: usize) -> u8 {
    let [low, ..] = payload_len.wrapping_neg().to_le_bytes();
    low & 3
}

/// Base Transport Header, 12 bytes (IBA vol. 1, 9.2).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Bth {
    /// Transport in bits 7 to 5, operation in bits 4 to 0; see [`opcode`].
    pub opcode: u8,
    /// SE 0x80, M 0x40, PadCnt 0x30, TVer 0x0f.
    pub flags: u8,
    /// The partition key.
    pub pkey: U16,
    /// FECN 0x80, BECN 0x40, reserved 0x3f. This byte counts as 0xff in the ICRC.
    pub fecn_becn: u8,
    /// The destination queue pair.
    pub dest_qp: [u8; 3],
    /// AckReq 0x80, reserved 0x7f. The ICRC covers the reserved bits.
    pub ack_req: u8,
    /// The packet sequence number.
    pub psn: [u8; 3],
}

impl Bth {
    /// SE in [`Bth::flags`].
    pub const SOLICITED: u8 = 0x80;
    /// M in [`Bth::flags`].
    pub const MIG_REQ: u8 = 0x40;
    /// FECN in [`Bth::fecn_becn`].
    pub const FECN: u8 = 0x80;
    /// BECN in [`Bth::fecn_becn`].
    pub const BECN: u8 = 0x40;
    /// A in [`Bth::ack_req`].
    pub const ACK_REQ: u8 = 0x80;

    /// The header at the front of `bytes`; `None` if `bytes` is too short.
    pub fn from_prefix(bytes: &[u8]) -> Option<Bth> {
        Bth::read_from_prefix(bytes).ok().map(|(bth, _)| bth)
    }

    /// Solicited event: requests a completion event at the receiver.
    pub const fn solicited(&self) -> bool {
        self.flags & Self::SOLICITED != 0
    }

    /// MigReq, of automatic path migration. `rdma_rxe` sends 0, many adapters 1; both are valid.
    pub const fn mig_req(&self) -> bool {
        self.flags & Self::MIG_REQ != 0
    }

    /// Number of pad bytes after the payload.
    pub const fn pad_count(&self) -> u8 {
        self.flags >> 4 & 3
    }

    /// Transport header version; only 0 exists.
    pub const fn tver(&self) -> u8 {
        self.flags & 0xf
    }

    /// The partition key.
    pub fn pkey(&self) -> PKey {
        PKey::new(self.pkey.get())
    }

    /// Forward explicit congestion notification.
    pub const fn fecn(&self) -> bool {
        self.fecn_becn & Self::FECN != 0
    }

    /// Backward explicit congestion notification.
    pub const fn becn(&self) -> bool {
        self.fecn_becn & Self::BECN != 0
    }

    /// The destination queue pair.
    pub const fn dest_qp(&self) -> Qpn {
        Qpn::from_bytes(self.dest_qp)
    }

    /// Whether the sender requests an acknowledgement.
    pub const fn ack_req(&self) -> bool {
        self.ack_req & Self::ACK_REQ != 0
    }

    /// The packet sequence number.
    pub const fn psn(&self) -> Psn {
        Psn::new(u32::from_be_bytes([
            0,
            self.psn[0],
            self.psn[1],
            self.psn[2],
        ]))
    }
}

/// Datagram Extended Transport Header, 8 bytes (IBA vol. 1, 9.3.3).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Deth {
    /// The queue key.
    pub qkey: U32,
    /// Sent as 0.
    pub reserved: u8,
    /// The sending queue pair.
    pub src_qp: [u8; 3],
}

impl Deth {
    /// Creates a header; the reserved byte is 0.
    pub fn new(qkey: QKey, src_qp: Qpn) -> Deth {
        Deth {
            qkey: U32::new(qkey.get()),
            reserved: 0,
            src_qp: src_qp.to_bytes(),
        }
    }

    /// The queue key.
    pub fn qkey(&self) -> QKey {
        QKey::new(self.qkey.get())
    }

    /// The sending queue pair.
    pub const fn src_qp(&self) -> Qpn {
        Qpn::from_bytes(self.src_qp)
    }
}

/// ACK Extended Transport Header, 4 bytes (IBA vol. 1, 9.3.6).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Aeth {
    /// See [`Aeth::acknowledgement`].
    pub syndrome: u8,
    /// The message sequence number.
    pub msn: [u8; 3],
}

/// The contents of an AETH (IBA vol. 1, 9.7.5.1, tables 42 to 44).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acknowledgement {
    /// Positive, with a credit code; 0x1f means that credits are not in use.
    Ack {
        /// The 5-bit credit code.
        credits: u8,
    },
    /// Receiver not ready, with the code of the minimum delay.
    Rnr {
        /// The 5-bit timer code.
        timer: u8,
    },
    /// Negative: 0 PSN sequence, 1 invalid request, 2 remote access, 3 remote operation, 4 invalid
    /// RD request.
    Nak {
        /// The 5-bit code.
        code: u8,
    },
    /// A reserved class.
    Reserved,
}

impl Aeth {
    /// Decodes the syndrome.
    pub const fn acknowledgement(&self) -> Acknowledgement {
        let code = self.syndrome & 0x1f;
        match self.syndrome & 0xe0 {
            0x00 => Acknowledgement::Ack { credits: code },
            0x20 => Acknowledgement::Rnr { timer: code },
            0x60 => Acknowledgement::Nak { code },
            _ => Acknowledgement::Reserved,
        }
    }

    /// The message sequence number, 24 bits.
    pub const fn msn(&self) -> u32 {
        u32::from_be_bytes([0, self.msn[0], self.msn[1], self.msn[2]])
    }
}

/// Immediate data, 4 bytes, not interpreted (IBA vol. 1, 9.3.7).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ImmDt(pub [u8; 4]);

/// Invalidate Extended Transport Header, 4 bytes (IBA vol. 1, 9.3.8).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Ieth {
    /// The key to invalidate.
    pub rkey: U32,
}

/// RDMA Extended Transport Header, 16 bytes (IBA vol. 1, 9.3.4).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Reth {
    /// The remote virtual address.
    pub va: U64,
    /// The remote key.
    pub rkey: U32,
    /// Bytes of the whole RDMA operation.
    pub dma_length: U32,
}

/// Atomic Extended Transport Header, 28 bytes (IBA vol. 1, 9.3.5).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AtomicEth {
    /// The remote virtual address.
    pub va: U64,
    /// The remote key.
    pub rkey: U32,
    /// The value to swap in or to add.
    pub swap_add: U64,
    /// The value to compare with.
    pub compare: U64,
}

/// Atomic ACK Extended Transport Header, 8 bytes (IBA vol. 1, 9.5.3).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AtomicAckEth {
    /// The value in memory before the operation.
    pub original: U64,
}

const _: () = {
    assert!(size_of::<Bth>() == 12);
    assert!(size_of::<Deth>() == 8);
    assert!(size_of::<Aeth>() == 4);
    assert!(size_of::<ImmDt>() == 4);
    assert!(size_of::<Ieth>() == 4);
    assert!(size_of::<Reth>() == 16);
    assert!(size_of::<AtomicEth>() == 28);
    assert!(size_of::<AtomicAckEth>() == 8);
};
