//! The address handles of a worker: what they are made from, and what becomes of those that were made.

use std::io;
use std::sync::Arc;

use proto::Lid;

use super::{VerbsWorker, clock};
use crate::verbs::handles::Wanted;
use crate::verbs::ibv::{self, AhInit};
use crate::worker::AhAttributes;

/// Hop limit of packets for which nobody asks for another (kernel include/rdma/rdma_cm.h; 1 would keep
/// them on the link, and GIDs may be routed).
const HOP_LIMIT: u8 = 64;

/// The bits of a traffic class that are the network's (RFC 3168, section 5).
const ECN: u8 = 3;

impl VerbsWorker {
    /// Has the address handles made that are wanted.
    pub(super) fn make_handles(&mut self) {
        for wanted in self.handles.take_wanted() {
            let Some(device) = &self.table.device else {
                // They are wanted again when there is one.
                continue;
            };
            match self.ah_init(&wanted.attributes) {
                Ok(init) => {
                    let domain = Arc::clone(&device.domain);
                    self.maker
                        .make(wanted, move || ibv::AddressHandle::new(&domain, &init));
                }
                Err(e) => self.made(&wanted, Err(e)),
            }
        }
    }

    fn ah_init(&self, attributes: &AhAttributes) -> io::Result<AhInit> {
        let dlid = match self.table.ethernet {
            true => Lid(0),
            false => *self
                .table
                .lids
                .get(&attributes.dgid)
                .ok_or(io::ErrorKind::HostUnreachable)?,
        };
        Ok(AhInit {
            port: self.table.port,
            // On InfiniBand, too: that is how a receiver knows whom a datagram is from.
            dgid: Some(attributes.dgid),
            sgid_index: self.table.gid_index,
            flow_label: 0,
            hop_limit: match attributes.hop_limit {
                0 => HOP_LIMIT,
                hops => hops,
            },
            traffic_class: attributes.traffic_class & !ECN,
            dlid,
            sl: 0,
        })
    }

    fn made(&mut self, wanted: &Wanted, object: io::Result<ibv::AddressHandle>) {
        match &object {
            Ok(_) => self.counts.ah_made += 1,
            Err(e) => {
                self.counts.ah_failed += 1;
                let dgid = wanted.attributes.dgid;
                if self.table.ethernet {
                    log::debug!("{}: {dgid} cannot be reached: {e}", self.name);
                } else if !std::mem::replace(&mut self.lids_missed, true) {
                    log::warn!(
                        "{}: {dgid} is not in the port's table of lids, and so unreachable; subnet \
                         administration is not there yet",
                        self.name
                    );
                }
            }
        }
        self.handles.made(wanted, object, clock());
    }

    /// Gives up the address handles that nobody names any more, elsewhere.
    pub(super) fn end_handles(&mut self) {
        for object in self.handles.take_ended() {
            self.maker.end(object);
        }
    }

    /// Takes the address handles that were made, and sends what has waited for them.
    pub(super) fn take_made(&mut self) {
        let made = self.maker.take_made();
        if made.is_empty() {
            return;
        }
        for m in made {
            self.made(&m.wanted, m.object);
        }
        self.end_handles();
        self.send_waiting();
    }
}
