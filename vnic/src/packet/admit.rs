//! Check whether a virtual port accepts a packet.

use proto::PKey;

use crate::Lid;

use super::decode::Decoded;
use super::length::FRAME_MIN;
use super::refusal::Refusal;

/// An Ethernet header with one VLAN tag, in bytes.
const FRAME_HEADER_MAX: usize = 18;

/// Properties of a virtual port that decide about received packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receiver<'a> {
    /// LID of the port.
    pub lid: Lid,
    /// Multicast LIDs that the port has joined, in ascending order.
    pub groups: &'a [Lid],
    /// P_Key of the switch.
    pub pkey: PKey,
    /// Number of the switch, 1 to 4095.
    pub vesw_id: u16,
    /// Whether the port forwards.
    pub forwarding: bool,
    /// MTU of the interface, in bytes.
    pub eth_mtu: u16,
}

/// Destination of the packet's datagram, on a fabric other than Omni-Path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// This port alone.
    Addressed,
    /// A group. Senders also use it for packets to a port whose address they do not know.
    Group,
}

/// Checks whether `receiver` accepts a packet.
///
/// # Errors
/// Reason to drop the packet. The length of the frame is checked last: a refusal for it means that all else
/// is right.
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

/// Checks by the LIDs that the packet is for `receiver` and not from it.
fn is_for(packet: &Decoded<'_>, receiver: &Receiver<'_>, arrival: Arrival) -> Result<(), Refusal> {
    let (slid, dlid) = (packet.header.slid, packet.header.dlid);
    if slid == receiver.lid {
        return Err(match arrival {
            // The group returned the port's own packet.
            Arrival::Group if dlid != receiver.lid => Refusal::SelfMulticast,
            _ if dlid.is_multicast() => Refusal::SelfMulticast,
            _ => Refusal::BadLid,
        });
    }
    // Every port accepts the permissive LID. `decode` allows it only with the service class of management.
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
