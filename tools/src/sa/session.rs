//! A client of subnet administration on one port: sends, waits, receives.

use std::collections::VecDeque;
use std::time::Duration;

use fabric::mad::method::RESPONSE;
use fabric::mad::sa::{Notice, status};
use fabric::sa::{
    Client, ClientConfig, Event, Failure as Refusal, Request, Response, TransactionId,
};
use fabric::umad::{self, Agent, AgentId, LinkState, PortAttributes, To, Umad, UmadError};
use fabric::{Instant, clock, random};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use super::is_nothing;
use crate::cli::SaArgs;
use crate::output::Failure;

/// A request is sent this often.
const TRIES: u32 = 3;
/// Place and size of the SM_Key in a MAD of subnet administration (IBA vol. 1, 15.2.1.1).
const SM_KEY: std::ops::Range<usize> = 36..44;

impl From<UmadError> for Failure {
    fn from(error: UmadError) -> Failure {
        Failure::System(error.to_string())
    }
}

/// A port with an agent of subnet administration.
pub struct Session {
    umad: Umad,
    agent: AgentId,
    attributes: PortAttributes,
    client: Client,
    sm_key: u64,
    /// Reports that arrived while a question waited for its answer.
    reports: VecDeque<Notice>,
}

/// Why a wait ended.
pub enum Woken {
    /// The client has an event.
    Event(Event),
    /// The descriptor of the caller is readable.
    Interrupted,
}

impl Session {
    /// Opens the port of the command line.
    pub fn open(args: &SaArgs) -> Result<Session, Failure> {
        Session::with(args, Agent::SA)
    }

    /// The same with another agent of the class.
    pub fn with(args: &SaArgs, agent: Agent) -> Result<Session, Failure> {
        let umad = open(args)?;
        let attributes = umad.attributes()?;
        if attributes.sm_lid.0 == 0 {
            let (name, state) = (umad.name(), attributes.state);
            return Err(Failure::Unanswered(format!(
                "{name} has no subnet manager: its state is {state}; start a subnet manager such as \
                 opensm, or connect the cable"
            )));
        }
        let client = Client::new(ClientConfig {
            seed: [random(), random()],
            own_rmpp: umad.is_simulated(),
            first_timeout: Duration::from_millis(args.timeout.0.into()),
            tries: TRIES,
            in_flight_max: 1,
            queue_max: 8,
        });
        Ok(Session {
            agent: umad.register(agent)?,
            umad,
            attributes,
            client,
            sm_key: args.sm_key,
            reports: VecDeque::new(),
        })
    }

    /// The port's attributes at the start.
    pub fn attributes(&self) -> &PortAttributes {
        &self.attributes
    }

    /// The open port.
    pub fn umad(&self) -> &Umad {
        &self.umad
    }

    /// Asks, and waits for the answer. No records are an empty answer.
    pub fn ask(&mut self, request: Request) -> Result<Response, Failure> {
        let answer = self.answer(request)?;
        answer.or_else(|refusal| self.refused(refusal, &request))
    }

    /// Ends a subscription. The administrator may not have the subscription any more: after a restart, or because a
    /// request was repeated, and the answer to the first was late.
    pub fn unsubscribe(&mut self, trap: u16) -> Result<(), Failure> {
        let request = Request::unsubscribe(trap);
        match self.answer(request)? {
            Ok(_) | Err(Refusal::Status(status::REQ_INVALID)) => Ok(()),
            Err(refusal) => self.refused(refusal, &request).map(drop),
        }
    }

    fn answer(&mut self, request: Request) -> Result<Result<Response, Refusal>, Failure> {
        let id = self.start(request)?;
        loop {
            match self.step(None)? {
                Woken::Event(Event::Answered { id: of, result }) if of == id => return Ok(result),
                Woken::Event(Event::Reported(notice)) => self.reports.push_back(notice),
                Woken::Event(Event::Answered { .. }) | Woken::Interrupted => {}
            }
        }
    }

    fn start(&mut self, request: Request) -> Result<TransactionId, Failure> {
        let full = |e: fabric::sa::Full| Failure::System(e.to_string());
        self.client.ask(clock(), request).map_err(full)
    }

    fn refused(&self, refusal: Refusal, request: &Request) -> Result<Response, Failure> {
        match refusal {
            Refusal::Status(status) if is_nothing(status) => Ok(Response {
                method: request.method | RESPONSE,
                attribute: request.attribute,
                record_len: 0,
                data: Vec::new(),
                truncated: false,
            }),
            Refusal::Timeout => Err(Failure::Unanswered(format!(
                "{}: {refusal} (LID {}); the subnet manager may be restarting: ibtap sa sminfo",
                self.umad.name(),
                self.attributes.sm_lid.0,
            ))),
            _ => Err(Failure::System(format!("{}: {refusal}", self.umad.name()))),
        }
    }

    /// The next event, or the interruption by a readable descriptor. Reports during a question come first.
    pub fn next(&mut self, interrupt: BorrowedFd<'_>) -> Result<Woken, Failure> {
        match self.reports.pop_front() {
            Some(notice) => Ok(Woken::Event(Event::Reported(notice))),
            None => self.step(Some(interrupt)),
        }
    }

    fn step(&mut self, interrupt: Option<BorrowedFd<'_>>) -> Result<Woken, Failure> {
        loop {
            let now = clock();
            self.client.handle_timeout(now);
            self.send()?;
            if let Some(event) = self.client.poll_event() {
                return Ok(Woken::Event(event));
            }
            if self.wait(now, interrupt)? {
                return Ok(Woken::Interrupted);
            }
            while let Some(received) = self.umad.receive()? {
                // The client's own timer notices a request without an answer.
                if received.status == 0 {
                    self.client.receive(clock(), &received.mad);
                }
            }
        }
    }

    fn send(&mut self) -> Result<(), Failure> {
        while let Some(mut mad) = self.client.poll_transmit() {
            mad[SM_KEY].copy_from_slice(&self.sm_key.to_be_bytes());
            let wait = self.client.patience(&mad);
            let to = To::gsi(self.attributes.sm_lid, self.attributes.sm_sl);
            self.umad.send(self.agent, &to, &mad, wait)?;
        }
        Ok(())
    }

    fn wait(&self, now: Instant, interrupt: Option<BorrowedFd<'_>>) -> Result<bool, Failure> {
        let deadline = self.client.next_deadline();
        let timeout = deadline.map(|at| Timespec::try_from(at.since(now)).unwrap_or_default());
        let readable = PollFlags::IN;
        let mut fds = vec![PollFd::from_borrowed_fd(self.umad.event_fd(), readable)];
        fds.extend(interrupt.map(|fd| PollFd::from_borrowed_fd(fd, readable)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Failure::System(format!("cannot wait for an answer: {e}"))),
        }
        Ok(fds.get(1).is_some_and(|fd| !fd.revents().is_empty()))
    }
}

/// Opens the port of the command line.
pub fn open(args: &SaArgs) -> Result<Umad, Failure> {
    let device = match &args.device {
        Some(device) => device.clone(),
        None => default_device(args.port)?,
    };
    Ok(Umad::open(&device, args.port)?)
}

/// The first device whose port is active, else the first one with such a port.
fn default_device(port: u8) -> Result<String, Failure> {
    let devices = umad::devices()?;
    let ports = devices.iter().filter_map(|device| {
        let seen = umad::attributes(device, port).ok()?;
        seen.infiniband.then_some((device, seen.state))
    });
    let ports: Vec<_> = ports.collect();
    let active = ports.iter().find(|(_, state)| *state == LinkState::Active);
    match active.or(ports.first()) {
        Some((device, _)) => Ok((*device).clone()),
        None => Err(Failure::System(format!(
            "there is no RDMA device with an InfiniBand port {port}: ibtap doctor checks the adapter's \
             driver; name another port with --port"
        ))),
    }
}
