//! The alias of a VNIC (`ip -d link show`).
//!
//! ```text
//! ibtap: soft/eth0 vnic 0 vesw 7 lid 0x000005
//! ibtap: soft/eth0 vnic 1
//! ```

use std::fmt;

use vnic::Lid;

/// The contents of an alias.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alias {
    /// The fabric port, such as `soft/eth0`.
    pub port: String,
    /// The VNIC's index on the port.
    pub index: u8,
    /// The switch, and the VNIC's LID on it.
    pub switch: Option<(u16, Lid)>,
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ibtap: {} vnic {}", self.port, self.index)?;
        match self.switch {
            Some((vesw, lid)) => write!(f, " vesw {vesw} lid {lid}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_may_replace_it_and_it_is_not_an_ipoib_alias() {
        let mut alias = Alias {
            port: "soft/eth0".into(),
            index: 0,
            switch: Some((7, Lid::new(5))),
        };
        let text = alias.to_string();
        assert_eq!(text, "ibtap: soft/eth0 vnic 0 vesw 7 lid 0x000005");
        assert!(crate::interface::Alias::is_free(Some(&text)));
        assert_eq!(crate::interface::Alias::parse(&text), None);
        alias.switch = None;
        assert_eq!(alias.to_string(), "ibtap: soft/eth0 vnic 0");
    }
}
