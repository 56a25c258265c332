//! A virtual machine with systemd, where `ibtapd` is a packaged service, and a host of this machine as its peer. Both
//! are created for the first test; tests take turns.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use super::machine::{Link, script};
use super::pool::Pool;
use super::shared::{NO_GUESTS, Shared, say};
use super::stage::switch_with_host;
use super::{Local, Machine, Node, SOFT, SOON, Side, eventually, programs};

/// See the module.
pub struct Served {
    /// The peer.
    pub host: Local,
    /// The virtual machine. Its `/host` has the packages.
    pub machine: Machine,
    shared: &'static Shared,
}

/// Versions of the packages, in folders of `/host`.
pub const VERSIONS: [&str; 2] = ["1.0.0", "1.0.1"];

/// Units of the packages.
pub const UNITS: [&str; 3] = ["ibtapd", "ibtap-em", "ibtap-fs"];

/// Numbers of the host and of the machine. A single machine: with two of them beside all others, on two processors, a
/// restart of the service took up to 14 s.
const HOST: usize = 4;
const MACHINE: usize = 14;

/// Time limit for installing packages, and for restarting services.
const LONG: Duration = Duration::from_secs(180);

/// The configuration file of the package, without comments.
const CONFIGURATION: &str = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n";

/// Runs a test on the machine, whose services are stopped. Prints the reason if virtual machines are impossible.
pub fn on_systemd(test: impl FnOnce(&Served)) {
    static SERVED: Pool<Served> = Pool::new(1, |_| Served::make());
    let Some(served) = SERVED.take() else {
        return kit::skip("it needs virtual machines, see above");
    };
    served.reset();
    test(&served);
}

/// The same for a test that needs the packages. While they are made, tests without them have the machine.
pub fn on_packages(test: impl FnOnce(&Served)) {
    static PACKAGES: OnceLock<()> = OnceLock::new();
    if let Some(shared) = Shared::with("rxe-guest") {
        PACKAGES.get_or_init(|| make_packages(shared.programs()));
    }
    on_systemd(test);
}

impl Served {
    fn make() -> Option<Served> {
        let shared = Shared::with("rxe-guest")?;
        let (switch, host) = switch_with_host(HOST, shared);
        let booted = Machine::boot(&switch, MACHINE, Link::Systemd, shared);
        // The namespace of the switch ends with this process.
        std::mem::forget(switch);
        match booted {
            Ok(machine) => Some(Served {
                host,
                machine,
                shared,
            }),
            Err(done) if done.code == Some(NO_GUESTS) => {
                say(&done.err);
                None
            }
            Err(done) => panic!("rxe-guest boot: {done:?}"),
        }
    }

    fn reset(&self) {
        self.long(&format!(
            "
            systemctl -q stop {units} 2>/dev/null
            [ ! -e /etc/ibtap/ibtapd.toml ] || printf '%s' '{CONFIGURATION}' >/etc/ibtap/ibtapd.toml
            rm -rf /etc/systemd/system/*ibtap*.d
            systemctl daemon-reload
            systemctl reset-failed
            ip -all netns del
            true
            ",
            units = UNITS.join(" ")
        ));
    }

    /// Reboots the machine.
    pub fn reboot(&self) {
        self.machine.reboot();
    }

    /// Gives the machine the whole-system tests, their programs, and the scripts of this project in `/host/source`.
    pub fn add_system_tests(&self) {
        self.shared.add_tests("system");
        let source = Path::new(env!("CARGO_MANIFEST_DIR"));
        let copy = self.shared.programs().join("source");
        fs::create_dir_all(&copy).expect("a folder");
        let copied = Command::new("cp")
            .args(["-r", "-t"])
            .arg(copy)
            .args(["Cargo.toml", "scripts"].map(|name| source.join(name)))
            .status();
        assert!(copied.expect("coreutils are there").success());
    }

    /// Runs a script that takes long, and must succeed; returns its output.
    pub fn long(&self, script: &str) -> String {
        let done = self.machine.run_for(script, LONG);
        assert!(done.code == Some(0), "{script}: {done:?}");
        done.out
    }

    /// Installs packages of a version.
    pub fn install(&self, version: &str, packages: &[&str]) {
        let file = |package| format!("/host/{version}/{package}_*.deb");
        let files: Vec<_> = packages.iter().map(file).collect();
        self.long(&format!("dpkg -i {} 2>&1", files.join(" ")));
    }

    /// Installs packages unless any version of them is there: an emulated machine needs many seconds for it. Their
    /// version is that of `ibtap`, on which the others depend, if a test has installed that before.
    pub fn have(&self, packages: &[&str]) {
        let known = |package: &&&str| {
            let query = format!("dpkg -s {package} >/dev/null 2>&1");
            self.machine.run(&query).code == Some(0)
        };
        let missing: Vec<_> = packages.iter().filter(|p| !known(p)).copied().collect();
        if !missing.is_empty() {
            let installed = self.machine.run("dpkg-query -W -f '${Version}' ibtap").out;
            let version = VERSIONS.iter().find(|v| installed == format!("{v}-1"));
            self.install(version.unwrap_or(&VERSIONS[0]), &missing);
        }
    }

    /// Starts `ibtapd`, whose `ib0` is on the underlay `eth0`; starts the peer, and waits until both reach each other.
    pub fn start(&self) -> Side<'_> {
        self.have(&["ibtap"]);
        self.long("systemctl start ibtapd");
        self.reach_peer()
    }

    /// Gives `ib0` of the running service its addresses, starts the peer, and waits until both reach each other.
    pub fn reach_peer(&self) -> Side<'_> {
        self.machine.configure("ib0");
        let peer = Side::start(&self.host, SOFT);
        self.machine.reaches(&self.host.v4());
        self.machine.reaches(&self.host.v6());
        peer
    }

    /// The value of a property of a unit, as systemctl shows it.
    pub fn property(&self, unit: &str, property: &str) -> String {
        let shown = self.machine.ok(&format!(
            "systemctl show --value --property {property} {unit}"
        ));
        shown.trim().to_owned()
    }

    /// Pings between the machine and the peer, both ways and every 10 ms, while a script of the machine ends and starts
    /// the daemon, and for a while before and after it. At most `lost` requests of each side may be lost.
    pub fn keeps_pings(&self, what: &str, disturb: &str, lost: usize) {
        let [here, there] = [self.machine.v4(), self.host.v4()];
        let mut from_peer = self.host.spawn(&format!("exec ping -n -i 0.01 {here}"));
        let script = format!(
            "
            ping -n -i 0.01 {there} >/tmp/ping 2>&1 &
            ping=$!
            answers() {{ grep -c 'bytes from' /tmp/ping; }}
            more() {{ local end=$(($(answers) + $1)); until [ $(answers) -ge $end ]; do sleep 0.2; done; }}
            more 100
            set -e
            {disturb}
            more 300
            kill -INT $ping
            wait $ping || true
            cat /tmp/ping
            "
        );
        let from_machine = Answers::of(&self.long(&script));
        let before = Answers::of(&from_peer.output()).0.len();
        assert!(before > 100, "{what}: {before} answers to the peer");
        let answered = eventually(SOON, "more answers to the peer", || {
            let answers = Answers::of(&from_peer.output());
            (answers.0.len() > before + 100).then_some(answers)
        });
        from_peer.end();
        from_machine.lost_at_most(lost, &format!("{what}, from the machine"));
        answered.lost_at_most(lost, &format!("{what}, from the peer"));
    }
}

/// Answered requests of a ping: sequence numbers and milliseconds.
struct Answers(Vec<(usize, f64)>);

impl Answers {
    fn of(output: &str) -> Answers {
        Answers(output.lines().filter_map(answer).collect())
    }

    fn lost_at_most(&self, limit: usize, what: &str) {
        let highest = self.0.iter().map(|(number, _)| *number).max();
        let lost: Vec<usize> = (1..=highest.expect("an answer"))
            .filter(|wanted| !self.0.iter().any(|(number, _)| number == wanted))
            .collect();
        let longest = self.0.iter().map(|(_, ms)| *ms).fold(0.0, f64::max);
        println!(
            "{what}: {} answers, the last after {longest} ms",
            self.0.len()
        );
        assert!(lost.len() <= limit, "{what}: lost {lost:?} of {highest:?}");
    }
}

/// Sequence number and time of "64 bytes from 10.9.0.4: icmp_seq=1 ttl=64 time=0.2 ms".
fn answer(line: &str) -> Option<(usize, f64)> {
    let word = |name: &str| {
        let (_, rest) = line.split_once(name)?;
        rest.split_whitespace().next()
    };
    Some((
        word("icmp_seq=")?.parse().ok()?,
        word("time=")?.parse().ok()?,
    ))
}

/// Packages of the programs under test, in a folder for each version.
fn make_packages(folder: &Path) {
    // Builds them.
    for program in [
        programs::ibtap_em(),
        programs::ibtap_fs(),
        programs::ibtap_peer(),
    ] {
        assert_eq!(program.parent(), programs::ibtap().parent());
    }
    let built = programs::ibtapd()
        .parent()
        .expect("a program is in a folder");
    let [first, next] = VERSIONS.map(|version| folder.join(version));
    let made = script("package")
        .args(["deb", "--fast", "--version", VERSIONS[0], "--bin"])
        .arg(built)
        .arg("--out")
        .arg(&first)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("bash is there");
    assert!(made.success(), "scripts/package: {made}");
    // The next version differs only in its number.
    let repacked = Command::new("bash")
        .args(["-ec", NEXT_VERSION, "next", VERSIONS[0], VERSIONS[1]])
        .args([&first, &next])
        .stdout(Stdio::null())
        .status();
    assert!(repacked.expect("bash is there").success());
}

/// Packs packages again with another version.
const NEXT_VERSION: &str = r#"
    mkdir "$4"
    for package in ibtap ibtap-em ibtap-fs; do
        dpkg-deb -R "$3/${package}_$1"-*.deb "$4/$package"
        sed -i "s/$1-/$2-/" "$4/$package/DEBIAN/control"
        dpkg-deb --root-owner-group -Zgzip -z1 --build "$4/$package" "$4"
        rm -r "$4/$package"
    done
"#;
