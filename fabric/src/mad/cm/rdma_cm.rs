//! What rdma_cm says in private data (IBA vol. 1, annex A11, "RDMA IP CM Service"; kernel
//! drivers/infiniband/core/cma.c, `struct cma_hdr`): in front of every ConnectRequest and ServiceIDResReq
//! for a service of its port spaces stand the IP addresses of both sides. Replies have nothing of it.

#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;

use proto::{Gid, Qpn};
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{bits, qpn};

/// Bytes of a [`RdmaCmHeader`].
pub const RDMA_CM_HEADER_LEN: usize = size_of::<RdmaCmHeader>();

/// Bytes that a ConnectRequest has behind the header.
pub const RDMA_CM_DATA_LEN: usize = 92 - RDMA_CM_HEADER_LEN;

/// The header. Addresses are in network order.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RdmaCmHeader {
    /// 0.
    pub version: u8,
    /// IP version 0xf0, reserved 0x0f.
    pub ip: u8,
    /// The port number that the sender is bound to.
    pub port: U16,
    /// The sender's IP address; of an IPv4 address the last four bytes.
    pub source: [u8; 16],
    /// The receiver's, likewise.
    pub destination: [u8; 16],
}

/// What a [`RdmaCmHeader`] says. On RoCE the addresses are GIDs, IPv4 ones as `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RdmaCmAddresses {
    /// The sender's.
    pub source: Gid,
    /// The port number that the sender is bound to.
    pub port: u16,
    /// The receiver's.
    pub destination: Gid,
}

impl RdmaCmHeader {
    /// The only [`RdmaCmHeader::version`].
    pub const VERSION: u8 = 0;

    bits! {
        /// 4 or 6.
        ip_version / set_ip_version: ip & 0xf0,
    }

    /// `None` if one address is an IPv4 one and the other is not.
    pub fn new(addresses: &RdmaCmAddresses) -> Option<RdmaCmHeader> {
        let mut header = RdmaCmHeader::new_zeroed();
        header.port = U16::new(addresses.port);
        match (addresses.source.ipv4(), addresses.destination.ipv4()) {
            (Some(source), Some(destination)) => {
                header.set_ip_version(4);
                header.source[12..].copy_from_slice(&source.octets());
                header.destination[12..].copy_from_slice(&destination.octets());
            }
            (None, None) => {
                header.set_ip_version(6);
                header.source = addresses.source.0;
                header.destination = addresses.destination.0;
            }
            _ => return None,
        }
        Some(header)
    }

    /// The header in front of private data, and what is behind it; `None` if that is too short.
    pub fn split(private_data: &[u8]) -> Option<(&RdmaCmHeader, &[u8])> {
        RdmaCmHeader::ref_from_prefix(private_data).ok()
    }

    /// `None` if the version is another one, the IP version is neither 4 nor 6, or an IPv6 address stands
    /// for an IPv4 one. What is reserved, and what is in front of an IPv4 address, is not looked at,
    /// nor does Linux.
    pub fn addresses(&self) -> Option<RdmaCmAddresses> {
        if self.version != RdmaCmHeader::VERSION {
            return None;
        }
        let (source, destination) = match self.ip_version() {
            4 => (last_four(self.source), last_four(self.destination)),
            6 => (Gid(self.source), Gid(self.destination)),
            _ => return None,
        };
        let mapped = source.ipv4().is_some() || destination.ipv4().is_some();
        (self.ip_version() == 4 || !mapped).then_some(RdmaCmAddresses {
            source,
            port: self.port.get(),
            destination,
        })
    }
}

fn last_four([.., a, b, c, d]: [u8; 16]) -> Gid {
    Ipv4Addr::new(a, b, c, d).into()
}

/// What is behind the header in a ConnectRequest of a device of ours: [`RDMA_CM_DATA_LEN`] bytes, of which
/// the last four say which of the queue pairs that listen on the service is meant. rdma_cm has no
/// more than port numbers, and one listener each. Other programs leave these bytes 0.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RdmaCmData {
    /// For the listener.
    pub private_data: [u8; 52],
    /// 0.
    pub reserved: u8,
    /// See [`RdmaCmData::to`].
    pub qpn: [u8; 3],
}

impl RdmaCmData {
    /// At most 52 bytes of `private_data` are taken.
    pub fn new(to: Qpn, private_data: &[u8]) -> RdmaCmData {
        let mut data = RdmaCmData::new_zeroed();
        let len = private_data.len().min(data.private_data.len());
        data.private_data[..len].copy_from_slice(&private_data[..len]);
        data.set_to(to);
        data
    }

    /// What is behind the header; `None` if that is too short.
    pub fn read(behind_header: &[u8]) -> Option<&RdmaCmData> {
        let (data, _) = RdmaCmData::ref_from_prefix(behind_header).ok()?;
        Some(data)
    }

    qpn! {
        /// The unreliable datagram queue pair of the listener; 0 if there is only one.
        to / set_to: qpn,
    }
}

const _: () = {
    assert!(RDMA_CM_HEADER_LEN == 36);
    assert!(size_of::<RdmaCmData>() == RDMA_CM_DATA_LEN);
};
