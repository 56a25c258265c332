//! Connections that peers ask for, and what comes over any.

use proto::{ConnectionId, Gid, RejectReason, ServiceId, Time};

use super::super::incoming::Arrived;
use super::super::{ConnectionAction, Ended, Incoming, Ipoib, Meta, Role};
use crate::address::HardwareAddress;
use crate::connections::Share;
use crate::counters::DropReason;
use crate::event::Event;
use crate::private_data::PrivateData;

/// Connections that one port may have asked for: one for each thread of each of its interfaces, and
/// those that a restart of it left behind. Of more, one of its own is ended that nothing came over, or
/// not lately.
const PER_PORT_MAX: u32 = 64;

impl Ipoib {
    /// A peer asks for a connection. In datagram mode, too: it may have cached our flag from before,
    /// and the kernel's IPoIB consents likewise. Its receive MTU does not matter to us, who never send
    /// on it.
    pub(super) fn requested(
        &mut self,
        now: Time,
        connection: ConnectionId,
        service: ServiceId,
        peer: Gid,
        private_data: &[u8],
    ) {
        let private_data_out = self.private_data();
        match self.consent(now, service, peer, private_data) {
            Ok(peer) => {
                let table = &mut self.connected.table;
                table.insert_passive(now, peer, connection);
                self.counters.connections_accepted += 1;
                self.act(ConnectionAction::Accept {
                    connection,
                    private_data: private_data_out,
                });
                let role = Role::Passive;
                self.tell_watcher(|| Event::ConnectionUp { peer, role });
            }
            Err(reason) => {
                self.counters.connections_rejected += 1;
                self.act(ConnectionAction::Reject {
                    connection,
                    reason,
                    private_data: private_data_out,
                });
            }
        }
    }

    /// Who asks, or why not. A peer that claims a queue pair that nobody can have, or our own, lies:
    /// what it sent would be taken for another's.
    fn consent(
        &mut self,
        now: Time,
        service: ServiceId,
        port: Gid,
        private_data: &[u8],
    ) -> Result<HardwareAddress, RejectReason> {
        if !self.service_ids().contains(&service) {
            return Err(RejectReason::INVALID_SERVICE_ID);
        }
        let data = PrivateData::parse(private_data).ok_or(RejectReason::CONSUMER)?;
        let peer = HardwareAddress::new(0, data.qpn, port);
        if !peer.is_unicast() || peer.same_peer(&self.config.local) {
            return Err(RejectReason::CONSUMER);
        }
        match self.connected.table.share_of(now, port, PER_PORT_MAX) {
            Share::Free => {}
            Share::InPlaceOf(at) => {
                self.counters.connections_evicted += 1;
                self.drop_entry(at, Ended::Evicted);
            }
            Share::Used => return Err(RejectReason::NO_QP),
        }
        if self.make_room(now) {
            Ok(peer)
        } else {
            Err(RejectReason::NO_QP)
        }
    }

    /// Decides on a message that came over a connection. `head` is its beginning, from the
    /// encapsulation header on: all of it, or at least 128 bytes of a message of `len` bytes.
    ///
    /// [`Incoming::Packet`] then names the part of the packet that is in `head`; the IP packet's own
    /// length is in its header and not over `len` less the encapsulation header. What must be
    /// rewritten (ARP, neighbour discovery, DHCP) or kept is only taken whole.
    pub fn from_connection<'p>(
        &mut self,
        now: Time,
        connection: ConnectionId,
        head: &'p [u8],
        len: usize,
    ) -> Incoming<'_, 'p> {
        let table = &mut self.connected.table;
        let known = table.by_id(connection);
        let sender = known.and_then(|at| Some((at, table.get(at)?.peer)));
        let Some((at, peer)) = sender else {
            self.counters.drop_rx(DropReason::NotConnected);
            return Incoming::Dropped(DropReason::NotConnected);
        };
        // Also what comes over a connection of ours is taken: the RFC has it used both ways.
        table.note_carried(at, now);
        let meta = Meta {
            src_qpn: peer.qpn(),
            src_gid: peer.gid(),
            dst_gid: self.config.local.gid(),
            multicast: false,
        };
        self.arrived(now, &meta, Arrived { head, len })
    }
}
