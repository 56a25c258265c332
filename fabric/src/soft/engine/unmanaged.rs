//! Connections without communication management: both sides exchange their parameters in another way,
//! often over TCP.

use proto::{ConnectError, ConnectionId, EndpointId, Gid, IbMtu, Instant, Psn, Qpn};

use super::connection::Stage;
use super::consumer::Begin;
use super::{Engine, Partition};
use crate::cm::Remote;
use crate::connection::reaches;

/// Our parameters of a connection, for the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalQp {
    /// The connection's id.
    pub connection: ConnectionId,
    /// The RC queue pair.
    pub qpn: Qpn,
    /// The PSN of the first packet that we send.
    pub psn: Psn,
    /// Our GID.
    pub gid: Gid,
}

/// The peer's parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteQp {
    /// The RC queue pair.
    pub qpn: Qpn,
    /// The PSN of the first packet that the peer sends.
    pub psn: Psn,
    /// The peer's GID.
    pub gid: Gid,
    /// Payload bytes of one packet, equal on both sides.
    pub path_mtu: IbMtu,
    /// The acknowledgement timeout, 0 to 31: 4.096 µs times two to the power of the code.
    pub ack_timeout: u8,
    /// Number of retries before giving up, 0 to 7.
    pub retry_count: u8,
    /// Number of retries after RNR NAKs; 7 is unlimited.
    pub rnr_retry: u8,
}

impl Engine {
    /// Creates a queue pair in INIT for a connection without communication management.
    ///
    /// # Errors
    /// [`ConnectError::Full`]; [`ConnectError::Unreachable`] if the port has no address.
    pub fn begin_unmanaged(
        &mut self,
        now: Instant,
        endpoint: EndpointId,
        partition: impl Into<Partition>,
    ) -> Result<LocalQp, ConnectError> {
        let partition = partition.into();
        let gid = self.port.gid;
        let path_mtu = self.port.path_mtu.filter(|_| gid != Gid::UNSPECIFIED);
        let path_mtu = path_mtu.ok_or(ConnectError::Unreachable(gid))?;
        let qpn = self.new_qpn();
        let cm = self.cm.unmanaged(qpn, partition.pkey);
        let begin = Begin {
            id: self.new_id(),
            cm: cm.map_err(|_| ConnectError::Full)?,
            endpoint,
            partition,
            peer: Gid::UNSPECIFIED,
            path_mtu,
            qpn,
            rq_psn: Psn::new(0),
            wish: None,
        };
        let connection = begin.id;
        self.begin(now, begin);
        let psn = Psn::new(self.random.next() as u32);
        let place = self.table.by_id(connection);
        if let Some(c) = place.and_then(|p| self.table.get_mut(p)) {
            c.stage = Stage::Unmanaged;
            c.remote = Some(unknown(psn, partition));
        }
        Ok(LocalQp {
            connection,
            qpn,
            psn,
            gid,
        })
    }

    /// Moves the queue pair to RTS with the peer's parameters. The connection now carries messages.
    ///
    /// # Errors
    /// [`ConnectError::Unreachable`] if the peer's GID is unspecified or of another address family, or
    /// packets of the path MTU do not fit; [`ConnectError::Os`] if the connection does not wait for
    /// parameters. The connection is then unchanged.
    pub fn connect_unmanaged(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        remote: &RemoteQp,
    ) -> Result<(), ConnectError> {
        let place = self.in_stage(connection, Stage::Unmanaged);
        let place = place.ok_or(std::io::Error::from(std::io::ErrorKind::NotConnected))?;
        let fits = self.port.path_mtu.is_some_and(|own| remote.path_mtu <= own);
        if !fits || !reaches(self.port.gid, remote.gid) {
            return Err(ConnectError::Unreachable(remote.gid));
        }
        if let Some(c) = self.table.get_mut(place) {
            c.peer = remote.gid;
            c.path_mtu = remote.path_mtu;
            c.rq_psn = remote.psn;
            let ours = c.remote.map_or(Psn::new(0), |r| r.starting_psn);
            c.remote = Some(Remote {
                qpn: remote.qpn,
                path_mtu: remote.path_mtu,
                retry_count: remote.retry_count,
                rnr_retry: remote.rnr_retry,
                ack_timeout: remote.ack_timeout,
                ..unknown(ours, c.partition)
            });
        }
        self.bring_up(now, place);
        Ok(())
    }
}

/// Parameters of an unknown peer. Only our first PSN is known.
fn unknown(starting_psn: Psn, partition: Partition) -> Remote {
    Remote {
        qpn: Qpn::new(0),
        starting_psn,
        pkey: partition.pkey,
        path_mtu: IbMtu::B256,
        retry_count: 0,
        rnr_retry: 0,
        ack_timeout: 0,
    }
}
