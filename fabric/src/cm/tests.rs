mod chaos;
mod floods;
mod healing;
pub(crate) mod kernel;
mod rules;
mod sidr;
mod world;

use proto::{Guid, IbMtu, PKey, Psn, ServiceId};

use super::*;
use crate::mad::Mad;
use crate::mad::cm::{self, Message};

/// The service with a listener in these tests.
const SERVICE: ServiceId = ServiceId(0x1000_0000_0000_0042);

fn gid(n: u8) -> Gid {
    Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n])
}

fn config(n: u8) -> CmConfig {
    CmConfig {
        ca_guid: Guid([0, 0x99, 0, 0xff, 0xfe, 0, 0, n]),
        worker: 1,
        workers: 3,
        seed: [n.into(), 7],
        half_open_max: 64,
        connections_max: 100,
    }
}

fn ask(from: Gid, to: Gid, qpn: u32) -> Ask<'static> {
    Ask {
        service: SERVICE,
        local_gid: from,
        remote_gid: to,
        primary: None,
        qpn: Qpn::new(qpn),
        starting_psn: Psn::new(qpn + 1),
        pkey: PKey::DEFAULT,
        path_mtu: IbMtu::B1024,
        srq: true,
        private_data: b"please",
    }
}

fn consent(qpn: u32) -> Consent<'static> {
    Consent {
        qpn: Qpn::new(qpn),
        starting_psn: Psn::new(qpn + 1),
        srq: true,
        private_data: b"gladly",
    }
}

fn listens(service: ServiceId) -> bool {
    service == SERVICE
}

/// The name of a datagram's message.
fn name(mad: &Datagram) -> &'static str {
    const NAMES: [&str; 11] = [
        "REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR",
    ];
    NAMES[usize::from(messages::attribute(mad) - cm::REQ)]
}

fn drain(cm: &mut Cm) -> Vec<(Gid, Datagram)> {
    let sent = std::iter::from_fn(|| cm.poll_transmit());
    sent.map(|out| (out.to, out.datagram)).collect()
}

fn events(cm: &mut Cm) -> Vec<CmEvent> {
    std::iter::from_fn(|| cm.poll_event()).collect()
}

fn counter(cm: &Cm, name: &str) -> u64 {
    let counters = cm.counters();
    counters.iter().find(|(n, _)| *n == name).unwrap().1
}

/// The only datagram waiting to be sent.
fn only(cm: &mut Cm) -> Datagram {
    let mut all = drain(cm);
    assert_eq!(
        all.len(),
        1,
        "{:?}",
        all.iter().map(|(_, m)| name(m)).collect::<Vec<_>>()
    );
    all.remove(0).1
}
