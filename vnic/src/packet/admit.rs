//! What one virtual port takes of what reaches it.

use proto::PKey;

use crate::Lid;

use super::decode::Decoded;
use super::length::FRAME_MIN;
use super::refusal::Refusal;

/// An Ethernet header with one VLAN tag, in bytes.
const FRAME_HEADER_MAX: usize = 18;

/// What a virtual port is, for what it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receiver<'a> {
    /// Its LID.
    pub lid: Lid,
    /// The multicast LIDs that it has joined, in ascending order.
    pub groups: &'a [Lid],
    /// The partition of its switch.
    pub pkey: PKey,
    /// Its switch, 1 to 4095.
    pub vesw_id: u16,
    /// Whether it forwards at all.
    pub forwarding: bool,
    /// The interface's MTU in bytes.
    pub eth_mtu: u16,
}

/// How a packet came on a fabric other than Omni-Path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// To this port alone.
    Addressed,
    /// To a group, where packets to a port whose place the sender does not know come as well.
    Group,
}

/// Whether `receiver` is to take a packet.
///
/// # Errors
/// Why not. Frames of a wrong length are the last to be refused: everything else about them is right.
#[inline]
pub fn admit(
    packet: &Decoded<'_>,
    receiver: &Receiver<'_>,
    arrival: Arrival,
) -> Result<(), Refusal> {
    let header = &packet.header;
    is_for(packet, receiver, arrival)?;
    if !header.pkey.matches(receiver.pkey) {
        return Err(Refusal::BadPkey);
    }
    if header.vesw_id & 0xfff != receiver.vesw_id {
        return Err(Refusal::BadVeswId);
    }
    if !receiver.forwarding {
        return Err(Refusal::DropState);
    }
    if packet.frame.len() < FRAME_MIN {
        return Err(Refusal::Runt);
    }
    if packet.frame.len() > usize::from(receiver.eth_mtu) + FRAME_HEADER_MAX {
        return Err(Refusal::Oversize);
    }
    Ok(())
}

/// Whether the LIDs say that the packet is for `receiver`, and not from it.
fn is_for(packet: &Decoded<'_>, receiver: &Receiver<'_>, arrival: Arrival) -> Result<(), Refusal> {
    let (slid, dlid) = (packet.header.slid, packet.header.dlid);
    if slid == receiver.lid {
        return Err(match arrival {
            // What a group gives back to its sender.
            Arrival::Group if dlid != receiver.lid => Refusal::SelfMulticast,
            _ if dlid.is_multicast() => Refusal::SelfMulticast,
            _ => Refusal::BadLid,
        });
    }
    // The permissive LID is everybody's; it got here by the service class of management alone.
    if dlid == receiver.lid || dlid == Lid::PERMISSIVE {
        return Ok(());
    }
    match arrival {
        _ if dlid.is_multicast() => match receiver.groups.binary_search(&dlid) {
            Ok(_) => Ok(()),
            Err(_) => Err(Refusal::BadLid),
        },
        Arrival::Group => Err(Refusal::OtherLid),
        Arrival::Addressed => Err(Refusal::BadLid),
    }
}
