//! A port on an InfiniBand subnet, sans-IO: multicast groups that the port is a member of, and paths to
//! destinations, as agreed on with the subnet administrator (IBA vol. 1, chapter 15).
//!
//! [`Subnet`] belongs to one port. Its owner passes received datagrams of subnet administration in, sends
//! the datagrams of [`Subnet::poll_transmit`], and handles the events of [`Subnet::poll_event`]. The owner
//! repeats refused joins. [`Subnet`] repeats requests without an answer a few times, and joins of groups that the port
//! was a member of until there is an answer.

mod abilities;
mod groups;
mod path;
mod paths;
mod requests;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use proto::backoff::Backoff;
use proto::{Gid, IbMtu, Instant, PKey, mgid};

use crate::administration::Place;
use crate::group::Joined;
use crate::mad::MAD_LEN;
use crate::mad::sa::{JoinState, Notice, trap};
use crate::sa::{Client, ClientConfig, Counts, Event, Failure, Request, Response, TransactionId};
use abilities::SendOnlyFullMember;
use groups::{Doubtful, Membership, Unanswered};
use paths::Paths;

pub use groups::GroupMembership;
pub use path::{Destination, GlobalRoute, SubnetPath, Unreachable};
pub use requests::{GROUP_REQUESTS, GroupRequests};

/// Time until a request is repeated for the first time. A busy subnet administrator answers hundreds of
/// nodes at once.
const FIRST_TIMEOUT: Duration = Duration::from_millis(800);

/// Number of times that a request is sent.
const TRIES: u32 = 3;

/// Maximum number of unanswered requests.
const IN_FLIGHT_MAX: usize = 16;

/// Maximum number of requests that wait.
const QUEUE_MAX: usize = 1 << 14;

/// Time until a failed subscription is repeated: at first, and at most.
const FIRST_SUBSCRIPTION: Duration = Duration::from_secs(4);
const LONGEST_SUBSCRIPTION: Duration = Duration::from_secs(300);

/// The traps whose Reports a port needs.
const TRAPS: [u16; 4] = [
    trap::GID_IN_SERVICE,
    trap::GID_OUT_OF_SERVICE,
    trap::GROUP_CREATED,
    trap::GROUP_DELETED,
];

/// Attributes of the port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalPort {
    /// The port's GID.
    pub gid: Gid,
    /// The port's MTU.
    pub mtu: IbMtu,
    /// The partitions, as full P_Keys, in which the kernel's IPoIB has interfaces on the port.
    pub kernel_pkeys: Vec<PKey>,
}

impl LocalPort {
    /// Whether the kernel's IPoIB may be a member of a group with this P_Key: a leave would end its membership, too.
    fn is_shared(&self, mgid: Gid, pkey: PKey) -> bool {
        // The kernel joins only groups of IP.
        self.kernel_pkeys.contains(&pkey) && mgid::broadcast_of(mgid).is_some()
    }
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SubnetEvent {
    /// The answer to a join, other parameters of a joined group, or its loss; never [`Joined::Pending`].
    Group {
        /// The group.
        mgid: Gid,
        /// The answer.
        joined: Joined,
    },
    /// The answer to [`Subnet::resolve`]; an error for a destination that was resolved before says that
    /// the path is gone.
    Path {
        /// The destination.
        destination: Destination,
        /// The path.
        path: Result<SubnetPath, Unreachable>,
    },
    /// The answer to [`Subnet::check`]: the subnet administrator has forgotten memberships of the port. The next join of
    /// each of these groups asks again; the port has its other memberships still, and ends them when it leaves.
    Forgotten,
}

/// The path to a destination, or why there is none.
pub type PathAnswer = (Destination, Result<SubnetPath, Unreachable>);

/// The subnet of a port, for display.
#[derive(Clone, Copy, Debug)]
pub struct SubnetInfo<'p> {
    /// The place of the subnet administrator; `None` while there is none.
    pub administrator: Option<Place>,
    /// Memberships, paths and counters.
    pub subnet: &'p Subnet,
}

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// Join the group.
    Join(Gid),
    /// Leave the group: end the memberships of these bits.
    Leave(Gid, JoinState),
    /// Resolve the destination.
    Path(Destination),
    /// Subscribe to the trap.
    Subscribe(u16),
    /// Ask for the memberships of the port, at this time.
    Check(Instant),
    /// Ask for the abilities of the subnet administrator.
    Abilities,
}

/// A port on a subnet, see the module.
#[derive(Debug)]
pub struct Subnet {
    client: Client,
    port: LocalPort,
    requests: HashMap<TransactionId, Purpose>,
    send_only_full_member: SendOnlyFullMember,
    groups: BTreeMap<Gid, Membership>,
    unanswered: Unanswered,
    doubtful: BTreeMap<Gid, Doubtful>,
    paths: Paths,
    /// Traps whose subscriptions have failed.
    unsubscribed: BTreeSet<u16>,
    /// When failed subscriptions are repeated.
    subscription: Backoff,
    events: VecDeque<SubnetEvent>,
}

impl Subnet {
    /// A port without memberships. `own_rmpp`: the carrier of datagrams does not reassemble tables.
    pub fn new(port: LocalPort, seed: [u64; 2], own_rmpp: bool) -> Subnet {
        Subnet {
            client: Client::new(ClientConfig {
                seed,
                own_rmpp,
                first_timeout: FIRST_TIMEOUT,
                tries: TRIES,
                in_flight_max: IN_FLIGHT_MAX,
                queue_max: QUEUE_MAX,
            }),
            port,
            requests: HashMap::new(),
            send_only_full_member: SendOnlyFullMember::Unknown,
            groups: BTreeMap::new(),
            unanswered: Unanswered::new(),
            doubtful: BTreeMap::new(),
            paths: Paths::default(),
            unsubscribed: BTreeSet::new(),
            subscription: Backoff::new(FIRST_SUBSCRIPTION, LONGEST_SUBSCRIPTION),
            events: VecDeque::new(),
        }
    }

    /// The attributes of the port.
    pub const fn port(&self) -> &LocalPort {
        &self.port
    }

    /// Sets the attributes of the port. With another GID, memberships and paths are those of another port:
    /// all are forgotten, and open joins are not answered. The owner joins all these groups again.
    pub fn set_port(&mut self, now: Instant, port: LocalPort) {
        if port.gid != self.port.gid {
            for id in std::mem::take(&mut self.requests).into_keys() {
                self.client.cancel(now, id);
            }
            self.send_only_full_member = SendOnlyFullMember::Unknown;
            self.groups.clear();
            self.unanswered = Unanswered::new();
            self.doubtful.clear();
            self.paths = Paths::default();
        }
        self.port = port;
    }

    /// Subscribes to the Reports of the subnet administrator, and repeats failed subscriptions. Without Reports,
    /// the loss of a group is not noticed before the next join.
    pub fn subscribe(&mut self, now: Instant) {
        self.subscription.succeeded();
        self.subscribe_to(now, TRAPS.into());
    }

    fn subscribe_to(&mut self, now: Instant, traps: BTreeSet<u16>) {
        self.unsubscribed.retain(|trap| !traps.contains(trap));
        for trap in traps {
            let asked = self.ask(now, Request::subscribe(trap), Purpose::Subscribe(trap));
            if asked.is_none() {
                self.not_subscribed(now, trap);
            }
        }
    }

    /// A subscription has failed. Those that fail at about the same time are repeated together.
    fn not_subscribed(&mut self, now: Instant, trap: u16) {
        if self.unsubscribed.is_empty() {
            self.subscription.failed(now);
        }
        self.unsubscribed.insert(trap);
    }

    /// When failed subscriptions are repeated.
    fn subscription_due(&self) -> Option<Instant> {
        (!self.unsubscribed.is_empty()).then(|| self.subscription.due())
    }

    /// Asks which groups the port is a member of. [`SubnetEvent::Forgotten`] follows if one is missing: no
    /// other event follows if the subnet administrator has lost its memory, or if another program has ended
    /// a membership of the port.
    pub fn check(&mut self, now: Instant) {
        let is_open = self
            .requests
            .values()
            .any(|p| matches!(p, Purpose::Check(_)));
        if !is_open && self.has_memberships() {
            self.ask(
                now,
                Request::memberships(self.port.gid),
                Purpose::Check(now),
            );
        }
    }

    /// The subnet manager or the port's LID changed: open requests are sent again, paths are resolved again
    /// when they are used. `lost`: the subnet administrator has no membership of the port any more, so the
    /// next join of each group asks again.
    pub fn changed(&mut self, now: Instant, lost: bool) {
        self.client.renew(now);
        self.forget_abilities();
        self.paths.age_all();
        if lost {
            self.groups.values_mut().for_each(Membership::lose);
            self.ask_again(now);
        }
    }

    fn ask(&mut self, now: Instant, request: Request, purpose: Purpose) -> Option<TransactionId> {
        let id = self.client.ask(now, request).ok()?;
        self.requests.insert(id, purpose);
        Some(id)
    }

    /// How long a carrier delivers answers to a datagram of [`Subnet::poll_transmit`]: see
    /// [`Client::patience`].
    pub fn patience(&self, mad: &[u8; MAD_LEN]) -> Duration {
        self.client.patience(mad)
    }

    /// Handles a received datagram of subnet administration.
    pub fn receive(&mut self, now: Instant, mad: &[u8]) {
        self.client.receive(now, mad);
        self.take_answers(now);
    }

    /// The time of the next [`Subnet::handle_timeout`].
    pub fn next_deadline(&self) -> Option<Instant> {
        let subscription = self.subscription_due();
        self.client
            .next_deadline()
            .into_iter()
            .chain(subscription)
            .chain(self.unanswered.due())
            .min()
    }

    /// Whether no request is open.
    pub fn is_idle(&self) -> bool {
        self.client.open() == 0
    }

    /// Counters of the requests, for display.
    pub const fn counts(&self) -> &Counts {
        self.client.counts()
    }

    /// Handles timeouts, and leaves groups to which nothing is sent any more. Call it about once a minute even
    /// without a deadline.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.leave_idle(now);
        if self.subscription_due().is_some_and(|at| at <= now) {
            let traps = std::mem::take(&mut self.unsubscribed);
            self.subscribe_to(now, traps);
        }
        self.repeat_joins(now);
        self.client.handle_timeout(now);
        self.take_answers(now);
    }

    /// The next datagram to send to the subnet administrator.
    pub fn poll_transmit(&mut self) -> Option<[u8; MAD_LEN]> {
        self.client.poll_transmit()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<SubnetEvent> {
        self.events.pop_front()
    }

    fn take_answers(&mut self, now: Instant) {
        while let Some(event) = self.client.poll_event() {
            match event {
                Event::Answered { id, result } => {
                    if let Some(purpose) = self.requests.remove(&id) {
                        self.answered(now, purpose, result);
                    }
                }
                Event::Reported(notice) => self.reported(now, &notice),
            }
        }
    }

    fn answered(&mut self, now: Instant, purpose: Purpose, result: Result<Response, Failure>) {
        match purpose {
            Purpose::Join(mgid) => self.join_answered(now, mgid, result),
            Purpose::Path(destination) => self.path_answered(now, destination, result),
            Purpose::Check(asked) => self.check_answered(asked, result),
            Purpose::Abilities => self.abilities_answered(now, result),
            Purpose::Leave(mgid, state) => {
                if let Err(why) = result {
                    self.leave_refused(now, mgid, state, why);
                }
            }
            Purpose::Subscribe(trap) => {
                if let Err(why) = result {
                    log::debug!("the subnet administrator sends no Reports of trap {trap}: {why}");
                    self.not_subscribed(now, trap);
                }
            }
        }
    }

    /// Follows a Report.
    fn reported(&mut self, now: Instant, notice: &Notice) {
        let Some(gid) = notice.gid() else {
            return;
        };
        match notice.trap {
            trap::GID_IN_SERVICE | trap::GID_OUT_OF_SERVICE => self.port_changed(gid),
            trap::GROUP_CREATED | trap::GROUP_DELETED => self.group_changed(now, gid),
            _ => {}
        }
    }
}
