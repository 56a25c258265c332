//! The GIDs of ports by LID, for received unicast datagrams without a GRH.

use std::collections::HashMap;

use proto::{Gid, Lid};

/// GIDs by LID: from received packets with a GRH, and from resolved paths. At most one for each LID.
#[derive(Debug, Default)]
pub struct Sources(HashMap<Lid, Gid, foldhash::fast::RandomState>);

/// The LID of a port without its path bits.
const fn base(lid: Lid, lmc: u8) -> Lid {
    Lid(lid.0 & u16::MAX << lmc)
}

impl Sources {
    /// Notes the GID of the port with a LID.
    pub fn learn(&mut self, lid: Lid, lmc: u8, gid: Gid) {
        self.0.insert(base(lid, lmc), gid);
    }

    /// The GID of the port with a LID; [`Gid::UNSPECIFIED`] if it is not known.
    pub fn gid(&self, lid: Lid, lmc: u8) -> Gid {
        let known = self.0.get(&base(lid, lmc));
        known.copied().unwrap_or(Gid::UNSPECIFIED)
    }

    /// Forgets all GIDs: the subnet manager may have assigned other LIDs.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_bits_belong_to_one_port() {
        let mut sources = Sources::default();
        let gid: Gid = "fe80::5".parse().unwrap();
        sources.learn(Lid(0x13), 2, gid);
        assert_eq!(sources.gid(Lid(0x10), 2), gid);
        assert_eq!(sources.gid(Lid(0x14), 2), Gid::UNSPECIFIED);
        sources.clear();
        assert_eq!(sources.gid(Lid(0x10), 2), Gid::UNSPECIFIED);
    }
}
