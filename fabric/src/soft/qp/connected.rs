//! State and attributes of an RC queue pair; [`crate::soft::rc::RcQp`] implements the transport.

use proto::{IbMtu, Psn, Qpn};

use super::{Attributes, Service, State, permit};
use crate::port::FabricError;
use crate::worker::AhAttributes;

/// The state, and the attributes set by the modify verb. The peer's attributes are valid from RTR on,
/// the requester's from RTS on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connected {
    /// The state.
    pub state: State,
    /// Index into the port's P_Key table.
    pub pkey_index: u16,
    /// The peer's address; from RTR on.
    pub address: AhAttributes,
    /// Payload bytes of one packet; from RTR on.
    pub path_mtu: IbMtu,
    /// The peer's queue pair; from RTR on.
    pub dest_qpn: Qpn,
    /// The first PSN to receive.
    pub rq_psn: Psn,
    /// The first PSN to send.
    pub sq_psn: Psn,
    /// The timer code in RNR NAKs, 0 to 31; 0 is the longest.
    pub min_rnr_timer: u8,
    /// The code of the acknowledgement timeout, 0 to 31: 4.096 µs times two to the power of the code; 0
    /// is unlimited.
    pub timeout: u8,
    /// Number of retries before giving up, 0 to 7.
    pub retry_cnt: u8,
    /// Number of retries after RNR NAKs, 0 to 7; 7 is unlimited.
    pub rnr_retry: u8,
    /// Maximum number of incoming READs and ATOMICs at a time; none are served.
    pub max_dest_rd_atomic: u8,
    /// Maximum number of outstanding READs and ATOMICs; none are sent.
    pub max_rd_atomic: u8,
    /// Whether an event reports that the send queue is drained.
    pub sqd_notify: bool,
    /// The largest MTU of the port.
    pub port_mtu: IbMtu,
}

impl Connected {
    /// Creates the attributes of a queue pair in RESET, on a port whose largest MTU is `port_mtu`.
    pub const fn new(port_mtu: IbMtu) -> Connected {
        Connected {
            state: State::Reset,
            pkey_index: 0,
            address: AhAttributes::to(proto::Gid::UNSPECIFIED, proto::PKey::DEFAULT),
            path_mtu: IbMtu::B256,
            dest_qpn: Qpn::new(0),
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            min_rnr_timer: 0,
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            max_dest_rd_atomic: 0,
            max_rd_atomic: 0,
            sqd_notify: false,
            port_mtu,
        }
    }

    /// Applies the modify verb to state and attributes; the transport handles requests. RESET clears
    /// all attributes.
    ///
    /// # Errors
    /// Those of [`permit`]; the attributes are then unchanged.
    pub fn modify(&mut self, to: State, attributes: &Attributes) -> Result<(), FabricError> {
        permit(Service::Rc, self.state, to, attributes, self.port_mtu)?;
        if to == State::Reset {
            *self = Connected::new(self.port_mtu);
            return Ok(());
        }
        // Each drain has its own request for an event.
        if self.state == State::Rts && to == State::Sqd {
            self.sqd_notify = false;
        }
        self.state = to;
        self.apply(attributes);
        Ok(())
    }

    fn apply(&mut self, given: &Attributes) {
        fn set<T>(field: &mut T, given: Option<T>) {
            if let Some(value) = given {
                *field = value;
            }
        }
        set(&mut self.pkey_index, given.pkey_index);
        set(&mut self.address, given.address);
        set(&mut self.path_mtu, given.path_mtu);
        set(&mut self.dest_qpn, given.dest_qpn);
        set(&mut self.rq_psn, given.rq_psn);
        set(&mut self.sq_psn, given.sq_psn);
        set(&mut self.min_rnr_timer, given.min_rnr_timer);
        set(&mut self.timeout, given.timeout);
        set(&mut self.retry_cnt, given.retry_cnt);
        set(&mut self.rnr_retry, given.rnr_retry);
        set(&mut self.max_dest_rd_atomic, given.max_dest_rd_atomic);
        set(&mut self.max_rd_atomic, given.max_rd_atomic);
        set(&mut self.sqd_notify, given.sqd_notify);
    }
}
