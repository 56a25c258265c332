//! Requests that wait for an answer: repetition and timeouts.

use std::collections::{BTreeMap, BTreeSet};

use proto::Time;

use super::agent::AgentKey;
use super::request::Request;
use crate::seam::Endpoint;

/// Maximum number of open requests: some 100 kB on the wire, which the receive queues of a port can hold.
pub(super) const WINDOW: usize = 64;
/// Maximum number of transmissions of a request.
const ATTEMPTS: u32 = 4;
/// Maximum milliseconds until the first repetition; doubled for each further one.
const TIMEOUT: u64 = 400;

#[derive(Debug)]
pub(super) struct Transactions {
    /// Upper half of each transaction id: managers on the same node use different ones.
    mark: u32,
    last: u32,
    timeout: u64,
    open: BTreeMap<u32, Open>,
    deadlines: BTreeSet<(Time, u32)>,
}

#[derive(Debug)]
struct Open {
    agent: AgentKey,
    to: Endpoint,
    request: Request,
    mad: Vec<u8>,
    sent: u32,
    deadline: Time,
}

/// Result of a timeout.
pub(super) enum Expired {
    /// The request is sent again.
    Again { to: Endpoint, mad: Vec<u8> },
    /// The request was sent often enough.
    GivenUp { agent: AgentKey, request: Request },
}

impl Transactions {
    /// Requests are given up within `interval` milliseconds.
    pub(super) fn new(mark: u32, interval: u64) -> Transactions {
        let mut transactions = Transactions {
            mark,
            last: 0,
            timeout: TIMEOUT,
            open: BTreeMap::new(),
            deadlines: BTreeSet::new(),
        };
        transactions.set_interval(interval);
        transactions
    }

    /// Changes the interval of [`Transactions::new`].
    pub(super) fn set_interval(&mut self, interval: u64) {
        self.timeout = (interval / 16).clamp(20, TIMEOUT);
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Agents with open requests.
    pub(super) fn agents(&self) -> impl Iterator<Item = AgentKey> + '_ {
        self.open.values().map(|open| open.agent)
    }

    pub(super) fn is_full(&self) -> bool {
        self.open.len() >= WINDOW
    }

    /// Opens a request. Returns its id and MAD.
    pub(super) fn begin(
        &mut self,
        now: Time,
        agent: AgentKey,
        to: Endpoint,
        request: Request,
    ) -> (u32, Vec<u8>) {
        self.last = self.last.wrapping_add(1);
        let id = self.last;
        let mad = request.encode(u64::from(self.mark) << 32 | u64::from(id));
        let deadline = now.after(self.timeout);
        self.deadlines.insert((deadline, id));
        let open = Open {
            agent,
            to,
            request,
            mad: mad.clone(),
            sent: 1,
            deadline,
        };
        self.open.insert(id, open);
        (id, mad)
    }

    /// Closes and returns the request of an answer; `None` if sender or contents do not match an open
    /// request.
    pub(super) fn answered(
        &mut self,
        from: Endpoint,
        header: &vnic::mad::Header,
    ) -> Option<(AgentKey, Request)> {
        let id = header.transaction_id.get();
        let low = (id >> 32 == u64::from(self.mark)).then_some(id as u32)?;
        let open = self.open.get(&low)?;
        let fits = open.to == from
            && header.attribute_id.get() == open.request.attribute()
            && header.modifier.get() == open.request.modifier();
        let open = fits.then(|| self.open.remove(&low)).flatten()?;
        self.deadlines.remove(&(open.deadline, low));
        Some((open.agent, open.request))
    }

    /// Cancels all Set requests. Returns their agents and requests.
    pub(super) fn cancel_sets(&mut self) -> Vec<(AgentKey, Request)> {
        let sets = self.open.iter().filter(|(_, open)| open.request.is_set());
        let sets: Vec<(u32, AgentKey)> = sets.map(|(id, open)| (*id, open.agent)).collect();
        let cancel = |(id, agent)| Some((agent, self.cancel(id)?));
        sets.into_iter().filter_map(cancel).collect()
    }

    /// Cancels a request whose answer is not needed any more.
    pub(super) fn cancel(&mut self, id: u32) -> Option<Request> {
        let open = self.open.remove(&id)?;
        self.deadlines.remove(&(open.deadline, id));
        Some(open.request)
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(time, _)| *time)
    }

    /// The next request whose timeout has expired.
    pub(super) fn expire(&mut self, now: Time) -> Option<Expired> {
        let (time, id) = *self.deadlines.first().filter(|(time, _)| *time <= now)?;
        self.deadlines.remove(&(time, id));
        let open = self.open.get_mut(&id)?;
        if open.sent >= ATTEMPTS {
            let open = self.open.remove(&id)?;
            return Some(Expired::GivenUp {
                agent: open.agent,
                request: open.request,
            });
        }
        open.deadline = now.after(self.timeout << open.sent);
        open.sent += 1;
        self.deadlines.insert((open.deadline, id));
        Some(Expired::Again {
            to: open.to,
            mad: open.mad.clone(),
        })
    }
}
