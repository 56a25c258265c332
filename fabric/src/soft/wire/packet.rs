//! Whole packets of every opcode, from the BTH to the ICRC.

use proto::{PKey, Psn, Qpn};
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::opcode::{self, Headers};
use super::{Aeth, AtomicAckEth, AtomicEth, Bth, Deth, ICRC_LEN, Ieth, ImmDt, Reth, pad_count};

/// Why bytes are not a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// Shorter than BTH, extended headers, padding and ICRC together (IBA vol. 1, 9.6.1).
    #[error("packet has {len} bytes; headers, padding and ICRC need {needed}")]
    Short {
        /// Bytes of the packet.
        len: usize,
        /// Bytes that the packet needs.
        needed: usize,
    },
    /// No RoCEv2 peer sends this opcode.
    #[error("unknown opcode {0:#04x}")]
    Opcode(u8),
    /// A transport header version other than 0.
    #[error("unknown transport header version {0}")]
    Version(u8),
    /// Payload after an opcode without payload.
    #[error("{0} bytes of payload after an opcode without payload")]
    UnexpectedPayload(usize),
}

/// The extended transport headers of a packet; the opcode selects them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extended {
    /// Datagram.
    pub deth: Option<Deth>,
    /// RDMA.
    pub reth: Option<Reth>,
    /// Atomic request.
    pub atomic_eth: Option<AtomicEth>,
    /// Acknowledgement.
    pub aeth: Option<Aeth>,
    /// Atomic response.
    pub atomic_ack_eth: Option<AtomicAckEth>,
    /// Immediate data.
    pub imm_dt: Option<ImmDt>,
    /// Key to invalidate.
    pub ieth: Option<Ieth>,
    /// The reserved bytes of a CNP.
    pub cnp: Option<[u8; 16]>,
}

impl Extended {
    fn parse(headers: Headers, bytes: &mut &[u8]) -> Option<Extended> {
        Some(Extended {
            deth: take_if(headers.deth, bytes)?,
            reth: take_if(headers.reth, bytes)?,
            atomic_eth: take_if(headers.atomic_eth, bytes)?,
            aeth: take_if(headers.aeth, bytes)?,
            atomic_ack_eth: take_if(headers.atomic_ack_eth, bytes)?,
            imm_dt: take_if(headers.imm_dt, bytes)?,
            ieth: take_if(headers.ieth, bytes)?,
            cnp: take_if(headers.cnp, bytes)?,
        })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        put(&self.deth, out);
        put(&self.reth, out);
        put(&self.atomic_eth, out);
        put(&self.aeth, out);
        put(&self.atomic_ack_eth, out);
        put(&self.imm_dt, out);
        put(&self.ieth, out);
        put(&self.cnp, out);
    }

    /// Which headers are present; `payload` is always false.
    fn headers(&self) -> Headers {
        Headers {
            deth: self.deth.is_some(),
            reth: self.reth.is_some(),
            atomic_eth: self.atomic_eth.is_some(),
            aeth: self.aeth.is_some(),
            atomic_ack_eth: self.atomic_ack_eth.is_some(),
            imm_dt: self.imm_dt.is_some(),
            ieth: self.ieth.is_some(),
            cnp: self.cnp.is_some(),
            payload: false,
        }
    }
}

/// Takes the header at the front of `bytes`, if wanted; `None` if `bytes` is too short.
fn take_if<H: FromBytes + Unaligned>(wanted: bool, bytes: &mut &[u8]) -> Option<Option<H>> {
    if !wanted {
        return Some(None);
    }
    let (header, rest) = H::read_from_prefix(bytes).ok()?;
    *bytes = rest;
    Some(Some(header))
}

fn put<H: IntoBytes + Immutable + KnownLayout>(header: &Option<H>, out: &mut Vec<u8>) {
    if let Some(header) = header {
        out.extend_from_slice(header.as_bytes());
    }
}

/// Bytes of the extended headers.
fn extended_len(h: Headers) -> usize {
    let sizes = [
        (h.deth, size_of::<Deth>()),
        (h.reth, size_of::<Reth>()),
        (h.atomic_eth, size_of::<AtomicEth>()),
        (h.aeth, size_of::<Aeth>()),
        (h.atomic_ack_eth, size_of::<AtomicAckEth>()),
        (h.imm_dt, size_of::<ImmDt>()),
        (h.ieth, size_of::<Ieth>()),
        (h.cnp, 16),
    ];
    sizes.iter().filter(|s| s.0).map(|s| s.1).sum()
}

/// A parsed packet of valid length; the ICRC is not verified.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The base transport header.
    pub bth: Bth,
    /// The extended transport headers.
    pub extended: Extended,
    /// The payload, without padding.
    pub payload: &'a [u8],
    /// The pad bytes, 0 to 3.
    pub pad: &'a [u8],
    /// The ICRC as on the wire, least significant byte first.
    pub icrc: [u8; ICRC_LEN],
    /// All bytes above UDP that the ICRC covers: BTH to pad.
    pub covered: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses `transport`, the bytes from the BTH to the ICRC.
    ///
    /// # Errors
    /// [`Malformed`]. The checks are those of the kernel before it looks for a queue pair (rxe_recv.c,
    /// `rxe_rcv` and `hdr_check`), and that an opcode without payload has none.
    pub fn parse(transport: &'a [u8]) -> Result<Packet<'a>, Malformed> {
        let short = |needed| Malformed::Short {
            len: transport.len(),
            needed,
        };
        let (bth, mut rest) =
            Bth::read_from_prefix(transport).map_err(|_| short(size_of::<Bth>() + ICRC_LEN))?;
        let headers = opcode::headers(bth.opcode).ok_or(Malformed::Opcode(bth.opcode))?;
        if bth.tver() != 0 {
            return Err(Malformed::Version(bth.tver()));
        }
        let pad_len = usize::from(bth.pad_count());
        let needed = size_of::<Bth>() + extended_len(headers) + pad_len + ICRC_LEN;
        if transport.len() < needed {
            return Err(short(needed));
        }
        let extended = Extended::parse(headers, &mut rest).ok_or(short(needed))?;
        let (rest, icrc) = rest.split_last_chunk().ok_or(short(needed))?;
        let (payload, pad) = rest.split_at(rest.len() - pad_len);
        if !headers.payload && !rest.is_empty() {
            return Err(Malformed::UnexpectedPayload(rest.len()));
        }
        Ok(Packet {
            bth,
            extended,
            payload,
            pad,
            icrc: *icrc,
            covered: &transport[..transport.len() - ICRC_LEN],
        })
    }

    /// The packet's fields, without computed (PadCnt) and reserved ones.
    pub fn repr(&self) -> Repr<'a> {
        Repr {
            opcode: self.bth.opcode,
            solicited: self.bth.solicited(),
            mig_req: self.bth.mig_req(),
            pkey: self.bth.pkey(),
            fecn: self.bth.fecn(),
            becn: self.bth.becn(),
            dest_qp: self.bth.dest_qp(),
            ack_req: self.bth.ack_req(),
            psn: self.bth.psn(),
            extended: Extended {
                deth: self.extended.deth.map(|d| Deth::new(d.qkey(), d.src_qp())),
                cnp: self.extended.cnp.map(|_| [0; 16]),
                ..self.extended
            },
            payload: self.payload,
        }
    }
}

/// The fields of a packet to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr<'a> {
    /// See [`opcode`].
    pub opcode: u8,
    /// SE.
    pub solicited: bool,
    /// M.
    pub mig_req: bool,
    /// The partition key.
    pub pkey: PKey,
    /// FECN.
    pub fecn: bool,
    /// BECN.
    pub becn: bool,
    /// The destination queue pair.
    pub dest_qp: Qpn,
    /// A.
    pub ack_req: bool,
    /// The packet sequence number.
    pub psn: Psn,
    /// The extended headers; must be those of the opcode.
    pub extended: Extended,
    /// The payload.
    pub payload: &'a [u8],
}

impl Repr<'_> {
    /// The base transport header.
    pub fn bth(&self) -> Bth {
        let [_, p0, p1, p2] = self.psn.get().to_be_bytes();
        let bit = |set, mask| if set { mask } else { 0 };
        Bth {
            opcode: self.opcode,
            flags: bit(self.solicited, Bth::SOLICITED)
                | bit(self.mig_req, Bth::MIG_REQ)
                | pad_count(self.payload.len()) << 4,
            pkey: U16::new(self.pkey.get()),
            fecn_becn: bit(self.fecn, Bth::FECN) | bit(self.becn, Bth::BECN),
            dest_qp: self.dest_qp.to_bytes(),
            ack_req: bit(self.ack_req, Bth::ACK_REQ),
            psn: [p0, p1, p2],
        }
    }

    /// Appends BTH, extended headers, payload and zero padding to `out`. The caller appends the ICRC,
    /// which depends on the IP and UDP headers ([`super::super::icrc::Prefix::finish_received`]).
    ///
    /// # Errors
    /// [`Malformed::Opcode`] if the opcode is unknown or the extended headers are not those of the
    /// opcode, [`Malformed::UnexpectedPayload`].
    pub fn emit(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let wanted = opcode::headers(self.opcode).ok_or(Malformed::Opcode(self.opcode))?;
        let without_payload = Headers {
            payload: false,
            ..wanted
        };
        if self.extended.headers() != without_payload {
            return Err(Malformed::Opcode(self.opcode));
        }
        if !wanted.payload && !self.payload.is_empty() {
            return Err(Malformed::UnexpectedPayload(self.payload.len()));
        }
        out.extend_from_slice(self.bth().as_bytes());
        self.extended.emit(out);
        out.extend_from_slice(self.payload);
        out.resize(out.len() + usize::from(pad_count(self.payload.len())), 0);
        Ok(())
    }
}
