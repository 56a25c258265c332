//! What network namespaces and the interfaces in them are called.

use std::collections::BTreeMap;

use control::api::ApiError;
use netdev::netns::{self, NamespaceId};

use crate::daemon::Daemon;
use crate::datapath::DeviceId;
use crate::device::Device;
use crate::port::PortId;

/// The names that `ip netns` has given at this moment, to look up many.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<NamespaceId, String>);

impl Names {
    /// Reads them.
    pub(crate) fn read() -> Names {
        let named = netns::named_all().unwrap_or_default().into_iter();
        Names(named.map(|(name, id)| (id, name)).collect())
    }

    /// The name of a namespace, or `netns:INODE`.
    pub(crate) fn of(&self, id: &NamespaceId) -> String {
        let name = self.0.get(id).cloned();
        name.unwrap_or_else(|| format!("netns:{}", id.inode))
    }
}

impl Daemon {
    /// Reads what the namespaces of the interfaces are called now, for those who watch.
    pub(crate) fn name_places(&mut self) {
        let names = Names::read();
        for (_, device) in self.devices.values_mut() {
            device.netns = device.namespace.map(|there| names.of(&there));
        }
        for vnic in self.vnics.values_mut() {
            vnic.netns = vnic.namespace.map(|there| names.of(&there));
        }
    }

    /// The device whose interface is called so now. `NAME` is looked for in the daemon's own network
    /// namespace first; `NETNS/NAME` says which one is meant.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`], and [`ApiError::Refused`] where several have that name.
    pub(crate) fn named(&self, name: &str) -> Result<(DeviceId, PortId, &Device), ApiError> {
        let (place, wanted) = match name.rsplit_once('/') {
            Some((place, wanted)) => (Some(place), wanted),
            None => (None, name),
        };
        let called = self.devices.iter().filter(|(_, (_, d))| d.name == wanted);
        let mut called: Vec<_> = called.map(|(id, (at, d))| (*id, *at, d)).collect();
        if let Some(place) = place {
            let names = Names::read();
            called.retain(|(_, _, d)| names.of(&d.namespace.unwrap_or(self.home)) == place);
        } else if called.len() > 1
            && let Some(home) = called.iter().find(|(_, _, d)| d.namespace.is_none())
        {
            return Ok(*home);
        }
        match called[..] {
            [one] => Ok(one),
            [] if self.vnic_named(name).is_ok() => Err(ApiError::Refused {
                message: format!(
                    "{name} is a VNIC, and has none of what IPoIB has; \"ibtap vnic\" says what can be \
                     asked of it"
                ),
            }),
            [] => Err(ApiError::NoSuchInterface {
                interface: name.to_owned(),
            }),
            [..] => Err(ApiError::Refused {
                message: several(name, &called),
            }),
        }
    }
}

impl Daemon {
    /// The port of the interface that is called so, of either kind.
    ///
    /// # Errors
    /// As [`Daemon::named`].
    pub(crate) fn port_of_interface(&self, name: &str) -> Result<PortId, ApiError> {
        match self.vnic_named(name) {
            Ok(vnic) => Ok(vnic.at),
            Err(_) => self.named(name).map(|(_, at, _)| at),
        }
    }
}

fn several(name: &str, called: &[(DeviceId, PortId, &Device)]) -> String {
    let names = Names::read();
    let each = called.iter().filter_map(|(_, _, device)| {
        let there = device.namespace.as_ref()?;
        Some(format!("{}/{name}", names.of(there)))
    });
    let each: Vec<String> = each.collect();
    format!(
        "several interfaces are called {name}: say {}",
        each.join(" or ")
    )
}
