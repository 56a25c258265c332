//! Interfaces that move to another network namespace.

use std::time::Duration;

use netdev::netns::NamespaceId;
use proto::Time;
use rtnl::Link;

use crate::datapath::now;
use crate::interface::{Found, InterfaceId, Names, Place, has_lost_namespace, locate};
use crate::interfaces::{Context, Interfaces};
use crate::port::PortId;

/// How long in milliseconds the alias of a moved interface waits for the interface to be set up. The kernel sets
/// moved interfaces down. The CNI plugin host-device then sets an alias, sets the interface up, and cannot move
/// it back without that alias. The kernel cannot compare and set an alias, so the daemon must not write one in
/// between.
const ALIAS_WAIT_MS: u64 = 1_000;

impl Interfaces {
    /// A namespace was deleted, with its interfaces. The kernel may reuse its number. A data thread would notice
    /// the end of a TAP, but no data thread polls the queues of a VNIC without a switch.
    pub fn place_gone(&mut self, cx: &mut Context, place: Place) {
        cx.adoption.candidates.place_gone(place);
        let mut there = Vec::new();
        for (interface, _) in self.iter_mut().filter(|(i, _)| i.place == place) {
            interface.place = Place::NOWHERE;
            there.push(interface.id);
        }
        for id in there {
            // If it is found, it has moved, and the notification was lost.
            self.find(cx, id);
        }
    }

    /// Finds an interface in any namespace and reads it; `None` if it cannot be read. A deleted interface
    /// is closed.
    ///
    /// The namespace gets its number before the read, so that the kernel announces all later changes.
    pub fn find(&mut self, cx: &mut Context, id: InterfaceId) -> Option<Link> {
        let interface = self.get(id)?;
        // An interface of the same name in the daemon's namespace is another one.
        if interface.namespace.is_some() && has_lost_namespace(&interface.tap) {
            log::debug!("{}: its network namespace is gone", interface.name);
            self.forget(cx, id);
            return None;
        }
        match locate(&interface.tap, &mut cx.host.netlink, cx.host.home) {
            Found::There(place, there, link) => {
                self.settle(cx, id, place, there, Some(&link));
                Some(*link)
            }
            Found::Closed(place, there, e) => {
                if self.settle(cx, id, place, there, None) {
                    let name = &self.get(id)?.name;
                    log::warn!(
                        "{name}: cannot enter its network namespace ({e}; needs CAP_SYS_ADMIN); \
                         ibtapd continues to serve the interface but ignores its changes there"
                    );
                }
                None
            }
            Found::Gone => {
                log::debug!("{}: the interface no longer exists", interface.name);
                self.forget(cx, id);
                None
            }
            Found::Unknown(e) => {
                let name = &interface.name;
                log::warn!("{name}: cannot find the interface's network namespace: {e}");
                None
            }
        }
    }

    /// The GID of a port changed. The aliases of its interfaces in other namespaces contain it.
    pub fn renew_aliases_elsewhere(&mut self, cx: &mut Context, at: PortId) {
        let all = self.iter().map(|(interface, _)| interface);
        let elsewhere = all.filter(|i| i.port == at && i.namespace.is_some());
        for id in elsewhere.map(|i| i.id).collect::<Vec<_>>() {
            self.renew_alias(cx, id);
        }
    }

    /// Time until an alias is due.
    pub fn next_alias_tick(&self) -> Option<Duration> {
        let all = self.iter().filter_map(|(interface, _)| interface.alias_due);
        let wait = |due: Time| Duration::from_millis(due.since(now()));
        all.map(wait).min()
    }

    /// Writes the aliases of moved interfaces that are due at `until`.
    pub fn write_due_aliases(&mut self, cx: &mut Context, until: Time) {
        let all = self.iter().map(|(interface, _)| interface);
        let due = all.filter(|i| i.alias_due.is_some_and(|due| due <= until));
        for id in due.map(|i| i.id).collect::<Vec<_>>() {
            self.renew_alias(cx, id);
        }
    }

    /// Notes the namespace of an interface; true if it changed. Alias and possible children depend on it.
    fn settle(
        &mut self,
        cx: &mut Context,
        id: InterfaceId,
        place: Place,
        there: NamespaceId,
        link: Option<&Link>,
    ) -> bool {
        let events = &mut cx.events;
        let Some(interface) = self.get_mut(id) else {
            return false;
        };
        if !interface.settle(place, there, link, events) {
            return false;
        }
        interface.alias_due = Some(now().after(ALIAS_WAIT_MS));
        self.look_around(cx, |interface, ip| {
            interface.id == id && ip.parent.is_none()
        });
        true
    }

    /// Reads the names of the interfaces' namespaces, for monitoring clients.
    pub fn name_places(&mut self) {
        let names = Names::read();
        for (interface, _) in self.iter_mut() {
            interface.netns = interface.namespace.map(|there| names.of(&there));
        }
    }
}
