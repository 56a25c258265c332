//! Agents and a manager on a network that loses, repeats and reorders datagrams. A failure prints the seed
//! of its world: `VNIC_AGENT_SEED=7` runs one world again, `VNIC_AGENT_WORLDS=1000` runs more.

use std::collections::BTreeMap;

use super::*;
use crate::attribute::{LidDirectory, ManagerInfo};
use crate::carriage::fragment::{Reassembler, Splitter};
use crate::mac_table::MacEntry;
use crate::mad::{MAC_ENTRIES_PAGE, MacEntries};

const AGENTS: u8 = 3;
/// Upper halves of the transaction ids of the manager and of a standby with the same queue pair.
const MARK: u64 = 0x1111_0001 << 32;
const STANDBY: u64 = 0x2222_0002 << 32;
/// Interval of the announcements of both, and of the standby's Gets; and their end.
const INTERVAL_MS: u64 = 700;
const ANNOUNCED_MS: u64 = 6_000;
/// Datagrams of 1 KiB: a page of a table has three pieces.
const PAYLOAD_MAX: u16 = 1024;
const ENTRIES: u16 = 300;
const RETRY_MS: u64 = 300;
/// By this time, a manager that repeats its requests has finished, even on the worst of these networks.
const END_MS: u64 = 600_000;

/// A datagram in flight.
struct Flying {
    due: u64,
    from: u8,
    to: u8,
    bytes: Vec<u8>,
}

/// An end of the network: 0 is the manager, the others are agents.
struct End {
    splitter: Splitter,
    reassembler: Reassembler,
}

struct Net {
    random: Random,
    loss_percent: u64,
    flying: Vec<Flying>,
    ends: Vec<End>,
}

impl Net {
    fn new(seed: u64) -> Net {
        let mut random = Random::new(seed);
        let loss_percent = random.below(35);
        let end = |n: u8| End {
            splitter: Splitter::new(n.into(), PAYLOAD_MAX.into()),
            reassembler: Reassembler::default(),
        };
        Net {
            random,
            loss_percent,
            flying: Vec::new(),
            ends: (0..=AGENTS).map(end).collect(),
        }
    }

    fn send(&mut self, now: u64, from: u8, to: u8, mad: &[u8]) {
        let pieces: Vec<Vec<u8>> = self.ends[usize::from(from)].splitter.split(mad).collect();
        for bytes in pieces {
            let copies = match self.random.below(100) {
                n if n < self.loss_percent => 0,
                n if n >= 90 => 2,
                _ => 1,
            };
            for _ in 0..copies {
                let due = now + 1 + self.random.below(100);
                let bytes = bytes.clone();
                self.flying.push(Flying {
                    due,
                    from,
                    to,
                    bytes,
                });
            }
        }
    }

    /// Messages that are complete now, with sender and receiver.
    fn arrive(&mut self, now: u64) -> Vec<(u8, u8, Vec<u8>)> {
        let mut complete = Vec::new();
        let mut at = 0;
        while at < self.flying.len() {
            if self.flying[at].due > now {
                at += 1;
                continue;
            }
            let f = self.flying.swap_remove(at);
            let end = &mut self.ends[usize::from(f.to)];
            let from = address(f.from, 0x40);
            if let Some(mad) = end
                .reassembler
                .receive(Time(now), from.gid, from.qpn, &f.bytes)
            {
                complete.push((f.from, f.to, mad));
            }
        }
        complete
    }
}

/// The manager's requests to one agent, in order. Each is repeated until it is answered.
struct Script {
    requests: Vec<Vec<u8>>,
    done: usize,
    retry_at: u64,
}

fn wanted(agent: u8) -> VeswPortInfo {
    VeswPortInfo {
        encap_slid: Lid::new(agent.into()),
        base_mac_addr: crate::generated_mac(1, 2, Lid::new(agent.into()), false),
        eth_mtu: 981,
        ..forwarding()
    }
}

fn entry(n: u16) -> MacEntry {
    let [a, b] = n.to_be_bytes();
    MacEntry {
        mac: [0x52, 0x54, 0, 1, a, b],
        mask: [0; 6],
        dlid_sd: u32::from(n % 3 + 1) << 8,
    }
}

impl Script {
    fn new(agent: u8) -> Script {
        let held = VeswPortInfo {
            config_state: ConfigState::DropAll,
            ..wanted(agent)
        };
        let mut script = Script {
            requests: Vec::new(),
            done: 0,
            retry_at: 0,
        };
        let trap = ClassPortInfo::default().with_trap(gid(0), Qpn::new(0x40), 1);
        script.add(attribute::CLASS_PORT_INFO, &trap);
        script.add(attribute::VESW_PORT_INFO, &held);
        let member = |n: u8| {
            let address = NodeAddress {
                gid: gid(n),
                qpn: Qpn::new(0x100),
            };
            (Lid::new(n.into()), address)
        };
        let directory = LidDirectory {
            start: 0,
            total: AGENTS.into(),
            digest: 5,
            entries: (1..=AGENTS).map(member).collect(),
        };
        script.add(attribute::LID_DIRECTORY, &directory);
        for offset in (0..ENTRIES).step_by(MAC_ENTRIES_PAGE) {
            let end = (offset + MAC_ENTRIES_PAGE as u16).min(ENTRIES);
            let page = MacEntries {
                offset,
                digest: 0x77,
                entries: (offset..end).map(entry).collect(),
            };
            script.add(attribute::VESW_MAC_ENTRIES, &page);
        }
        script.add(attribute::VESW_PORT_INFO, &wanted(agent));
        script
    }

    fn add(&mut self, id: u16, attribute: &impl Attribute) {
        let tid = MARK | self.requests.len() as u64;
        let header = Header::new(method::SET, id, 0, tid);
        self.requests.push(mad::write(&header, attribute));
    }

    fn current(&self) -> Option<&Vec<u8>> {
        self.requests.get(self.done)
    }

    /// Handles an answer. An answer to the current request advances the script; others are late.
    fn answered(&mut self, mad: &Mad<'_>) {
        assert_eq!(mad.header.status.get(), status::OK, "{:?}", mad.header);
        let tid = mad.header.transaction_id.get() as u32;
        assert!(tid as usize <= self.done);
        if tid as usize == self.done {
            self.done += 1;
            self.retry_at = 0;
        }
    }
}

struct Simulation {
    net: Net,
    agents: BTreeMap<u8, (Agent, TestHost)>,
    scripts: BTreeMap<u8, Script>,
    traps: u32,
    announced: BTreeMap<u8, u32>,
}

impl Simulation {
    fn new(seed: u64) -> Simulation {
        let agent = |n: u8| {
            let mut agent = Agent::new(
                Time(0),
                Config {
                    payload_max: PAYLOAD_MAX,
                    seed: seed ^ u64::from(n),
                    ..config()
                },
            );
            agent.set_fabric_up(Time(0), true);
            agent.add_port(Time(0), 0, new_port(0));
            agent.set_admin_up(Time(0), 0, true);
            (n, (agent, TestHost::default()))
        };
        Simulation {
            net: Net::new(seed),
            agents: (1..=AGENTS).map(agent).collect(),
            scripts: (1..=AGENTS).map(|n| (n, Script::new(n))).collect(),
            traps: 0,
            announced: BTreeMap::new(),
        }
    }

    fn step(&mut self, now: u64) {
        for (from, to, bytes) in self.net.arrive(now) {
            if to == 0 {
                self.manager_hears(from, &bytes);
                continue;
            }
            let (agent, host) = self.agents.get_mut(&to).unwrap();
            if let Some(answer) = agent.handle(Time(now), address(from, 0x40), &bytes, host) {
                self.net.send(now, to, from, &answer);
            }
        }
        for (n, (agent, _)) in &mut self.agents {
            while let Some(transmit) = agent.poll_transmit(Time(now)) {
                self.net.send(now, *n, 0, &transmit.mad);
            }
        }
        if now <= ANNOUNCED_MS && now.is_multiple_of(INTERVAL_MS) {
            self.managers_speak(now);
        }
        for (n, script) in &mut self.scripts {
            if now >= script.retry_at
                && let Some(request) = script.current().cloned()
            {
                script.retry_at = now + RETRY_MS;
                self.net.send(now, 0, *n, &request);
            }
        }
    }

    /// Both managers announce themselves, and the standby sends Gets.
    fn managers_speak(&mut self, now: u64) {
        for n in 1..=AGENTS {
            for (mark, active) in [(MARK, true), (STANDBY, false)] {
                let header = Header::new(method::SEND, attribute::MANAGER_INFO, 0, mark | now);
                let info = ManagerInfo {
                    id: mark,
                    priority: 5,
                    active,
                    lease_ms: 15_000,
                    gid: gid(0),
                };
                self.net.send(now, 0, n, &mad::write(&header, &info));
            }
            let header = Header::new(method::GET, attribute::VESW_PORT_INFO, 0, STANDBY | now);
            self.net.send(now, 0, n, &mad::write_empty(&header));
        }
    }

    fn manager_hears(&mut self, from: u8, bytes: &[u8]) {
        let mad = Mad::parse(bytes).unwrap();
        if mad.header.transaction_id.get() & STANDBY == STANDBY {
            assert_eq!(mad.header.status.get(), status::OK);
            return;
        }
        match mad.header.method {
            method::GET_RESP => self.scripts.get_mut(&from).unwrap().answered(&mad),
            method::TRAP => {
                mad.attribute::<Notice>().unwrap();
                self.traps += 1;
            }
            _ => *self.announced.entry(from).or_default() += 1,
        }
    }

    fn is_done(&self) -> bool {
        self.scripts
            .values()
            .all(|script| script.current().is_none())
            && self.net.flying.is_empty()
    }

    fn check(&mut self) {
        // One manager from the first Set on, despite the other's messages.
        for (n, (agent, _)) in &mut self.agents {
            let events: Vec<Event> = std::iter::from_fn(|| agent.poll_event()).collect();
            assert_eq!(events, [Event::Owned { gid: gid(0) }], "agent {n}");
        }
        let directory: Vec<Lid> = (1..=AGENTS).map(|n| Lid::new(n.into())).collect();
        for (n, (agent, host)) in &self.agents {
            let vport = &agent.vports[&0];
            assert_eq!(vport.written(wanted(*n)), vport.info, "agent {n}");
            assert_eq!(vport.info.oper_state, ConfigState::Forwarding);
            let entries: Vec<MacEntry> = vport.table.entries().map(|(_, e)| *e).collect();
            assert_eq!(entries, (0..ENTRIES).map(entry).collect::<Vec<_>>());
            let page = vport.directory.page(crate::mad::LidDirectoryQuery {
                start: 0,
                count: 83,
            });
            let lids: Vec<Lid> = page.entries.iter().map(|(lid, _)| *lid).collect();
            assert_eq!(lids, directory);
            assert_eq!(agent.counts().malformed, 0);
            // Repeated requests were applied once.
            let pages = usize::from(ENTRIES).div_ceil(MAC_ENTRIES_PAGE);
            let tables = host.calls.iter().filter(|c| matches!(c, Call::Table(..)));
            assert_eq!(tables.count(), pages, "agent {n}");
            let directories = host
                .calls
                .iter()
                .filter(|c| matches!(c, Call::Directory(..)));
            assert_eq!(directories.count(), 1);
        }
        for end in &self.net.ends {
            let counts = end.reassembler.counts();
            assert_eq!((counts.malformed, counts.contradicted), (0, 0));
        }
    }
}

fn run(seed: u64) {
    eprintln!("VNIC_AGENT_SEED={seed}");
    let mut simulation = Simulation::new(seed);
    let mut now = 0;
    while now <= ANNOUNCED_MS || !simulation.is_done() {
        assert!(now < END_MS, "seed {seed}: the manager did not finish");
        simulation.step(now);
        now += 5;
    }
    simulation.check();
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn a_manager_configures_every_agent_over_a_bad_network() {
    if let Some(seed) = number("VNIC_AGENT_SEED") {
        return run(seed);
    }
    for seed in 0..number("VNIC_AGENT_WORLDS").unwrap_or(40) {
        run(seed);
    }
}
