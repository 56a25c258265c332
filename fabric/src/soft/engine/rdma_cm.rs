//! Requests for services of rdma_cm: the header in front of their private data, and the data.

use proto::{Gid, Qpn, RejectReason};
use zerocopy::IntoBytes;

use crate::connection::ConnectRequest;
use crate::mad::cm::{RdmaCmAddresses, RdmaCmData, RdmaCmHeader};

/// Ephemeral port numbers have these bits (RFC 6335, section 6: 49152 to 65535).
const EPHEMERAL: u16 = 0xc000;

/// Private data of a request from `local` to `peer`, with rdma_cm's header. The source port number,
/// some bits of `port`, has no meaning.
pub fn with_header(local: Gid, peer: Gid, port: u64, data: &[u8]) -> Box<[u8]> {
    let addresses = RdmaCmAddresses {
        source: local,
        port: port as u16 | EPHEMERAL,
        destination: peer,
    };
    // Both GIDs have one address family, or the peer would be unreachable.
    let header = RdmaCmHeader::new(&addresses);
    let header = header.as_ref().map_or(&[][..], IntoBytes::as_bytes);
    [header, data].concat().into()
}

/// Private data of a request for a connection.
pub fn request(local: Gid, port: u64, request: &ConnectRequest<'_>) -> Box<[u8]> {
    let data = RdmaCmData::new(request.to, request.private_data);
    with_header(local, request.peer, port, data.as_bytes())
}

/// The data after the header of a request from `peer`. On RoCE the header's addresses must be the GIDs.
/// (The kernel verifies them with a route lookup; drivers/infiniband/core/cma.c, `validate_net_dev`.)
///
/// # Errors
/// [`RejectReason::CONSUMER`] if the header is invalid, as in the kernel; [`RejectReason::INVALID_GID`]
/// if the addresses are not the GIDs.
pub fn behind_header(peer: Gid, local: Gid, private_data: &[u8]) -> Result<&[u8], RejectReason> {
    let (header, rest) = RdmaCmHeader::split(private_data).ok_or(RejectReason::CONSUMER)?;
    let addresses = header.addresses().ok_or(RejectReason::CONSUMER)?;
    if addresses.source != peer || addresses.destination != local {
        return Err(RejectReason::INVALID_GID);
    }
    Ok(rest)
}

/// The queue pair of the requested listener, and the private data for it.
///
/// # Errors
/// Those of [`behind_header`].
pub fn requested(
    peer: Gid,
    local: Gid,
    private_data: &[u8],
) -> Result<(Qpn, Box<[u8]>), RejectReason> {
    let rest = behind_header(peer, local, private_data)?;
    let data = RdmaCmData::read(rest).ok_or(RejectReason::CONSUMER)?;
    Ok((data.to(), data.as_bytes().into()))
}
