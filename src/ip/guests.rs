//! Hosts behind an interface: guests (bridged virtual machines, containers, macvlans) and the multicast
//! groups that they have joined; and the groups that the host routes. The kernel lists only the host's own
//! memberships. Those of guests are learned from passing reports (IGMP and MLD snooping, RFC 4541).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ipoib::{Snooper, Time};

/// Maximum number of groups for hosts behind one interface, and again for multicast routing.
const GROUPS_MAX: usize = 4096;
/// Maximum number of guests' IPv6 addresses whose solicited-node groups are joined.
const SOLICITED_MAX: usize = 8192;

/// The guests of one link and their groups, see the module.
pub struct Guests {
    /// Groups of hosts behind the interface.
    snooper: Snooper,
    /// Groups that other hosts on the fabric have reported, while the host routes multicast.
    seen: Snooper,
    /// Groups of the host's multicast routes.
    routed: BTreeSet<IpAddr>,
    /// IPv6 addresses of guests.
    addresses: BTreeSet<Ipv6Addr>,
    stacked: bool,
    /// A guest was learned.
    guests: bool,
    routing: bool,
}

impl Guests {
    /// Creates an empty table. `querier` is the source MAC of queries, which no host has.
    pub fn new(querier: [u8; 6]) -> Guests {
        Guests {
            snooper: Snooper::new(querier, GROUPS_MAX),
            seen: Snooper::new(querier, GROUPS_MAX),
            routed: BTreeSet::new(),
            addresses: BTreeSet::new(),
            stacked: false,
            guests: false,
            routing: false,
        }
    }

    /// Whether another interface is stacked on the interface.
    pub fn is_stacked(&self) -> bool {
        self.stacked
    }

    /// Whether the host routes multicast through the interface.
    pub fn is_routing(&self) -> bool {
        self.routing
    }

    /// Sets whether another interface is stacked on the interface. Queries are sent while one is, so that
    /// existing memberships are reported again.
    pub fn set_stacked(&mut self, now: Time, stacked: bool) {
        if self.stacked && !stacked {
            self.addresses.clear();
            self.guests = false;
        }
        self.stacked = stacked;
        self.update_querying(now);
    }

    /// Sets the host's multicast routes. True if they changed.
    pub fn set_routes(&mut self, routing: bool, groups: BTreeSet<IpAddr>) -> bool {
        let changed = self.routing != routing || self.routed != groups;
        self.routing = routing;
        self.routed = groups;
        changed
    }

    /// A host behind the interface reported a group; true if it is new.
    pub fn joined(&mut self, now: Time, group: IpAddr) -> bool {
        self.snooper.joined(now, group)
    }

    /// Whether a host behind the interface has reported the group.
    pub fn is_member(&self, group: IpAddr) -> bool {
        self.snooper.is_member(group)
    }

    /// Number of reported groups that did not fit; they are not received.
    pub fn turned_away(&self) -> u64 {
        self.snooper.refused()
    }

    /// A host behind the interface left a group. The group is removed soon, unless another host reports it.
    pub fn left(&mut self, now: Time, group: IpAddr) {
        if self.snooper.is_member(group) {
            self.snooper.left(now, group);
        }
    }

    /// A host on the fabric reported a group; true if it is new.
    pub fn seen(&mut self, now: Time, group: IpAddr) -> bool {
        self.routing && self.seen.joined(now, group)
    }

    /// A guest has an address; true if its solicited-node group is new. A `weak` address is known only as
    /// the source of data, and is not counted: the guest may be a router for any number of addresses.
    pub fn guest_learned(&mut self, now: Time, ip: IpAddr, weak: bool) -> bool {
        let new = match ip {
            IpAddr::V6(ip) if !weak && self.addresses.len() < SOLICITED_MAX => {
                self.addresses.insert(ip)
            }
            _ => false,
        };
        self.guests = true;
        self.update_querying(now);
        new
    }

    /// A guest no longer has an address; true if a solicited-node group may be left.
    pub fn guest_forgotten(&mut self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V6(ip) => self.addresses.remove(&ip),
            IpAddr::V4(_) => false,
        }
    }

    /// All groups to join.
    pub fn groups(&self) -> impl Iterator<Item = IpAddr> {
        let solicited = |ip: &Ipv6Addr| IpAddr::V6(ipoib::solicited_node(*ip));
        self.snooper
            .groups()
            .chain(self.seen.groups().filter(|_| self.routing))
            .chain(self.routed.iter().copied())
            .chain(self.addresses.iter().map(solicited))
    }

    /// Time until [`Guests::tick`] is due.
    pub fn wait(&self, now: Time) -> Option<Duration> {
        let snooper = self.snooper.next_deadline();
        let first = snooper.into_iter().chain(self.seen.next_deadline()).min()?;
        Some(Duration::from_millis(first.0.saturating_sub(now.0)))
    }

    /// Expires groups and sends due queries: true if groups expired. `write` writes frames to the TAP.
    pub fn tick(&mut self, now: Time, mut write: impl FnMut(&[u8])) -> bool {
        let gone = self.snooper.handle_timeout(now) | self.seen.handle_timeout(now);
        let mut frame = Vec::new();
        while self.snooper.poll_query(&mut frame) {
            write(&frame);
        }
        gone
    }

    fn update_querying(&mut self, now: Time) {
        self.snooper.set_querying(now, self.stacked || self.guests);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUERIER: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const GROUP: &str = "239.1.2.3";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn guests() -> Guests {
        Guests::new(QUERIER)
    }

    #[test]
    fn groups_without_room_are_counted_and_replace_no_others() {
        let mut b = guests();
        let group = |n: usize| IpAddr::V4(std::net::Ipv4Addr::from(0xef01_0000 + n as u32));
        for n in 0..GROUPS_MAX {
            assert!(b.joined(Time(0), group(n)));
        }
        assert_eq!(b.turned_away(), 0);
        assert!(!b.joined(Time(1), group(GROUPS_MAX)));
        assert_eq!((b.turned_away(), b.groups().count()), (1, GROUPS_MAX));
        assert!(b.is_member(group(0)));
    }

    fn groups(b: &Guests) -> BTreeSet<IpAddr> {
        b.groups().collect()
    }

    /// The frames written at `now`.
    fn frames(b: &mut Guests, now: u64) -> Vec<Vec<u8>> {
        let mut written = Vec::new();
        b.tick(Time(now), |frame| written.push(frame.to_vec()));
        written
    }

    #[test]
    fn queries_go_out_while_something_is_stacked() {
        let mut b = guests();
        assert!(frames(&mut b, 0).is_empty());
        assert_eq!(b.wait(Time(0)), None);
        b.set_stacked(Time(0), true);
        assert_eq!(b.wait(Time(0)), Some(Duration::ZERO));
        let queries = frames(&mut b, 0);
        let to: Vec<&[u8]> = queries.iter().map(|f| &f[..6]).collect();
        assert_eq!(to, [[1, 0, 0x5e, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1]]);
        assert!(queries.iter().all(|f| f[6..12] == QUERIER));
        b.set_stacked(Time(1), false);
        assert_eq!(b.wait(Time(1)), None);
    }

    #[test]
    fn a_guest_alone_is_asked_too() {
        let mut b = guests();
        b.guest_learned(Time(0), ip("10.0.0.9"), false);
        assert_eq!(frames(&mut b, 0).len(), 2);
    }

    #[test]
    fn c78_a_guests_solicited_node_group_needs_no_report() {
        let mut b = guests();
        let guest = ip("fd09::12:3456");
        assert!(b.guest_learned(Time(0), guest, false));
        assert!(!b.guest_learned(Time(0), guest, false));
        assert_eq!(groups(&b), BTreeSet::from([ip("ff02::1:ff12:3456")]));
        assert!(b.guest_forgotten(guest));
        assert!(groups(&b).is_empty());
    }

    #[test]
    fn what_a_guest_forwards_has_no_solicited_node_group() {
        let mut b = guests();
        assert!(!b.guest_learned(Time(0), ip("2001:db8::1"), true));
        assert!(groups(&b).is_empty());
    }

    #[test]
    fn two_addresses_of_one_solicited_node_group() {
        let mut b = guests();
        let (one, two) = (ip("fd09::1:12:3456"), ip("fe80::12:3456"));
        b.guest_learned(Time(0), one, false);
        b.guest_learned(Time(0), two, false);
        b.guest_forgotten(one);
        assert_eq!(groups(&b), BTreeSet::from([ip("ff02::1:ff12:3456")]));
    }

    #[test]
    fn a_group_expires_without_reports() {
        let mut b = guests();
        b.set_stacked(Time(0), true);
        assert!(b.joined(Time(0), ip(GROUP)));
        assert!(!b.joined(Time(1), ip(GROUP)));
        b.left(Time(1000), ip(GROUP));
        assert!(b.is_member(ip(GROUP)));
        assert!(b.tick(Time(10_000), |_| ()));
        assert!(!b.is_member(ip(GROUP)));
    }

    #[test]
    fn groups_of_others_count_while_the_host_routes_multicast() {
        let mut b = guests();
        assert!(!b.seen(Time(0), ip(GROUP)));
        let routed = ip("239.9.9.9");
        assert!(b.set_routes(true, BTreeSet::from([routed])));
        assert!(!b.set_routes(true, BTreeSet::from([routed])));
        assert!(b.seen(Time(0), ip(GROUP)));
        assert_eq!(groups(&b), BTreeSet::from([ip(GROUP), routed]));
        assert!(b.set_routes(false, BTreeSet::new()));
        assert!(groups(&b).is_empty());
    }
}
