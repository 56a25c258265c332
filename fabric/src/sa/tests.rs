mod kernel;
mod lossy;
mod opensm;
mod rules;
mod saquery;

use std::time::Duration;

use proto::{Gid, IbMtu, Instant, PKey, QKey};
use zerocopy::FromBytes;

use super::*;
use crate::mad::sa::{JoinState, Rate};
use crate::mad::{Header, MAD_LEN, Mad};

const NOW: Instant = Instant(5_000_000_000);

fn config(seed: u64) -> ClientConfig {
    ClientConfig {
        seed: [seed, 1],
        own_rmpp: true,
        first_timeout: Duration::from_millis(500),
        tries: 5,
        in_flight_max: 4,
        queue_max: 10,
    }
}

fn gid(n: u8) -> Gid {
    Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n])
}

fn join(n: u8) -> Request {
    Request::join(gid(n), gid(1), PKey::DEFAULT, JoinState::FULL)
}

/// A group as IPoIB creates groups, with an MTU of 2048.
fn group_join(mgid: Gid, port_gid: Gid, join_state: JoinState) -> GroupJoin {
    GroupJoin {
        mgid,
        port_gid,
        pkey: PKey::DEFAULT,
        join_state,
        qkey: QKey::IPOIB_DEFAULT,
        mtu: IbMtu::B2048,
        rate: Rate::GBPS_10,
        tclass: 0,
        sl: 0,
        flow_label: 0,
        hop_limit: 0,
    }
}

fn sent(client: &mut Client) -> Vec<[u8; MAD_LEN]> {
    std::iter::from_fn(|| client.poll_transmit()).collect()
}

fn events(client: &mut Client) -> Vec<Event> {
    std::iter::from_fn(|| client.poll_event()).collect()
}

/// An answer to a request, with the kernel's high half of the transaction id.
fn answer(request: &[u8; MAD_LEN], status: u16) -> [u8; MAD_LEN] {
    let mut mad = *request;
    mad[3] = if mad[3] == 2 { 0x81 } else { mad[3] | 0x80 };
    mad[4..6].copy_from_slice(&status.to_be_bytes());
    mad[8..12].copy_from_slice(&[0, 1, 0, 0]);
    mad
}

fn header(mad: &[u8]) -> Header {
    Header::read_from_prefix(mad).unwrap().0
}

/// The transaction id of a request without the number of the try.
fn first_try(request: &[u8; MAD_LEN]) -> u64 {
    header(request).transaction_id.get() & !15
}
