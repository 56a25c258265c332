//! Interfaces that move to another network namespace: they are found again and served there.

use netdev::netns::NamespaceId;
use rtnl::Link;

use crate::daemon::Daemon;
use crate::interface::InterfaceId;
use crate::interface::{Found, Names, Place, locate};
use crate::port::PortId;

impl Daemon {
    /// A namespace is gone. Its number may be another one's soon; the data threads find out that the
    /// interfaces go with it.
    pub(in crate::daemon) fn place_gone(&mut self, place: Place) {
        self.adoption.candidates.place_gone(place);
        let all = self.interfaces.iter_mut().map(|(interface, _)| interface);
        for interface in all.filter(|interface| interface.place == place) {
            interface.place = Place::NOWHERE;
        }
    }

    /// Finds an interface, wherever it is now, and gives what it is like; `None` if it
    /// cannot be seen. If it was deleted, it is forgotten.
    ///
    /// Where it is gets a number before it is read, so that the kernel announces whatever changes from then on.
    pub(crate) fn find(&mut self, id: InterfaceId) -> Option<Link> {
        let interface = self.interfaces.get(id)?;
        match locate(&interface.tap, &mut self.host.netlink, self.host.home) {
            Found::There(place, there, link) => {
                self.settle(id, place, there, Some(&link));
                Some(*link)
            }
            Found::Closed(place, there, e) => {
                if self.settle(id, place, there, None) {
                    let name = &self.interfaces.get(id)?.name;
                    log::warn!(
                        "{name}: its packets are carried on, but its network namespace cannot be \
                         entered ({e}; that takes CAP_SYS_ADMIN): what `ip` changes there is not \
                         followed"
                    );
                }
                None
            }
            Found::Gone => {
                log::debug!("{}: the interface is not here any more", interface.name);
                self.forget(id);
                None
            }
            Found::Unknown(e) => {
                let name = &interface.name;
                log::warn!("{name}: cannot find out where the interface is: {e}");
                None
            }
        }
    }

    /// The GID of a port, which is in the aliases of its interfaces in other namespaces, is another one.
    pub(in crate::daemon) fn renew_aliases_elsewhere(&mut self, at: PortId) {
        let all = self.interfaces.iter().map(|(interface, _)| interface);
        let elsewhere = all.filter(|i| i.port == at && i.namespace.is_some());
        for id in elsewhere.map(|i| i.id).collect::<Vec<_>>() {
            self.renew_alias(id);
        }
    }

    /// Notes where an interface is; true if that is news. Its alias, and which TAPs may be its children,
    /// depend on that.
    fn settle(
        &mut self,
        id: InterfaceId,
        place: Place,
        there: NamespaceId,
        link: Option<&Link>,
    ) -> bool {
        let events = &mut self.events;
        let interface = self.interfaces.get_mut(id);
        if !interface.is_some_and(|i| i.settle(place, there, link, events)) {
            return false;
        }
        self.renew_alias(id);
        if let Some((_, ip)) = self.interfaces.ip(id)
            && ip.parent.is_none()
        {
            self.look_for_children(id);
        }
        true
    }

    /// Reads what the namespaces of the interfaces are called now, for those who watch.
    pub(crate) fn name_places(&mut self) {
        let names = Names::read();
        for (interface, _) in self.interfaces.iter_mut() {
            interface.netns = interface.namespace.map(|there| names.of(&there));
        }
    }
}
