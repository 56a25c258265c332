//! An InfiniBand subnet: two virtual machines with InfiniBand ports, a host of this machine, and a scripted subnet
//! administrator. There are three subnets, each created for the first test that needs it; tests take turns.

use super::capture::Capture;
use super::machine::Link;
use super::pool::Pool;
use super::shared::Shared;
use super::stage::switch_with_host;
use super::{Local, Machine, Node, Sa, Station};

/// LIDs are the numbers of the nodes. A host and two machines for each subnet.
const HOSTS: [usize; 3] = [0x20, 0x21, 0x22];
const MACHINES: [[usize; 2]; HOSTS.len()] = [[0x11, 0x12], [0x13, 0x14], [0x15, 0x16]];

/// Framing of the packets on the subnet's Ethernet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// IPv6: a multicast packet goes to its MGID.
    Mgid,
    /// IPv4: a multicast packet goes to its MLID. The software fabric cannot send these.
    Mlid,
}

impl Framing {
    /// As in options of the scripts.
    fn encapsulation(self) -> u8 {
        match self {
            Framing::Mgid => 6,
            Framing::Mlid => 4,
        }
    }
}

/// See the module.
pub struct Subnet {
    /// A host with an Ethernet interface that has the MAC of a port.
    pub host: Local,
    /// A virtual machine for the kernel's `ib_ipoib`.
    pub kernel: Machine,
    /// Another one, for anything.
    pub machine: Machine,
    switch: Station,
    shared: &'static Shared,
    framing: Framing,
}

/// Runs a test on a reset subnet, and checks the packets of the machine `kernel`. Prints the reason if virtual machines
/// with InfiniBand ports are impossible. `sa_options` are options of the subnet administrator.
pub fn on_subnet(framing: Framing, sa_options: &str, test: impl FnOnce(&Subnet, &Sa)) {
    let Some(mut subnet) = SUBNETS.take() else {
        return kit::skip("it needs virtual machines with InfiniBand ports, see above");
    };
    subnet.framing = framing;
    let subnet = &*subnet;
    std::thread::scope(|scope| {
        for machine in [&subnet.kernel, &subnet.machine] {
            scope.spawn(|| subnet.reset(machine));
        }
    });
    let sa = subnet.start_sa(sa_options);
    let capture = Capture::start(&subnet.switch, &subnet.kernel.port());
    capture.watch(true, || {
        let _shown = ShownOnFailure(&subnet.machine);
        test(subnet, &sa);
    });
}

/// Prints the underlay of a machine if the test fails: its packets are not in the capture.
struct ShownOnFailure<'a>(&'a Machine);

impl Drop for ShownOnFailure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let done = self
                .0
                .run("ip -s address show eth0; ip neigh; ip route; cat /proc/net/snmp; dmesg | tail -n 20");
            eprintln!("--- the underlay of the machine:\n{}{}", done.out, done.err);
        }
    }
}

static SUBNETS: Pool<Subnet> = Pool::new(HOSTS.len(), Subnet::make);

impl Subnet {
    fn make(index: usize) -> Option<Subnet> {
        let shared = Shared::with("ib-guest")?;
        let (switch, host) = switch_with_host(HOSTS[index], shared);
        // The link-local address follows the MAC.
        switch.ok("ip link set br0 down");
        switch.ok(&format!("ip link set br0 address {}", mac(1)));
        switch.bring_up("br0");
        switch.ok("ip addr add 10.99.0.1/16 dev br0");
        host.station().ok("ip link set eth0 down");
        host.station()
            .ok(&format!("ip link set eth0 address {}", mac(HOSTS[index])));
        host.station().bring_up("eth0");
        let [kernel, machine] = std::thread::scope(|scope| {
            MACHINES[index]
                .map(|lid| {
                    let switch = &switch;
                    scope.spawn(move || {
                        Machine::boot(switch, lid, Link::InfiniBand, shared)
                            .unwrap_or_else(|e| panic!("ib-guest boot: {e:?}"))
                    })
                })
                .map(|booting| booting.join().expect("no panic"))
        });
        Some(Subnet {
            host,
            kernel,
            machine,
            switch,
            shared,
            framing: Framing::Mgid,
        })
    }

    fn reset(&self, machine: &Machine) {
        machine.reset();
        let address = format!("10.99.0.{}/16", machine.number());
        machine.ok(&format!("ip addr replace {address} dev eth0"));
        machine.renew_port(&format!("encap={}", self.framing.encapsulation()));
    }

    /// Starts another subnet administrator on LID 1; the one before must have ended.
    pub fn start_sa(&self, options: &str) -> Sa {
        let options = format!("--encap {} {options}", self.framing.encapsulation());
        let namespace = self.switch.namespace().name();
        Sa::start(namespace, &options, self.shared.scratch())
    }

    /// Starts another subnet administrator on the host's port. The ports of the machines learn its LID.
    pub fn move_sa(&self, options: &str) -> Sa {
        let encapsulation = self.framing.encapsulation();
        let station = self.host.station();
        let lid = self.host.number();
        station.ok(&format!("ip addr replace 10.99.0.{lid}/16 dev eth0"));
        let options = format!("--dev eth0 --lid {lid} --encap {encapsulation} {options}");
        let sa = Sa::start(station.namespace().name(), &options, self.shared.scratch());
        for machine in [&self.kernel, &self.machine] {
            machine.set_port("sm_lid", &lid.to_string());
            machine.port_event(SM_CHANGE);
            machine.port_event(CLIENT_REREGISTER);
        }
        sa
    }
}

/// Asynchronous events of a port (`enum ib_event_type`).
pub const P_KEY_CHANGE: u32 = 12;
pub(super) const LID_CHANGE: u32 = 11;
const SM_CHANGE: u32 = 13;
/// See [`P_KEY_CHANGE`].
pub const CLIENT_REREGISTER: u32 = 17;

fn mac(lid: usize) -> String {
    format!("02:99:00:00:{:02x}:{:02x}", lid >> 8, lid & 0xff)
}

/// The GID of the port with a LID.
pub fn gid_of(lid: usize) -> String {
    format!("fe80::99:ff:fe00:{lid:x}")
}
