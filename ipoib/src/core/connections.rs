//! Connected mode: which peers have connections, and what goes over them (RFC 4755; kernel
//! drivers/infiniband/ulp/ipoib/ipoib_cm.c).

use fabric::{ConnectError, ConnectionEvent, ConnectionId, ServiceId};

use super::{ConnectionAction, Incoming, Ipoib, Mode, Target, Time, TooBig};
use crate::counters::DropReason;

impl Ipoib {
    /// Changes how unicast IP packets travel. Connections that we asked for are ended; those of
    /// peers stay, since a peer may go on sending over them.
    pub fn set_mode(&mut self, _now: Time, mode: Mode) {
        self.config.mode = mode;
    }

    /// The service ids that peers find this interface by: Linux's layout and that of RFC 4755,
    /// section 3.5.
    pub fn service_ids(&self) -> [ServiceId; 2] {
        let qpn = u64::from(self.config.local.qpn().get());
        [
            ServiceId(0x1000_0000_0000_0000 | qpn),
            ServiceId(0x0100_0000_0000_0000 | qpn),
        ]
    }

    /// What the core wants done about connections, in order.
    pub fn poll_connection(&mut self, _now: Time) -> Option<ConnectionAction> {
        None
    }

    /// What came of [`ConnectionAction::Connect`].
    pub fn connecting(
        &mut self,
        _now: Time,
        _request: u32,
        _begun: Result<ConnectionId, ConnectError>,
    ) {
    }

    /// Something happened to a connection of this interface.
    pub fn connection_event(&mut self, _now: Time, _event: &ConnectionEvent) {}

    /// Decides on a message that came over a connection. `head` is its beginning, from the
    /// encapsulation header on: all of it, or at least 128 bytes of a message of `len` bytes.
    ///
    /// [`Incoming::Packet`] then names the part of the packet that is in `head`; the IP packet's own
    /// length is in its header and not over `len` less the encapsulation header.
    pub fn from_connection<'p>(
        &mut self,
        _now: Time,
        _connection: ConnectionId,
        _head: &'p [u8],
        _len: usize,
    ) -> Incoming<'_, 'p> {
        Incoming::Dropped(DropReason::Malformed)
    }

    /// A frame from the TAP, whose way is `to`, has a packet of `len` bytes that may not be cut, more
    /// than that way takes.
    pub fn too_big(
        &mut self,
        _now: Time,
        _to: Target,
        _prefix: &[u8; 12],
        _frame: &[u8],
        _len: usize,
    ) -> TooBig<'_> {
        TooBig::Dropped
    }
}
