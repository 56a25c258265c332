//! The attributes of each transition (IBA vol. 1, 11.2.4.2; kernel drivers/infiniband/core/verbs.c,
//! `qp_state_table`), and their valid values.
//!
//! There are no attributes for alternate paths (ALT_PATH, PATH_MIG_STATE): the IBA makes them optional,
//! and they are not supported.

use proto::IbMtu;

use super::{Attributes, Service, State};
use crate::port::FabricError;

/// Attribute sets, one bit each.
pub(super) mod mask {
    pub const PKEY_INDEX: u32 = 1 << 0;
    pub const PORT: u32 = 1 << 1;
    pub const QKEY: u32 = 1 << 2;
    pub const SQ_PSN: u32 = 1 << 3;
    pub const CUR_STATE: u32 = 1 << 4;
    pub const SQD_NOTIFY: u32 = 1 << 5;
    pub const AV: u32 = 1 << 6;
    pub const PATH_MTU: u32 = 1 << 7;
    pub const DEST_QPN: u32 = 1 << 8;
    pub const RQ_PSN: u32 = 1 << 9;
    pub const MAX_DEST_RD_ATOMIC: u32 = 1 << 10;
    pub const MAX_RD_ATOMIC: u32 = 1 << 11;
    pub const MIN_RNR_TIMER: u32 = 1 << 12;
    pub const TIMEOUT: u32 = 1 << 13;
    pub const RETRY_CNT: u32 = 1 << 14;
    pub const RNR_RETRY: u32 = 1 << 15;
    pub const ACCESS_FLAGS: u32 = 1 << 16;

    /// The names in `enum ib_qp_attr_mask` of include/rdma/ib_verbs.h, without the prefix `IB_QP_`.
    pub const NAMES: [(u32, &str); 17] = [
        (PKEY_INDEX, "PKEY_INDEX"),
        (PORT, "PORT"),
        (QKEY, "QKEY"),
        (SQ_PSN, "SQ_PSN"),
        (CUR_STATE, "CUR_STATE"),
        (SQD_NOTIFY, "EN_SQD_ASYNC_NOTIFY"),
        (AV, "AV"),
        (PATH_MTU, "PATH_MTU"),
        (DEST_QPN, "DEST_QPN"),
        (RQ_PSN, "RQ_PSN"),
        (MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC"),
        (MAX_RD_ATOMIC, "MAX_QP_RD_ATOMIC"),
        (MIN_RNR_TIMER, "MIN_RNR_TIMER"),
        (TIMEOUT, "TIMEOUT"),
        (RETRY_CNT, "RETRY_CNT"),
        (RNR_RETRY, "RNR_RETRY"),
        (ACCESS_FLAGS, "ACCESS_FLAGS"),
    ];
}

impl Attributes {
    fn mask(&self) -> u32 {
        let bit = |present: bool, bit: u32| if present { bit } else { 0 };
        bit(self.pkey_index.is_some(), mask::PKEY_INDEX)
            | bit(self.port.is_some(), mask::PORT)
            | bit(self.qkey.is_some(), mask::QKEY)
            | bit(self.sq_psn.is_some(), mask::SQ_PSN)
            | bit(self.current_state.is_some(), mask::CUR_STATE)
            | bit(self.sqd_notify.is_some(), mask::SQD_NOTIFY)
            | bit(self.address.is_some(), mask::AV)
            | bit(self.path_mtu.is_some(), mask::PATH_MTU)
            | bit(self.dest_qpn.is_some(), mask::DEST_QPN)
            | bit(self.rq_psn.is_some(), mask::RQ_PSN)
            | bit(self.max_dest_rd_atomic.is_some(), mask::MAX_DEST_RD_ATOMIC)
            | bit(self.max_rd_atomic.is_some(), mask::MAX_RD_ATOMIC)
            | bit(self.min_rnr_timer.is_some(), mask::MIN_RNR_TIMER)
            | bit(self.timeout.is_some(), mask::TIMEOUT)
            | bit(self.retry_cnt.is_some(), mask::RETRY_CNT)
            | bit(self.rnr_retry.is_some(), mask::RNR_RETRY)
            | bit(self.access_flags.is_some(), mask::ACCESS_FLAGS)
    }
}

/// Whether a queue pair of `service` may go from `from` to `to` with these attributes, on a port whose
/// largest MTU is `port_mtu`.
///
/// # Errors
/// [`FabricError::IllegalTransition`] if this service has no such transition,
/// [`FabricError::BadAttributes`] if a required attribute is missing, an attribute is neither required
/// nor optional, a value is invalid, or the expected current state is not the actual one.
pub fn permit(
    service: Service,
    from: State,
    to: State,
    attributes: &Attributes,
    port_mtu: IbMtu,
) -> Result<(), FabricError> {
    let Some((required, optional)) = rule(service, from, to) else {
        return Err(FabricError::IllegalTransition {
            from: from.name(),
            to: to.name(),
        });
    };
    let given = attributes.mask();
    match check_set(given, required, optional)
        .or_else(|| check_belief(attributes, from))
        .or_else(|| check_values(attributes, port_mtu))
    {
        None => Ok(()),
        Some(what) => Err(FabricError::BadAttributes {
            from: from.name(),
            to: to.name(),
            what,
        }),
    }
}

/// The error in a set of attributes.
fn check_set(given: u32, required: u32, optional: u32) -> Option<String> {
    mask::NAMES.into_iter().find_map(|(bit, name)| {
        if required & bit != 0 && given & bit == 0 {
            Some(format!("needs the attribute {name}"))
        } else if given & bit & !(required | optional) != 0 {
            Some(format!("does not take the attribute {name}"))
        } else {
            None
        }
    })
}

/// Checks CUR_STATE, the state that the consumer expects. It can only be RTR, RTS, SQD or SQE: no
/// transition from another state takes the attribute.
fn check_belief(attributes: &Attributes, from: State) -> Option<String> {
    let current = attributes.current_state.filter(|&c| c != from)?;
    Some(format!(
        "expects the queue pair to be in {}",
        current.name()
    ))
}

/// The error in the values (kernel drivers/infiniband/sw/rxe/rxe_qp.c, `rxe_qp_chk_attr`).
fn check_values(attributes: &Attributes, port_mtu: IbMtu) -> Option<String> {
    let limited = [
        ("MIN_RNR_TIMER", attributes.min_rnr_timer, 31),
        ("TIMEOUT", attributes.timeout, 31),
        ("RETRY_CNT", attributes.retry_cnt, 7),
        ("RNR_RETRY", attributes.rnr_retry, 7),
    ];
    for (name, value, most) in limited {
        if let Some(value) = value.filter(|&v| v > most) {
            return Some(format!("got {name} {value}, which is over {most}"));
        }
    }
    if let Some(port) = attributes.port.filter(|&p| p != 1) {
        return Some(format!("got PORT {port}; the only port is 1"));
    }
    if let Some(mtu) = attributes.path_mtu.filter(|&m| m > port_mtu) {
        let (mtu, most) = (mtu.bytes(), port_mtu.bytes());
        return Some(format!("got PATH_MTU {mtu}; the port allows {most}"));
    }
    if let Some(flags) = attributes.access_flags.filter(|&f| f != 0) {
        return Some(format!(
            "got ACCESS_FLAGS {flags:#x}; remote operations are not supported"
        ));
    }
    None
}

/// Required and optional attributes of a transition, or `None` if there is no such transition.
pub(super) fn rule(service: Service, from: State, to: State) -> Option<(u32, u32)> {
    match (from, to) {
        (_, State::Reset) => Some((0, 0)),
        (State::Reset, State::Err) => None,
        (_, State::Err) => Some((0, 0)),
        _ => match service {
            // QP1 belongs to its port already.
            Service::Gsi => datagram_rule(0, from, to),
            Service::Ud => datagram_rule(mask::PORT, from, to),
            Service::Rc => connected_rule(from, to),
        },
    }
}

fn datagram_rule(port: u32, from: State, to: State) -> Option<(u32, u32)> {
    use State::{Init, Reset, Rtr, Rts, Sqd, Sqe};
    use mask::{CUR_STATE, PKEY_INDEX, QKEY, SQ_PSN, SQD_NOTIFY};
    Some(match (from, to) {
        (Reset, Init) => (PKEY_INDEX | port | QKEY, 0),
        (Init, Init) => (0, PKEY_INDEX | port | QKEY),
        (Init, Rtr) => (0, PKEY_INDEX | QKEY),
        (Rtr, Rts) => (SQ_PSN, CUR_STATE | QKEY),
        (Rts | Sqd | Sqe, Rts) => (0, CUR_STATE | QKEY),
        (Rts, Sqd) => (0, SQD_NOTIFY),
        (Sqd, Sqd) => (0, PKEY_INDEX | QKEY),
        _ => return None,
    })
}

/// SQE exists for unreliable services only: a reliable queue pair goes to ERR if a send fails.
fn connected_rule(from: State, to: State) -> Option<(u32, u32)> {
    use State::{Init, Reset, Rtr, Rts, Sqd};
    use mask::{
        ACCESS_FLAGS, AV, CUR_STATE, DEST_QPN, MAX_DEST_RD_ATOMIC, MAX_RD_ATOMIC, MIN_RNR_TIMER,
        PATH_MTU, PKEY_INDEX, PORT, RETRY_CNT, RNR_RETRY, RQ_PSN, SQ_PSN, SQD_NOTIFY, TIMEOUT,
    };
    let receiving = AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
    let retrying = TIMEOUT | RETRY_CNT | RNR_RETRY;
    Some(match (from, to) {
        (Reset, Init) => (PKEY_INDEX | PORT | ACCESS_FLAGS, 0),
        (Init, Init) => (0, PKEY_INDEX | PORT | ACCESS_FLAGS),
        (Init, Rtr) => (receiving, ACCESS_FLAGS | PKEY_INDEX),
        (Rtr, Rts) => (
            retrying | SQ_PSN | MAX_RD_ATOMIC,
            CUR_STATE | ACCESS_FLAGS | MIN_RNR_TIMER,
        ),
        (Rts | Sqd, Rts) => (0, CUR_STATE | ACCESS_FLAGS | MIN_RNR_TIMER),
        (Rts, Sqd) => (0, SQD_NOTIFY),
        (Sqd, Sqd) => (
            0,
            PORT | AV
                | retrying
                | MAX_RD_ATOMIC
                | MAX_DEST_RD_ATOMIC
                | ACCESS_FLAGS
                | PKEY_INDEX
                | MIN_RNR_TIMER,
        ),
        _ => return None,
    })
}
