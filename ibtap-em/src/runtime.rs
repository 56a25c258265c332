//! The manager without its sockets: joins the engine with the election and with what comes from the fabric.

use control::api::{Counters, ManagementPort, PortState};
use proto::{Gid, Time};
use vnic::attribute::ManagerInfo;
use vnic::mad::{self, Header, Mad, method};

use crate::api::{Role, StatusInfo};
use crate::election::{Candidate, Change, Election};
use crate::seam::{Destination, Endpoint, Manager, Outgoing};
use crate::transport::Arrival;

/// A manager that is run by somebody who has the time and the messages.
#[derive(Debug)]
pub struct Runtime<M> {
    /// What brings the fabric to what is wanted.
    pub engine: M,
    election: Election,
    own: Candidate,
    /// Nodes whose managers are believed; empty: all.
    believed: Vec<Gid>,
    /// One that is not was told of.
    doubted: bool,
    port: Option<ManagementPort>,
    /// Why there is no port.
    detached: Option<String>,
    /// Messages to send before the engine's.
    waiting: Vec<Outgoing>,
    transaction: u64,
    received: u64,
    malformed: u64,
    strangers: u64,
    lost: u64,
    sent: u64,
}

impl<M: Manager> Runtime<M> {
    /// Without a port. Only managers of the nodes `believed` are taken for some, or all if that is empty;
    /// `seed` was drawn for this run.
    pub fn new(engine: M, own: Candidate, believed: Vec<Gid>, seed: u64) -> Runtime<M> {
        Runtime {
            engine,
            election: Election::new(own),
            own,
            believed,
            doubted: false,
            port: None,
            detached: None,
            waiting: Vec::new(),
            // Another manager behind the same port draws another one, and so knows which answers are its own.
            transaction: seed << 32,
            received: 0,
            malformed: 0,
            strangers: 0,
            lost: 0,
            sent: 0,
        }
    }

    /// The configuration has changed.
    pub fn configure(&mut self, now: Time, own: Candidate, believed: Vec<Gid>) {
        self.own = own;
        // Who is believed no longer is forgotten when its lease is over.
        self.believed = believed;
        self.doubted = false;
        self.election.configure(now, own);
        self.follow(now);
    }

    /// Its part among the managers.
    pub fn role(&self) -> Role {
        self.election.role()
    }

    /// Takes what has happened on the way to the fabric.
    pub fn arrived(&mut self, now: Time, arrival: Arrival) {
        match arrival {
            Arrival::Attached(port) if port.state == PortState::Active => self.attach(now, port),
            Arrival::Attached(port) => {
                self.detach(now, format!("the fabric port {} is down", port.port));
            }
            Arrival::Detached(why) => self.detach(now, why),
            Arrival::Lost(messages) => self.lost += messages,
            Arrival::Received { from, mad } => self.receive(now, from, &mad),
        }
        self.follow(now);
    }

    /// Does what the time has come for.
    pub fn advance(&mut self, now: Time) {
        self.election.advance(now);
        self.follow(now);
        self.engine.advance(now);
    }

    /// The next message to send now.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Outgoing> {
        if let Some(info) = self.election.poll_announcement() {
            let announcement = self.announcement(&info);
            self.waiting.push(announcement);
        }
        let next = self
            .waiting
            .pop()
            .or_else(|| self.engine.poll_transmit(now));
        self.sent += u64::from(next.is_some());
        next
    }

    /// There is no room to send: an announcement that is due is lost, as one may be on its way, and the next
    /// comes in its time. Else it would stay due, and for that its deadline in the past.
    pub fn skip_announcement(&mut self) {
        let _ = self.election.poll_announcement();
    }

    /// The last message of a manager that ends.
    pub fn farewell(&mut self) -> Option<Outgoing> {
        let info = self.election.farewell()?;
        Some(self.announcement(&info))
    }

    /// When [`Runtime::advance`] is to be called at the latest.
    pub fn next_deadline(&self) -> Option<Time> {
        let deadlines = [self.election.next_deadline(), self.engine.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// How it is. `ibtapd` is the control socket that it goes through.
    pub fn status(&self, now: Time, ibtapd: String) -> StatusInfo {
        let overview = self.engine.overview(now);
        let mut counters: Counters = [
            ("received", self.received),
            ("malformed", self.malformed),
            ("strangers", self.strangers),
            ("lost", self.lost),
            ("sent", self.sent),
        ]
        .into_iter()
        .collect();
        counters.add(overview.counters);
        StatusInfo {
            pid: std::process::id(),
            id: self.own.id,
            role: self.election.role(),
            priority: self.election.priority(),
            lease_ms: u64::from(self.own.lease_ms),
            port: self.port.as_ref().map(|port| port.port.clone()),
            gid: self.port.as_ref().map(|port| port.gid),
            qpn: self.port.as_ref().map(|port| port.qpn),
            ibtapd,
            detached: self.detached.clone(),
            managers: self.election.others(),
            agents: overview.agents,
            agents_away: overview.agents_away,
            switches: overview.switches,
            members: overview.members,
            forwarding: overview.forwarding,
            outstanding: overview.outstanding,
            problems: overview.problems,
            counters,
        }
    }

    fn attach(&mut self, now: Time, port: ManagementPort) {
        let own = Endpoint {
            gid: port.gid,
            qpn: port.qpn,
        };
        let before = self.port.as_ref().map(|port| (port.gid, port.qpn));
        if before != Some((own.gid, own.qpn)) {
            log::info!(
                "attached to {} as {} queue pair {}",
                port.port,
                own.gid,
                own.qpn
            );
            self.engine.attach(now, Some(own));
            // Those who hear it know it by its GID.
            if before.is_none_or(|(gid, _)| gid != own.gid) {
                self.election.attach(now, Some(own.gid));
            }
        }
        self.port = Some(port);
        self.detached = None;
    }

    fn detach(&mut self, now: Time, why: String) {
        log::warn!("no fabric port: {why}");
        self.detached = Some(why);
        self.waiting.clear();
        if self.port.take().is_some() {
            self.engine.attach(now, None);
            self.election.attach(now, None);
        }
    }

    fn receive(&mut self, now: Time, from: Endpoint, bytes: &[u8]) {
        self.received += 1;
        let mad = match Mad::parse(bytes) {
            Ok(mad) => mad,
            Err(error) => {
                self.malformed += 1;
                log::debug!(
                    "{} queue pair {} sends nonsense: {error}",
                    from.gid,
                    from.qpn
                );
                return;
            }
        };
        if mad.header.attribute_id.get() != mad::attribute::MANAGER_INFO {
            self.engine.receive(now, from, bytes);
            return;
        }
        match mad.attribute::<ManagerInfo>() {
            // Where it comes from is what the fabric says, not the message.
            Ok(info) if mad.header.method == method::SEND => {
                let info = ManagerInfo {
                    gid: from.gid,
                    ..info
                };
                if self.believes(from) {
                    self.election.heard(now, &info);
                }
            }
            _ => self.malformed += 1,
        }
    }

    /// Whether a manager there is taken for one. Tells of one that is not.
    fn believes(&mut self, from: Endpoint) -> bool {
        if self.believed.is_empty() || self.believed.contains(&from.gid) {
            return true;
        }
        self.strangers += 1;
        if !std::mem::replace(&mut self.doubted, true) {
            log::warn!(
                "{} claims to be a manager, and is none of those that the configuration names; ignored, \
                 and so are others from now on without a word",
                from.gid
            );
        }
        false
    }

    fn announcement(&mut self, info: &ManagerInfo) -> Outgoing {
        self.transaction += 1;
        let attribute = mad::attribute::MANAGER_INFO;
        let header = Header::new(method::SEND, attribute, 0, self.transaction);
        Outgoing {
            to: Destination::Group,
            mad: mad::write(&header, info),
        }
    }

    /// Has the engine follow the election, and the log tell.
    fn follow(&mut self, now: Time) {
        for change in self.election.take_changes() {
            match change {
                Change::Role(role) => self.play(now, role),
                Change::Slept => {
                    log::warn!("was not running for a lease or more; listening before going on");
                }
                Change::Twin(gid) => log::error!(
                    "the manager at {gid} has this one's id {:016x}: its state directory is a copy; \
                     remove the file \"state\" from one of both, with that manager ended",
                    self.own.id
                ),
            }
        }
    }

    fn play(&mut self, now: Time, role: Role) {
        let best = self.election.others().into_iter().next();
        match (role, best) {
            (Role::Standby, Some(best)) => log::info!(
                "standing by: the manager {:016x} at {} has priority {}",
                best.id,
                best.gid,
                best.priority
            ),
            (Role::Active, _) => log::info!("managing, with priority {}", self.election.priority()),
            (role, _) => log::debug!("{}", role.name()),
        }
        self.engine.set_active(now, role == Role::Active);
    }
}

#[cfg(test)]
pub(crate) mod tests;
