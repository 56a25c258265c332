//! Encoding of messages.

use proto::{Guid, Qpn, RejectReason};
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use super::times::{
    LOCAL_ACK_TIMEOUT, MAX_CM_RETRIES, RESPONSE_TIMEOUT, RETRY_COUNT, TARGET_ACK_DELAY,
};
use super::{Ask, CmId, Consent};
use crate::mad::cm::{self, Answered, CLASS_VERSION};
use crate::mad::{BASE_VERSION, Header, MAD_LEN, class, method};

/// A management datagram.
pub type Datagram = [u8; MAD_LEN];

/// The two communication ids of a connection, ours first; 0 if unknown.
#[derive(Clone, Copy)]
pub struct Ids {
    pub local: u32,
    pub remote: u32,
}

/// A request as Linux's IPoIB sends it (drivers/infiniband/ulp/ipoib/ipoib_cm.c, `ipoib_cm_send_req`),
/// with other retries and times. Without another path, that of Linux's rdma_cm on RoCE: no LIDs, hop limit 64.
pub fn req(tid: u64, id: CmId, ca_guid: Guid, ask: &Ask<'_>) -> Datagram {
    let mut m = cm::Req::new_zeroed();
    m.local_comm_id = U32::new(id.0);
    m.service_id = U64::new(ask.service.0);
    m.local_ca_guid = ca_guid.0;
    m.set_local_qpn(ask.qpn);
    m.responder_resources = 4;
    m.initiator_depth = 0;
    m.set_remote_response_timeout(RESPONSE_TIMEOUT);
    m.set_starting_psn(ask.starting_psn);
    m.set_local_response_timeout(RESPONSE_TIMEOUT);
    m.set_retry_count(RETRY_COUNT);
    m.pkey = U16::new(ask.pkey.get());
    m.set_path_mtu(ask.path_mtu as u8);
    m.set_rnr_retry(RETRY_COUNT);
    m.set_max_cm_retries(MAX_CM_RETRIES);
    m.set_srq(ask.srq.into());
    m.primary = ask.primary.copied().unwrap_or_else(|| roce_path(ask));
    fill(&mut m.private_data, ask.private_data);
    datagram(tid, cm::REQ, &m)
}

fn roce_path(ask: &Ask<'_>) -> cm::Path {
    let mut path = cm::Path::new_zeroed();
    path.local_lid = U16::new(0xffff);
    path.remote_lid = U16::new(0xffff);
    path.local_gid = ask.local_gid.0;
    path.remote_gid = ask.remote_gid.0;
    path.hop_limit = 64;
    path.set_ack_timeout(LOCAL_ACK_TIMEOUT);
    path
}

pub fn rep(tid: u64, ids: Ids, ca_guid: Guid, consent: &Consent<'_>) -> Datagram {
    let mut m = cm::Rep::new_zeroed();
    m.local_comm_id = U32::new(ids.local);
    m.remote_comm_id = U32::new(ids.remote);
    m.set_local_qpn(consent.qpn);
    m.set_starting_psn(consent.starting_psn);
    m.set_target_ack_delay(TARGET_ACK_DELAY);
    m.set_rnr_retry(RETRY_COUNT);
    m.set_srq(consent.srq.into());
    m.local_ca_guid = ca_guid.0;
    fill(&mut m.private_data, consent.private_data);
    datagram(tid, cm::REP, &m)
}

pub fn rtu(tid: u64, ids: Ids) -> Datagram {
    let mut m = cm::Rtu::new_zeroed();
    m.local_comm_id = U32::new(ids.local);
    m.remote_comm_id = U32::new(ids.remote);
    datagram(tid, cm::RTU, &m)
}

/// A rejection for [`RejectReason::TIMEOUT`] carries `ca_guid`, because the peer may not know our
/// communication id (IBA vol. 1, 12.6.7.2).
pub fn rej(
    tid: u64,
    ids: Ids,
    rejected: Answered,
    reason: RejectReason,
    ca_guid: Guid,
    private_data: &[u8],
) -> Datagram {
    let mut m = cm::Rej::new_zeroed();
    m.local_comm_id = U32::new(ids.local);
    m.remote_comm_id = U32::new(ids.remote);
    m.set_rejected_bits(rejected as u8);
    m.reason = U16::new(reason.0);
    if reason == RejectReason::TIMEOUT {
        fill(&mut m.ari, &ca_guid.0);
        m.set_ari_length(u8::try_from(ca_guid.0.len()).unwrap_or(u8::MAX));
    }
    fill(&mut m.private_data, private_data);
    datagram(tid, cm::REJ, &m)
}

pub fn dreq(tid: u64, ids: Ids, remote_qpn: Qpn) -> Datagram {
    let mut m = cm::Dreq::new_zeroed();
    m.local_comm_id = U32::new(ids.local);
    m.remote_comm_id = U32::new(ids.remote);
    m.set_remote_qpn(remote_qpn);
    datagram(tid, cm::DREQ, &m)
}

pub fn drep(tid: u64, ids: Ids) -> Datagram {
    let mut m = cm::Drep::new_zeroed();
    m.local_comm_id = U32::new(ids.local);
    m.remote_comm_id = U32::new(ids.remote);
    datagram(tid, cm::DREP, &m)
}

/// Copies as many bytes as fit.
pub fn fill(field: &mut [u8], data: &[u8]) {
    let len = data.len().min(field.len());
    field[..len].copy_from_slice(&data[..len]);
}

/// Puts the common header before a message.
pub fn datagram(tid: u64, attribute: u16, message: &(impl IntoBytes + Immutable)) -> Datagram {
    let header = Header {
        base_version: BASE_VERSION,
        mgmt_class: class::COM_MGT,
        class_version: CLASS_VERSION,
        method: method::SEND,
        status: U16::ZERO,
        class_specific: U16::ZERO,
        transaction_id: U64::new(tid),
        attribute_id: U16::new(attribute),
        reserved: U16::ZERO,
        attribute_modifier: U32::ZERO,
    };
    let mut bytes = [0; MAD_LEN];
    let (head, data) = bytes.split_at_mut(size_of::<Header>());
    head.copy_from_slice(header.as_bytes());
    // All messages have the same length.
    data.copy_from_slice(message.as_bytes());
    bytes
}

/// The attribute of a datagram from this module.
pub fn attribute(datagram: &Datagram) -> u16 {
    u16::from_be_bytes([datagram[16], datagram[17]])
}
