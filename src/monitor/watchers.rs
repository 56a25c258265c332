//! Clients of the control socket that monitor events.
//!
//! Each client has a bounded queue. A client that reads too slowly misses events; its next event contains the
//! number of missed ones.

use std::collections::{BTreeMap, VecDeque};
use std::process;
use std::time::SystemTime;

use control::api::{Event, Happening, Reply};
use control::logging::Utc;
use control::{StreamId, Streamed};

use crate::interface::{Events, Subject};

/// Maximum number of events that wait for one client.
const QUEUE_MAX: usize = 1024;

/// All clients that monitor.
#[derive(Debug, Default)]
pub struct Watchers {
    all: BTreeMap<StreamId, Watcher>,
}

#[derive(Debug)]
struct Watcher {
    filter: Option<Filter>,
    queue: VecDeque<Event>,
    lost: u64,
}

/// One interface, and its port at the start of the stream.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The interface's name.
    pub interface: String,
    /// The interface's network namespace; `None`: the daemon's.
    pub netns: Option<String>,
    /// The port's name.
    pub port: String,
}

impl Watchers {
    /// Adds a client. Its first event is [`Happening::Watching`].
    pub fn add(&mut self, stream: StreamId, filter: Option<Filter>) {
        let mut watcher = Watcher {
            filter,
            queue: VecDeque::new(),
            lost: 0,
        };
        watcher.push(event(
            Subject::Daemon,
            Happening::Watching {
                version: env!("CARGO_PKG_VERSION").into(),
                pid: process::id(),
            },
        ));
        self.all.insert(stream, watcher);
    }

    /// Removes a client, if it monitors.
    pub fn remove(&mut self, stream: StreamId) {
        self.all.remove(&stream);
    }

    /// Whether no client monitors.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Passes events to the clients whose filters match.
    pub fn take(&mut self, events: &mut Events) {
        for (subject, what) in events.drain() {
            self.notify(subject, what);
        }
    }

    fn notify(&mut self, subject: Subject, what: Happening) {
        if self.all.is_empty() {
            return;
        }
        let event = event(subject, what);
        for watcher in self.all.values_mut() {
            if watcher.wants(&event) {
                watcher.push(event.clone());
            }
        }
    }

    /// The next event of a client; `None` if it does not monitor.
    pub fn next(&mut self, stream: StreamId) -> Option<Streamed> {
        let watcher = self.all.get_mut(&stream)?;
        Some(match watcher.queue.pop_front() {
            Some(event) => Streamed::Reply(Reply::Monitor { event }),
            None => Streamed::Nothing,
        })
    }
}

impl Watcher {
    /// Whether the event matches the filter. The filter follows renames and moves of its interface.
    fn wants(&mut self, event: &Event) -> bool {
        let Some(filter) = &mut self.filter else {
            return true;
        };
        if let Some(name) = &event.interface {
            match &event.what {
                Happening::Renamed { was }
                    if *was == filter.interface && event.netns == filter.netns =>
                {
                    filter.interface.clone_from(name);
                }
                Happening::Moved { was } if *was == filter.netns && *name == filter.interface => {
                    filter.netns.clone_from(&event.netns);
                }
                _ => {}
            }
        }
        match (&event.interface, &event.port) {
            (Some(name), _) => *name == filter.interface && event.netns == filter.netns,
            (None, Some(port)) => *port == filter.port,
            (None, None) => true,
        }
    }

    fn push(&mut self, mut event: Event) {
        if self.queue.len() >= QUEUE_MAX {
            self.lost += 1;
            return;
        }
        let lost = std::mem::take(&mut self.lost);
        event.lost = (lost > 0).then_some(lost);
        self.queue.push_back(event);
    }
}

fn event(subject: Subject, what: Happening) -> Event {
    let (interface, netns, port) = match subject {
        Subject::Daemon => (None, None, None),
        Subject::Port(name) => (None, None, Some(name)),
        Subject::Interface(name, netns) => (Some(name), netns, None),
    };
    Event {
        time: Utc(SystemTime::now()).to_string(),
        interface,
        netns,
        port,
        what,
        lost: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: StreamId = StreamId(1);
    const B: StreamId = StreamId(2);

    fn of(interface: &str, netns: Option<&str>) -> Subject {
        Subject::Interface(interface.into(), netns.map(str::to_owned))
    }

    fn taken(watchers: &mut Watchers, stream: StreamId) -> Option<Event> {
        match watchers.next(stream) {
            Some(Streamed::Reply(Reply::Monitor { event })) => Some(event),
            Some(Streamed::Nothing) => None,
            other => panic!("{other:?}"),
        }
    }

    fn all(watchers: &mut Watchers, stream: StreamId) -> Vec<Happening> {
        std::iter::from_fn(|| taken(watchers, stream))
            .map(|e| e.what)
            .collect()
    }

    #[test]
    fn a_client_receives_watching_first_and_then_all_events_in_order() {
        let mut watchers = Watchers::default();
        watchers.notify(Subject::Daemon, Happening::SignedNd);
        watchers.add(A, None);
        let first = taken(&mut watchers, A).unwrap();
        assert!(matches!(first.what, Happening::Watching { .. }));
        watchers.notify(of("ib0", None), Happening::Up);
        watchers.notify(Subject::Port("soft/eth0".into()), Happening::PortActive);
        assert_eq!(
            all(&mut watchers, A),
            [Happening::Up, Happening::PortActive]
        );
        watchers.remove(A);
        assert!(watchers.is_empty() && watchers.next(A).is_none());
    }

    #[test]
    fn one_interface_is_followed_over_a_rename() {
        let mut watchers = Watchers::default();
        let filter = Filter {
            interface: "ib0".into(),
            netns: None,
            port: "soft/eth0".into(),
        };
        watchers.add(A, Some(filter));
        taken(&mut watchers, A);
        let renamed = Happening::Renamed { was: "ib0".into() };
        for (subject, what) in [
            (of("ib1", None), Happening::Up),
            (Subject::Port("soft/eth1".into()), Happening::PortActive),
            (Subject::Port("soft/eth0".into()), Happening::PortActive),
            (of("st0", None), renamed.clone()),
            (of("ib0", None), Happening::Up),
            (of("st0", None), Happening::Down),
        ] {
            watchers.notify(subject, what);
        }
        assert_eq!(
            all(&mut watchers, A),
            [Happening::PortActive, renamed, Happening::Down]
        );
    }

    #[test]
    fn namespaces_distinguish_equal_names_and_moves_are_followed() {
        let mut watchers = Watchers::default();
        let filter = Filter {
            interface: "ib0".into(),
            netns: Some("blue".into()),
            port: "soft/eth0".into(),
        };
        watchers.add(A, Some(filter));
        taken(&mut watchers, A);
        let moved = |was: Option<&str>| Happening::Moved {
            was: was.map(str::to_owned),
        };
        let renamed = Happening::Renamed { was: "ib0".into() };
        for (name, netns, what) in [
            ("ib0", None, Happening::Up),
            ("ib0", Some("red"), moved(None)),
            ("st0", Some("red"), renamed.clone()),
            ("st0", Some("red"), Happening::Up),
            ("ib0", Some("green"), moved(Some("blue"))),
            ("ib0", Some("blue"), Happening::Up),
            ("ib0", None, moved(Some("green"))),
            ("st1", None, renamed.clone()),
            ("ib0", None, Happening::Up),
            ("st1", None, Happening::Down),
        ] {
            watchers.notify(of(name, netns), what);
        }
        assert_eq!(
            all(&mut watchers, A),
            [
                moved(Some("blue")),
                moved(Some("green")),
                renamed,
                Happening::Down
            ]
        );
    }

    #[test]
    fn a_slow_client_receives_the_number_of_missed_events() {
        let mut watchers = Watchers::default();
        watchers.add(A, None);
        watchers.add(B, None);
        for _ in 0..QUEUE_MAX + 9 {
            watchers.notify(of("ib0", None), Happening::Up);
            taken(&mut watchers, B);
        }
        assert_eq!(watchers.all[&A].queue.len(), QUEUE_MAX);
        for _ in 0..QUEUE_MAX {
            assert_eq!(taken(&mut watchers, A).unwrap().lost, None);
        }
        assert_eq!(taken(&mut watchers, A), None);
        watchers.notify(of("ib0", None), Happening::Down);
        assert_eq!(taken(&mut watchers, A).unwrap().lost, Some(10));
        assert_eq!(all(&mut watchers, B).len(), 2);
    }
}
