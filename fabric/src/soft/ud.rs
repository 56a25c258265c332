//! Received unreliable datagrams: checks, their order, and the receivers (IBA vol. 1, 9.6.1 and 9.8.2;
//! the order of kernel drivers/infiniband/sw/rxe/rxe_recv.c: the ICRC comes last).

#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

use std::ops::Range;

use proto::{Gid, PKey, QKey, Qpn};
use zerocopy::FromBytes;

use super::icrc_check::IcrcCheck;
use super::snapshot::{Endpoint, Table};
use super::train::HEAD;
use super::wire::{Bth, Deth, ICRC_LEN, opcode};

proto::reasons! {
    /// Why a packet was dropped. Each has a counter.
    pub enum Refusal {
        /// Packets dropped: shorter than its headers, or more payload than the port's maximum.
        Length => "rx_length_errors",
        /// Packets dropped: not an opcode of unreliable datagrams.
        Opcode => "rx_bad_opcode",
        /// Packets dropped: a transport header version that is not 0.
        Version => "rx_bad_version",
        /// Packets dropped: the destination address is neither the port's GID nor a group.
        NotOurGid => "rx_not_our_gid",
        /// Packets dropped: unknown destination queue pair.
        UnknownQpn => "rx_unknown_qpn",
        /// Packets dropped: the queue pair does not receive in its state.
        State => "rx_bad_state",
        /// Packets dropped: no queue pair is attached to the group.
        NotMember => "rx_not_member",
        /// Packets dropped: the source is not the peer of the connection.
        NotPeer => "rx_not_peer",
        /// Packets dropped: the P_Key is of another partition, or both sides are limited members.
        PKey => "rx_pkey_violations",
        /// Packets dropped: the Q_Key is not the queue pair's.
        QKey => "rx_qkey_violations",
        /// Packets dropped: the receiver sent the packet.
        OwnEcho => "rx_own_echo",
        /// Packets dropped: the source is the port's GID, but no worker of the port sent the packet: another local process did.
        ForgedOwn => "rx_forged_own",
        /// Packets dropped: the ICRC is wrong.
        Icrc => "rx_icrc_errors",
        /// Packets dropped: more deliveries in a batch than the limit.
        NoRoom => "rx_no_room",
    }
}

/// The addresses of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// The source address.
    pub src: Gid,
    /// The destination address.
    pub dst: Gid,
    /// The UDP source port.
    pub src_port: u16,
}

/// A packet that passed all checks, for one receiver.
#[derive(Clone, Debug)]
pub struct Delivery<'t> {
    /// The receiver; none for QP1.
    pub to: Option<&'t Endpoint>,
    /// The sending queue pair.
    pub src_qpn: Qpn,
    /// The P_Key in the packet.
    pub pkey: PKey,
    /// Sent to [`Qpn::MULTICAST`].
    pub multicast: bool,
    /// Where the payload lies in the packet.
    pub payload: Range<usize>,
}

/// The fields of a UD packet that the checks need.
struct Packet {
    dest_qp: Qpn,
    src_qp: Qpn,
    pkey: PKey,
    qkey: QKey,
    payload: Range<usize>,
}

impl Packet {
    /// Checks that need only the packet.
    fn parse(bytes: &[u8], payload_max: usize) -> Result<Packet, Refusal> {
        let (bth, rest) = Bth::ref_from_prefix(bytes).map_err(|_| Refusal::Length)?;
        let start = match bth.opcode {
            opcode::UD_SEND_ONLY => HEAD,
            opcode::UD_SEND_ONLY_IMM => HEAD + size_of::<u32>(),
            _ => return Err(Refusal::Opcode),
        };
        let (deth, _) = Deth::ref_from_prefix(rest).map_err(|_| Refusal::Length)?;
        let tail = usize::from(bth.pad_count()) + ICRC_LEN;
        let end = bytes.len().checked_sub(tail).ok_or(Refusal::Length)?;
        // The ICRC does not distinguish such a length from a wrong PadCnt.
        if end < start || end - start > payload_max || !bytes.len().is_multiple_of(4) {
            return Err(Refusal::Length);
        }
        if bth.tver() != 0 {
            return Err(Refusal::Version);
        }
        Ok(Packet {
            dest_qp: bth.dest_qp(),
            src_qp: deth.src_qp(),
            pkey: bth.pkey(),
            qkey: deth.qkey(),
            payload: start..end,
        })
    }

    /// Checks of one receiver.
    fn suits(&self, endpoint: &Endpoint, path: &Path, table: &Table) -> Result<(), Refusal> {
        if !endpoint.qp.receives() {
            Err(Refusal::State)
        } else if !endpoint.pkey.matches(self.pkey) {
            Err(Refusal::PKey)
        } else if endpoint.qp.qkey() != self.qkey {
            Err(Refusal::QKey)
        } else if path.src == table.gid && self.src_qp == endpoint.qp.qpn() {
            Err(Refusal::OwnEcho)
        } else {
            Ok(())
        }
    }

    fn delivery<'t>(&self, to: Option<&'t Endpoint>) -> Delivery<'t> {
        Delivery {
            to,
            src_qpn: self.src_qp,
            pkey: self.pkey,
            multicast: self.dest_qp == Qpn::MULTICAST,
            payload: self.payload.clone(),
        }
    }
}

/// Checks the UDP payload of one packet and passes each receiver to `deliver`.
///
/// # Errors
/// The check that failed. For a multicast packet without receivers, the reason of the last queue pair
/// that refused it.
pub fn receive<'t>(
    table: &'t Table,
    path: &Path,
    icrc: &mut IcrcCheck,
    bytes: &[u8],
    mut deliver: impl FnMut(Delivery<'t>),
) -> Result<(), Refusal> {
    let packet = Packet::parse(bytes, table.payload_max)?;
    if packet.dest_qp == Qpn::MULTICAST {
        return multicast(table, path, icrc, bytes, &packet, deliver);
    }
    if path.dst != table.gid {
        return Err(Refusal::NotOurGid);
    }
    let to = if packet.dest_qp == Qpn::GSI {
        if packet.qkey != QKey::GSI {
            return Err(Refusal::QKey);
        } else if !table.gsi_takes(packet.pkey, packet.qkey) {
            return Err(Refusal::PKey);
        }
        None
    } else {
        let endpoint = table.by_qpn(packet.dest_qp).ok_or(Refusal::UnknownQpn)?;
        packet.suits(endpoint, path, table)?;
        Some(endpoint)
    };
    icrc.verify(path, bytes)?;
    deliver(packet.delivery(to));
    Ok(())
}

/// A packet to [`Qpn::MULTICAST`]: to a group, or a copy of one to the port's own address.
fn multicast<'t>(
    table: &'t Table,
    path: &Path,
    icrc: &mut IcrcCheck,
    bytes: &[u8],
    packet: &Packet,
    deliver: impl FnMut(Delivery<'t>),
) -> Result<(), Refusal> {
    if path.dst.is_multicast() {
        let attached = || table.attached(&path.dst);
        to_each(table, path, icrc, bytes, packet, attached, deliver)
    } else if path.dst != table.gid {
        Err(Refusal::NotOurGid)
    } else if !table.copies {
        Err(Refusal::NotMember)
    } else {
        // A copy does not name its group, so all endpoints with its keys receive it.
        let all = || table.endpoints.working().iter();
        to_each(table, path, icrc, bytes, packet, all, deliver)
    }
}

fn to_each<'t, I: Iterator<Item = &'t Endpoint>>(
    table: &Table,
    path: &Path,
    icrc: &mut IcrcCheck,
    bytes: &[u8],
    packet: &Packet,
    candidates: impl Fn() -> I,
    mut deliver: impl FnMut(Delivery<'t>),
) -> Result<(), Refusal> {
    let mut outcome = Err(Refusal::NotMember);
    for endpoint in candidates() {
        outcome = packet.suits(endpoint, path, table);
        if outcome.is_ok() {
            break;
        }
    }
    outcome?;
    icrc.verify(path, bytes)?;
    for endpoint in candidates().filter(|e| packet.suits(e, path, table).is_ok()) {
        deliver(packet.delivery(Some(endpoint)));
    }
    Ok(())
}

#[cfg(test)]
#[path = "ud_tests.rs"]
mod tests;
