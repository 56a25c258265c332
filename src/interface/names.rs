//! Names of network namespaces.

use std::collections::BTreeMap;

use netdev::netns::{self, NamespaceId};

/// The names that `ip netns` has given, read once for many lookups.
#[derive(Debug, Default)]
pub struct Names(BTreeMap<NamespaceId, String>);

impl Names {
    /// Reads the names.
    pub fn read() -> Names {
        let named = netns::named_all().unwrap_or_default().into_iter();
        Names(named.map(|(name, id)| (id, name)).collect())
    }

    /// The name of a namespace, or `netns:INODE`.
    pub fn of(&self, id: &NamespaceId) -> String {
        let name = self.0.get(id).cloned();
        name.unwrap_or_else(|| format!("netns:{}", id.inode))
    }
}
