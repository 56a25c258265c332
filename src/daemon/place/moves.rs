//! Interfaces that move to another network namespace: they are found again and served there.

use std::io;

use control::api::Happening;
use netdev::netns::NamespaceId;
use netdev::tap::{Tap, is_gone};
use rtnl::{Link, Requests};

use super::{Names, Place, visit};
use crate::daemon::Daemon;
use crate::datapath::DeviceId;
use crate::device::Device;
use crate::port::PortId;

/// How often an interface is looked for that moves on, or gets another name, just then.
const TRIES: usize = 16;

/// What looking for an interface found.
pub(in crate::daemon) enum Found {
    /// It is there, and its namespace's number in ours.
    There(Place, NamespaceId, Box<Link>),
    /// It is there, but the daemon may not go there.
    Closed(Place, NamespaceId, io::Error),
    /// It was deleted, or went where this kernel does not tell.
    Gone,
    /// It cannot be told where it is.
    Unknown(io::Error),
}

impl Daemon {
    /// The interface of a device has left the place where it was. It was deleted, or moved; maybe
    /// it has come back since.
    pub(crate) fn left_its_place(&mut self, id: DeviceId) {
        self.reread(id);
    }

    /// A namespace is gone. Its number may be another one's soon; the data threads find out that the
    /// interfaces go with it.
    pub(in crate::daemon) fn place_gone(&mut self, place: Place) {
        self.strangers.place_gone(place);
        for (_, device) in self.devices.values_mut().filter(|(_, d)| d.place == place) {
            device.place = Place::NOWHERE;
        }
        for vnic in self.vnics.values_mut().filter(|v| v.place == place) {
            vnic.place = Place::NOWHERE;
        }
    }

    /// Finds a device's interface, wherever it is now, and gives what it is like; `None` if it
    /// cannot be seen. If it was deleted, the device is forgotten.
    ///
    /// Where it is gets a number before it is read, so that whatever changes from then on is told.
    pub(crate) fn find(&mut self, id: DeviceId) -> Option<Link> {
        match self.look_for(id)? {
            Found::There(place, there, link) => {
                self.settle(id, place, there, Some(&link));
                Some(*link)
            }
            Found::Closed(place, there, e) => {
                if self.settle(id, place, there, None) {
                    let name = &self.devices.get(&id)?.1.name;
                    log::warn!(
                        "{name}: its packets are carried on, but its network namespace cannot be \
                         entered ({e}; that takes CAP_SYS_ADMIN): what `ip` changes there is not \
                         followed"
                    );
                }
                None
            }
            Found::Gone => {
                let name = &self.devices.get(&id)?.1.name;
                log::debug!("{name}: the interface is not here any more");
                self.forget(id);
                None
            }
            Found::Unknown(e) => {
                let name = &self.devices.get(&id)?.1.name;
                log::warn!("{name}: cannot find out where the interface is: {e}");
                None
            }
        }
    }

    fn look_for(&mut self, id: DeviceId) -> Option<Found> {
        let (_, device) = self.devices.get(&id)?;
        Some(locate(&device.tap, &mut self.netlink, self.home))
    }

    /// The GID of a port, which is in the aliases of its interfaces in other namespaces, is another one.
    pub(in crate::daemon) fn renew_aliases_elsewhere(&mut self, at: PortId) {
        let elsewhere =
            |(port, device): &(PortId, Device)| *port == at && device.namespace.is_some();
        let devices = self.devices.iter().filter(|(_, device)| elsewhere(device));
        for id in devices.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.renew_alias(id);
        }
    }

    /// Notes where a device's interface is, and says so if that is news.
    fn settle(
        &mut self,
        id: DeviceId,
        place: Place,
        there: NamespaceId,
        link: Option<&Link>,
    ) -> bool {
        let Some((_, device)) = self.devices.get_mut(&id) else {
            return false;
        };
        if let Some(link) = link {
            device.ifindex = link.index;
        }
        let namespace = (place != Place::HOME).then_some(there);
        let was = std::mem::replace(&mut device.namespace, namespace);
        device.place = place;
        if was == namespace {
            return false;
        }
        let called = namespace.map(|there| Names::read().of(&there));
        let was = std::mem::replace(&mut device.netns, called);
        self.watchers
            .tell(device.subject(), Happening::Moved { was });
        let name = device.name.clone();
        let now = device.tap.name().unwrap_or_else(|_| name.clone());
        let called = if now == name {
            String::new()
        } else {
            format!(" as {now}")
        };
        match &device.netns {
            None => log::info!("{name}: moved back to the daemon's network namespace{called}"),
            Some(there) => log::info!("{name}: moved to the network namespace {there}{called}"),
        }
        let is_child = device.parent.is_some();
        self.renew_alias(id);
        if !is_child {
            self.look_for_children(id);
        }
        true
    }
}

/// Looks for the interface of a TAP, wherever it is now; `home` is the daemon's own namespace.
pub(in crate::daemon) fn locate(tap: &Tap, netlink: &mut Requests, home: NamespaceId) -> Found {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for _ in 0..TRIES {
        let there = match tap.namespace() {
            Ok(there) => there,
            Err(e) if is_gone(&e) => return Found::Gone,
            Err(e) => return look_at_home(tap, netlink, home, e),
        };
        let namespace = match there.id() {
            Ok(namespace) => namespace,
            Err(e) => return Found::Unknown(e),
        };
        let place = if namespace == home {
            Place::HOME
        } else {
            match netlink.assign_nsid(&there) {
                Ok(number) => Place { nsid: Some(number) },
                Err(e) => return Found::Unknown(io::Error::other(e)),
            }
        };
        let read = |netlink: &mut Requests| {
            let name = tap.name()?;
            netlink.link_by_name(&name).map_err(io::Error::other)
        };
        let seen = match place {
            Place::HOME => Ok(read(netlink)),
            _ => visit(&there, read),
        };
        match seen {
            Err(e) => return Found::Closed(place, namespace, e),
            // Another interface may have its former name by now.
            Ok(Ok(link)) if is_still(tap, namespace, &link.name) => {
                return Found::There(place, namespace, Box::new(link));
            }
            Ok(Ok(_)) => {}
            Ok(Err(e)) => last = e,
        }
    }
    Found::Unknown(last)
}

/// For kernels before 5.2, which do not tell where an interface is: it is here, or lost.
fn look_at_home(tap: &Tap, netlink: &mut Requests, home: NamespaceId, why: io::Error) -> Found {
    let link = tap.name().ok().map(|name| netlink.link_by_name(&name));
    match link {
        Some(Ok(link)) if link.tun.is_some() => Found::There(Place::HOME, home, Box::new(link)),
        Some(Err(e)) if !e.is_not_found() => Found::Unknown(io::Error::other(e)),
        _ => {
            log::debug!("where an interface is: {why}");
            Found::Gone
        }
    }
}

/// Whether an interface still is in that namespace and has that name.
fn is_still(tap: &Tap, namespace: NamespaceId, name: &str) -> bool {
    let there = tap.namespace().and_then(|there| there.id());
    there.is_ok_and(|there| there == namespace) && tap.name().is_ok_and(|now| now == name)
}
