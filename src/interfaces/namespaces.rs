//! Interfaces in other network namespaces.

mod coalesce;
mod moves;
mod names;

use std::io;

use control::config::IpoibConfig;
use netdev::netns::{self, Namespace};
use rtnl::Requests;

use crate::interface::{Interface, InterfaceError, InterfaceId, Place, visit};
use crate::interfaces::{Context, Interfaces};

impl Interfaces {
    /// Sends requests to the kernel in an interface's namespace, as [`Interface::inside`].
    pub fn inside<T>(
        &mut self,
        cx: &mut Context,
        id: InterfaceId,
        ask: impl FnOnce(&mut Interface, &mut Requests) -> T,
    ) -> Option<T> {
        self.get_mut(id)?.inside(&mut cx.host.netlink, ask)
    }

    /// Sends requests to the kernel in a namespace with interfaces of ours. `None` if it has none or cannot
    /// be entered.
    pub fn at_place<T>(
        &mut self,
        cx: &mut Context,
        place: Place,
        ask: impl FnOnce(&mut Requests) -> T,
    ) -> Option<T> {
        if place == Place::HOME {
            return Some(ask(&mut cx.host.netlink));
        }
        // One of them may have moved.
        let mut all = self.iter().filter(|(i, _)| i.place == place);
        let there = all.find_map(|(interface, _)| interface.elsewhere())?;
        visit(&there, ask).ok()
    }

    /// The `ip netns` name of an interface's namespace, if it has one.
    pub fn netns_of(&self, id: InterfaceId) -> Option<String> {
        let there = self.get(id)?.elsewhere();
        there.as_ref().and_then(netns::name_of)
    }

    /// The network namespace for a new interface, if it is not the daemon's: the configured one, else the
    /// parent's.
    ///
    /// # Errors
    /// [`InterfaceError::Netns`].
    pub fn namespace_for(
        &self,
        cx: &Context,
        spec: &IpoibConfig,
        parent: Option<InterfaceId>,
    ) -> Result<Option<Namespace>, InterfaceError> {
        if spec.netns.is_some() {
            return self.namespace_called(cx, spec.netns.as_deref());
        }
        let parent = parent.and_then(|parent| self.get(parent));
        Ok(parent.and_then(Interface::elsewhere))
    }

    /// The network namespace of this name, if it is not the daemon's.
    ///
    /// # Errors
    /// [`InterfaceError::Netns`].
    pub fn namespace_called(
        &self,
        cx: &Context,
        name: Option<&str>,
    ) -> Result<Option<Namespace>, InterfaceError> {
        let Some(name) = name else {
            return Ok(None);
        };
        let there = Namespace::named(name).map_err(|e| no_namespace(name, &e))?;
        let id = there.id().map_err(|e| no_namespace(name, &e))?;
        Ok((id != cx.host.home).then_some(there))
    }
}

fn no_namespace(name: &str, e: &io::Error) -> InterfaceError {
    InterfaceError::Netns(match e.kind() {
        io::ErrorKind::NotFound => {
            format!("there is no network namespace {name}; make it: ip netns add {name}")
        }
        _ => format!("cannot open the network namespace {name}: {e}"),
    })
}
