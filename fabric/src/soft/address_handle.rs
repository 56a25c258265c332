//! The address handles of one worker (IBA vol. 1, 11.2.2.1).

use std::io;
use std::net::IpAddr;

use proto::{AddressHandle, Gid};

use crate::worker::AhAttributes;

/// Maximum number of address handles of one worker.
const CAPACITY: usize = 1 << 16;

/// The contents of an address handle.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// The destination.
    pub ip: IpAddr,
    /// Whether the destination is a group.
    pub multicast: bool,
    /// Traffic class; 0 is the default.
    pub traffic_class: u8,
    /// Hop limit; 0 means the socket's default.
    pub hop_limit: u8,
}

/// A table of address handles. Destroyed places are used again.
#[derive(Debug, Default)]
pub struct AddressHandles {
    places: Vec<Option<Address>>,
    free: Vec<u32>,
}

impl AddressHandles {
    /// Creates a handle for a port with the GID `sgid`. With `copies`, multicast packets go to a list
    /// of peers, so a group of either address family is accepted: IPoIB groups are always IPv6.
    ///
    /// # Errors
    /// EAFNOSUPPORT if both GIDs are not of one address family: the source GID decides the address
    /// family on the wire (kernel drivers/infiniband/sw/rxe/rxe_av.c). EADDRNOTAVAIL for the zero GID,
    /// ENOSPC if the table is full.
    pub fn create(
        &mut self,
        attributes: &AhAttributes,
        sgid: &Gid,
        copies: bool,
    ) -> io::Result<AddressHandle> {
        let dgid = attributes.dgid;
        if dgid == Gid::UNSPECIFIED {
            return Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL));
        }
        let multicast = dgid.is_multicast();
        let known = *sgid != Gid::UNSPECIFIED;
        if known && dgid.ipv4().is_some() != sgid.ipv4().is_some() && !(multicast && copies) {
            return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
        }
        let address = Address {
            ip: dgid.to_ip(),
            multicast,
            traffic_class: attributes.traffic_class,
            hop_limit: attributes.hop_limit,
        };
        if let Some(at) = self.free.pop() {
            self.places[at as usize] = Some(address);
            return Ok(AddressHandle(at));
        }
        if self.places.len() == CAPACITY {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.places.push(Some(address));
        Ok(AddressHandle(self.places.len() as u32 - 1))
    }

    /// Destroys a handle. Unknown handles are ignored.
    pub fn destroy(&mut self, ah: AddressHandle) {
        if let Some(place) = self.places.get_mut(ah.0 as usize)
            && place.take().is_some()
        {
            self.free.push(ah.0);
        }
    }

    /// The contents of a handle.
    pub fn get(&self, ah: AddressHandle) -> Option<Address> {
        self.places.get(ah.0 as usize).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(s: &str) -> Gid {
        s.parse().unwrap()
    }

    #[test]
    fn places_are_used_again() {
        let mut t = AddressHandles::default();
        let own = gid("fe80::1");
        let a = t
            .create(
                &AhAttributes::to(gid("fe80::2"), proto::PKey::DEFAULT),
                &own,
                false,
            )
            .unwrap();
        let b = t
            .create(
                &AhAttributes::to(gid("fe80::3"), proto::PKey::DEFAULT),
                &own,
                false,
            )
            .unwrap();
        t.destroy(a);
        t.destroy(a);
        assert!(t.get(a).is_none());
        let c = t
            .create(
                &AhAttributes::to(gid("ff12::1"), proto::PKey::DEFAULT),
                &own,
                false,
            )
            .unwrap();
        assert_eq!(c, a);
        assert!(t.get(c).unwrap().multicast && !t.get(b).unwrap().multicast);
        let d = t
            .create(
                &AhAttributes::to(gid("fe80::4"), proto::PKey::DEFAULT),
                &own,
                false,
            )
            .unwrap();
        assert!(d != a && d != b, "a handle destroyed twice is free once");
    }

    /// Conformance item 47: source and destination GID must have one address family.
    #[test]
    fn t47_gid_families_do_not_mix() {
        let mut t = AddressHandles::default();
        let v4 = gid("192.0.2.1");
        let mut refused = |dgid: &str, sgid: &Gid, copies| {
            t.create(
                &AhAttributes::to(gid(dgid), proto::PKey::DEFAULT),
                sgid,
                copies,
            )
            .err()
            .and_then(|e| e.raw_os_error())
        };
        assert_eq!(refused("fe80::2", &v4, true), Some(libc::EAFNOSUPPORT));
        assert_eq!(refused("ff12::2", &v4, false), Some(libc::EAFNOSUPPORT));
        assert_eq!(refused("ff12::2", &v4, true), None);
        assert_eq!(refused("192.0.2.2", &v4, false), None);
        assert_eq!(
            refused("192.0.2.2", &gid("fe80::1"), true),
            Some(libc::EAFNOSUPPORT)
        );
    }
}
