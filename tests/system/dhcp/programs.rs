//! DHCP clients and servers, and captures of their packets. They do not touch the machine's configuration:
//! each has its files in a temporary folder.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::lab::packet::{frames, ud_of_frame};
use crate::lab::{Background, SOON, Scratch, Sniffer, Station, eventually, within};

/// Time limit for leases and renewals. dhclient repeats a lost message after about 10 s and after 20 s more (RFC 8415,
/// section 7.6; RFC 2131, section 4.1). On a machine where other tests fill the queues shared by all namespaces, one
/// may be lost.
const LEASED: Duration = Duration::from_secs(40);

/// A script of this folder.
pub fn script(name: &str) -> String {
    format!("{}/tests/system/dhcp/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A new folder for a program.
fn folder() -> Scratch {
    Scratch::create("ibtap-dhcp-")
}

fn path(folder: &Scratch, name: &str) -> String {
    let path = folder.path().join(name);
    path.to_str().expect("an ASCII path").to_owned()
}

fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// A server that is ready.
pub trait Server {
    /// Whether the server has received the release of `address`.
    fn has_back(&self, address: &str) -> bool;

    /// Waits for that release.
    fn await_release(&self, address: &str) {
        eventually(SOON, "a release at the server", || {
            self.has_back(address).then_some(())
        });
    }
}

/// Dnsmasq on an interface, without DNS.
pub struct Dnsmasq {
    _program: Background,
    folder: Scratch,
}

impl Dnsmasq {
    /// Leases last two minutes, dnsmasq's minimum.
    pub fn v4(station: &Station, interface: &str, first: &str, last: &str) -> Dnsmasq {
        let options = format!("--dhcp-range={first},{last},255.255.255.0,2m --dhcp-option=3");
        Dnsmasq::start(station, interface, &options, "DHCP, IP range")
    }

    /// Router advertisements for SLAAC with this MTU option and a lifetime of half an hour, and DHCPv6 with
    /// addresses `prefix`100 to `prefix`1ff.
    pub fn v6(station: &Station, interface: &str, prefix: &str, mtu: u32) -> Dnsmasq {
        let options = format!(
            "--enable-ra --dhcp-range={prefix}100,{prefix}1ff,slaac,64,2m \
             --ra-param={interface},mtu:{mtu},4,1800"
        );
        Dnsmasq::start(
            station,
            interface,
            &options,
            "IPv6 router advertisement enabled",
        )
    }

    fn start(station: &Station, interface: &str, options: &str, ready: &str) -> Dnsmasq {
        let folder = folder();
        let log = path(&folder, "log");
        let program = station.spawn(&format!(
            "dnsmasq --keep-in-foreground --conf-file=/dev/null --user=root --group=root --port=0 \
             --interface={interface} --bind-interfaces --log-dhcp --log-facility={log} \
             --dhcp-leasefile={} --pid-file={} --dhcp-authoritative --no-ping {options}",
            path(&folder, "leases"),
            path(&folder, "pid"),
        ));
        let dnsmasq = Dnsmasq {
            _program: program,
            folder,
        };
        eventually(SOON, "dnsmasq to be ready", || {
            dnsmasq.logged(&[ready]).then_some(())
        });
        dnsmasq
    }

    /// Whether a line of its log has all of these words.
    pub fn logged(&self, words: &[&str]) -> bool {
        lines(&self.folder.path().join("log"))
            .iter()
            .any(|line| words.iter().all(|word| line.contains(word)))
    }
}

impl Drop for Dnsmasq {
    fn drop(&mut self) {
        if thread::panicking() {
            for name in ["log", "leases"] {
                let output = lines(&self.folder.path().join(name)).join("\n");
                eprintln!("--- {name} of dnsmasq:\n{output}");
            }
        }
    }
}

impl Server for Dnsmasq {
    fn has_back(&self, address: &str) -> bool {
        let leases = lines(&self.folder.path().join("leases"));
        self.logged(&["DHCPRELEASE"]) && !leases.iter().any(|lease| lease.contains(address))
    }
}

/// A server on a link of InfiniBand hosts: see `server.py`.
pub struct InfinibandServer {
    _program: Background,
    folder: Scratch,
}

impl InfinibandServer {
    /// Leases from `first`, for 100 s.
    pub fn start(station: &Station, interface: &str, own: &str, first: &str) -> InfinibandServer {
        let folder = folder();
        let program = station.spawn(&format!(
            "python3 {} {} {interface} {own} {first} 100 50 80",
            script("server.py"),
            path(&folder, "log")
        ));
        let server = InfinibandServer {
            _program: program,
            folder,
        };
        eventually(SOON, "the server to be ready", || {
            (!server.requests("ready").is_empty()).then_some(())
        });
        server
    }

    /// The received messages of one type.
    pub fn requests(&self, kind: &str) -> Vec<Value> {
        lines(&self.folder.path().join("log"))
            .iter()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|request| request["type"] == kind)
            .collect()
    }
}

impl Server for InfinibandServer {
    fn has_back(&self, address: &str) -> bool {
        self.requests("release")
            .iter()
            .any(|request| request["ciaddr"] == address)
    }
}

/// A client on an interface; it configures the leased addresses.
pub struct Client {
    program: Background,
    folder: Scratch,
    /// Command line of a separate call that releases the lease, if the client needs one.
    release: Option<String>,
}

impl Client {
    /// Busybox's udhcpc.
    pub fn udhcpc(station: &Station, interface: &str) -> Client {
        let folder = folder();
        let words = format!(
            "udhcpc -f -i {interface} -t 30 -T 1 -A 1 -s {}",
            events_script(&folder)
        );
        Client {
            program: station.spawn(&words),
            folder,
            release: None,
        }
    }

    /// ISC's dhclient, for IPv4 (`-4`) or IPv6 (`-6`).
    pub fn dhclient(station: &Station, interface: &str, family: &str) -> Client {
        let folder = folder();
        // AppArmor confines the program at its usual path to its usual files.
        let program = path(&folder, "dhclient");
        let installed = ["/usr/sbin/dhclient", "/sbin/dhclient"];
        let installed = installed.iter().find(|p| Path::new(p).exists());
        fs::copy(installed.expect("isc-dhcp-client is installed"), &program).expect("a copy");
        fs::write(folder.path().join("leases"), "").expect("a file");
        fs::write(
            folder.path().join("conf"),
            "initial-interval 1; retry 1; timeout 40; supersede dhcp-renewal-time 4;\n",
        )
        .expect("a file");
        Client::dhclient_in(folder, station, interface, family)
    }

    fn dhclient_in(folder: Scratch, station: &Station, interface: &str, family: &str) -> Client {
        let program = path(&folder, "dhclient");
        let files = format!(
            "-cf {} -lf {} -pf {} -sf {}",
            path(&folder, "conf"),
            path(&folder, "leases"),
            path(&folder, "pid"),
            events_script(&folder)
        );
        Client {
            program: station.spawn(&format!("{program} {family} -d {files} {interface}")),
            release: Some(format!("{program} {family} -v -r {files} {interface}")),
            folder,
        }
    }

    /// Kills a dhclient and restarts it when, by its file of leases, it should have renewed its DHCPv6 lease
    /// a moment after getting it.
    pub fn back_when_it_is_time_to_renew(
        self,
        station: &Station,
        interface: &str,
        family: &str,
    ) -> Client {
        drop(self.program);
        let file = self.folder.path().join("leases");
        let leases = fs::read_to_string(&file).expect("its leases");
        assert!(leases.contains("renew 60;"), "{leases}");
        fs::write(&file, leases.replace("renew 60;", "renew 1;")).expect("a file");
        Client::dhclient_in(self.folder, station, interface, family)
    }

    /// The events of its script: "EVENT ADDRESS".
    fn events(&self) -> Vec<String> {
        lines(&self.folder.path().join("events.log"))
    }

    /// The last address of one of these events.
    fn address_of(&self, events: &[&str]) -> Option<String> {
        let mut seen = self.events().into_iter().rev();
        seen.find_map(|line| {
            let (event, address) = line.split_once(' ')?;
            events.contains(&event).then(|| address.to_owned())
        })
    }

    /// Waits for its first lease and returns the address.
    pub fn await_lease(&self) -> String {
        eventually(LEASED, "a lease", || {
            self.address_of(&["bound", "BOUND", "REBOOT", "BOUND6"])
        })
    }

    /// Waits until a lease is renewed, which dhclient does after 4 s by its configuration.
    pub fn renews(&self) -> String {
        if self.release.is_none() {
            self.signal(Signal::USR1);
        }
        eventually(LEASED, "a renewed lease", || {
            self.address_of(&["renew", "RENEW", "RENEW6"])
        })
    }

    /// Releases its lease of `address`, and waits until `server` has the release.
    pub fn release(&self, station: &Station, server: &dyn Server, address: &str) {
        match &self.release {
            None => self.release_by_signal(|| server.has_back(address)),
            Some(words) => self.release_by(words, station, || server.has_back(address)),
        }
        server.await_release(address);
    }

    /// The client sends the release once and waits for no answer. On a machine where other tests fill the queues shared
    /// by all namespaces, it may be lost: then the client gets its lease again.
    fn release_by_signal(&self, is_done: impl Fn() -> bool) {
        let await_event = |limit: Duration, what: &str| {
            eventually(limit, what, || {
                let last = self.events().pop()?;
                last.starts_with(what).then_some(())
            });
        };
        for _ in 0..3 {
            self.signal(Signal::USR2);
            // After the release, the client removes the address, if permitted.
            await_event(SOON, "deconfig");
            if is_soon(&is_done) {
                break;
            }
            self.signal(Signal::USR1);
            await_event(LEASED, "bound");
        }
    }

    /// Runs a second client, for which the same is true.
    fn release_by(&self, words: &str, station: &Station, is_done: impl Fn() -> bool) {
        let file = self.folder.path().join("leases");
        // The file is all that the second client knows. Its writer reports before it writes.
        let leases = eventually(SOON, "the lease to be on file", || {
            let leases = fs::read_to_string(&file).expect("its leases");
            leases.trim_end().ends_with('}').then_some(leases)
        });
        for _ in 0..3 {
            fs::write(&file, &leases).expect("a file");
            let done = station.run(words);
            assert_eq!(done.code, Some(0), "{words}: {done:?}");
            // Shown only if the test fails.
            println!("{words}: {done:?}");
            if is_soon(&is_done) {
                break;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.program.0), signal).expect("a child");
    }
}

/// Whether the server has a release a moment after it was sent.
fn is_soon(is_done: impl Fn() -> bool) -> bool {
    within(SOON / 5, || is_done().then_some(())).is_some()
}

/// `lease.sh` in a client's folder, which writes `events.log` beside itself.
fn events_script(folder: &Scratch) -> String {
    let copy = path(folder, "events.sh");
    fs::copy(script("lease.sh"), &copy).expect("a copy");
    copy
}

/// A capture that runs until it is read.
pub struct Capture {
    sniffer: Sniffer,
}

impl Capture {
    /// Captures packets that match a filter of pcap-filter(7).
    pub fn start(station: &Station, interface: &str, filter: &str) -> Capture {
        let sniffer = Sniffer::start(station, interface, filter);
        Capture { sniffer }
    }

    /// The packets so far that match a display filter, each as the values of these fields.
    pub fn fields(&self, station: &Station, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
        dissect(self.file(), station, filter, fields)
    }

    /// Waits for at least one such packet.
    pub fn await_fields(
        &self,
        station: &Station,
        filter: &str,
        fields: &[&str],
    ) -> Vec<Vec<String>> {
        eventually(SOON, filter, || {
            let found = self.fields(station, filter, fields);
            (!found.is_empty()).then_some(found)
        })
    }

    /// The file, in which tcpdump writes each packet as it arrives.
    pub fn file(&self) -> &Path {
        self.sniffer.file()
    }

    /// The IP packets inside the RoCEv2 packets over IPv6 of a capture of the underlay.
    pub fn inner(&self) -> Inner {
        let captured = fs::read(self.file()).expect("the capture");
        // A classic pcap file of raw IP packets (LINKTYPE_RAW, 101).
        let mut file = captured[..20].to_vec();
        file.extend(101u32.to_le_bytes());
        for ud in frames(&captured).iter().filter_map(|f| ud_of_frame(f)) {
            let Some(packet) = ud.payload.strip_prefix(&[8, 0, 0, 0]) else {
                continue;
            };
            let length = u32::try_from(packet.len()).expect("a packet").to_le_bytes();
            file.extend([[0; 4], [0; 4], length, length].concat());
            file.extend(packet);
        }
        let folder = folder();
        fs::write(folder.path().join("pcap"), file).expect("a file");
        Inner { folder }
    }
}

/// IPv4 packets without their encapsulation.
pub struct Inner {
    folder: Scratch,
}

impl Inner {
    /// As [`Capture::fields`].
    pub fn fields(&self, station: &Station, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
        dissect(&self.folder.path().join("pcap"), station, filter, fields)
    }
}

/// The packets of a capture that match a display filter, each as the values of these fields.
fn dissect(file: &Path, station: &Station, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let wanted: String = fields.iter().map(|field| format!(" -e {field}")).collect();
    let done = station.run_script(&format!(
        "exec tshark -n -r {} -o udp.check_checksum:TRUE -Y '{filter}' -T fields{wanted}",
        file.display()
    ));
    // tshark complains about the last packet while it is being written.
    assert!(matches!(done.code, Some(0 | 2)), "tshark: {done:?}");
    let split = |line: &str| line.split('\t').map(str::to_owned).collect();
    done.out.lines().map(split).collect()
}
