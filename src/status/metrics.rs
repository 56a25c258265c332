//! Counters and states for Prometheus and similar collectors, in the OpenMetrics text format.
//!
//! Each counter is described where it is counted ([`proto::counters!`]); the descriptions are the help texts. The
//! metrics have the counters' names behind the names of what they belong to: `ibtap_interface_rx_packets_total`.

use std::collections::BTreeMap;
use std::fmt;

use control::api::{
    ApiError, ConnectionInfo, Counters, InterfaceInfo, InterfaceStats, PortState, Reply, Selection,
    VnicStats, WorkerStats,
};
use ipoib::Counters as CoreCounters;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use proto::counters::Description;
use vnic::agent::AgentCounts;
use vnic::carriage::fragment::FragmentCounts;
use vnic::carriage::seal::SealCounts;

use super::{GROUPS_REFUSED, View};
use crate::datapath::{IpStats, TapStats, ThreadStats};

/// The labels of a sample: names and values.
type Labels = Vec<(&'static str, String)>;

/// What a sample's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It only increases.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// The samples of one name.
#[derive(Debug)]
struct Family {
    kind: Kind,
    help: String,
    samples: BTreeMap<Labels, u64>,
}

/// Families by name, without the ending `_total` of counters.
#[derive(Debug, Default)]
struct Families(BTreeMap<String, Family>);

impl View<'_> {
    /// All counters and states.
    ///
    /// # Errors
    /// As [`crate::port::Ports::snapshots`].
    pub(crate) fn metrics(&self) -> Result<String, ApiError> {
        let all = Selection::default();
        let mut families = Families::default();
        families.gauge(
            "build_info",
            "The version of ibtapd; always 1.",
            vec![("version", env!("CARGO_PKG_VERSION").to_owned())],
            1,
        );
        for (_, port) in self.ports.iter() {
            let attributes = port.port.attributes();
            families.gauge(
                "port_active",
                "Whether the fabric port is active.",
                vec![("port", attributes.name)],
                (attributes.state == PortState::Active).into(),
            );
        }
        let mut ports = BTreeMap::new();
        if let Reply::Show { interfaces } = self.show(&all)? {
            for i in interfaces {
                families.interface(&i);
                ports.insert((i.name, i.netns), i.port);
            }
        }
        if let Reply::Stats { stats } = self.stats(&all)? {
            stats
                .iter()
                .for_each(|s| families.interface_stats(s, &ports));
        }
        if let Reply::Vnics { vnics } = self.show_vnics(&all)? {
            for v in vnics {
                let labels = labels("vnic", &v.name, v.netns.as_deref(), &v.port);
                families.link("vnic", &labels, (v.up, v.carrier, v.mtu));
                ports.insert((v.name, v.netns), v.port);
            }
        }
        if let Reply::VnicStats { stats } = self.vnic_stats(&all)? {
            stats.iter().for_each(|s| families.vnic_stats(s, &ports));
        }
        // The sums are few, whatever the number of connections.
        families.connections(&self.all_connections(&all)?);
        Ok(families.encode())
    }
}

/// The port of each interface, by name and namespace.
type PortNames = BTreeMap<(String, Option<String>), String>;

/// The labels of an interface or a VNIC. An interface in the daemon's own namespace has an empty `netns`.
fn labels(kind: &'static str, name: &str, netns: Option<&str>, port: &str) -> Labels {
    vec![
        (kind, name.to_owned()),
        ("netns", netns.unwrap_or_default().to_owned()),
        ("port", port.to_owned()),
    ]
}

impl Families {
    fn interface(&mut self, i: &InterfaceInfo) {
        let labels = labels("interface", &i.name, i.netns.as_deref(), &i.port);
        self.link("interface", &labels, (i.up, i.carrier, i.mtu));
        let text = "Maximum number of connections, incoming and outgoing.";
        let max = i.connections_max.into();
        self.gauge("interface_connections_max", text, labels, max);
    }

    /// The states of an interface or a VNIC: up, carrier, MTU.
    fn link(&mut self, kind: &str, labels: &Labels, (up, carrier, mtu): (bool, bool, u32)) {
        for (name, text, value) in [
            ("up", "Whether an administrator has set it up.", up.into()),
            ("carrier", "Whether its carrier is on.", carrier.into()),
            ("mtu_bytes", "Its MTU.", mtu.into()),
        ] {
            self.gauge(&format!("{kind}_{name}"), text, labels.clone(), value);
        }
    }

    fn interface_stats(&mut self, stats: &InterfaceStats, ports: &PortNames) {
        let port = port_of(&stats.name, stats.netns.as_ref(), &stats.workers, ports);
        let labels = labels("interface", &stats.name, stats.netns.as_deref(), &port);
        self.counters("interface", &labels, stats.kernel(), interface_descriptions);
        for counters in [&stats.device, &stats.protocol] {
            self.counters(
                "interface",
                &labels,
                pairs(counters),
                interface_descriptions,
            );
        }
        let of_port = vec![("port", port)];
        let subnet = pairs(&stats.subnet);
        self.counters("port", &of_port, subnet, || {
            fabric::sa::Counts::DESCRIPTIONS.iter()
        });
        self.workers(&stats.workers);
    }

    fn vnic_stats(&mut self, stats: &VnicStats, ports: &PortNames) {
        let port = port_of(&stats.name, stats.netns.as_ref(), &stats.workers, ports);
        let labels = labels("vnic", &stats.name, stats.netns.as_deref(), &port);
        for counters in [&stats.driver, &stats.port, &stats.device] {
            self.counters("vnic", &labels, pairs(counters), vnic_descriptions);
        }
        let of_port = vec![("port", port)];
        let management = pairs(&stats.management);
        self.counters("management", &of_port, management, management_descriptions);
        self.workers(&stats.workers);
    }

    fn workers(&mut self, workers: &[WorkerStats]) {
        for worker in workers {
            let labels = vec![
                ("port", worker.port.clone()),
                ("worker", worker.worker.to_string()),
            ];
            self.counters(
                "worker",
                &labels,
                pairs(&worker.counters),
                worker_descriptions,
            );
        }
    }

    /// Connections by interface, requesting side and state.
    fn connections(&mut self, connections: &[ConnectionInfo]) {
        for c in connections {
            let labels: Labels = vec![
                ("interface", c.interface.clone()),
                ("netns", c.netns.clone().unwrap_or_default()),
                ("role", c.role.to_string()),
                ("state", c.state.clone()),
            ];
            for (name, text, value) in [
                ("connections", "Reliable connections.", 1),
                (
                    "connections_in_flight_packets",
                    "Packets of reliable connections sent and not acknowledged.",
                    c.in_flight.into(),
                ),
            ] {
                let family = self.family(name, Kind::Gauge, || text);
                *family.samples.entry(labels.clone()).or_default() += value;
            }
        }
    }

    fn family<'t>(&mut self, name: &str, kind: Kind, text: impl Fn() -> &'t str) -> &mut Family {
        self.0
            .entry(format!("ibtap_{name}"))
            .or_insert_with(|| Family {
                kind,
                help: plain(text()),
                samples: BTreeMap::new(),
            })
    }

    fn gauge(&mut self, name: &str, text: &str, labels: Labels, value: u64) {
        let family = self.family(name, Kind::Gauge, || text);
        family.samples.insert(labels, value);
    }

    /// Adds the counters of one owner. Counters shared by several interfaces are the same each time.
    fn counters<'c, D: Iterator<Item = &'static Description>>(
        &mut self,
        owner: &str,
        labels: &Labels,
        counters: impl IntoIterator<Item = (&'c str, u64)>,
        descriptions: impl Fn() -> D,
    ) {
        for (name, value) in counters {
            let described = || descriptions().find(|(known, _)| *known == name);
            let text = || described().map_or("", |(_, text)| *text);
            let family = self.family(&format!("{owner}_{name}"), Kind::Counter, text);
            family.samples.insert(labels.clone(), value);
        }
    }

    fn encode(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut out = String::new();
        text::encode(&mut out, &registry).expect("a String accepts all text");
        out
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, family) in &self.0 {
            let (name, unit) = without_unit(name);
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
            };
            let mut metric = encoder.encode_descriptor(name, &family.help, unit.as_ref(), kind)?;
            for (labels, value) in &family.samples {
                let mut sample = metric.encode_family(labels)?;
                match family.kind {
                    Kind::Counter => sample.encode_counter::<NoLabelSet, _, u64>(value, None)?,
                    Kind::Gauge => sample.encode_gauge(&value.cast_signed())?,
                }
            }
        }
        Ok(())
    }
}

/// The name without its unit, and the unit. The encoder appends the unit to the name.
fn without_unit(name: &str) -> (&str, Option<Unit>) {
    if let Some(rest) = name.strip_suffix("_bytes") {
        return (rest, Some(Unit::Bytes));
    }
    match name.strip_suffix("_packets") {
        Some(rest) => (rest, Some(Unit::Other("packets".into()))),
        None => (name, None),
    }
}

/// The port of an interface. A VLAN's name is not in the list of interfaces; its workers name the port.
fn port_of(
    name: &str,
    netns: Option<&String>,
    workers: &[WorkerStats],
    ports: &PortNames,
) -> String {
    let listed = ports.get(&(name.to_owned(), netns.cloned()));
    let of_workers = || workers.first().map(|worker| worker.port.clone());
    listed.cloned().or_else(of_workers).unwrap_or_default()
}

fn pairs(counters: &Counters) -> impl Iterator<Item = (&str, u64)> {
    counters
        .0
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
}

/// A documentation comment as plain text on one line.
fn plain(comment: &str) -> String {
    comment.trim().replace(['`', '[', ']'], "")
}

fn interface_descriptions() -> impl Iterator<Item = &'static Description> {
    let link = IpStats::DESCRIPTIONS.iter().chain(TapStats::DESCRIPTIONS);
    link.chain([&GROUPS_REFUSED])
        .chain(CoreCounters::descriptions())
}

fn vnic_descriptions() -> impl Iterator<Item = &'static Description> {
    let port = vnic::counters::Counters::DESCRIPTIONS.iter();
    port.chain(TapStats::DESCRIPTIONS)
}

fn management_descriptions() -> impl Iterator<Item = &'static Description> {
    let agent = AgentCounts::DESCRIPTIONS.iter();
    agent
        .chain(FragmentCounts::DESCRIPTIONS)
        .chain(SealCounts::DESCRIPTIONS)
}

fn worker_descriptions() -> impl Iterator<Item = &'static Description> {
    let thread = ThreadStats::DESCRIPTIONS.iter();
    thread.chain(fabric::counter_descriptions())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_has_its_help_and_its_unit() {
        let mut families = Families::default();
        let labels = labels("interface", "ib\"0", None, "soft/eth0");
        let counters = [("rx_bytes", 7), ("tx_bad_arp", 2)];
        families.counters("interface", &labels, counters, interface_descriptions);
        let text = families.encode();
        for line in [
            "# HELP ibtap_interface_rx_bytes Bytes of the IP and ARP packets received for the host.",
            "# TYPE ibtap_interface_rx_bytes counter",
            "# UNIT ibtap_interface_rx_bytes bytes",
            r#"ibtap_interface_rx_bytes_total{interface="ib\"0",netns="",port="soft/eth0"} 7"#,
            "# TYPE ibtap_interface_tx_bad_arp counter",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    /// The help of a metric comes from the counter's documentation, which is one line there.
    #[test]
    fn every_description_is_a_sentence_on_one_line() {
        let all = interface_descriptions()
            .chain(vnic_descriptions())
            .chain(management_descriptions())
            .chain(worker_descriptions())
            .chain(fabric::sa::Counts::DESCRIPTIONS);
        let mut count = 0;
        for (name, text) in all {
            let text = plain(text);
            let is_sentence = text.ends_with('.') && text.len() > 5;
            assert!(
                is_sentence && !text.contains(['\n', '\\']),
                "{name}: {text:?}"
            );
            assert!(
                !text.contains("::") && !text.contains("See "),
                "{name}: {text:?}"
            );
            count += 1;
        }
        assert!(count > 250, "{count}");
    }
}
