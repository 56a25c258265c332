//! The host's neighbours behind interfaces whose cores have forgotten the peers.
//!
//! The MAC of a frame for a router names a peer that the core does not know. The core cannot query the router, because the
//! frame has another IP destination. The kernel can: without its neighbour it queries the router again.

use rtnl::with_stacked;

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
            let of = with_stacked(&links, indexes.collect());
            let removed = self.at_place(cx, place, |netlink| netlink.forget_neighbours(&of));
            if let Some(Err(e)) = removed {
                log::warn!("routers may be unreachable until the host queries them again: {e}");
            }
        }
    }
}
