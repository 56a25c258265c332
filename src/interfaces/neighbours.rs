//! The host's neighbours behind interfaces whose cores have forgotten the peers.
//!
//! The MAC of a frame for a router names a peer that the core does not know. The core cannot query the router, because the
//! frame has another IP destination. The kernel can: without its neighbour it queries the router again.

use std::collections::{BTreeMap, BTreeSet};

use rtnl::with_stacked;

use crate::interface::{InterfaceId, Place};
use crate::interfaces::{Context, Interfaces};
use crate::port::PortId;

impl Interfaces {
    /// Sends a port's list of allowed hosts to the data threads. Their cores forget all peers.
    pub fn send_allowed(&self, cx: &mut Context, at: PortId) {
        cx.ports[at].send_allowed();
        let on_port = self.ip_ids(|interface, _| interface.port == at);
        cx.pending.forgotten.extend(on_port);
    }

    /// Removes the host's neighbours behind the interfaces whose cores have forgotten the peers, and behind those stacked on
    /// them. The lists of interfaces and neighbours are read once for each namespace, because they may be long.
    pub fn remove_neighbours(&mut self, cx: &mut Context) {
        let forgotten = std::mem::take(&mut cx.pending.forgotten);
        for (place, ids) in self.by_place(forgotten) {
            let Some(links) = self.links_at(cx, place) else {
                continue;
            };
            let indexes = ids.iter().filter_map(|id| Some(self.get(*id)?.ifindex));
            let of = indexes.flat_map(|ifindex| with_stacked(&links, ifindex));
            let of: BTreeSet<u32> = of.collect();
            let removed = self.at_place(cx, place, |netlink| netlink.forget_neighbours(&of));
            if let Some(Err(e)) = removed {
                log::warn!("routers may be unreachable until the host queries them again: {e}");
            }
        }
    }

    /// The interfaces by their namespace.
    pub fn by_place(&self, ids: BTreeSet<InterfaceId>) -> BTreeMap<Place, BTreeSet<InterfaceId>> {
        let mut all = BTreeMap::<Place, BTreeSet<InterfaceId>>::new();
        for id in ids {
            if let Some(interface) = self.get(id) {
                all.entry(interface.place).or_default().insert(id);
            }
        }
        all
    }
}
