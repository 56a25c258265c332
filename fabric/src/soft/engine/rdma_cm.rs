//! Requests for services of rdma_cm: what is in front of their private data, and behind it.

use proto::{Gid, Qpn, RejectReason};
use zerocopy::IntoBytes;

use crate::connection::ConnectRequest;
use crate::mad::cm::{RdmaCmAddresses, RdmaCmData, RdmaCmHeader};

/// Port numbers that nobody listens on have these bits (RFC 6335, section 6: 49152 to 65535).
const EPHEMERAL: u16 = 0xc000;

/// Private data of a request from `local` to `peer` with the header in front. The port number that it
/// says is ours, some bits of `port`, means nothing to anybody.
pub fn with_header(local: Gid, peer: Gid, port: u64, data: &[u8]) -> Box<[u8]> {
    let addresses = RdmaCmAddresses {
        source: local,
        port: port as u16 | EPHEMERAL,
        destination: peer,
    };
    // The two GIDs are of one family, or they would not reach each other.
    let header = RdmaCmHeader::new(&addresses);
    let header = header.as_ref().map_or(&[][..], IntoBytes::as_bytes);
    [header, data].concat().into()
}

/// Private data of a request for a connection.
pub fn request(local: Gid, port: u64, request: &ConnectRequest<'_>) -> Box<[u8]> {
    let data = RdmaCmData::new(request.to, request.private_data);
    with_header(local, request.peer, port, data.as_bytes())
}

/// What is behind the header of a request that came from `peer`. On RoCE the addresses are the GIDs, so
/// that others are not the sender's (the kernel finds that out by the route back;
/// drivers/infiniband/core/cma.c, `validate_net_dev`).
///
/// # Errors
/// [`RejectReason::CONSUMER`] where the header cannot be read, as the kernel has it;
/// [`RejectReason::INVALID_GID`].
pub fn behind_header(peer: Gid, local: Gid, private_data: &[u8]) -> Result<&[u8], RejectReason> {
    let (header, rest) = RdmaCmHeader::split(private_data).ok_or(RejectReason::CONSUMER)?;
    let addresses = header.addresses().ok_or(RejectReason::CONSUMER)?;
    if addresses.source != peer || addresses.destination != local {
        return Err(RejectReason::INVALID_GID);
    }
    Ok(rest)
}

/// Which listener a request for a connection names, and what is for that.
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
