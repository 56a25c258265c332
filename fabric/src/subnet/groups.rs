//! Memberships of the port in multicast groups.

mod leaving;
mod unanswered;

use std::collections::BTreeSet;

use proto::{Gid, Instant, PKey, QKey, mgid};

use super::paths::group_path;
use super::{Destination, Purpose, Subnet, SubnetEvent, SubnetPath, Unreachable};
use crate::group::{GroupParameters, Joined};
use crate::mad::sa::{JoinState, McMemberRecord, mc_member, status};
use crate::sa::{Failure, GroupJoin, Request, Response, TransactionId};

pub(super) use leaving::Doubtful;
pub(super) use unanswered::Unanswered;

#[cfg(test)]
pub(super) use leaving::SENDER_IDLE;

/// Maximum number of groups that the port is a member of only to send. At the maximum, further groups are
/// not reached.
const SENDERS_MAX: usize = 4096;

/// The state of a membership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The join waits for the broadcast group, whose parameters it needs, or for the abilities of the subnet
    /// administrator.
    Waiting,
    /// The subnet administrator has not answered the request with this JoinState yet.
    Asked(TransactionId, Attempt),
    /// The port is a member, since this time.
    Member(Instant),
    /// The port may be no member any more; the next join asks again.
    Lost,
    /// The port may be no member any more, and this join got no answer; see [`Unanswered`].
    Unanswered(Attempt),
}

/// Why a group of IP cannot be joined.
const NO_BROADCAST_GROUP: &str = "the port is no member of the broadcast group";

/// A kind of join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    /// Of a group that exists.
    Join,
    /// Of a group that may not exist, as full member.
    Create,
    /// None: another user of the port has joined. Only the parameters are needed.
    Adopt,
    /// As a sender; see [`Subnet::senders`].
    Send(JoinState),
}

/// A membership of the port, or a request for one.
#[derive(Debug)]
pub(super) struct Membership {
    pkey: PKey,
    qkey: QKey,
    /// Endpoints receive the group's packets; otherwise the port only sends.
    receives: bool,
    /// Packets wait for the path to the group.
    sends: bool,
    state: State,
    /// The last answer.
    record: Option<McMemberRecord>,
    /// When a packet needed the path to the group last.
    used: Instant,
    /// The bits of JoinState that the port has by its own requests. Others on the port may have more.
    held: u8,
}

/// A membership, for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupMembership {
    /// The subnet administrator's record.
    pub record: McMemberRecord,
    /// The port only sends to the group.
    pub send_only: bool,
}

impl Membership {
    /// No membership yet.
    const fn new(now: Instant, pkey: PKey, qkey: QKey, receives: bool) -> Membership {
        Membership {
            // Workers name destinations by full P_Keys.
            pkey: pkey.full(),
            qkey,
            receives,
            sends: false,
            state: State::Lost,
            record: None,
            used: now,
            held: 0,
        }
    }

    /// The subnet administrator may have forgotten the membership.
    pub fn lose(&mut self) {
        if self.is_member() {
            self.state = State::Lost;
        }
    }

    const fn is_member(&self) -> bool {
        matches!(self.state, State::Member(_))
    }

    /// The membership for display, if the port is or was a member.
    fn shown(&self) -> Option<GroupMembership> {
        Some(GroupMembership {
            record: self.record?,
            send_only: !self.receives,
        })
    }

    /// The parameters of the group, if the port is or was a member.
    pub fn parameters(&self) -> Option<GroupParameters> {
        self.record.as_ref().and_then(parameters)
    }
}

/// The broadcast group on which a group of IP depends (RFC 4391, section 10); `None` for the broadcast
/// group itself and for groups of other protocols.
fn parent_of(group: Gid) -> Option<Gid> {
    mgid::broadcast_of(group).filter(|broadcast| *broadcast != group)
}

fn parameters(record: &McMemberRecord) -> Option<GroupParameters> {
    Some(GroupParameters {
        mlid: Some(record.mlid),
        qkey: record.qkey,
        mtu: Some(record.mtu.mtu()?.bytes()),
        sl: record.sl,
        rate: record.rate.code,
        traffic_class: record.tclass,
        flow_label: record.flow_label,
        hop_limit: record.hop_limit,
    })
}

impl Subnet {
    /// Joins a group for endpoints with these keys. [`Joined::Pending`] precedes a [`SubnetEvent::Group`].
    pub fn join(&mut self, now: Instant, mgid: Gid, pkey: PKey, qkey: QKey) -> Joined {
        let wanted = Membership::new(now, pkey, qkey, true);
        let membership = self.groups.entry(mgid).or_insert(wanted);
        let was_receiver = std::mem::replace(&mut membership.receives, true);
        if !was_receiver {
            // The receiver may create the group.
            membership.qkey = qkey;
        }
        match (membership.state, &membership.record) {
            (State::Member(_), Some(record)) if was_receiver => match parameters(record) {
                Some(parameters) => Joined::Now(parameters),
                None => Joined::Refused("the group has an invalid MTU".into()),
            },
            (State::Asked(_, Attempt::Join | Attempt::Create | Attempt::Adopt), _) => {
                Joined::Pending
            }
            (state, _) => {
                let asked = self.withdraw(now, state);
                if let Some(membership) = self.groups.get_mut(&mgid) {
                    membership.held |= asked;
                }
                self.request(now, mgid, Attempt::Join)
            }
        }
    }

    /// Takes over a membership that the kernel has requested for this program, and asks for the group's
    /// parameters. A [`SubnetEvent::Group`] follows. [`Subnet::leave`] sends no request for it.
    pub fn adopt(&mut self, now: Instant, mgid: Gid, pkey: PKey, qkey: QKey) {
        let mut adopted = Membership::new(now, pkey, qkey, true);
        if let Some(former) = self.groups.remove(&mgid) {
            adopted.sends = former.sends;
            adopted.record = former.record;
            adopted.held = former.held | self.withdraw(now, former.state);
        }
        self.groups.insert(mgid, adopted);
        self.request_and_answer(now, mgid, Attempt::Adopt);
    }

    /// Cancels the open request for a membership in this state. Returns its bits of JoinState: it may have reached the
    /// subnet administrator.
    fn withdraw(&mut self, now: Instant, state: State) -> u8 {
        let State::Asked(id, attempt) = state else {
            return 0;
        };
        self.requests.remove(&id);
        self.client.cancel(now, id);
        attempt.join_state().0
    }

    /// Sends the open requests for memberships anew: an answer on its way is from before the loss.
    pub(super) fn ask_again(&mut self, now: Instant) {
        let groups = self.groups.iter();
        let states = groups.map(|(mgid, membership)| (*mgid, membership.state));
        for (mgid, state) in states.collect::<Vec<_>>() {
            if let State::Asked(_, attempt) = state {
                self.withdraw(now, state);
                self.set_state(mgid, State::Lost);
                self.request_and_answer(now, mgid, attempt);
            }
        }
    }

    /// Sends a request for a membership, or waits for the broadcast group.
    fn request(&mut self, now: Instant, mgid: Gid, attempt: Attempt) -> Joined {
        let Some(membership) = self.groups.get(&mgid) else {
            return Joined::Refused("the group was left".into());
        };
        let (pkey, qkey) = (membership.pkey, membership.qkey);
        let parent = parent_of(mgid).filter(|_| attempt != Attempt::Adopt);
        let broadcast = parent.map(|parent| self.groups.get(&parent));
        let template = match broadcast {
            None => None,
            Some(Some(broadcast)) if broadcast.is_member() => broadcast.record,
            Some(Some(_)) => {
                self.set_state(mgid, State::Waiting);
                return Joined::Pending;
            }
            Some(None) => return self.failed(mgid, NO_BROADCAST_GROUP.into()),
        };
        let attempt = match (attempt, template) {
            // The broadcast group exists, or its partition has no IPoIB. Groups below it may not exist.
            (Attempt::Join, Some(_)) => Attempt::Create,
            (Attempt::Send(state), _) => match self.has_send_only_full_member(now) {
                None => {
                    self.set_state(mgid, State::Waiting);
                    return Joined::Pending;
                }
                Some(false) if state == JoinState::SEND_ONLY_FULL_MEMBER => {
                    self.next_sender(state).map_or(attempt, Attempt::Send)
                }
                Some(_) => attempt,
            },
            (attempt, _) => attempt,
        };
        let state = attempt.join_state();
        let request = match attempt {
            Attempt::Adopt => Request::group(mgid),
            Attempt::Join => Request::join(mgid, self.port.gid, pkey, state),
            // Without the parameters of a broadcast group, the port does not know the Q_Key of the group.
            Attempt::Send(_) if template.is_none() => {
                Request::join(mgid, self.port.gid, pkey, state)
            }
            Attempt::Create | Attempt::Send(_) => {
                let parameters = template.unwrap_or(McMemberRecord {
                    qkey,
                    ..McMemberRecord::default()
                });
                let mut request = Request::join_or_create(&GroupJoin {
                    mgid,
                    port_gid: self.port.gid,
                    pkey,
                    join_state: state,
                    qkey: parameters.qkey,
                    mtu: parameters.mtu.mtu().unwrap_or(self.port.mtu),
                    rate: parameters.rate.rate(),
                    tclass: parameters.tclass,
                    sl: parameters.sl,
                    flow_label: parameters.flow_label,
                    hop_limit: parameters.hop_limit,
                });
                if template.is_none() {
                    // The subnet administrator chooses MTU and rate.
                    request.mask &= !(mc_member::MTU | mc_member::RATE);
                }
                request
            }
        };
        let left = self.withdraw_leaves(now, mgid, attempt);
        if let Some(membership) = self.groups.get_mut(&mgid) {
            membership.held |= left;
        }
        let Some(id) = self.ask(now, request, Purpose::Join(mgid)) else {
            let why = "too many requests to the subnet administrator wait";
            return self.failed(mgid, why.into());
        };
        self.set_state(mgid, State::Asked(id, attempt));
        Joined::Pending
    }

    /// The first attempt to join a group, as a receiver or as a sender only.
    fn first_attempt(&self, receives: bool) -> Attempt {
        match receives {
            true => Attempt::Join,
            false => Attempt::Send(self.senders()[0]),
        }
    }

    /// The memberships of a sender, in the order of the attempts: full member that only sends, which not every
    /// subnet administrator has; non-member that only sends, for which the group must exist; full member to
    /// which no queue pair is attached. The kernel's IPoIB never requests the second, so beside its interface
    /// the second comes first.
    fn senders(&self) -> [JoinState; 3] {
        let (full, non) = (
            JoinState::SEND_ONLY_FULL_MEMBER,
            JoinState::SEND_ONLY_NON_MEMBER,
        );
        match self.port.kernel_pkeys.is_empty() {
            true => [full, non, JoinState::FULL],
            false => [non, full, JoinState::FULL],
        }
    }

    /// The membership of a sender to request after the subnet administrator has refused this one.
    fn next_sender(&self, refused: JoinState) -> Option<JoinState> {
        let mut senders = self.senders().into_iter();
        senders.find(|state| *state == refused)?;
        senders.next()
    }

    /// The next kind of join after the subnet administrator has refused this one.
    fn next_attempt(&self, refused: Attempt, mgid: Gid, receives: bool) -> Option<Attempt> {
        match refused {
            // Nobody but the subnet manager creates broadcast groups.
            Attempt::Join if mgid::broadcast_of(mgid) == Some(mgid) => None,
            Attempt::Join => Some(Attempt::Create),
            Attempt::Create | Attempt::Adopt => None,
            Attempt::Send(_) if receives => Some(Attempt::Join),
            Attempt::Send(state) => self.next_sender(state).map(Attempt::Send),
        }
    }

    /// As [`Self::request`]; an immediate answer is reported as a late one.
    fn request_and_answer(&mut self, now: Instant, mgid: Gid, attempt: Attempt) {
        let receives = self.groups.get(&mgid).is_some_and(|m| m.receives);
        let joined = self.request(now, mgid, attempt);
        self.answer(now, mgid, receives, joined);
    }

    /// Reports the path to a group, or why there is none.
    fn report_path(&mut self, gid: Gid, pkey: PKey, path: Result<SubnetPath, Unreachable>) {
        let destination = Destination { gid, pkey };
        let event = SubnetEvent::Path { destination, path };
        self.events.push_back(event);
    }

    fn set_state(&mut self, mgid: Gid, state: State) {
        if let Some(membership) = self.groups.get_mut(&mgid) {
            membership.state = state;
        }
    }

    /// A join failed: the membership is forgotten.
    fn failed(&mut self, mgid: Gid, why: String) -> Joined {
        self.forget(mgid, &why);
        Joined::Refused(why)
    }

    /// Forgets a membership. Packets that wait for the path to the group are dropped, and workers forget the path:
    /// the port is no member any more, and the next membership may have another MLID.
    fn forget(&mut self, mgid: Gid, why: &str) -> Option<Membership> {
        let membership = self.groups.remove(&mgid)?;
        if membership.sends || membership.record.is_some() {
            let path = Err(Unreachable::Refused(why.to_owned()));
            self.report_path(mgid, membership.pkey, path);
        }
        Some(membership)
    }

    pub(super) fn join_answered(
        &mut self,
        now: Instant,
        mgid: Gid,
        result: Result<Response, Failure>,
    ) {
        let Some(Membership {
            state: State::Asked(_, attempt),
            receives,
            ..
        }) = self.groups.get(&mgid)
        else {
            return;
        };
        let (attempt, receives) = (*attempt, *receives);
        let joined = match result {
            Ok(response) => match response.first().ok_or("without an MCMemberRecord".into()) {
                Ok(record) => self.member(now, mgid, attempt, &record),
                Err(why) => self.failed(mgid, unusable(why)),
            },
            Err(Failure::Status(status::REQ_INVALID | status::INSUF_COMPS)) => {
                match self.next_attempt(attempt, mgid, receives) {
                    Some(next) => self.request(now, mgid, next),
                    None => self.refused(mgid, attempt),
                }
            }
            Err(why) if why.is_undecided() => self.unanswered(now, mgid, attempt, why),
            Err(why) => self.failed(mgid, why.to_string()),
        };
        self.answer(now, mgid, receives, joined);
    }

    /// Reports an answer, and answers the joins that have waited for it.
    fn answer(&mut self, now: Instant, mgid: Gid, receives: bool, joined: Joined) {
        if joined == Joined::Pending {
            return;
        }
        let is_member = matches!(joined, Joined::Now(_));
        if receives {
            self.events.push_back(SubnetEvent::Group { mgid, joined });
        }
        self.answer_waiting(now, mgid, is_member);
    }

    /// Answers the joins that wait for the broadcast group.
    fn answer_waiting(&mut self, now: Instant, broadcast: Gid, is_member: bool) {
        if mgid::broadcast_of(broadcast) != Some(broadcast) {
            return;
        }
        let waiting = self.groups.iter().filter(|(group, membership)| {
            membership.state == State::Waiting && parent_of(**group) == Some(broadcast)
        });
        let waiting: Vec<(Gid, bool)> = waiting.map(|(group, m)| (*group, m.receives)).collect();
        for (group, receives) in waiting {
            if is_member {
                self.request_and_answer(now, group, self.first_attempt(receives));
            } else {
                let joined = self.failed(group, NO_BROADCAST_GROUP.into());
                self.answer(now, group, receives, joined);
            }
        }
    }

    fn refused(&mut self, mgid: Gid, attempt: Attempt) -> Joined {
        let mtu = self.port.mtu.bytes();
        let why = match attempt {
            Attempt::Join => format!(
                "the subnet administrator refused the request: the group does not exist, its MTU is above \
                 the port's {mtu}, or the port is not in its partition"
            ),
            Attempt::Create | Attempt::Adopt | Attempt::Send(_) => {
                Failure::Status(status::REQ_INVALID).to_string()
            }
        };
        self.failed(mgid, why)
    }

    /// The subnet administrator's record of a membership.
    fn member(
        &mut self,
        now: Instant,
        mgid: Gid,
        attempt: Attempt,
        record: &McMemberRecord,
    ) -> Joined {
        let mtu = record.mtu.mtu();
        let why = if record.mgid != mgid {
            Some(format!("for the group {}", record.mgid))
        } else if !record.mlid.is_multicast() {
            Some(format!(
                "with the LID {:#06x}, which is not multicast",
                record.mlid.0
            ))
        } else if mtu.is_none_or(|mtu| mtu > self.port.mtu) {
            let of_port = self.port.mtu.bytes();
            let of_group = mtu.map_or(0, |mtu| mtu.bytes());
            Some(format!("with the MTU {of_group}; the port's is {of_port}"))
        } else {
            None
        };
        if let Some(why) = why {
            return self.failed(mgid, unusable(why));
        }
        let (Some(parameters), Some(path)) = (parameters(record), group_path(record)) else {
            return self.failed(mgid, unusable("with an invalid MTU".into()));
        };
        let Some(membership) = self.groups.get_mut(&mgid) else {
            return Joined::Refused("the group was left".into());
        };
        membership.state = State::Member(now);
        self.unanswered.answered();
        let known = match attempt {
            // The kernel is the full member. The answer has no JoinState, as the question has no SM_Key.
            Attempt::Adopt => !JoinState::FULL.0,
            _ => record.join_state.0,
        };
        membership.held = known & (membership.held | attempt.join_state().0);
        let before = membership.record.replace(*record);
        let pkey = membership.pkey;
        let waits = std::mem::take(&mut membership.sends);
        let other = before.is_some_and(|before| group_path(&before) != Some(path));
        if waits {
            self.report_path(mgid, pkey, Ok(path));
        } else if other {
            // The worker asks again.
            let why = "the group has other parameters".to_owned();
            self.report_path(mgid, pkey, Err(Unreachable::Refused(why)));
        }
        // Groups of IP have the parameters of their broadcast group.
        if other && parent_of(mgid).is_none() {
            self.rejoin_below(now, mgid);
        }
        Joined::Now(parameters)
    }

    /// Joins the groups again that depend on a broadcast group.
    fn rejoin_below(&mut self, now: Instant, broadcast: Gid) {
        let below = self.groups.iter().filter(|(group, membership)| {
            membership.is_member() && parent_of(**group) == Some(broadcast)
        });
        let below: Vec<Gid> = below.map(|(group, _)| *group).collect();
        for group in below {
            self.rejoin(now, group);
        }
    }

    /// Joins a group again whose membership or parameters may have changed.
    pub(super) fn rejoin(&mut self, now: Instant, mgid: Gid) {
        let Some(membership) = self.groups.get(&mgid) else {
            return;
        };
        let first = self.first_attempt(membership.receives);
        self.request_and_answer(now, mgid, first);
    }

    /// A group was created or deleted. A member joins it again: the group may have another MLID now, and a
    /// deleted group has no members.
    pub(super) fn group_changed(&mut self, now: Instant, mgid: Gid) {
        if self.groups.get(&mgid).is_some_and(Membership::is_member) {
            self.rejoin(now, mgid);
        }
    }

    pub(super) fn resolve_group(
        &mut self,
        now: Instant,
        destination: Destination,
    ) -> Option<Result<SubnetPath, Unreachable>> {
        let mgid = destination.gid;
        let refused = |why: String| Some(Err(Unreachable::Refused(why)));
        if let Some(membership) = self.groups.get_mut(&mgid) {
            membership.used = now;
            let path = membership.record.as_ref().and_then(group_path);
            return match (membership.state, path) {
                (State::Member(_), Some(path)) => Some(Ok(path)),
                (State::Lost | State::Unanswered(_), _) if !membership.receives => {
                    membership.sends = true;
                    self.rejoin(now, mgid);
                    None
                }
                // The group is joined again.
                (State::Lost | State::Unanswered(_) | State::Waiting, Some(path))
                    if membership.receives =>
                {
                    Some(Ok(path))
                }
                _ => {
                    membership.sends = true;
                    None
                }
            };
        }
        // As in the kernel, an interface joins its broadcast group, and packets do not.
        if mgid::broadcast_of(mgid) == Some(mgid) {
            return refused(NO_BROADCAST_GROUP.into());
        }
        let senders = self.groups.values().filter(|m| !m.receives).count();
        if senders >= SENDERS_MAX {
            return refused(format!("the port sends to {SENDERS_MAX} groups already"));
        }
        let sender = Membership::new(now, destination.pkey, QKey::new(0), false);
        self.groups.insert(mgid, sender);
        if let Joined::Refused(why) = self.request(now, mgid, self.first_attempt(false)) {
            return refused(why);
        }
        if let Some(membership) = self.groups.get_mut(&mgid) {
            membership.sends = true;
        }
        None
    }

    /// Whether the port is a member of any group.
    pub(super) fn has_memberships(&self) -> bool {
        self.groups.values().any(Membership::is_member)
    }

    /// Compares the memberships that the subnet administrator knows with those from before the question. JoinStates
    /// are not compared: they are zero in answers to requests without SM_Key (opensm/osm_sa_mcmember_record.c).
    pub(super) fn check_answered(&mut self, asked: Instant, result: Result<Response, Failure>) {
        let known: BTreeSet<Gid> = match result {
            // Missing records say nothing about memberships.
            Ok(response) if response.truncated => return,
            Ok(response) => response.all().map(|r: McMemberRecord| r.mgid).collect(),
            Err(Failure::Status(status::NO_RECORDS)) => BTreeSet::new(),
            Err(_) => return,
        };
        let mut any = false;
        for (mgid, membership) in &mut self.groups {
            let was_member = matches!(membership.state, State::Member(since) if since <= asked);
            if was_member && !known.contains(mgid) {
                membership.lose();
                any = true;
            }
        }
        if any {
            self.events.push_back(SubnetEvent::Forgotten);
        }
    }

    /// The groups whose joins wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = Gid> {
        let groups = self.groups.iter();
        let waiting = groups.filter(|(_, m)| m.state == State::Waiting);
        waiting.map(|(mgid, _)| *mgid)
    }

    /// The memberships, for display.
    pub fn memberships(&self) -> impl Iterator<Item = GroupMembership> {
        self.groups.values().filter_map(Membership::shown)
    }

    /// The membership in one group, for display.
    pub fn membership(&self, mgid: Gid) -> Option<GroupMembership> {
        self.groups.get(&mgid)?.shown()
    }
}

impl Attempt {
    const fn join_state(self) -> JoinState {
        match self {
            Attempt::Adopt => JoinState::NONE,
            Attempt::Send(state) => state,
            Attempt::Join | Attempt::Create => JoinState::FULL,
        }
    }
}

fn unusable(why: String) -> String {
    format!("the subnet administrator answered {why}")
}
