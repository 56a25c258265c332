//! Selects the worker of a received packet: in the kernel with a classic BPF program on the
//! SO_REUSEPORT group, and here for packets that reach another worker nevertheless.
//!
//! The low byte of queue pair numbers of connections and of communication ids selects the worker. A
//! packet of a reliable connection belongs to the worker of its destination queue pair. A message of
//! communication management belongs to the worker of our communication id in it; if it has none, as a
//! ConnectRequest, to the worker that the sender's id selects. A ServiceIDResReqResp has the request's
//! id in the place of the sender's. Any worker may take other packets.
//!
//! Queue pair numbers and communication ids are drawn so that the low byte modulo the number of workers
//! is the worker's number. The kernel numbers a group's sockets in the order of their bind, so the
//! sockets stay open while the interface is the same, even if its address changes. Packets for another
//! worker pass through a bounded mailbox (`rx_handed_on`).

use libc::sock_filter;
use proto::Qpn;

use super::train::HEAD;
use super::wire::opcode;
use crate::mad::{class, cm};

/// Offsets in a packet, from the BTH on.
const OPCODE: usize = 0;
/// The word whose low 24 bits are the destination queue pair.
const DEST_QP: usize = 4;
const MGMT_CLASS: usize = HEAD + 1;
const ATTRIBUTE_ID: usize = HEAD + cm::ATTRIBUTE;
const LOCAL_COMM_ID: usize = HEAD + cm::SENDER_ID;
const REMOTE_COMM_ID: usize = HEAD + cm::RECEIVER_ID;

/// The first opcode after those of reliable connections.
const RC_END: u8 = 0x20;

const QPN_MASK: u32 = 0xff_ffff;

/// The program's result for packets of any worker: larger than any group of sockets.
const ANY: u32 = u32::MAX;

/// Whether packets with this opcode belong to reliable connections.
pub const fn is_connected(opcode: u8) -> bool {
    opcode < RC_END || opcode == opcode::CNP
}

/// The worker that a packet, from BTH to ICRC, belongs to; `None` for any worker.
pub fn owner(packet: &[u8], workers: usize) -> Option<usize> {
    let opcode = *packet.get(OPCODE)?;
    let dest_qp = u32::from_be_bytes(*packet.get(DEST_QP..)?.first_chunk()?) & QPN_MASK;
    if is_connected(opcode) {
        return Some((dest_qp & 0xff) as usize % workers);
    }
    let is_cm = opcode == opcode::UD_SEND_ONLY
        && dest_qp == Qpn::GSI.get()
        && *packet.get(MGMT_CLASS)? == class::COM_MGT;
    is_cm.then(|| cm::worker_of(packet.get(HEAD..)?, workers))?
}

/// BPF_A of a return (include/uapi/linux/filter.h): returns the accumulator.
const RETURN_A: u32 = 0x10;

const fn statement(code: u32, k: u32) -> sock_filter {
    jump(code, k, 0, 0)
}

const fn jump(code: u32, k: u32, yes: u8, no: u8) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k,
    }
}

/// The BPF program with the same rule. A load beyond the end of the packet ends the program with 0.
pub fn program(workers: usize) -> Vec<sock_filter> {
    use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_JMP, BPF_K, BPF_LD, BPF_MOD, BPF_RET};
    use libc::{BPF_JA, BPF_JEQ, BPF_JGE, BPF_W};
    let byte = |at: usize| statement(BPF_LD | BPF_B | BPF_ABS, at as u32);
    let half = |at: usize| statement(BPF_LD | BPF_H | BPF_ABS, at as u32);
    let word = |at: usize| statement(BPF_LD | BPF_W | BPF_ABS, at as u32);
    let equal = |k: u32, yes, no| jump(BPF_JMP | BPF_JEQ | BPF_K, k, yes, no);
    let less = |k: u32, yes, no| jump(BPF_JMP | BPF_JGE | BPF_K, k, no, yes);
    let ahead = |by: u32| statement(BPF_JMP | BPF_JA, by);
    vec![
        byte(OPCODE),
        less(RC_END.into(), 17, 0),
        equal(opcode::CNP.into(), 16, 0),
        equal(opcode::UD_SEND_ONLY.into(), 0, 18),
        word(DEST_QP),
        statement(BPF_ALU | BPF_AND | BPF_K, QPN_MASK),
        equal(Qpn::GSI.get(), 0, 15),
        byte(MGMT_CLASS),
        equal(class::COM_MGT.into(), 0, 13),
        half(ATTRIBUTE_ID),
        equal(cm::REQ.into(), 6, 0),
        equal(cm::SIDR_REP.into(), 5, 0),
        equal(cm::REJ.into(), 0, 2),
        word(REMOTE_COMM_ID),
        equal(0, 2, 0),
        byte(REMOTE_COMM_ID + 3),
        ahead(3),
        byte(LOCAL_COMM_ID + 3),
        ahead(1),
        byte(DEST_QP + 3),
        statement(BPF_ALU | BPF_MOD | BPF_K, workers.max(1) as u32),
        statement(BPF_RET | RETURN_A, 0),
        statement(BPF_RET | BPF_K, ANY),
    ]
}

#[cfg(test)]
#[path = "steering_tests.rs"]
mod tests;
