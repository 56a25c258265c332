//! The private data of rdma_cm (IBA vol. 1, annex A11, "RDMA IP CM Service"; kernel
//! drivers/infiniband/core/cma.c, `struct cma_hdr`). For services of its port spaces, the private data
//! of a ConnectRequest or ServiceIDResReq begins with the IP addresses of both sides. Replies have no
//! such header.

#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;

use proto::{Gid, Qpn, ServiceId};
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{bits, qpn};

/// Bytes of a [`RdmaCmHeader`].
pub const RDMA_CM_HEADER_LEN: usize = size_of::<RdmaCmHeader>();

/// Private data in a ConnectRequest after the header, in bytes.
pub const RDMA_CM_DATA_LEN: usize = 92 - RDMA_CM_HEADER_LEN;

/// The header. Addresses are in network byte order.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RdmaCmHeader {
    /// Always 0.
    pub version: u8,
    /// IP version 0xf0, reserved 0x0f.
    pub ip: u8,
    /// The sender's port number.
    pub port: U16,
    /// The sender's IP address; an IPv4 address is in the last four bytes.
    pub source: [u8; 16],
    /// The receiver's IP address, likewise.
    pub destination: [u8; 16],
}

/// The addresses of a [`RdmaCmHeader`]. On RoCE they are GIDs, IPv4 addresses as `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RdmaCmAddresses {
    /// The sender's address.
    pub source: Gid,
    /// The sender's port number.
    pub port: u16,
    /// The receiver's address.
    pub destination: Gid,
}

impl RdmaCmHeader {
    /// The only valid [`RdmaCmHeader::version`].
    pub const VERSION: u8 = 0;

    bits! {
        /// 4 or 6.
        ip_version / set_ip_version: ip & 0xf0,
    }

    /// `None` if only one of the addresses is IPv4.
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

    /// Splits private data into the header and the rest; `None` if the data is too short.
    pub fn split(private_data: &[u8]) -> Option<(&RdmaCmHeader, &[u8])> {
        RdmaCmHeader::ref_from_prefix(private_data).ok()
    }

    /// `None` for another version, an IP version other than 4 and 6, or an IPv6 header with an
    /// IPv4-mapped address. Ignores reserved bits and the bytes before an IPv4 address, like Linux.
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

/// The [`RDMA_CM_DATA_LEN`] bytes after the header in a ConnectRequest of ibtap. The last four select
/// one of the queue pairs that listen on the service, because rdma_cm has only port numbers with one
/// listener each. Other programs send 0.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RdmaCmData {
    /// Private data for the listener.
    pub private_data: [u8; 52],
    /// Always 0.
    pub reserved: u8,
    /// See [`RdmaCmData::to`].
    pub qpn: [u8; 3],
}

impl RdmaCmData {
    /// Uses at most 52 bytes of `private_data`.
    pub fn new(to: Qpn, private_data: &[u8]) -> RdmaCmData {
        let mut data = RdmaCmData::new_zeroed();
        let len = private_data.len().min(data.private_data.len());
        data.private_data[..len].copy_from_slice(&private_data[..len]);
        data.set_to(to);
        data
    }

    /// Reads the bytes after the header; `None` if there are too few.
    pub fn read(behind_header: &[u8]) -> Option<&RdmaCmData> {
        let (data, _) = RdmaCmData::ref_from_prefix(behind_header).ok()?;
        Some(data)
    }

    qpn! {
        /// The UD queue pair of the listener; 0 if there is only one listener.
        to / set_to: qpn,
    }
}

/// Private data of a request for a service of [`ServiceId::rdma_ib`], in bytes.
const RDMA_IB_DATA_LEN: usize = 92;

/// Private data of a request to the listener `to`, without rdma_cm's header. The last four bytes are 0 and
/// `to` if several queue pairs may listen on the service: see [`RdmaCmData`] and [`ServiceId::rdma_ib`].
/// Uses only as many bytes of `private_data` as fit.
pub fn request_data(service: ServiceId, to: Qpn, private_data: &[u8]) -> Box<[u8]> {
    if service.rdma_cm_port().is_some() {
        return RdmaCmData::new(to, private_data).as_bytes().into();
    }
    let mut all = [0; RDMA_IB_DATA_LEN];
    let mut room = RDMA_IB_DATA_LEN;
    if let (Some(_), Some((rest, qpn))) = (service.rdma_ib_port(), all.split_last_chunk_mut()) {
        *qpn = to.to_bytes();
        // One reserved byte.
        room = rest.len() - 1;
    }
    let len = private_data.len().min(room);
    all[..len].copy_from_slice(&private_data[..len]);
    all.into()
}

/// The listener selected by private data from [`request_data`]; `None` if the service has one listener.
pub fn selected(service: ServiceId, private_data: &[u8]) -> Option<Qpn> {
    let several = service.rdma_cm_port().is_some() || service.rdma_ib_port().is_some();
    let qpn = private_data.last_chunk().filter(|_| several)?;
    Some(Qpn::from_bytes(*qpn))
}

const _: () = {
    assert!(RDMA_CM_HEADER_LEN == 36);
    assert!(size_of::<RdmaCmData>() == RDMA_CM_DATA_LEN);
};
