//! Chooses the port's GID from its GID table.

use std::net::{IpAddr, Ipv6Addr};

use proto::{Gid, GidChoice};

use super::ibv::{GidEntry, GidKind};
use super::unusable::Unusable;

/// An address of a network interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// Index of the interface.
    pub ifindex: u32,
    /// The address.
    pub ip: IpAddr,
    /// Not tentative and not a duplicate.
    pub usable: bool,
}

/// Chooses the GID of the port named `port`. The entry with the GID `current` stays the choice while it
/// is eligible, because peers know the port by it.
///
/// # Errors
/// [`Unusable`]
pub fn choose(
    port: &str,
    entries: &[GidEntry],
    addresses: &[Address],
    ethernet: bool,
    choice: GidChoice,
    current: Option<Gid>,
) -> Result<GidEntry, Unusable> {
    let mut usable = Vec::new();
    let mut waits = None;
    for entry in entries.iter().filter(|e| e.gid != Gid::UNSPECIFIED) {
        if ethernet && entry.kind != GidKind::RoceV2 {
            continue;
        }
        match standing(entry, addresses, ethernet) {
            Standing::Usable => usable.push(*entry),
            Standing::Tentative => waits = waits.or(Some(entry.gid)),
            Standing::NotThere => {}
        }
    }
    // Prefer the current entry, then the lowest index.
    usable.sort_by_key(|e| (current != Some(e.gid), e.index));
    if !ethernet {
        return infiniband(port, &usable, choice);
    }
    let found = match choice {
        GidChoice::Auto => {
            let v6 = || usable.iter().filter(|e| e.gid.ipv4().is_none());
            v6().find(|e| current == Some(e.gid))
                .or_else(|| v6().find(|e| is_link_local(&e.gid)))
                .or_else(|| v6().next())
        }
        GidChoice::Ipv4 => usable.iter().find(|e| e.gid.ipv4().is_some()),
        GidChoice::Address(ip) => usable.iter().find(|e| e.gid == Gid::from(ip)),
        GidChoice::Index(index) => {
            let seen = entries.iter().find(|e| e.index == index);
            let other_kind = |e: &GidEntry| e.gid != Gid::UNSPECIFIED && e.kind == GidKind::RoceV1;
            if seen.is_some_and(other_kind) {
                return Err(Unusable::Wrong(format!(
                    "GID {index} of {port} is for RoCE v1: choose a RoCE v2 GID; \
                     /sys/class/infiniband/*/ports/*/gid_attrs/types shows the types"
                )));
            }
            usable.iter().find(|e| e.index == index)
        }
    };
    found
        .copied()
        .ok_or_else(|| missing(port, choice, waits, &usable))
}

/// The missing condition on Ethernet, and how to fulfil it.
fn missing(port: &str, choice: GidChoice, waits: Option<Gid>, usable: &[GidEntry]) -> Unusable {
    let text = match (choice, waits) {
        (_, Some(gid)) => format!(
            "the address {gid} of {port} is tentative: waiting for duplicate address detection"
        ),
        (GidChoice::Auto, None) if usable.is_empty() => format!(
            "{port} has no RoCE v2 GID whose address is on its network interface: set the interface up \
             with an IPv6 link-local address"
        ),
        (GidChoice::Auto, None) => format!(
            "{port} has IPv4 GIDs only, but IPoIB uses IPv6 groups: add an IPv6 address to its network \
             interface"
        ),
        (GidChoice::Ipv4, None) => {
            format!(
                "{port} has no RoCE v2 GID for IPv4: add an IPv4 address to its network interface"
            )
        }
        (GidChoice::Address(ip), None) => format!(
            "{port} has no RoCE v2 GID {ip}: add this address to its network interface, or choose \
             another GID"
        ),
        (GidChoice::Index(index), None) => {
            format!(
                "GID {index} of {port} is empty, or its address is missing on the network interface"
            )
        }
    };
    Unusable::Waiting(text)
}

/// On InfiniBand, the subnet manager assigns GIDs, and index 0 is the port's own.
fn infiniband(port: &str, usable: &[GidEntry], choice: GidChoice) -> Result<GidEntry, Unusable> {
    let found = match choice {
        GidChoice::Auto => usable.iter().min_by_key(|e| e.index),
        GidChoice::Ipv4 => {
            return Err(Unusable::Wrong(format!(
                "{port} is an InfiniBand port: its GIDs are not IPv4 addresses"
            )));
        }
        GidChoice::Address(ip) => usable.iter().find(|e| e.gid == Gid::from(ip)),
        GidChoice::Index(index) => usable.iter().find(|e| e.index == index),
    };
    found.copied().ok_or_else(|| {
        Unusable::Waiting(format!(
            "{port} does not have the chosen GID; a subnet manager assigns GIDs"
        ))
    })
}

/// Whether a GID is usable as a source.
enum Standing {
    Usable,
    Tentative,
    NotThere,
}

/// The default GID exists even without its address on the interface. Packets from it have no route then
/// (kernel drivers/infiniband/core/cache.c, `make_default_gid`).
fn standing(entry: &GidEntry, addresses: &[Address], ethernet: bool) -> Standing {
    if !ethernet {
        return Standing::Usable;
    }
    let ip = entry.gid.to_ip();
    let own = |a: &&Address| a.ip == ip && entry.netdev.is_none_or(|i| i == a.ifindex);
    match addresses.iter().find(own) {
        Some(a) if a.usable => Standing::Usable,
        Some(_) => Standing::Tentative,
        None => Standing::NotThere,
    }
}

fn is_link_local(gid: &Gid) -> bool {
    Ipv6Addr::from(gid.0).is_unicast_link_local()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u32, gid: &str, kind: GidKind) -> GidEntry {
        GidEntry {
            index,
            gid: gid.parse().unwrap(),
            kind,
            netdev: Some(2),
        }
    }

    fn address(ip: &str, usable: bool) -> Address {
        Address {
            ifindex: 2,
            ip: ip.parse().unwrap(),
            usable,
        }
    }

    /// A NIC's table: each GID as RoCE v1 and as v2, the default GID first.
    fn table() -> Vec<GidEntry> {
        let gids = ["fe80::1", "192.0.2.1", "2001:db8::1"];
        let both = |(i, gid): (u32, &str)| {
            [
                entry(2 * i, gid, GidKind::RoceV1),
                entry(2 * i + 1, gid, GidKind::RoceV2),
            ]
        };
        let mut all: Vec<GidEntry> = (0..).zip(gids).flat_map(both).collect();
        all.push(entry(6, "::", GidKind::RoceV2));
        all
    }

    fn index(
        addresses: &[Address],
        choice: GidChoice,
        current: Option<&str>,
    ) -> Result<u32, Unusable> {
        let current = current.map(|g| g.parse().unwrap());
        choose("rxe0/1", &table(), addresses, true, choice, current).map(|e| e.index)
    }

    #[test]
    fn link_local_comes_first_then_any_ipv6() {
        let all = ["fe80::1", "192.0.2.1", "2001:db8::1"].map(|a| address(a, true));
        assert_eq!(index(&all, GidChoice::Auto, None), Ok(1));
        assert_eq!(index(&all, GidChoice::Ipv4, None), Ok(3));
        let global = "2001:db8::1".parse().unwrap();
        assert_eq!(index(&all, GidChoice::Address(global), None), Ok(5));
        assert_eq!(index(&all, GidChoice::Index(3), None), Ok(3));
        assert_eq!(index(&all, GidChoice::Auto, Some("2001:db8::1")), Ok(5));
        assert_eq!(index(&all, GidChoice::Auto, Some("192.0.2.1")), Ok(1));
        // The default GID without its address is not usable.
        assert_eq!(index(&all[1..], GidChoice::Auto, None), Ok(5));
        assert_eq!(
            index(&all[1..], GidChoice::Auto, Some("2001:db8::1")),
            Ok(5)
        );
    }

    #[test]
    fn the_text_names_the_missing_condition() {
        let check = |addresses: &[Address], choice, part: &str| match index(addresses, choice, None)
            .unwrap_err()
        {
            Unusable::Waiting(text) => assert!(text.contains(part), "{text}"),
            wrong => panic!("{wrong:?}"),
        };
        check(&[], GidChoice::Auto, "link-local");
        check(&[address("fe80::1", false)], GidChoice::Auto, "tentative");
        check(
            &[address("192.0.2.1", true)],
            GidChoice::Auto,
            "IPv4 GIDs only",
        );
        check(&[address("fe80::1", true)], GidChoice::Ipv4, "IPv4 address");
        check(&[address("fe80::1", true)], GidChoice::Index(6), "GID 6");
        let wrong = index(&[address("fe80::1", true)], GidChoice::Index(0), None);
        assert!(matches!(wrong, Err(Unusable::Wrong(text)) if text.contains("RoCE v1")));
    }

    #[test]
    fn an_address_of_another_interface_is_not_the_gids() {
        let other = Address {
            ifindex: 3,
            ..address("fe80::1", true)
        };
        assert!(index(&[other], GidChoice::Auto, None).is_err());
    }

    #[test]
    fn infiniband_takes_the_first_and_asks_no_interface() {
        let entries = [
            entry(0, "fe80::2:c903:0:1", GidKind::RoceV1),
            entry(1, "fe80::2:c903:0:9", GidKind::RoceV1),
        ];
        let pick = |choice| choose("mlx4_0/1", &entries, &[], false, choice, None);
        assert_eq!(pick(GidChoice::Auto).map(|e| e.index), Ok(0));
        assert_eq!(pick(GidChoice::Index(1)).map(|e| e.index), Ok(1));
        assert!(matches!(pick(GidChoice::Ipv4), Err(Unusable::Wrong(_))));
        assert!(matches!(
            pick(GidChoice::Index(2)),
            Err(Unusable::Waiting(_))
        ));
    }
}
