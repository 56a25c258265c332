//! Hosts behind interfaces: stacked interfaces, multicast routes, membership reports; and the timers of all
//! interfaces.
//!
//! The control thread follows rtnetlink for interfaces stacked on an interface, joins the groups that hosts
//! behind it report or need (solicited-node groups need no report), sends the querier's queries while hosts
//! may be behind it, announces the addresses of a bridge above like the interface's own, and joins the
//! groups of the kernel's multicast routes.

use std::collections::BTreeSet;
use std::time::Duration;

use ipoib::Event;
use netdev::mroute;
use rtnl::Stacking;

use crate::datapath::{Command, LinkId, now};
use crate::interface::{Interface, InterfaceId, Place};
use crate::interfaces::{Context, Interfaces, Payload, management};

impl Interfaces {
    /// A core of an IP link reports an event. Returns the interface if monitoring or pinging clients may
    /// need the event.
    pub fn core_event(
        &mut self,
        cx: &mut Context,
        id: LinkId,
        event: &Event,
    ) -> Option<&Interface> {
        let (interface, ip) = self.with_link_mut(id)?;
        let wanted = ip.event(interface, id, event, &mut cx.pending);
        wanted.then_some(interface)
    }

    /// Finds the host's own reports among those with the host's MAC. The host's groups are read once for
    /// all reports: one forged report can name hundreds of groups.
    pub fn find_own_reports(&mut self, cx: &mut Context) {
        let reported = std::mem::take(&mut cx.pending.maybe_own);
        let ids: BTreeSet<LinkId> = reported.iter().map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.sync_groups(cx, id));
        for (id, group) in reported {
            if let Some((interface, ip)) = self.with_link_mut(id)
                && !ip.link.host_groups.contains(&group)
            {
                ip.group_reported(interface, id, group, &mut cx.pending);
            }
        }
    }

    /// A link changed or is gone: the stacking on our interfaces may have changed. It is read once for all
    /// pending changes.
    pub fn note_stacking(&mut self, cx: &mut Context, place: Place, link: Option<&rtnl::Link>) {
        let concerned = |interface: &Interface, payload: &Payload| match link {
            // Interfaces stacked on a bond are stacked on its ports.
            Some(link) => {
                link.index == interface.ifindex
                    || link.link == Some(interface.ifindex)
                    || matches!(link.kind.as_deref(), Some("bond" | "team"))
            }
            None => payload.is_stacked(),
        };
        let there = self.iter().filter(|(i, _)| i.place == place);
        let concerned = there.filter(|(i, payload)| concerned(i, payload));
        cx.pending
            .stacking
            .extend(concerned.map(|(interface, _)| interface.id));
    }

    /// Reads which interfaces are stacked on the noted interfaces, and whether the host routes multicast through
    /// them. The list of all interfaces is read once for each namespace, because it may be long.
    pub fn read_stacking(&mut self, cx: &mut Context) {
        let noted = std::mem::take(&mut cx.pending.stacking);
        for (place, mut ids) in self.by_place(noted) {
            let Some(links) = self.links_at(cx, place) else {
                continue;
            };
            ids.retain(|id| self.stacking_seen(cx, *id, &links));
            if !ids.is_empty() {
                self.read_routes(cx, place, &ids);
            }
        }
    }

    /// Takes the links of an interface's namespace; true if multicast routes through the interface matter.
    fn stacking_seen(&mut self, cx: &mut Context, id: InterfaceId, links: &[rtnl::Link]) -> bool {
        let netlink = &mut cx.host.netlink;
        let Some((interface, payload)) = self.both_mut(id) else {
            return false;
        };
        let Some(link) = links.iter().find(|link| link.index == interface.ifindex) else {
            return false;
        };
        let stacking = Stacking::on(links, link);
        match payload {
            Payload::Ip(ip) => {
                ip.stacking_seen(interface, &stacking, netlink, &cx.ports[interface.port]);
                true
            }
            Payload::Ethernet(ethernet) => {
                let was_bonded = ethernet.bonded;
                ethernet.stacking_seen(interface, &stacking, link.allmulti > 0, netlink);
                let changed = ethernet.bonded != was_bonded;
                self.sync_vnic_groups(cx, id);
                if changed {
                    management::sync_agent_of(self, cx, id);
                }
                false
            }
        }
    }

    /// Reads the multicast routes of interfaces in one namespace.
    fn read_routes(&mut self, cx: &mut Context, place: Place, ids: &BTreeSet<InterfaceId>) {
        let Some(Ok(tables)) = self.at_place(cx, place, |_| mroute::Tables::read()) else {
            return;
        };
        for id in ids {
            if let Some((interface, ip)) = self.ip_mut(*id) {
                let found = tables.of(&interface.name);
                ip.routes_seen(interface, found, &cx.ports[interface.port], &mut cx.pending);
            }
        }
    }

    /// Time until [`Interfaces::tick`] is due.
    pub fn next_tick(&self) -> Option<Duration> {
        let now = now();
        let guests = self.ips();
        let guests = guests.flat_map(|(_, ip)| ip.links());
        let guests = guests.filter_map(|link| link.guests.wait(now));
        guests
            .chain(management::next_tick(self))
            .chain(self.next_group_tick())
            .chain(self.next_carrier_tick())
            .chain(self.next_alias_tick())
            .min()
    }

    /// Does the pending and due work of all interfaces.
    pub fn tick(&mut self, cx: &mut Context) {
        self.read_stacking(cx);
        for id in std::mem::take(&mut cx.pending.addresses) {
            self.read_addresses(cx, id);
        }
        let now = now();
        for (interface, ip) in self.ips_mut() {
            let port = &cx.ports[interface.port];
            for link in ip.links_mut() {
                let id = link.id();
                let write = |frame: &[u8]| port.send_first(Command::ToTap(id, frame.into()));
                if link.guests.tick(now, write) {
                    cx.pending.membership.insert(id);
                }
            }
        }
        management::tick(self, cx);
        self.tick_groups(cx);
        self.tick_carriers(cx);
        self.write_due_aliases(cx, now);
        for place in std::mem::take(&mut cx.pending.routes) {
            let ids = self.ip_ids(|i, _| i.place == place);
            self.read_routes(cx, place, &ids.into_iter().collect());
        }
    }
}
