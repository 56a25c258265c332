//! Messages of communication management (IBA vol. 1, 12.6; kernel include/rdma/ibta_vol1_c12.h): the
//! bytes behind the common header of a datagram of class [`super::class::COM_MGT`].
//!
//! The structures have the layout of the wire, all [`DATA_LEN`] bytes including private data:
//! big-endian, no padding, no alignment. Fields narrower than a byte have a getter and a setter. Times
//! are codes of five bits: 4.096 µs times two to the power of the code.

mod connect;
mod end;
mod path;
mod rdma_cm;
mod sidr;
#[cfg(test)]
mod tests;

use zerocopy::FromBytes;

pub use connect::{Mra, Rej, Rep, Req, Rtu};
pub use end::{Drep, Dreq};
pub use path::{Apr, Lap, Path};
pub use rdma_cm::{
    RDMA_CM_DATA_LEN, RDMA_CM_HEADER_LEN, RdmaCmAddresses, RdmaCmData, RdmaCmHeader, request_data,
    selected,
};
pub use sidr::{SidrRep, SidrReq};

use super::{Header, MAD_LEN};

/// ConnectRequest (REQ).
pub const REQ: u16 = 0x10;
/// MsgRcptAck (MRA).
pub const MRA: u16 = 0x11;
/// ConnectReject (REJ).
pub const REJ: u16 = 0x12;
/// ConnectReply (REP).
pub const REP: u16 = 0x13;
/// ReadyToUse (RTU).
pub const RTU: u16 = 0x14;
/// DisconnectRequest (DREQ).
pub const DREQ: u16 = 0x15;
/// DisconnectReply (DREP).
pub const DREP: u16 = 0x16;
/// ServiceIDResReq (SIDR_REQ).
pub const SIDR_REQ: u16 = 0x17;
/// ServiceIDResReqResp (SIDR_REP).
pub const SIDR_REP: u16 = 0x18;
/// LoadAlternatePath (LAP).
pub const LAP: u16 = 0x19;
/// AlternatePathResponse (APR).
pub const APR: u16 = 0x1a;

/// The class version (IBA vol. 1, 16.7.1).
pub const CLASS_VERSION: u8 = 2;

/// Bytes of every message.
pub const DATA_LEN: usize = MAD_LEN - size_of::<Header>();

/// Offsets in a datagram: of the message's attribute, of the sender's communication id, and of the receiver's in
/// messages that have one.
pub const ATTRIBUTE: usize = 16;
/// See [`ATTRIBUTE`].
pub const SENDER_ID: usize = 24;
/// See [`ATTRIBUTE`].
pub const RECEIVER_ID: usize = 28;

/// The number of a received datagram's worker among `workers`: the low byte of our communication id, or of the
/// sender's id in a message without ours. `None` for a datagram that is too short.
pub fn worker_of(datagram: &[u8], workers: usize) -> Option<usize> {
    let word = |at: usize| {
        let bytes = datagram.get(at..)?.first_chunk()?;
        Some(u32::from_be_bytes(*bytes))
    };
    let attribute = (word(ATTRIBUTE)? >> 16) as u16;
    let (sender, receiver) = (word(SENDER_ID)?, word(RECEIVER_ID)?);
    // A ServiceIDResReqResp has the request's id in the place of the sender's.
    let names_none = attribute == REQ || attribute == SIDR_REP || attribute == REJ && receiver == 0;
    let id = if names_none { sender } else { receiver };
    Some((id & 0xff) as usize % workers.max(1))
}

/// Which message an MRA or a REJ answers (IBA vol. 1, 12.6.6.1 and 12.6.7.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Answered {
    /// The ConnectRequest.
    Req = 0,
    /// The ConnectReply.
    Rep = 1,
    /// Another message; in an MRA the LoadAlternatePath.
    Other = 2,
    /// Reserved value.
    Reserved = 3,
}

impl Answered {
    /// Decodes the low two bits; ignores the others.
    pub const fn from_bits(bits: u8) -> Answered {
        match bits & 3 {
            0 => Answered::Req,
            1 => Answered::Rep,
            2 => Answered::Other,
            _ => Answered::Reserved,
        }
    }

    /// `REQ`, `REP`, `other`, `reserved`.
    pub const fn name(self) -> &'static str {
        match self {
            Answered::Req => "REQ",
            Answered::Rep => "REP",
            Answered::Other => "other",
            Answered::Reserved => "reserved",
        }
    }
}

/// A message of any attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each is documented where it is defined")]
pub enum Message<'a> {
    Req(&'a Req),
    Mra(&'a Mra),
    Rej(&'a Rej),
    Rep(&'a Rep),
    Rtu(&'a Rtu),
    Dreq(&'a Dreq),
    Drep(&'a Drep),
    SidrReq(&'a SidrReq),
    SidrRep(&'a SidrRep),
    Lap(&'a Lap),
    Apr(&'a Apr),
}

impl<'a> Message<'a> {
    /// Reads the data behind a header with this attribute; `None` for an unknown attribute.
    pub fn parse(attribute: u16, data: &'a [u8; DATA_LEN]) -> Option<Message<'a>> {
        Some(match attribute {
            REQ => Message::Req(Req::ref_from_bytes(data).ok()?),
            MRA => Message::Mra(Mra::ref_from_bytes(data).ok()?),
            REJ => Message::Rej(Rej::ref_from_bytes(data).ok()?),
            REP => Message::Rep(Rep::ref_from_bytes(data).ok()?),
            RTU => Message::Rtu(Rtu::ref_from_bytes(data).ok()?),
            DREQ => Message::Dreq(Dreq::ref_from_bytes(data).ok()?),
            DREP => Message::Drep(Drep::ref_from_bytes(data).ok()?),
            SIDR_REQ => Message::SidrReq(SidrReq::ref_from_bytes(data).ok()?),
            SIDR_REP => Message::SidrRep(SidrRep::ref_from_bytes(data).ok()?),
            LAP => Message::Lap(Lap::ref_from_bytes(data).ok()?),
            APR => Message::Apr(Apr::ref_from_bytes(data).ok()?),
            _ => return None,
        })
    }
}

/// A getter and a setter for the bits of a byte under a mask. The setter drops the high bits of a too
/// large value.
macro_rules! bits {
    ($($(#[$doc:meta])* $get:ident / $set:ident: $byte:ident & $mask:literal,)*) => {$(
        $(#[$doc])*
        pub const fn $get(&self) -> u8 {
            (self.$byte & $mask) >> u8::trailing_zeros($mask)
        }

        #[doc = concat!("Sets [`Self::", stringify!($get), "`].")]
        pub const fn $set(&mut self, value: u8) {
            self.$byte = self.$byte & !$mask | value << u8::trailing_zeros($mask) & $mask;
        }
    )*};
}
use bits;

/// A getter and a setter for a queue pair number of three bytes.
macro_rules! qpn {
    ($($(#[$doc:meta])* $get:ident / $set:ident: $bytes:ident,)*) => {$(
        $(#[$doc])*
        pub const fn $get(&self) -> proto::Qpn {
            proto::Qpn::from_bytes(self.$bytes)
        }

        #[doc = concat!("Sets [`Self::", stringify!($get), "`].")]
        pub const fn $set(&mut self, value: proto::Qpn) {
            self.$bytes = value.to_bytes();
        }
    )*};
}
use qpn;

/// A getter and a setter for the starting PSN.
macro_rules! starting_psn {
    () => {
        /// The PSN of the first packet that the receiver of this message sends.
        pub const fn starting_psn(&self) -> proto::Psn {
            let [a, b, c] = self.psn;
            proto::Psn::new(u32::from_be_bytes([0, a, b, c]))
        }

        /// Sets [`Self::starting_psn`].
        pub const fn set_starting_psn(&mut self, value: proto::Psn) {
            let [_, a, b, c] = value.get().to_be_bytes();
            self.psn = [a, b, c];
        }
    };
}
use starting_psn;

const _: () = {
    assert!(size_of::<Req>() == DATA_LEN);
    assert!(size_of::<Mra>() == DATA_LEN);
    assert!(size_of::<Rej>() == DATA_LEN);
    assert!(size_of::<Rep>() == DATA_LEN);
    assert!(size_of::<Rtu>() == DATA_LEN);
    assert!(size_of::<Dreq>() == DATA_LEN);
    assert!(size_of::<Drep>() == DATA_LEN);
    assert!(size_of::<SidrReq>() == DATA_LEN);
    assert!(size_of::<SidrRep>() == DATA_LEN);
    assert!(size_of::<Lap>() == DATA_LEN);
    assert!(size_of::<Apr>() == DATA_LEN);
};
