//! Counters of two samples, and rates from their difference.

use std::collections::HashMap;
use std::time::Duration;

use control::api::{Counters, InterfaceStats, VnicStats, WorkerStats};

use crate::text::qualified;

/// What owns counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An IPoIB interface, or a VLAN of one.
    Ipoib,
    /// A VNIC.
    Vnic,
    /// A fabric port.
    Port,
    /// A connection.
    Connection,
}

/// A counter.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    /// Name.
    pub name: String,
    /// Value.
    pub total: u64,
    /// Increase per second; `None` if not known yet.
    pub rate: Option<f64>,
}

/// The counters of one owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Name: `ib0`, `blue/ib0`, `soft/eth0`.
    pub owner: String,
    /// Kind of the owner.
    pub kind: Kind,
    /// Its counters.
    pub counters: Vec<Counter>,
}

impl Source {
    /// Counters by name.
    pub fn new<N: Into<String>>(
        owner: String,
        kind: Kind,
        counters: impl IntoIterator<Item = (N, u64)>,
    ) -> Source {
        let counter = |(name, total): (N, u64)| Counter {
            name: name.into(),
            total,
            rate: None,
        };
        Source {
            owner,
            kind,
            counters: counters.into_iter().map(counter).collect(),
        }
    }

    /// The sum of the rates of these counters; `None` if one is unknown.
    pub fn rate(&self, names: &[&str]) -> Option<f64> {
        self.named(names).map(|counter| counter.rate).sum()
    }

    /// The sum of these counters.
    pub fn total(&self, names: &[&str]) -> u64 {
        self.named(names).map(|counter| counter.total).sum()
    }

    fn named(&self, names: &[&str]) -> impl Iterator<Item = &Counter> {
        let all = self.counters.iter();
        all.filter(move |counter| names.contains(&counter.name.as_str()))
    }

    /// Sets the rates since `before`, `seconds` ago. Without rates: a counter has decreased, so the owner is new.
    fn set_rates(&mut self, before: &Source, seconds: f64) {
        let old: HashMap<&str, u64> = (before.counters.iter())
            .map(|counter| (counter.name.as_str(), counter.total))
            .collect();
        let increase = |counter: &Counter| match old.get(counter.name.as_str()) {
            Some(old) => counter.total.checked_sub(*old),
            None => Some(0),
        };
        if self
            .counters
            .iter()
            .any(|counter| increase(counter).is_none())
        {
            return;
        }
        for counter in &mut self.counters {
            counter.rate = increase(counter).map(|more| more as f64 / seconds);
        }
    }
}

/// The latest counters of all owners, and older ones from which the rates come.
#[derive(Debug, Default)]
pub struct History {
    before: Option<(Duration, Vec<Source>)>,
    latest: Vec<Source>,
    /// The time of `latest`; `None` if no rate may come from them.
    at: Option<Duration>,
}

impl History {
    /// Adds the counters at a time. Rates are over at least `span`: over a few milliseconds they would be wild.
    pub fn add(&mut self, at: Duration, mut sources: Vec<Source>, span: Duration) {
        let since = |then: Duration| at.saturating_sub(then);
        if let Some(then) = self.at
            && (self.before.is_none() || since(then) >= span)
        {
            self.before = Some((then, std::mem::take(&mut self.latest)));
        }
        if let Some((then, before)) = &self.before
            && since(*then) >= span
        {
            let before: HashMap<&str, &Source> = (before.iter())
                .map(|source| (source.owner.as_str(), source))
                .collect();
            for source in &mut sources {
                if let Some(before) = before.get(source.owner.as_str()) {
                    source.set_rates(before, since(*then).as_secs_f64());
                }
            }
        }
        self.latest = sources;
        self.at = Some(at);
    }

    /// The latest counters.
    pub fn latest(&self) -> &[Source] {
        &self.latest
    }

    /// Forgets all rates, because the next counters may be of another daemon. The latest totals stay.
    pub fn interrupt(&mut self) {
        self.before = None;
        self.at = None;
        for counter in self
            .latest
            .iter_mut()
            .flat_map(|source| &mut source.counters)
        {
            counter.rate = None;
        }
    }
}

/// The counters of interfaces, then those of their ports, which several interfaces share.
pub fn sources(ipoib: Vec<InterfaceStats>, vnics: Vec<VnicStats>) -> Vec<Source> {
    let mut all = Vec::new();
    let mut ports = Ports::default();
    for stats in ipoib {
        let owner = qualified(&stats.name, stats.netns.as_deref());
        let kernel = stats.kernel().map(|(name, n)| (name.to_owned(), n));
        let counters = kernel.into_iter().chain(stats.device.0);
        all.push(Source::new(
            owner,
            Kind::Ipoib,
            counters.chain(stats.protocol.0),
        ));
        ports.add(&stats.workers, "SA", stats.subnet);
    }
    for stats in vnics {
        let owner = qualified(&stats.name, stats.netns.as_deref());
        let counters = stats.driver.0.into_iter().chain(stats.port.0);
        all.push(Source::new(
            owner,
            Kind::Vnic,
            counters.chain(stats.device.0),
        ));
        ports.add(&stats.workers, "agent", stats.management);
    }
    all.extend(ports.0);
    all
}

/// The counters of ports, in the order of their appearance.
#[derive(Default)]
struct Ports(Vec<Source>);

impl Ports {
    /// Adds a port with the sums over its data threads, and another part of the port. Each interface of the port
    /// has both.
    fn add(&mut self, workers: &[WorkerStats], part: &str, of_part: Counters) {
        let Some(first) = workers.first() else { return };
        self.add_new(first.port.clone(), || {
            let mut sum = Counters::default();
            for worker in workers {
                let counters = worker.counters.0.iter();
                sum.add(counters.map(|(name, n)| (name.as_str(), *n)));
            }
            sum
        });
        if !of_part.is_empty() {
            self.add_new(format!("{} {part}", first.port), || of_part);
        }
    }

    fn add_new(&mut self, owner: String, counters: impl FnOnce() -> Counters) {
        if !self.0.iter().any(|known| known.owner == owner) {
            self.0.push(Source::new(owner, Kind::Port, counters().0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn add(history: &mut History, at: f64, owner: &str, counters: &[(&str, u64)]) {
        let source = Source::new(owner.to_owned(), Kind::Ipoib, counters.iter().copied());
        history.add(Duration::from_secs_f64(at), vec![source], SECOND / 2);
    }

    fn rates(history: &History) -> Vec<Option<f64>> {
        let counters = history.latest().iter().flat_map(|source| &source.counters);
        counters.map(|counter| counter.rate).collect()
    }

    #[test]
    fn rates_are_increases_per_second() {
        let mut history = History::default();
        add(&mut history, 0.0, "ib0", &[("rx", 5), ("tx", 1)]);
        assert_eq!(rates(&history), [None, None]);
        add(&mut history, 2.0, "ib0", &[("rx", 105), ("tx", 1)]);
        assert_eq!(rates(&history), [Some(50.0), Some(0.0)]);
        let source = &history.latest()[0];
        assert_eq!(
            (source.rate(&["rx", "tx"]), source.total(&["rx", "tx"])),
            (Some(50.0), 106)
        );
        add(&mut history, 3.0, "ib1", &[("rx", 1000)]);
        assert_eq!(rates(&history), [None], "another interface");
    }

    #[test]
    fn a_sample_shortly_after_another_has_rates_over_a_longer_time() {
        let mut history = History::default();
        add(&mut history, 0.0, "ib0", &[("rx", 0)]);
        add(&mut history, 0.001, "ib0", &[("rx", 7)]);
        assert_eq!(rates(&history), [None]);
        add(&mut history, 1.0, "ib0", &[("rx", 10)]);
        add(&mut history, 1.1, "ib0", &[("rx", 22)]);
        assert!(rates(&history)[0].is_some_and(|rate| (10.0..21.0).contains(&rate)));
    }

    #[test]
    fn counters_that_begin_again_give_no_rates() {
        let mut history = History::default();
        add(&mut history, 0.0, "ib0", &[("rx", 500), ("tx", 1)]);
        add(&mut history, 1.0, "ib0", &[("rx", 20), ("tx", 40)]);
        assert_eq!(rates(&history), [None, None]);
        add(&mut history, 2.0, "ib0", &[("rx", 30), ("tx", 40)]);
        assert_eq!(rates(&history), [Some(10.0), Some(0.0)]);
        // The next daemon may already have counted more than the last one.
        history.interrupt();
        assert_eq!(rates(&history), [None, None]);
        assert_eq!(history.latest()[0].total(&["rx"]), 30);
        add(&mut history, 3.0, "ib0", &[("rx", 1_000_000), ("tx", 40)]);
        assert_eq!(rates(&history), [None, None]);
        add(&mut history, 4.0, "ib0", &[("rx", 1_000_001), ("tx", 40)]);
        assert_eq!(rates(&history), [Some(1.0), Some(0.0)]);
    }

    #[test]
    fn a_port_of_several_interfaces_counts_once() {
        let worker = |worker| WorkerStats {
            worker,
            port: "soft/eth0".to_owned(),
            counters: [("rx_icrc_errors", 2)].into_iter().collect(),
        };
        let stats = |name: &str| InterfaceStats {
            name: name.to_owned(),
            subnet: [("sa_requests", 3)].into_iter().collect(),
            workers: vec![worker(0), worker(1)],
            ..InterfaceStats::default()
        };
        let all = sources(vec![stats("ib0"), stats("ib1")], vec![]);
        let owners: Vec<_> = all.iter().map(|source| source.owner.as_str()).collect();
        assert_eq!(owners, ["ib0", "ib1", "soft/eth0", "soft/eth0 SA"]);
        assert_eq!(all[2].total(&["rx_icrc_errors"]), 4);
        assert_eq!(all[3].total(&["sa_requests"]), 3);
    }
}
