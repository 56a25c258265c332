//! MADs with their user header, `struct ib_user_mad` of `infiniband/umad.h`.

use std::ffi::c_void;

use zerocopy::byteorder::network_endian as be;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::port::AgentId;
use crate::{Gid, Lid, QKey, Qpn};

/// Bytes of the user header, `umad_size()` since ABI version 5 with P_Keys.
pub const HEADER: usize = 64;
/// Bytes of a MAD that is no RMPP table.
pub const MAD: usize = 256;
/// Place of the transaction id in a MAD (IBA vol. 1, 13.4.3).
const TRANSACTION: usize = 8;
/// Place of the method; its bit 7 marks an answer.
const METHOD: usize = 3;

/// The user header. `agent_id` to `length` and `pkey_index` have the machine's byte order.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
pub struct Header {
    pub agent_id: [u8; 4],
    /// 0, or the errno of a request that is returned.
    pub status: [u8; 4],
    pub timeout_ms: [u8; 4],
    pub retries: [u8; 4],
    pub length: [u8; 4],
    pub qpn: be::U32,
    pub qkey: be::U32,
    pub lid: be::U16,
    pub sl: u8,
    pub path_bits: u8,
    pub grh_present: u8,
    pub gid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub gid: [u8; 16],
    pub flow_label: be::U32,
    pub pkey_index: [u8; 2],
    pub reserved: [u8; 6],
}

/// The part of a GRH that the kernel takes and gives. The other GID is the port's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grh {
    /// The other side's GID.
    pub gid: Gid,
    /// The place of the own GID in the port's table.
    pub gid_index: u8,
    /// TClass.
    pub traffic_class: u8,
    /// 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
}

/// The destination of a MAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct To {
    /// Destination LID.
    pub dlid: Lid,
    /// Service level, 0 to 15.
    pub sl: u8,
    /// The low bits of the source LID of a port whose LMC is not 0.
    pub path_bits: u8,
    /// QP0 for subnet management, QP1 for all other classes.
    pub qpn: Qpn,
    /// [`QKey::GSI`] for QP1; QP0 has none.
    pub qkey: QKey,
    /// The place of the partition's key in the port's table.
    pub pkey_index: u16,
    /// For a destination in another subnet, or in answer to a MAD with a GRH.
    pub grh: Option<Grh>,
}

impl To {
    /// QP1 of a port of the subnet, in the partition of P_Key index 0.
    pub const fn gsi(dlid: Lid, sl: u8) -> To {
        To {
            dlid,
            sl,
            path_bits: 0,
            qpn: Qpn::GSI,
            qkey: QKey::GSI,
            pkey_index: 0,
            grh: None,
        }
    }

    /// QP0 of a port of the subnet: for subnet management.
    pub const fn smi(dlid: Lid) -> To {
        To {
            qpn: Qpn::new(0),
            qkey: QKey::new(0),
            ..To::gsi(dlid, 0)
        }
    }
}

/// A received MAD, or a request that the kernel returns without an answer.
#[derive(Clone, Debug)]
pub struct Received {
    /// The agent.
    pub agent: AgentId,
    /// 0 for a received MAD. Otherwise the errno of a request that is returned: 110 (ETIMEDOUT)
    /// without an answer. `mad` then begins with the request's common header.
    pub status: u32,
    /// Source LID.
    pub slid: Lid,
    /// Source queue pair.
    pub sqpn: Qpn,
    /// Service level.
    pub sl: u8,
    /// The low bits of the LID that it was sent to.
    pub path_bits: u8,
    /// The place of its P_Key in the port's table.
    pub pkey_index: u16,
    /// Its GRH, with the sender's GID.
    pub grh: Option<Grh>,
    /// The MAD: 256 bytes, or a reassembled table of an agent with RMPP. The upper half of the
    /// transaction id is 0 in answers and returned requests.
    pub mad: Vec<u8>,
}

impl Received {
    /// Where an answer to this MAD goes.
    pub fn reply_to(&self) -> To {
        To {
            dlid: self.slid,
            sl: self.sl,
            path_bits: self.path_bits,
            qpn: self.sqpn,
            qkey: QKey::GSI,
            pkey_index: self.pkey_index,
            grh: self.grh,
        }
    }
}

/// Memory for a header and a MAD, aligned for the header.
#[derive(Debug)]
pub struct Buffer {
    words: Vec<u64>,
    mad: usize,
}

impl Buffer {
    /// A buffer of zeros for a MAD of at most `mad` bytes, at least 256.
    pub fn new(mad: usize) -> Buffer {
        let mad = mad.max(MAD);
        Buffer {
            words: vec![0; (HEADER + mad).div_ceil(size_of::<u64>())],
            mad,
        }
    }

    /// A buffer with a MAD to send, filled up with zeros to 256 bytes.
    pub fn with(to: &To, mad: &[u8]) -> Buffer {
        let mut buffer = Buffer::new(mad.len());
        let (header, place) = buffer.parts_mut();
        header.qpn = to.qpn.get().into();
        header.qkey = to.qkey.get().into();
        header.lid = to.dlid.0.into();
        header.sl = to.sl;
        header.path_bits = to.path_bits;
        header.pkey_index = to.pkey_index.to_ne_bytes();
        if let Some(grh) = &to.grh {
            header.grh_present = 1;
            header.gid = grh.gid.0;
            header.gid_index = grh.gid_index;
            header.traffic_class = grh.traffic_class;
            header.hop_limit = grh.hop_limit;
            header.flow_label = grh.flow_label.into();
        }
        for (to, from) in place.iter_mut().zip(mad) {
            *to = *from;
        }
        buffer
    }

    /// Bytes of the MAD.
    pub fn mad_length(&self) -> usize {
        self.mad
    }

    /// For libibumad: the header, then [`Buffer::mad_length`] bytes.
    pub fn as_mut_ptr(&mut self) -> *mut c_void {
        self.words.as_mut_ptr().cast()
    }

    /// The header and the MAD.
    pub fn parts(&self) -> (&Header, &[u8]) {
        let (header, mad) = Header::ref_from_prefix(self.words.as_bytes())
            .expect("a buffer is longer than a header");
        (header, mad.get(..self.mad).unwrap_or(mad))
    }

    /// The header and the MAD.
    pub fn parts_mut(&mut self) -> (&mut Header, &mut [u8]) {
        let (header, mad) = Header::mut_from_prefix(self.words.as_mut_bytes())
            .expect("a buffer is longer than a header");
        let length = self.mad.min(mad.len());
        (header, mad.split_at_mut(length).0)
    }

    /// The received MAD of `length` bytes.
    pub fn received(&self, agent: AgentId, length: usize) -> Received {
        let (header, mad) = self.parts();
        let status = u32::from_ne_bytes(header.status);
        let mut mad = mad.get(..length).unwrap_or(mad).to_vec();
        let answer = mad.get(METHOD).is_some_and(|method| method & 0x80 != 0);
        if answer || status != 0 {
            for byte in mad.iter_mut().skip(TRANSACTION).take(4) {
                *byte = 0;
            }
        }
        let grh = (header.grh_present != 0).then(|| Grh {
            gid: Gid(header.gid),
            gid_index: header.gid_index,
            traffic_class: header.traffic_class,
            flow_label: header.flow_label.get() & 0xf_ffff,
            hop_limit: header.hop_limit,
        });
        Received {
            agent,
            status,
            slid: Lid(header.lid.get()),
            sqpn: Qpn::new(header.qpn.get() & 0xff_ffff),
            sl: header.sl,
            path_bits: header.path_bits,
            pkey_index: u16::from_ne_bytes(header.pkey_index),
            grh,
            mad,
        }
    }
}
