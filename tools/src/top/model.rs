//! The state of the screen, without terminal, socket and clock: keys and answers come in, queries go out.

mod keys;

use std::time::Duration;

use control::api::{ConnectionInfo, VersionInfo};
use control::output::printable;

use super::counts::{History, Kind, sources};
use super::sample::{Answer, List, Listed, Query, Sample};
use super::table::Table;
use super::view::{self, Shown, View};

pub use keys::Action;

/// Intervals that + and - select, in milliseconds.
const INTERVALS: [u64; 9] = [100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];

/// Least time between two attempts to reach a daemon that is away.
const RETRY: Duration = Duration::from_millis(500);

/// After a table has been listed for a time, the next listing begins after this multiple of the time: a large
/// table costs the daemon at most a tenth of a processor.
const LISTING_PAUSE: u32 = 9;

/// What covers the table or takes the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// Nothing.
    None,
    /// The keys; the first visible line.
    Help(usize),
    /// The text to search for.
    Search(String),
    /// The text of the filter.
    Filter(String),
    /// The menu of columns; the place of its cursor.
    Sort(usize),
}

/// See the module.
#[derive(Debug)]
pub struct Model {
    pub(super) view: View,
    pub(super) overlay: Overlay,
    pub(super) interval: Duration,
    pub(super) paused: bool,
    /// The latest daemon.
    pub(super) daemon: Option<VersionInfo>,
    /// Since when the daemon is away.
    pub(super) away: Option<Duration>,
    /// A sentence for the user.
    pub(super) message: Option<String>,
    pub(super) history: History,
    tables: [Table; View::ALL.len()],
    searched: String,
    shown: Vec<Shown>,
    connections: Vec<ConnectionInfo>,
    connection_history: History,
    /// The interface whose neighbours to show.
    focus: Option<String>,
    /// The interface whose neighbours the table has.
    listed: Option<String>,
    /// Whether a query is not yet answered.
    asked: bool,
    /// The time of the next query.
    due: Duration,
    /// The earliest time of the next query for a table.
    list_due: Duration,
    /// Whether to query once while paused: the view is new.
    once: bool,
}

impl Model {
    /// An empty screen.
    pub fn new(view: View, interval: Duration) -> Model {
        Model {
            view,
            overlay: Overlay::None,
            interval,
            paused: false,
            daemon: None,
            away: None,
            message: None,
            history: History::default(),
            tables: View::ALL.map(View::table),
            searched: String::new(),
            shown: Vec::new(),
            connections: Vec::new(),
            connection_history: History::default(),
            focus: None,
            listed: None,
            asked: false,
            due: Duration::ZERO,
            list_due: Duration::ZERO,
            once: false,
        }
    }

    /// The table of the view.
    pub fn table(&mut self) -> &mut Table {
        &mut self.tables[self.view as usize]
    }

    /// The interface of the view, if the view is of one.
    pub fn subject(&self) -> Option<&str> {
        let (focus, _) = self.focused().filter(|_| self.view == View::Neighbours)?;
        Some(focus)
    }

    /// The query that is due. The caller must answer it with [`Model::take`].
    pub fn query(&mut self, now: Duration) -> Option<Query> {
        if self.asked || now < self.due || (self.paused && !self.once) {
            return None;
        }
        self.asked = true;
        self.once = false;
        self.due = now + self.interval;
        Some(Query {
            interfaces: self.view == View::Interfaces,
            list: self.wanted().filter(|_| now >= self.list_due),
        })
    }

    /// How long to wait for the next query; `None`: until a key or an answer.
    pub fn wait(&self, now: Duration) -> Option<Duration> {
        let waits = !self.asked && (!self.paused || self.once);
        waits.then(|| self.due.saturating_sub(now))
    }

    /// Takes the answer to a query.
    pub fn take(&mut self, now: Duration, answer: Answer) {
        self.asked = false;
        match answer {
            Answer::Sample(sample) => self.take_sample(*sample),
            Answer::Away(reason) => {
                self.away.get_or_insert(now);
                self.due = now + self.interval.max(RETRY);
                self.interrupt(&reason);
            }
            Answer::Refused(reason) => self.interrupt(&reason),
        }
        self.fill();
    }

    /// What was known stays on the screen, except rates.
    fn interrupt(&mut self, reason: &str) {
        self.message = Some(printable(reason));
        self.history.interrupt();
        self.connection_history.interrupt();
        self.list_due = Duration::ZERO;
    }

    fn take_sample(&mut self, sample: Sample) {
        let known = self.daemon.as_ref().map(|daemon| daemon.pid);
        if known.is_some_and(|pid| pid != sample.daemon.pid) {
            self.history.interrupt();
            self.connection_history.interrupt();
        }
        self.daemon = Some(sample.daemon);
        self.away = None;
        self.message = None;
        let sources = sources(sample.ipoib, sample.vnics);
        self.history.add(sample.at, sources, self.interval / 2);
        self.shown = sample.shown.unwrap_or(std::mem::take(&mut self.shown));
        let neighbours = View::Neighbours as usize;
        match sample.listed {
            None => {
                // Before the first counters it is unknown whose table to ask for.
                if self.wanted().is_some() && self.list_due <= sample.at {
                    self.due = sample.at;
                }
                return;
            }
            Some(Listed::Neighbours(of, list)) => {
                self.tables[neighbours].fill(view::neighbours(&list));
                self.listed = Some(of);
            }
            Some(Listed::Macs(of, list)) => {
                self.tables[neighbours].fill(view::macs(&list));
                self.listed = Some(of);
            }
            Some(Listed::Connections(list)) => {
                let sources = view::connection_sources(&list);
                self.connection_history
                    .add(sample.at, sources, self.interval / 2);
                self.connections = list;
            }
            Some(Listed::Refused(reason)) => self.message = Some(printable(&reason)),
        }
        self.list_due = sample.at + sample.listing * LISTING_PAUSE;
    }

    /// Makes the rows of the view.
    fn fill(&mut self) {
        let sources = self.history.latest();
        let rows = match self.view {
            View::Interfaces => view::interfaces(sources, &self.shown),
            View::Drops => view::counters(sources, true),
            View::Counters => view::counters(sources, false),
            View::Connections => {
                view::connections(&self.connections, self.connection_history.latest())
            }
            View::Neighbours if self.listed.as_deref() == self.subject() => return,
            View::Neighbours => Vec::new(),
        };
        self.table().fill(rows);
    }

    /// The table that the view needs.
    fn wanted(&self) -> Option<List> {
        match self.view {
            View::Neighbours => self.focused().map(|(focus, kind)| match kind {
                Kind::Vnic => List::Macs(focus.to_owned()),
                _ => List::Neighbours(focus.to_owned()),
            }),
            View::Connections => Some(List::Connections),
            View::Interfaces | View::Drops | View::Counters => None,
        }
    }

    /// The interface whose neighbours to show: the selected one, or else the first.
    fn focused(&self) -> Option<(&str, Kind)> {
        let mut all = self.interfaces();
        let first = all.clone().next();
        let focus = self.focus.as_deref();
        all.find(|(name, _)| Some(*name) == focus).or(first)
    }

    fn interfaces(&self) -> impl Iterator<Item = (&str, Kind)> + Clone {
        let all = self.history.latest().iter();
        all.filter(|source| view::is_interface(source))
            .map(|source| (source.owner.as_str(), source.kind))
    }

    /// Changes the view, and queries at once.
    fn show(&mut self, view: View) {
        self.view = view;
        self.renew();
    }

    /// Shows the neighbours of another interface.
    fn focus(&mut self, interface: String) {
        self.focus = Some(interface);
        self.renew();
    }

    fn renew(&mut self) {
        self.due = Duration::ZERO;
        self.list_due = Duration::ZERO;
        self.once = true;
        self.message = None;
        self.fill();
    }
}
