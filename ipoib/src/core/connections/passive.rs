//! Connections requested by peers, and messages on all connections.

use proto::{ConnectionId, Gid, Mode, RejectReason, ServiceId, Time};

use super::super::incoming::Arrived;
use super::super::{ConnectionAction, Ended, Incoming, Ipoib, Meta, Role};
use crate::address::HardwareAddress;
use crate::connections::{Layout, Share};
use crate::counters::DropReason;
use crate::event::Event;
use crate::private_data::PrivateData;

/// Maximum number of connections requested by a port: one for each thread of each interface, and leftovers
/// of a restart. Beyond that, one of the port's connections is replaced: one without any message, or an
/// idle one.
const PER_PORT_MAX: u32 = 64;

impl Ipoib {
    /// Handles a peer's request, by default also in datagram mode: the peer may have cached the RC flag, and
    /// the kernel's IPoIB accepts such requests, too. The peer's receive MTU is irrelevant, because nothing is
    /// sent on the connection.
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
                self.report_if_watched(|| Event::ConnectionUp { peer, role });
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

    /// The requester, or the reason for a rejection. A peer that claims an impossible queue pair, or the
    /// interface's own, is a forger: its messages would be attributed to another sender.
    fn consent(
        &mut self,
        now: Time,
        service: ServiceId,
        port: Gid,
        private_data: &[u8],
    ) -> Result<HardwareAddress, RejectReason> {
        // Peers request this service without an advertisement.
        let unadvertised = service == Layout::RdmaIb.service_id(self.config.local.qpn());
        let refuses =
            self.config.mode == Mode::Datagram && (unadvertised || self.config.refuse_requests);
        if refuses || !self.service_ids().contains(&service) {
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

    /// Decides on a message of a connection. `head` starts at the encapsulation header; it is the whole
    /// message, or at least the first 128 bytes of `len`.
    ///
    /// [`Incoming::Packet`] then has the part of the packet in `head`; the IP header contains the packet's
    /// length, which is at most `len` minus the encapsulation header. Packets that must be rewritten (ARP,
    /// neighbour discovery, DHCP) or kept are accepted only if `head` is the whole message.
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
        // Messages on connections of this host are accepted, too: by the RFC both sides may send.
        table.note_carried(at, now);
        let meta = Meta {
            src_qpn: peer.qpn(),
            src_gid: peer.gid(),
            has_src_gid: true,
            dst_gid: self.config.local.gid(),
            multicast: false,
        };
        self.arrived(now, &meta, Arrived { head, len })
    }
}
