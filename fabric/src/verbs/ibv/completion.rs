//! Work completions, copied into small values.

use proto::{Lid, Qpn, WcStatus};

use crate::verbs::sys::*;

/// A work completion (ibv_poll_cq(3)). Only completion queues create them.
#[derive(Clone, Copy, Debug)]
pub struct WorkCompletion {
    wr_id: u64,
    status: WcStatus,
    byte_len: u32,
    immediate: Option<[u8; 4]>,
    qpn: Qpn,
    src_qpn: Qpn,
    slid: Lid,
    grh: bool,
    checksum_ok: bool,
}

impl WorkCompletion {
    pub(super) fn from_raw(raw: &ibv_wc, immediate: [u8; 4]) -> WorkCompletion {
        let has = |flag: ibv_wc_flags| raw.wc_flags & flag != 0;
        WorkCompletion {
            wr_id: raw.wr_id,
            status: status(raw.status),
            byte_len: raw.byte_len,
            immediate: has(IBV_WC_WITH_IMM).then_some(immediate),
            qpn: Qpn::new(raw.qp_num),
            src_qpn: Qpn::new(raw.src_qp),
            slid: Lid(raw.slid),
            grh: has(IBV_WC_GRH),
            checksum_ok: has(IBV_WC_IP_CSUM_OK),
        }
    }

    /// Identifier of the work request. [`super::Pool::completed`] finds its place.
    pub(super) const fn wr_id(&self) -> u64 {
        self.wr_id
    }

    /// Status. After a failure, only the status, the queue pair and the vendor's code are valid.
    pub const fn status(&self) -> WcStatus {
        self.status
    }

    /// Bytes received; on UD including the 40 bytes of the GRH. Untrusted: the place may be shorter.
    pub const fn byte_len(&self) -> usize {
        self.byte_len as usize
    }

    /// Immediate data in wire order.
    pub const fn immediate(&self) -> Option<[u8; 4]> {
        self.immediate
    }

    /// The local queue pair. Untrusted: it may be unknown.
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// The sender's queue pair, on UD.
    pub const fn src_qpn(&self) -> Qpn {
        self.src_qpn
    }

    /// The sender's LID, on UD over InfiniBand.
    pub const fn slid(&self) -> Lid {
        self.slid
    }

    /// Whether the first 40 bytes hold a GRH.
    pub const fn has_grh(&self) -> bool {
        self.grh
    }

    /// Whether the device verified the checksums of IPv4 and of TCP or UDP.
    pub const fn checksum_ok(&self) -> bool {
        self.checksum_ok
    }
}

/// Codes that UD and RC queue pairs do not use, and unknown codes, become the general error.
fn status(code: ibv_wc_status) -> WcStatus {
    match code {
        IBV_WC_SUCCESS => WcStatus::Success,
        IBV_WC_LOC_LEN_ERR => WcStatus::LocLenErr,
        IBV_WC_LOC_QP_OP_ERR => WcStatus::LocQpOpErr,
        IBV_WC_LOC_PROT_ERR => WcStatus::LocProtErr,
        IBV_WC_WR_FLUSH_ERR => WcStatus::WrFlushErr,
        IBV_WC_BAD_RESP_ERR => WcStatus::BadRespErr,
        IBV_WC_LOC_ACCESS_ERR => WcStatus::LocAccessErr,
        IBV_WC_REM_INV_REQ_ERR => WcStatus::RemInvReqErr,
        IBV_WC_REM_ACCESS_ERR => WcStatus::RemAccessErr,
        IBV_WC_REM_OP_ERR => WcStatus::RemOpErr,
        IBV_WC_RETRY_EXC_ERR => WcStatus::RetryExcErr,
        IBV_WC_RNR_RETRY_EXC_ERR => WcStatus::RnrRetryExcErr,
        IBV_WC_FATAL_ERR => WcStatus::FatalErr,
        _ => WcStatus::GeneralErr,
    }
}

/// For tests: a completion with all fields zero.
#[cfg(test)]
pub(super) const EMPTY: ibv_wc = ibv_wc {
    wr_id: 0,
    status: IBV_WC_SUCCESS,
    opcode: IBV_WC_RECV,
    vendor_err: 0,
    byte_len: 0,
    __bindgen_anon_1: ibv_wc__bindgen_ty_1 { imm_data: 0 },
    qp_num: 0,
    src_qp: 0,
    wc_flags: 0,
    pkey_index: 0,
    slid: 0,
    sl: 0,
    dlid_path_bits: 0,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn codes_are_statuses() {
        for (code, expected) in [
            (IBV_WC_SUCCESS, WcStatus::Success),
            (IBV_WC_RETRY_EXC_ERR, WcStatus::RetryExcErr),
            (IBV_WC_RNR_RETRY_EXC_ERR, WcStatus::RnrRetryExcErr),
            (IBV_WC_TM_ERR, WcStatus::GeneralErr),
            (77, WcStatus::GeneralErr),
        ] {
            assert_eq!(status(code), expected);
        }
    }

    proptest! {
        #[test]
        fn only_the_code_for_success_is_success(code: u32) {
            prop_assert_eq!(status(code) == WcStatus::Success, code == IBV_WC_SUCCESS);
        }

        #[test]
        fn numbers_are_within_their_bits(qp_num: u32, src_qp: u32, wc_flags: u32, byte_len: u32) {
            let raw = ibv_wc { qp_num, src_qp, wc_flags, byte_len, ..EMPTY };
            let wc = WorkCompletion::from_raw(&raw, [1, 2, 3, 4]);
            prop_assert!(wc.qpn().get() < 1 << 24 && wc.src_qpn().get() < 1 << 24);
            prop_assert_eq!(wc.has_grh(), wc_flags & 1 != 0);
            prop_assert_eq!(wc.immediate(), (wc_flags & 2 != 0).then_some([1, 2, 3, 4]));
            prop_assert_eq!(wc.checksum_ok(), wc_flags & 4 != 0);
            prop_assert_eq!(wc.byte_len(), byte_len as usize);
        }
    }
}
