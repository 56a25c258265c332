//! Network namespaces as hosts, connected by a veth or a bridge.

pub mod attacker;
mod bridge;
mod connection;
mod daemon;
mod em;
mod follow;
pub mod frame;
pub mod group;
mod host;
mod iperf;
mod load;
mod loss;
mod namespace;
pub mod packet;
pub mod packet16;
mod patience;
mod pinging;
mod programs;
pub mod rc_peer;
pub mod reliable;
mod resolution;
mod service;
mod shell;
mod sniffer;
mod station;
mod subnet;
mod sweep;
mod transfer;

pub use attacker::backlog_drops;
pub use bridge::{Bridged, Guest};
pub use connection::Connection;
pub use daemon::Daemon;
pub use em::Em;
pub use follow::Follow;
pub use host::Host;
pub use iperf::{iperf, iperf_above, iperf_across, iperf_server, more_arrives, udp_arrives};
pub use load::{Alone, Load, Presence};
pub use loss::Loss;
pub use namespace::Namespace;
pub use patience::{HEALED, SOON, eventually, one_of_three, patient, within};
pub use pinging::Pinging;
pub use programs::{ibtap, ibtap_fs, ibtap_peer, ibtapd, older, source};
pub use resolution::{is_duplicate, neighbour};
pub use service::Service;
pub use shell::Shell;
pub use sniffer::Sniffer;
pub use station::{Background, Done, Station, sent, unanswered};
pub use subnet::{Running, Subnet};
pub use sweep::Scratch;
pub use transfer::arrives_whole;

/// Default MTU of the underlay: room for an IB MTU of 4096.
pub const UNDERLAY_MTU: u32 = 9000;
/// The corresponding IPoIB MTU: the IB MTU without the 4-byte encapsulation header.
pub const LINK_MTU: u32 = 4092;
/// The IPoIB MTU of connected mode.
pub const CONNECTED_MTU: u32 = 65_520;
/// Options for connected mode.
pub const CONNECTED: [&str; 2] = ["--mode", "connected"];

/// Hosts `0..n`, each with an interface `eth0` on one Ethernet segment. Host `i` has
/// `10.8.0.(i+1)/24` there, and its link-local address is usable at once.
pub struct Lab {
    hosts: Vec<Host>,
    switch: Option<Station>,
    _scratch: Scratch,
    /// Last, so that it ends after everything else.
    _presence: Presence,
}

impl Lab {
    /// Two hosts connected by a veth. `None`, with a message, without root.
    pub fn pair() -> Option<Lab> {
        Lab::pair_with_mtu(UNDERLAY_MTU)
    }

    /// Two hosts connected by a veth with that MTU.
    pub fn pair_with_mtu(mtu: u32) -> Option<Lab> {
        let mut lab = Lab::unconnected(2)?;
        let peer = lab.hosts[1].namespace().name().to_owned();
        lab.hosts[0].ok(&format!(
            "ip link add eth0 mtu {mtu} type veth peer name eth0 mtu {mtu} netns {peer}"
        ));
        lab.bring_up_underlay();
        Some(lab)
    }

    /// Two running daemons on a pair of hosts, `ib0` configured and answering on both.
    pub fn running_pair() -> Option<Lab> {
        Lab::pair().map(Lab::run)
    }

    /// The same in connected mode.
    pub fn connected_pair() -> Option<Lab> {
        Lab::pair().map(|lab| lab.run_with(&CONNECTED))
    }

    /// `n` hosts on a bridge that floods multicast, all running.
    pub fn running_segment(n: usize) -> Option<Lab> {
        Lab::running_segment_with(n, &[])
    }

    /// The same with further options for the daemons.
    pub fn running_segment_with(n: usize, options: &[&str]) -> Option<Lab> {
        Lab::segment(n).map(|lab| lab.run_with(options))
    }

    /// `n` hosts on a bridge that floods multicast, without daemons.
    pub fn segment(n: usize) -> Option<Lab> {
        let mut lab = Lab::unconnected(n)?;
        let switch = Station::create("the switch");
        switch.ok("ip link add br0 type bridge mcast_snooping 0");
        switch.ok(&format!("ip link set br0 up mtu {UNDERLAY_MTU}"));
        for (i, host) in lab.hosts.iter().enumerate() {
            host.ok(&format!(
                "ip link add eth0 mtu {UNDERLAY_MTU} type veth \
                 peer name port{i} mtu {UNDERLAY_MTU} netns {}",
                switch.namespace().name()
            ));
            switch.ok(&format!("ip link set port{i} master br0 up"));
        }
        lab.bring_up_underlay();
        lab.switch = Some(switch);
        Some(lab)
    }

    fn unconnected(n: usize) -> Option<Lab> {
        if !kit::is_root() {
            return None;
        }
        let presence = Presence::begin();
        let scratch = Scratch::create("ibtap-lab-");
        let hosts = (0..n).map(|i| Host::create(i, scratch.path())).collect();
        Some(Lab {
            hosts,
            switch: None,
            _scratch: scratch,
            _presence: presence,
        })
    }

    /// Connects the first two hosts by a second Ethernet, `eth1`.
    pub fn add_second_underlay(&mut self) {
        let (a, b) = self.two();
        let peer = b.namespace().name().to_owned();
        a.ok(&format!(
            "ip link add eth1 mtu {UNDERLAY_MTU} type veth peer name eth1 mtu {UNDERLAY_MTU} netns {peer}"
        ));
        for host in [a, b] {
            host.bring_up("eth1");
        }
    }

    fn bring_up_underlay(&mut self) {
        for host in &self.hosts {
            host.bring_up_underlay();
        }
    }

    /// Starts a daemon on each host, configures `ib0`, and waits until all can ping the first.
    fn run(self) -> Lab {
        self.run_with(&[])
    }

    /// The same with further options for the daemons.
    pub fn run_with(mut self, options: &[&str]) -> Lab {
        for host in &mut self.hosts {
            host.start(options);
        }
        self.await_pings()
    }

    fn await_pings(self) -> Lab {
        for host in &self.hosts {
            host.configure("ib0");
        }
        for host in &self.hosts[1..] {
            host.reaches(&self.hosts[0]);
        }
        self
    }

    /// Starts a daemon on each host with separate options, configures `ib0`, and waits until all can ping the
    /// first.
    pub fn run_each(mut self, options: &[&[&str]]) -> Lab {
        assert_eq!(options.len(), self.hosts.len());
        for (host, options) in self.hosts.iter_mut().zip(options) {
            host.start(options);
        }
        self.await_pings()
    }

    /// All hosts of a segment, and its bridge, whose `portI` is host `I`'s.
    pub fn hosts_and_switch(&mut self) -> (&mut [Host], &Station) {
        let switch = self.switch.as_ref().expect("a lab of a segment");
        (&mut self.hosts, switch)
    }

    /// A host.
    pub fn host(&mut self, i: usize) -> &mut Host {
        &mut self.hosts[i]
    }

    /// The first two hosts.
    pub fn two(&mut self) -> (&mut Host, &mut Host) {
        let [a, b, ..] = &mut self.hosts[..] else {
            panic!("a lab of two hosts or more");
        };
        (a, b)
    }

    /// The first three hosts.
    pub fn three(&mut self) -> (&mut Host, &mut Host, &mut Host) {
        let [a, b, c, ..] = &mut self.hosts[..] else {
            panic!("a lab of three hosts or more");
        };
        (a, b, c)
    }
}
