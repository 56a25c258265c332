//! The protocol for a fuzz target, without the port of umad.

pub use super::super::device::{Address, Event, Source};
pub use super::super::state::CmEvent;
pub use super::manager::{Line, Manager};
pub use super::path::Own;

use proto::{Gid, Lid, Qpn};

use crate::umad::{AgentId, Grh, Received};

/// A received datagram of class 7. `gid`: the sender's, if the datagram has a GRH.
pub fn received(slid: Lid, gid: Option<Gid>, status: u32, mad: Vec<u8>) -> Received {
    Received {
        agent: AgentId(0),
        status,
        slid,
        sqpn: Qpn::GSI,
        sl: 0,
        path_bits: 0,
        pkey_index: 0,
        grh: gid.map(|gid| Grh {
            gid,
            gid_index: 0,
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 1,
        }),
        mad,
    }
}
