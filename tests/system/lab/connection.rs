//! Output of `ibtap conn` about a connection.

use serde_json::Value;

use super::{Host, SOON, eventually};

/// One end of a connection, as its daemon lists it.
#[derive(Clone, Debug)]
pub struct Connection(Value);

impl Connection {
    /// Whether this side requested the connection, and therefore sends on it.
    pub fn is_active(&self) -> bool {
        match self.text("role") {
            "active" => true,
            "passive" => false,
            other => panic!("role {other}: {self:?}"),
        }
    }

    /// Whether messages may pass.
    pub fn is_established(&self) -> bool {
        self.text("state") == "ESTABLISHED"
    }

    /// A member that is a string.
    pub fn text(&self, name: &str) -> &str {
        self.0[name]
            .as_str()
            .unwrap_or_else(|| panic!("no string {name}: {self:?}"))
    }

    /// A member that is a number.
    pub fn number(&self, name: &str) -> u64 {
        self.0[name]
            .as_u64()
            .unwrap_or_else(|| panic!("no number {name}: {self:?}"))
    }
}

impl Host {
    /// All connections of an interface.
    pub fn connections(&self, interface: &str) -> Vec<Connection> {
        let listed = self.ask(&format!("conn {interface}"));
        listed.into_iter().map(Connection).collect()
    }

    /// Established connections of `ib0` with another host on which this host sends (`active`) or receives.
    pub fn connections_with(&self, other: &Host, active: bool) -> Vec<Connection> {
        let gid = other.show("ib0")["gid"].clone();
        let mut all = self.connections("ib0");
        all.retain(|c| c.is_established() && c.is_active() == active && gid == c.text("peer_gid"));
        all
    }

    /// Waits until this host can send to another one over a connection.
    pub fn connects_to(&self, other: &Host) {
        let what = format!("{}: a connection to {}", self.name(), other.name());
        eventually(SOON, &what, || {
            self.pings(&other.v4());
            let made = self.connections_with(other, true);
            (!made.is_empty()).then_some(())
        });
    }

    /// The sum of a number over the connections of `ib0`.
    pub fn of_connections(&self, number: &str) -> u64 {
        let all = self.connections("ib0");
        all.iter().map(|c| c.number(number)).sum()
    }
}
