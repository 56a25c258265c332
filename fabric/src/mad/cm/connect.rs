//! The messages that set up a connection.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Answered, Path, bits, qpn, starting_psn};

/// ConnectRequest (IBA vol. 1, 12.6.5).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Req {
    /// The sender's communication id.
    pub local_comm_id: U32,
    /// Sent as 0.
    pub reserved: u8,
    /// For enhanced connection establishment; 0.
    pub vendor_id: [u8; 3],
    /// Service id of the listener.
    pub service_id: U64,
    /// GUID of the sender; together with the communication id it identifies the connection.
    pub local_ca_guid: [u8; 8],
    /// Sent as 0.
    pub reserved2: U32,
    /// 0 for a reliable connection.
    pub local_qkey: U32,
    /// See [`Req::local_qpn`].
    pub qpn: [u8; 3],
    /// Maximum number of concurrent RDMA READs and atomics that the sender serves.
    pub responder_resources: u8,
    /// For reliable datagrams; 0.
    pub local_eecn: [u8; 3],
    /// Maximum number of outstanding RDMA READs and atomics of the sender.
    pub initiator_depth: u8,
    /// For reliable datagrams; 0.
    pub remote_eecn: [u8; 3],
    /// Remote CM response timeout 0xf8, transport service type 0x06, end-to-end flow control 0x01.
    pub response_and_type: u8,
    /// See [`Req::starting_psn`].
    pub psn: [u8; 3],
    /// Local CM response timeout 0xf8, retry count 0x07.
    pub response_and_retry: u8,
    /// The partition.
    pub pkey: U16,
    /// Path MTU 0xf0, RDC exists 0x08, RNR retry count 0x07.
    pub mtu_and_rnr: u8,
    /// Max CM retries 0xf0, SRQ 0x08, extended transport type 0x07.
    pub retries_and_srq: u8,
    /// The primary path.
    pub primary: Path,
    /// The alternate path, or zeros: present if its local LID is not 0 (kernel
    /// drivers/infiniband/core/cm.c, `cm_req_has_alt_path`).
    pub alternate: Path,
    /// Private data for the listener.
    pub private_data: [u8; 92],
}

impl Req {
    qpn! {
        /// The sender's queue pair.
        local_qpn / set_local_qpn: qpn,
    }
    starting_psn!();
    bits! {
        /// Maximum time for the receiver's answer, as a time code.
        remote_response_timeout / set_remote_response_timeout: response_and_type & 0xf8,
        /// 0 RC, 1 UC, 2 RD, 3 see [`Req::extended_transport`].
        transport_service / set_transport_service: response_and_type & 0x06,
        /// 1 if the sender's queue pair counts credits.
        flow_control / set_flow_control: response_and_type & 0x01,
        /// Maximum time for the sender's answer, as a time code.
        local_response_timeout / set_local_response_timeout: response_and_retry & 0xf8,
        /// Number of retransmissions of the receiver's queue pair.
        retry_count / set_retry_count: response_and_retry & 0x07,
        /// The path MTU, codes 1 to 5.
        path_mtu / set_path_mtu: mtu_and_rnr & 0xf0,
        /// For reliable datagrams; 0.
        rdc_exists / set_rdc_exists: mtu_and_rnr & 0x08,
        /// Number of retransmissions of the receiver's queue pair after RNR NAKs; 7: unlimited.
        rnr_retry / set_rnr_retry: mtu_and_rnr & 0x07,
        /// Maximum number of repetitions of a communication management message, for both sides.
        max_cm_retries / set_max_cm_retries: retries_and_srq & 0xf0,
        /// 1 if the sender's queue pair has a shared receive queue.
        srq / set_srq: retries_and_srq & 0x08,
        /// 1 for XRC, when the transport service type is 3.
        extended_transport / set_extended_transport: retries_and_srq & 0x07,
    }
}

/// ConnectReply (IBA vol. 1, 12.6.8).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Rep {
    /// The sender's communication id.
    pub local_comm_id: U32,
    /// The receiver's communication id.
    pub remote_comm_id: U32,
    /// 0 for a reliable connection.
    pub local_qkey: U32,
    /// See [`Rep::local_qpn`].
    pub qpn: [u8; 3],
    /// For enhanced connection establishment; 0.
    pub vendor_id_high: u8,
    /// For reliable datagrams; 0.
    pub local_eecn: [u8; 3],
    /// For enhanced connection establishment; 0.
    pub vendor_id_middle: u8,
    /// See [`Rep::starting_psn`].
    pub psn: [u8; 3],
    /// For enhanced connection establishment; 0.
    pub vendor_id_low: u8,
    /// Maximum number of concurrent RDMA READs and atomics that the sender serves.
    pub responder_resources: u8,
    /// Maximum number of outstanding RDMA READs and atomics of the sender.
    pub initiator_depth: u8,
    /// Target ACK delay 0xf8, failover accepted 0x06, end-to-end flow control 0x01.
    pub delay_and_failover: u8,
    /// RNR retry count 0xe0, SRQ 0x10.
    pub rnr_and_srq: u8,
    /// GUID of the sender; not aligned in the datagram.
    pub local_ca_guid: [u8; 8],
    /// Private data for the requester.
    pub private_data: [u8; 196],
}

impl Rep {
    qpn! {
        /// The sender's queue pair.
        local_qpn / set_local_qpn: qpn,
    }
    starting_psn!();
    bits! {
        /// Maximum time that the sender's queue pair takes to acknowledge, as a time code.
        target_ack_delay / set_target_ack_delay: delay_and_failover & 0xf8,
        /// 0 if the alternate path is accepted; also 0 without one.
        failover / set_failover: delay_and_failover & 0x06,
        /// 1 if the sender's queue pair counts credits.
        flow_control / set_flow_control: delay_and_failover & 0x01,
        /// Number of retransmissions of the receiver's queue pair after RNR NAKs; 7: unlimited.
        rnr_retry / set_rnr_retry: rnr_and_srq & 0xe0,
        /// 1 if the sender's queue pair has a shared receive queue.
        srq / set_srq: rnr_and_srq & 0x10,
    }
}

/// ReadyToUse (IBA vol. 1, 12.6.9).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Rtu {
    /// The sender's communication id.
    pub local_comm_id: U32,
    /// The receiver's communication id.
    pub remote_comm_id: U32,
    /// Private data for the receiver.
    pub private_data: [u8; 224],
}

/// MsgRcptAck (IBA vol. 1, 12.6.6): the answer will take longer.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Mra {
    /// The sender's communication id.
    pub local_comm_id: U32,
    /// The receiver's communication id.
    pub remote_comm_id: U32,
    /// Message MRAed 0xc0.
    pub message: u8,
    /// Service timeout 0xf8.
    pub timeout: u8,
    /// Private data for the receiver.
    pub private_data: [u8; 222],
}

impl Mra {
    bits! {
        /// The acknowledged message as a number of [`Answered`].
        answered_bits / set_answered_bits: message & 0xc0,
        /// Maximum time for the sender's answer, as a time code.
        service_timeout / set_service_timeout: timeout & 0xf8,
    }

    /// The acknowledged message.
    pub const fn answered(&self) -> Answered {
        Answered::from_bits(self.answered_bits())
    }
}

/// ConnectReject (IBA vol. 1, 12.6.7).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Rej {
    /// The sender's communication id; 0 if it has none.
    pub local_comm_id: U32,
    /// The receiver's communication id.
    pub remote_comm_id: U32,
    /// Message rejected 0xc0.
    pub message: u8,
    /// Reject information length 0xfe.
    pub ari_len: u8,
    /// The reason; [`proto::RejectReason::name`] has the names.
    pub reason: U16,
    /// Additional reject information, depending on the reason.
    pub ari: [u8; 72],
    /// Private data for the receiver.
    pub private_data: [u8; 148],
}

impl Rej {
    bits! {
        /// The rejected message as a number of [`Answered`].
        rejected_bits / set_rejected_bits: message & 0xc0,
        /// Valid bytes of [`Rej::ari`], up to 72; larger values have no meaning.
        ari_length / set_ari_length: ari_len & 0xfe,
    }

    /// The rejected message.
    pub const fn rejected(&self) -> Answered {
        Answered::from_bits(self.rejected_bits())
    }
}
