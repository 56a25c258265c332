//! The address handles of one worker (IBA vol. 1, 11.2.2.1).

use std::io;
use std::net::IpAddr;

use proto::{AddressHandle, Gid};

use crate::worker::AhAttributes;

/// Address handles that one worker keeps at most.
const CAPACITY: usize = 1 << 16;

/// What a send needs to know of an address handle.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// The destination.
    pub ip: IpAddr,
    /// Whether it is a group.
    pub multicast: bool,
    /// Traffic class; 0 is the default.
    pub traffic_class: u8,
    /// Hop limit; 0 means that of the socket.
    pub hop_limit: u8,
}

/// A table with places that are used again.
#[derive(Debug, Default)]
pub struct AddressHandles {
    places: Vec<Option<Address>>,
    free: Vec<u32>,
}

impl AddressHandles {
    /// Makes a handle for a port with the GID `sgid`. IPoIB's groups are IPv6 whatever the GID is,
    /// so with `copies` (multicast goes to a list of peers) any group will do.
    ///
    /// # Errors
    /// EAFNOSUPPORT if the two GIDs are not of one address family: the source decides which one is
    /// on the wire (kernel drivers/infiniband/sw/rxe/rxe_av.c). EADDRNOTAVAIL for the zero GID,
    /// ENOSPC if there are too many handles.
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

    /// Ends a handle; one that there is not is left alone.
    pub fn destroy(&mut self, ah: AddressHandle) {
        if let Some(place) = self.places.get_mut(ah.0 as usize)
            && place.take().is_some()
        {
            self.free.push(ah.0);
        }
    }

    /// What a handle stands for.
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
            .create(&AhAttributes::to(gid("fe80::2")), &own, false)
            .unwrap();
        let b = t
            .create(&AhAttributes::to(gid("fe80::3")), &own, false)
            .unwrap();
        t.destroy(a);
        t.destroy(a);
        assert!(t.get(a).is_none());
        let c = t
            .create(&AhAttributes::to(gid("ff12::1")), &own, false)
            .unwrap();
        assert_eq!(c, a);
        assert!(t.get(c).unwrap().multicast && !t.get(b).unwrap().multicast);
        let d = t
            .create(&AhAttributes::to(gid("fe80::4")), &own, false)
            .unwrap();
        assert!(d != a && d != b, "a handle destroyed twice is free once");
    }

    /// Conformance item 47: source and destination GID are of one family.
    #[test]
    fn t47_gid_families_do_not_mix() {
        let mut t = AddressHandles::default();
        let v4 = gid("192.0.2.1");
        let mut refused = |dgid: &str, sgid: &Gid, copies| {
            t.create(&AhAttributes::to(gid(dgid)), sgid, copies)
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
