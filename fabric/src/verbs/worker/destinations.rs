//! The address handles of a worker: requests for them, and their results.
//!
//! On Ethernet the kernel resolves a destination while it creates the handle. On InfiniBand the port
//! resolves the path first, with the subnet administrator.

use std::io;
use std::sync::Arc;

use proto::Lid;

use super::{VerbsWorker, clock};
use crate::handles::Wanted;
use crate::subnet::SubnetPath;
use crate::verbs::ibv::{self, AhInit};
use crate::worker::AhAttributes;

/// Hop limit of packets without a requested one (kernel include/rdma/rdma_cm.h; 1 would keep them on
/// the link, and GIDs may be routed).
const HOP_LIMIT: u8 = 64;

/// The bits of a traffic class that the network sets (RFC 3168, section 5).
const ECN: u8 = 3;

impl VerbsWorker {
    /// Requests the wanted address handles from the other threads.
    pub(super) fn make_handles(&mut self) {
        let wanted = self.handles.take_wanted();
        // Without a device, they are requested again with the next one.
        if wanted.is_empty() || self.table.device.is_none() {
            return;
        }
        if self.table.ethernet {
            for wanted in wanted {
                self.make(wanted, self.routed(&wanted.attributes));
            }
            return;
        }
        let destinations = wanted.into_iter().map(|w| self.handles.resolve(w));
        self.shared.destinations.send(destinations);
    }

    fn make(&mut self, wanted: Wanted, init: AhInit) {
        if let Some(device) = &self.table.device {
            let domain = Arc::clone(&device.domain);
            self.maker
                .make(wanted, move || ibv::AddressHandle::new(&domain, &init));
        }
    }

    /// Handles the port's answers: creates handles to resolved destinations. False if there are none.
    fn take_paths(&mut self) -> bool {
        let answers = self.shared.paths.take();
        for answer in &answers {
            let (destination, path) = answer;
            self.path_found(*destination, path.as_ref().ok());
            if let (Ok(path), Some(lane)) = (path, &mut self.lane)
                && !destination.gid.is_multicast()
            {
                let sources = &mut lane.receive.sources;
                sources.learn(path.dlid, self.table.lmc, destination.gid);
            }
            for wanted in self.handles.answered(answer) {
                match path {
                    Ok(path) => self.make(wanted, self.on_subnet(&wanted.attributes, path)),
                    Err(why) => self.made(&wanted, Err(why.kind().into())),
                }
            }
        }
        !answers.is_empty()
    }

    /// The address of a destination on Ethernet.
    fn routed(&self, attributes: &AhAttributes) -> AhInit {
        AhInit {
            port: self.table.port,
            dgid: Some(attributes.dgid),
            sgid_index: self.table.gid_index,
            flow_label: 0,
            hop_limit: match attributes.hop_limit {
                0 => HOP_LIMIT,
                hops => hops,
            },
            traffic_class: attributes.traffic_class & !ECN,
            dlid: Lid(0),
            sl: 0,
            source_path_bits: 0,
            static_rate: 0,
        }
    }

    /// The address of a destination on InfiniBand.
    fn on_subnet(&self, attributes: &AhAttributes, path: &SubnetPath) -> AhInit {
        let global = path.global;
        AhInit {
            port: self.table.port,
            dgid: global.map(|_| attributes.dgid),
            sgid_index: self.table.gid_index,
            flow_label: global.map_or(0, |g| g.flow_label),
            hop_limit: global.map_or(0, |g| g.hop_limit),
            traffic_class: global.map_or(0, |g| g.traffic_class | attributes.traffic_class & !ECN),
            dlid: path.dlid,
            sl: path.sl,
            // The mask leaves at most 7 bits.
            source_path_bits: (path.slid.0 & !(u16::MAX << self.table.lmc)) as u8,
            static_rate: path.rate,
        }
    }

    fn made(&mut self, wanted: &Wanted, object: io::Result<ibv::AddressHandle>) {
        match &object {
            Ok(_) => self.counts.ah_made += 1,
            Err(e) => {
                self.counts.ah_failed += 1;
                let dgid = wanted.attributes.dgid;
                log::debug!("{}: cannot reach {dgid}: {e}", self.name);
            }
        }
        self.handles.made(wanted, object, clock(), true);
    }

    /// Passes unused address handles to the other threads.
    pub(super) fn end_handles(&mut self) {
        for object in self.handles.take_ended() {
            self.maker.end(object);
        }
    }

    /// Handles the port's answers and the created address handles, and sends the trains that waited for them.
    pub(super) fn take_made(&mut self) {
        let answered = self.take_paths();
        let made = self.maker.take_made();
        if !answered && made.is_empty() {
            return;
        }
        for m in made {
            self.made(&m.wanted, m.object);
        }
        self.end_handles();
        self.send_waiting();
    }
}
