//! The manager without its sockets: joins the engine, the election and the events of the fabric.

use control::api::{Counters, ManagementPort, PortState};
use proto::{Gid, Time};
use vnic::attribute::ManagerInfo;
use vnic::mad::{self, Header, Mad, method};

use crate::api::{Role, StatusInfo};
use crate::election::{Candidate, Change, Election};
use crate::seam::{Destination, Endpoint, Manager, Outgoing};
use crate::transport::Arrival;

/// A sans-IO manager: its caller supplies time and messages.
#[derive(Debug)]
pub struct Runtime<M> {
    /// Configures the fabric.
    pub engine: M,
    election: Election,
    own: Candidate,
    /// Nodes whose managers are accepted; empty: all.
    accepted: Vec<Gid>,
    /// A manager that is not accepted was logged.
    stranger_logged: bool,
    port: Option<ManagementPort>,
    /// Reason for the missing port.
    detached: Option<String>,
    /// Messages to send before those of the engine.
    waiting: Vec<Outgoing>,
    transaction: u64,
    received: u64,
    malformed: u64,
    strangers: u64,
    lost: u64,
    sent: u64,
}

impl<M: Manager> Runtime<M> {
    /// Creates a manager without a port. It accepts managers of the nodes `accepted`, or all if that is
    /// empty; `seed` is a random number of this run.
    pub fn new(engine: M, own: Candidate, accepted: Vec<Gid>, seed: u64) -> Runtime<M> {
        Runtime {
            engine,
            election: Election::new(own),
            own,
            accepted,
            stranger_logged: false,
            port: None,
            detached: None,
            waiting: Vec::new(),
            // Another manager at the same port draws another number; each recognizes the answers to its own
            // requests.
            transaction: seed << 32,
            received: 0,
            malformed: 0,
            strangers: 0,
            lost: 0,
            sent: 0,
        }
    }

    /// Applies a new configuration.
    pub fn configure(&mut self, now: Time, own: Candidate, accepted: Vec<Gid>) {
        self.own = own;
        // A manager that is no longer accepted is removed at the end of its lease.
        self.accepted = accepted;
        self.stranger_logged = false;
        self.election.configure(now, own);
        self.follow(now);
    }

    /// Role among the managers.
    pub fn role(&self) -> Role {
        self.election.role()
    }

    /// Processes an event of the fabric.
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

    /// Processes everything that is due.
    pub fn advance(&mut self, now: Time) {
        self.election.advance(now);
        self.follow(now);
        self.engine.advance(now);
    }

    /// The next message to send.
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

    /// Without room to send, drops an announcement that is due; the next one follows after its interval.
    /// Otherwise its deadline would stay in the past.
    pub fn skip_announcement(&mut self) {
        let _ = self.election.poll_announcement();
    }

    /// The last announcement of a manager that ends.
    pub fn farewell(&mut self) -> Option<Outgoing> {
        let info = self.election.farewell()?;
        Some(self.announcement(&info))
    }

    /// Latest time for the next call of [`Runtime::advance`].
    pub fn next_deadline(&self) -> Option<Time> {
        let deadlines = [self.election.next_deadline(), self.engine.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Status. `ibtapd` is the control socket in use.
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
            // Other managers identify this one by its GID.
            if before.is_none_or(|(gid, _)| gid != own.gid) {
                self.election.attach(now, Some(own.gid));
            }
        }
        self.port = Some(port);
        self.detached = None;
    }

    fn detach(&mut self, now: Time, why: String) {
        log::warn!("ibtap-em has no fabric port: {why}");
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
                    "malformed MAD from {} queue pair {}: {error}",
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
            // The GID comes from the fabric, not from the message.
            Ok(info) if mad.header.method == method::SEND => {
                let info = ManagerInfo {
                    gid: from.gid,
                    ..info
                };
                if self.accepts(from) {
                    self.election.heard(now, &info);
                }
            }
            _ => self.malformed += 1,
        }
    }

    /// Whether the manager at `from` is accepted. Logs the first that is not.
    fn accepts(&mut self, from: Endpoint) -> bool {
        if self.accepted.is_empty() || self.accepted.contains(&from.gid) {
            return true;
        }
        self.strangers += 1;
        if !std::mem::replace(&mut self.stranger_logged, true) {
            log::warn!(
                "ignoring the manager at {}: the configuration does not list it in `managers`; further ones \
                 are not logged",
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

    /// Applies changes of the election to the engine and the log.
    fn follow(&mut self, now: Time) {
        for change in self.election.take_changes() {
            match change {
                Change::Role(role) => self.play(now, role),
                Change::Slept => {
                    log::warn!(
                        "ibtap-em did not run for a lease or longer, for example because the host was suspended; \
                         ibtap-em listens for other managers again"
                    );
                }
                Change::Twin(gid) => log::error!(
                    "the manager at {gid} has the id of this manager, {:016x}: one state directory is a \
                     copy of the other; stop one of the managers and remove its file \"state\"",
                    self.own.id
                ),
            }
        }
    }

    fn play(&mut self, now: Time, role: Role) {
        let best = self.election.others().into_iter().next();
        match (role, best) {
            (Role::Standby, Some(best)) => log::info!(
                "standby: the manager {:016x} at {} has priority {}",
                best.id,
                best.gid,
                best.priority
            ),
            (Role::Active, _) => log::info!("active, with priority {}", self.election.priority()),
            (role, _) => log::debug!("{role}"),
        }
        self.engine.set_active(now, role == Role::Active);
    }
}

#[cfg(test)]
pub(crate) mod tests;
