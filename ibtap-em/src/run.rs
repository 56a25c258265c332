//! The program's life cycle: start, manage until a signal, stop. One thread, one poll.

use std::io;
use std::os::fd::AsFd;

use control::config::GroupAccess;
use control::exit::{EXIT_OK, EXIT_REFUSED, EXIT_USAGE};
use control::logging;
use control::output::print_line;
use control::signals::{SIGHUP, SIGINT, SIGTERM, Signals};
use control::{BindError, ControlServer};
use proto::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};
use sd_notify::NotifyState;

use crate::args::{Cli, RunArgs};
use crate::config::{Config, ConfigError};
use crate::election::Candidate;
use crate::engine::Engine;
use crate::outbox;
use crate::runtime::Runtime;
use crate::seam::Manager;
use crate::server::{Served, Waiting};
use crate::state::{StateError, Store};
use crate::transport::Link;

/// Messages sent in one turn, so that received messages, timers and the control socket are served in between.
const TURN: usize = 256;

/// Runs the manager, or checks its configuration. Returns the exit status.
pub fn run(cli: &Cli, args: &RunArgs) -> u8 {
    let config = match read(cli, args) {
        Ok(config) => config,
        Err(error) => {
            logging::report_end("ibtap-em", &error);
            return EXIT_USAGE;
        }
    };
    if args.check_config {
        let (file, switches) = (args.config.display(), config.switches.len());
        return match print_line(format_args!("{file}: {switches} switch(es), valid")) {
            Ok(()) => EXIT_OK,
            Err(error) => {
                logging::report_end("ibtap-em", &error);
                EXIT_REFUSED
            }
        };
    }
    logging::init(config.em.log_level);
    match serve(cli, args, config) {
        Ok(()) => EXIT_OK,
        Err(failure) => {
            logging::report_end("ibtap-em", &failure);
            EXIT_REFUSED
        }
    }
}

/// Reads the configuration. The command line overrides the file.
fn read(cli: &Cli, args: &RunArgs) -> Result<Config, ConfigError> {
    let mut config = Config::from_file(&args.config)?;
    let own = &mut config.em;
    if let Some(socket) = &cli.em_socket {
        own.socket.clone_from(socket);
    }
    if let Some(socket) = &args.socket {
        own.ibtapd_socket.clone_from(socket);
    }
    own.port = args.port.clone().or(own.port.take());
    own.log_level = args.log_level.unwrap_or(own.log_level);
    Ok(config)
}

/// An error that ends the manager; the texts are sentences.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot {0}: {1}")]
    Os(&'static str, io::Error),
    #[error("{0}")]
    Control(String),
    #[error(transparent)]
    State(#[from] StateError),
}

fn serve(cli: &Cli, args: &RunArgs, config: Config) -> Result<(), Failure> {
    let caught = |e| Failure::Os("catch signals", e);
    let mut stops = Signals::catch(&[SIGTERM, SIGINT]).map_err(caught)?;
    let mut reloads = Signals::catch(&[SIGHUP]).map_err(caught)?;
    let mut server = ControlServer::bind(&config.em.socket)
        .map_err(|error| Failure::Control(bind_failure(&error)))?;
    server.set_group_access(GroupAccess::Read);
    let mut node = Node::new(server, config)?;
    notify(&[NotifyState::Ready, NotifyState::Status(&node.summary())]);
    loop {
        node.turn()?;
        node.wait(&stops, &reloads)?;
        if stops.take() {
            break;
        }
        if reloads.take() {
            node.reload(cli, args);
        }
    }
    log::info!("stopping");
    notify(&[NotifyState::Stopping]);
    node.farewell();
    Ok(())
}

/// A running manager with its descriptors.
struct Node {
    runtime: Runtime<Engine>,
    link: Link,
    server: ControlServer,
    waiting: Waiting,
    store: Store,
    config: Config,
    /// Id of this manager.
    id: u64,
    /// More messages are due than one turn sends.
    behind: bool,
    /// Last status sent to the service manager.
    status: String,
}

impl Node {
    fn new(server: ControlServer, config: Config) -> Result<Node, Failure> {
        let drawing = |e| Failure::Os("draw a random number", e);
        let opened = Store::open(&config.em.state_dir, draw().map_err(drawing)?)?;
        let (store, state) = (opened.store, opened.state);
        let id = state.manager;
        if opened.new {
            // The id must be on disk before other managers receive it: after a crash it stays the same.
            store.save(&state)?;
            log::info!("new state in {}", config.em.state_dir.display());
        }
        let seed = draw().map_err(drawing)?;
        let engine = Engine::new(config.clone(), state, seed as u32);
        let link = Link::new(config.em.ibtapd_socket.clone(), config.em.port.clone());
        let accepted = config.em.managers.clone();
        Ok(Node {
            runtime: Runtime::new(engine, candidate(&config, id), accepted, seed),
            link,
            server,
            waiting: Waiting::default(),
            store,
            config,
            id,
            behind: false,
            status: String::new(),
        })
    }

    /// Does everything that needs no waiting.
    fn turn(&mut self) -> Result<(), Failure> {
        let now = now();
        for arrival in self.link.receive(now) {
            self.runtime.arrived(now, arrival);
        }
        self.runtime.advance(now);
        self.send(now);
        let mut served = Served {
            runtime: &mut self.runtime,
            waiting: &mut self.waiting,
            disk: &self.store,
            now,
            ibtapd: self.link.socket().display().to_string(),
        };
        self.server
            .process(&mut served)
            .map_err(|e| Failure::Os("serve the control socket", e))?;
        // Requests of clients may have caused messages.
        self.send(now);
        self.notify_status();
        Ok(())
    }

    fn send(&mut self, now: Time) {
        let way = &mut self.link;
        self.behind = outbox::send(&mut self.runtime, now, &self.store, way, TURN);
        self.link.flush();
    }

    fn wait(&self, stops: &Signals, reloads: &Signals) -> Result<(), Failure> {
        let mut fds = vec![
            PollFd::new(stops, PollFlags::IN),
            PollFd::new(reloads, PollFlags::IN),
            PollFd::from_borrowed_fd(self.server.as_fd(), PollFlags::IN),
        ];
        let incoming = self.link.incoming();
        fds.extend(incoming.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let outgoing = self.link.outgoing();
        fds.extend(outgoing.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
        let deadlines = [self.runtime.next_deadline(), self.link.next_deadline()];
        let deadline = deadlines.into_iter().flatten().min();
        let wait = match self.behind {
            true => Some(0),
            false => deadline.map(|deadline| deadline.since(now())),
        };
        let wait = wait.map(|ms| Timespec {
            tv_sec: (ms / 1000) as i64,
            tv_nsec: (ms % 1000) as i64 * 1_000_000,
        });
        match poll(&mut fds, wait.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Failure::Os("wait for events", error.into())),
        }
    }

    /// Reads the configuration again. A wrong configuration changes nothing.
    fn reload(&mut self, cli: &Cli, args: &RunArgs) {
        let mut new = match read(cli, args) {
            Ok(new) => new,
            Err(error) => {
                log::error!("configuration not reloaded: {error}");
                return;
            }
        };
        match NotifyState::monotonic_usec_now() {
            Ok(now) => notify(&[NotifyState::Reloading, now]),
            Err(e) => log::debug!("cannot read the clock for a notification to systemd: {e}"),
        }
        let now = now();
        let (old, own) = (&self.config.em, &mut new.em);
        for (what, old, new) in [
            ("socket", &old.socket, &mut own.socket),
            ("state_dir", &old.state_dir, &mut own.state_dir),
        ] {
            if old != new {
                log::warn!("{what} not reloaded: restart ibtap-em to change it");
                new.clone_from(old);
            }
        }
        logging::set_level(own.log_level);
        if !self.link.leads_to(&own.ibtapd_socket, own.port.as_deref()) {
            let gone = crate::transport::Arrival::Detached(
                "the configuration selects another ibtapd or port".into(),
            );
            self.runtime.arrived(now, gone);
            self.link = Link::new(own.ibtapd_socket.clone(), own.port.clone());
        }
        self.runtime
            .configure(now, candidate(&new, self.id), new.em.managers.clone());
        self.runtime.engine.configure(now, new.clone());
        log::info!("reloaded: {} switch(es)", new.switches.len());
        self.config = new;
        notify(&[NotifyState::Ready]);
    }

    /// Saves the state. Sends the last announcement, which lets a standby take over at once. No answer is
    /// expected.
    fn farewell(&mut self) {
        outbox::save_last(&mut self.runtime, &self.store);
        if let Some(message) = self.runtime.farewell() {
            self.link.send(message);
            self.link.flush();
        }
    }

    /// Sends the status to the service manager if it has changed.
    fn notify_status(&mut self) {
        let summary = self.summary();
        if summary != self.status {
            notify(&[NotifyState::Status(&summary)]);
            self.status = summary;
        }
    }

    fn summary(&self) -> String {
        format!(
            "{}, {} switch(es)",
            self.runtime.role(),
            self.config.switches.len()
        )
    }
}

fn candidate(config: &Config, id: u64) -> Candidate {
    Candidate {
        id,
        priority: config.em.priority,
        elevated_priority: config.em.elevated_priority.max(config.em.priority),
        lease_ms: u32::try_from(config.em.lease).unwrap_or(u32::MAX),
    }
}

/// A clock that continues during suspend and has no steps.
fn now() -> Time {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanoseconds) = (time.tv_sec as u64, time.tv_nsec as u64);
    // Rounded down: a deadline is never reported as reached early.
    Time(seconds * 1000 + nanoseconds / 1_000_000)
}

/// A random number from the kernel.
fn draw() -> io::Result<u64> {
    let mut bytes = [0; 8];
    // The kernel returns 8 bytes at once.
    retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))?;
    Ok(u64::from_ne_bytes(bytes))
}

fn bind_failure(error: &BindError) -> String {
    match error {
        BindError::Taken { path, .. } => format!(
            "another ibtap-em already listens on the control socket {path}; end it, or choose another \
             path with --em-socket"
        ),
        other => other.to_string().replace("--socket", "--em-socket"),
    }
}

/// Notifies systemd, if it listens.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        log::debug!("cannot notify systemd: {e}");
    }
}
