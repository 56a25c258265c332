//! Queue pair states and the attributes of their changes (ibv_modify_qp(3); IBA vol. 1, 10.3.1).

use std::fmt;
use std::mem::MaybeUninit;

use proto::{Gid, IbMtu, Psn, QKey, Qpn};

use super::address_handle::AhInit;
use crate::verbs::sys::*;

/// State of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the field's")]
pub enum QueuePairState {
    Reset,
    Init,
    Rtr,
    Rts,
    Sqd,
    Sqe,
    Err,
}

impl QueuePairState {
    /// `RESET`, `INIT`, `RTR`, `RTS`, `SQD`, `SQE` or `ERR`.
    pub const fn name(self) -> &'static str {
        match self {
            QueuePairState::Reset => "RESET",
            QueuePairState::Init => "INIT",
            QueuePairState::Rtr => "RTR",
            QueuePairState::Rts => "RTS",
            QueuePairState::Sqd => "SQD",
            QueuePairState::Sqe => "SQE",
            QueuePairState::Err => "ERR",
        }
    }

    pub(super) const fn to_raw(self) -> ibv_qp_state {
        match self {
            QueuePairState::Reset => IBV_QPS_RESET,
            QueuePairState::Init => IBV_QPS_INIT,
            QueuePairState::Rtr => IBV_QPS_RTR,
            QueuePairState::Rts => IBV_QPS_RTS,
            QueuePairState::Sqd => IBV_QPS_SQD,
            QueuePairState::Sqe => IBV_QPS_SQE,
            QueuePairState::Err => IBV_QPS_ERR,
        }
    }

    pub(super) const fn from_raw(code: ibv_qp_state) -> Option<QueuePairState> {
        Some(match code {
            IBV_QPS_RESET => QueuePairState::Reset,
            IBV_QPS_INIT => QueuePairState::Init,
            IBV_QPS_RTR => QueuePairState::Rtr,
            IBV_QPS_RTS => QueuePairState::Rts,
            IBV_QPS_SQD => QueuePairState::Sqd,
            IBV_QPS_SQE => QueuePairState::Sqe,
            IBV_QPS_ERR => QueuePairState::Err,
            _ => return None,
        })
    }
}

/// Parameters agreed on by two RC queue pairs, and timeouts.
#[derive(Clone, Copy, Debug)]
pub struct RcParameters {
    /// The path to the peer.
    pub path: AhInit,
    /// Path MTU.
    pub path_mtu: IbMtu,
    /// The peer's queue pair.
    pub dest_qpn: Qpn,
    /// The first PSN to be received.
    pub rq_psn: Psn,
    /// The first PSN to be sent.
    pub sq_psn: Psn,
    /// Minimum waiting time of a peer without a posted receive here, a code of IBA vol. 1, 9.7.5.2.8.
    pub min_rnr_timer: u8,
    /// Local ACK timeout: 4.096 µs times two to this power.
    pub timeout: u8,
    /// Retries after timeouts, up to 7.
    pub retry_count: u8,
    /// Retries while the peer has no receive posted, up to 6; 7: unlimited.
    pub rnr_retry: u8,
}

/// A change of a queue pair's attributes.
#[derive(Clone, Copy)]
pub struct StateChange {
    pub(super) attr: ibv_qp_attr,
    pub(super) mask: ibv_qp_attr_mask,
}

impl fmt::Debug for StateChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = QueuePairState::from_raw(self.attr.qp_state);
        write!(f, "StateChange({state:?}, {:#x})", self.mask)
    }
}

impl StateChange {
    /// A change to a state, without attributes yet.
    pub(super) fn to(state: QueuePairState) -> StateChange {
        // SAFETY: all zero is a valid value of the structure: integers and a union of bytes.
        let mut attr: ibv_qp_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        attr.qp_state = state.to_raw();
        StateChange {
            attr,
            mask: IBV_QP_STATE,
        }
    }

    /// Whether the change makes the queue pair forget its posted work.
    pub(super) fn is_reset(&self) -> bool {
        self.mask & IBV_QP_STATE != 0 && self.attr.qp_state == IBV_QPS_RESET
    }

    /// Whether the change is to RTS.
    pub const fn is_to_send(&self) -> bool {
        self.attr.qp_state == IBV_QPS_RTS
    }

    /// To ERR: posted work completes with a flush error.
    pub fn error() -> StateChange {
        StateChange::to(QueuePairState::Err)
    }

    /// UD, RESET to INIT.
    pub fn init_ud(port: u8, pkey_index: u16, qkey: QKey) -> StateChange {
        let mut change = StateChange::to(QueuePairState::Init);
        change.attr.port_num = port;
        change.attr.pkey_index = pkey_index;
        change.attr.qkey = qkey.get();
        change.mask |= IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY;
        change
    }

    /// UD, INIT to RTR.
    pub fn rtr_ud() -> StateChange {
        StateChange::to(QueuePairState::Rtr)
    }

    /// UD, RTR to RTS, with the first PSN.
    pub fn rts_ud(psn: Psn) -> StateChange {
        let mut change = StateChange::to(QueuePairState::Rts);
        change.attr.sq_psn = psn.get();
        change.mask |= IBV_QP_SQ_PSN;
        change
    }

    /// RC, RESET to INIT; the peer may only send.
    pub fn init_rc(port: u8, pkey_index: u16) -> StateChange {
        let mut change = StateChange::to(QueuePairState::Init);
        change.attr.port_num = port;
        change.attr.pkey_index = pkey_index;
        change.attr.qp_access_flags = 0;
        change.mask |= IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
        change
    }

    /// RC, INIT to RTR.
    pub fn rtr_rc(parameters: &RcParameters) -> StateChange {
        let mut change = StateChange::to(QueuePairState::Rtr);
        let attr = &mut change.attr;
        attr.ah_attr = parameters.path.to_raw();
        attr.path_mtu = parameters.path_mtu as ibv_mtu;
        attr.dest_qp_num = parameters.dest_qpn.get();
        attr.rq_psn = parameters.rq_psn.get();
        attr.max_dest_rd_atomic = 0;
        attr.min_rnr_timer = parameters.min_rnr_timer;
        change.mask |= IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        change
    }

    /// RC, RTR to RTS.
    pub fn rts_rc(parameters: &RcParameters) -> StateChange {
        let mut change = StateChange::to(QueuePairState::Rts);
        let attr = &mut change.attr;
        attr.sq_psn = parameters.sq_psn.get();
        attr.timeout = parameters.timeout;
        attr.retry_cnt = parameters.retry_count;
        attr.rnr_retry = parameters.rnr_retry;
        attr.max_rd_atomic = 0;
        change.mask |= IBV_QP_SQ_PSN
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_MAX_QP_RD_ATOMIC;
        change
    }

    /// Replaces the RNR timer, for changes to RTR.
    #[must_use]
    pub fn with_min_rnr_timer(mut self, code: u8) -> StateChange {
        self.attr.min_rnr_timer = code;
        self.mask |= IBV_QP_MIN_RNR_TIMER;
        self
    }

    /// Replaces the timeouts and retries, for changes of RC to RTS: see [`RcParameters`].
    #[must_use]
    pub fn with_retries(mut self, timeout: u8, retry_count: u8, rnr_retry: u8) -> StateChange {
        self.attr.timeout = timeout;
        self.attr.retry_cnt = retry_count;
        self.attr.rnr_retry = rnr_retry;
        self.mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
        self
    }

    /// Its path MTU; `None` if it is missing or invalid.
    pub fn path_mtu(&self) -> Option<IbMtu> {
        let code = self.attr.path_mtu;
        (self.mask & IBV_QP_PATH_MTU != 0)
            .then(|| IbMtu::ALL.into_iter().find(|m| *m as u32 == code))?
    }

    /// Its destination GID: the peer.
    pub fn dgid(&self) -> Option<Gid> {
        if self.mask & IBV_QP_AV == 0 || self.attr.ah_attr.is_global == 0 {
            return None;
        }
        // SAFETY: both variants of the union are 16 bytes, for which every pattern is valid.
        Some(Gid(unsafe { self.attr.ah_attr.grh.dgid.raw }))
    }

    /// Its index in the P_Key table.
    pub fn pkey_index(&self) -> Option<u16> {
        (self.mask & IBV_QP_PKEY_INDEX != 0).then_some(self.attr.pkey_index)
    }

    /// Its destination queue pair: the peer's.
    pub fn dest_qpn(&self) -> Option<Qpn> {
        (self.mask & IBV_QP_DEST_QPN != 0).then_some(Qpn::new(self.attr.dest_qp_num))
    }
}
