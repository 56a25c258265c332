//! Requests for services of rdma_cm: what is in front of their private data, and behind it.

use zerocopy::{FromBytes, IntoBytes};

use crate::connection::{ConnectRequest, RejectReason};
use crate::mad::cm::{RdmaCmAddresses, RdmaCmData, RdmaCmHeader};
use crate::types::{Gid, Qpn};

/// Port numbers that nobody listens on have these bits (RFC 6335, section 6: 49152 to 65535).
pub const EPHEMERAL: u16 = 0xc000;

/// The private data of a request, from a `port` number of ours that means nothing to anybody.
pub fn request(local: Gid, port: u16, request: &ConnectRequest<'_>) -> Box<[u8]> {
    let addresses = RdmaCmAddresses {
        source: local,
        port,
        destination: request.peer,
    };
    let mut bytes = Vec::new();
    // The two GIDs are of one family, or they would not reach each other.
    if let Some(header) = RdmaCmHeader::new(&addresses) {
        bytes.extend_from_slice(header.as_bytes());
        let data = RdmaCmData::new(request.to, request.private_data);
        bytes.extend_from_slice(data.as_bytes());
    }
    bytes.into()
}

/// Reads the private data of a request that came from `peer`: which listener it names, and what is for
/// that. On RoCE the addresses are the GIDs, so that others are not the sender's (a peer of the kernel's
/// would be told by the route back; drivers/infiniband/core/cma.c, `validate_net_dev`).
///
/// # Errors
/// [`RejectReason::CONSUMER`] where the header cannot be read, as the kernel has it;
/// [`RejectReason::INVALID_GID`].
pub fn requested(
    peer: Gid,
    local: Gid,
    private_data: &[u8],
) -> Result<(Qpn, Box<[u8]>), RejectReason> {
    let parts = RdmaCmHeader::ref_from_prefix(private_data).ok();
    let (header, rest) = parts.ok_or(RejectReason::CONSUMER)?;
    let addresses = header.addresses().ok_or(RejectReason::CONSUMER)?;
    if addresses.source != peer || addresses.destination != local {
        return Err(RejectReason::INVALID_GID);
    }
    let (data, _) = RdmaCmData::ref_from_prefix(rest).map_err(|_| RejectReason::CONSUMER)?;
    Ok((data.to(), data.as_bytes().into()))
}
