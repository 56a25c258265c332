//! The files of a report and their sources.

use std::path::PathBuf;

use super::facts::{Facts, Interface, Kind};
use crate::doctor::NamedFile;

/// A file of the report.
#[derive(Debug)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// What it has, in a few words.
    pub about: &'static str,
    /// The network namespace of the programs; `None`: the daemon's.
    pub netns: Option<String>,
    /// Its contents.
    pub sources: Vec<Source>,
}

/// The words of a command. A name is one word, whatever it contains: the kernel allows `|` in names of interfaces,
/// and a name of a network namespace may have blanks.
pub type Words = Vec<String>;

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The output of a command of `ibtap` that asks the daemon.
    Ask(Words),
    /// The output of another command of `ibtap`.
    Ibtap(Words),
    /// The output of a program.
    Run(Words),
    /// The lines with one of these words that a program prints, and the number of the others.
    Lines(Words, &'static [&'static str]),
    /// A file.
    File(PathBuf),
    /// A configuration file, without secrets.
    Configuration(NamedFile),
}

impl Source {
    /// What the file says above the source.
    pub fn title(&self) -> String {
        match self {
            Ask(words) | Ibtap(words) => format!("ibtap {}", words.join(" ")),
            Run(words) => words.join(" "),
            Lines(words, wanted) => {
                format!("{}, lines with {}", words.join(" "), wanted.join(" or "))
            }
            Source::File(path) => path.display().to_string(),
            Source::Configuration(file) => file.path().display().to_string(),
        }
    }
}

use Source::{Ask, Ibtap, Lines, Run};

/// The parts of the report about these facts.
pub fn parts(facts: &Facts) -> Vec<Part> {
    let mut parts = vec![
        part(
            "versions.txt",
            "versions of the programs and of the daemon",
            versions(),
        ),
        part(
            "system.txt",
            "kernel, distribution, load, memory, modules",
            system(),
        ),
        part(
            "doctor.txt",
            "findings of ibtap doctor",
            vec![Ibtap(words("doctor"))],
        ),
        part(
            "show.txt",
            "interfaces, children, P_Key tables, VNICs",
            asked("show|child|pkey|vnic"),
        ),
        part("stats.txt", "all counters", asked("stats -z")),
        part("conn.txt", "connections", asked("conn")),
        part("res.txt", "resources of the ports", asked("res")),
        part("metrics.txt", "metrics", asked("metrics")),
        part(
            "firewall.txt",
            "firewall rules with UDP port 4791, number of other lines",
            firewall(),
        ),
        part("devices.txt", "device files, RDMA devices", devices()),
        part("unit.txt", "systemd units: state and contents", unit()),
        part("log.txt", "last lines of the units in the journal", log()),
    ];
    parts.extend(facts.processes.iter().map(|pid| process(*pid)));
    parts.extend(facts.interfaces.iter().map(interface));
    parts.extend(facts.files.iter().enumerate().map(|(number, file)| {
        let path = file.path();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let name = format!("config/{number}-{}", name.unwrap_or_default());
        part(
            &name,
            "configuration, without comments and secrets",
            vec![Source::Configuration(file.clone())],
        )
    }));
    parts
}

fn part(name: &str, about: &'static str, sources: Vec<Source>) -> Part {
    Part {
        name: name.to_owned(),
        about,
        netns: None,
        sources,
    }
}

fn words(command: &str) -> Words {
    command.split(' ').map(str::to_owned).collect()
}

/// Requests to the daemon, separated by `|`.
fn asked(commands: &'static str) -> Vec<Source> {
    commands.split('|').map(words).map(Ask).collect()
}

/// Programs, separated by `|`.
fn run(commands: &'static str) -> Vec<Source> {
    commands.split('|').map(words).map(Run).collect()
}

/// Commands, separated by `|`, with a name in place of the word `IF`.
fn with(name: &str, commands: &'static str) -> impl Iterator<Item = Words> {
    let word = move |word| match word {
        "IF" => name.to_owned(),
        word => word.to_owned(),
    };
    let commands = commands.split('|');
    commands.map(move |command| command.split(' ').map(word).collect())
}

fn files(paths: &str) -> Vec<Source> {
    paths
        .split_whitespace()
        .map(|path| Source::File(path.into()))
        .collect()
}

fn versions() -> Vec<Source> {
    let mut sources = vec![Ibtap(words("--version")), Ask(words("version"))];
    sources.extend(run(
        "ibtapd --version|ibtap-em --version|ibtap-fs --version",
    ));
    sources
}

fn system() -> Vec<Source> {
    let mut sources = files(
        "/etc/os-release /proc/sys/kernel/osrelease /proc/sys/kernel/version /proc/loadavg /proc/uptime \
         /proc/sys/net/core/rmem_max /proc/sys/net/core/wmem_max /proc/sys/net/core/optmem_max \
         /proc/sys/net/core/netdev_max_backlog /proc/pressure/cpu /proc/pressure/memory",
    );
    sources.extend(run("uname -m|nproc|systemd-detect-virt"));
    sources.push(Run(words(
        "grep -E ^(Mem|Swap|Mlocked|Commit) /proc/meminfo",
    )));
    let modules = "ib_|iw_|rdma|mlx|hfi|irdma|bnxt_re|siw|tun|tap|macv|veth|bridge|bond|8021q|vxlan|wireguard|\
                   nf_|ip6?_tables|vhost";
    sources.push(Run(words(&format!("grep -E ^({modules}) /proc/modules"))));
    sources
}

/// Lines of rules and of their structure. Other rules concern the host's owner only.
fn firewall() -> Vec<Source> {
    let nft = &["4791", "table ", "chain ", " hook ", "infiniband"];
    let xtables = &[
        "4791",
        "*",
        ":INPUT",
        ":OUTPUT",
        ":FORWARD",
        ":PREROUTING",
        ":POSTROUTING",
    ];
    let mut sources = vec![Lines(words("nft -s list ruleset"), nft)];
    let saved = ["iptables-save", "ip6tables-save"];
    sources.extend(saved.map(|program| Lines(words(program), xtables)));
    sources.extend(files(
        "/proc/sys/net/netfilter/nf_conntrack_count /proc/sys/net/netfilter/nf_conntrack_max",
    ));
    sources
}

fn devices() -> Vec<Source> {
    run("ls -ln /dev/infiniband /dev/net|rdma dev show|rdma -d link show|ibv_devinfo -v")
}

const UNITS: &str = "ibtapd.service ibtapd@* ibtap-em.service ibtap-fs.service";

fn unit() -> Vec<Source> {
    vec![
        Run(words(&format!(
            "systemctl --no-pager --full --lines=0 status {UNITS}"
        ))),
        Run(words(&format!("systemctl --no-pager cat {UNITS}"))),
    ]
}

fn log() -> Vec<Source> {
    let units: String = UNITS
        .split(' ')
        .map(|unit| format!(" --unit={unit}"))
        .collect();
    vec![Run(words(&format!(
        "journalctl --no-pager --no-hostname --quiet --output=short-iso --lines=2000{units}"
    )))]
}

fn process(pid: u32) -> Part {
    let proc = format!("/proc/{pid}");
    let names = ["cmdline", "status", "limits", "cgroup", "oom_score_adj"];
    let paths = names.map(|name| Source::File(format!("{proc}/{name}").into()));
    let mut sources = Vec::from(paths);
    // Any user can start a program with the name of the daemon: the report shows where the program is, and never runs
    // the program.
    sources.push(Run(words(&format!("ls -l {proc}/exe"))));
    sources.push(Run(words(&format!("ls {proc}/fd --format=commas"))));
    sources.push(Run(words(&format!(
        "grep -EH ^(Name|State|Cap...|Seccomp|NoNewPrivs|(non)?voluntary_ctxt_switches): -r {proc}/task \
         --include=status"
    ))));
    let about =
        "process of ibtapd: command line, program, state, limits, threads with capabilities";
    part(&format!("process-{pid}.txt"), about, sources)
}

fn interface(interface: &Interface) -> Part {
    let (name, netns) = (&interface.name, interface.netns.clone());
    let programs = "ip -d -s -s link show dev IF|ip addr show dev IF|ip -4 route show dev IF table all|\
                    ip -6 route show dev IF table all|ip -s neigh show dev IF|ip maddr show dev IF|\
                    ethtool IF|ethtool -i IF|ethtool -k IF|ethtool -g IF|ethtool -l IF|ethtool -c IF|\
                    ethtool -S IF";
    let mut sources: Vec<_> = with(name, programs).map(Run).collect();
    let (of_daemon, full) = match &netns {
        Some(netns) => (format!("{netns}/{name}"), format!("{netns}+{name}")),
        None => (name.clone(), name.clone()),
    };
    let requests = match interface.kind {
        Kind::Ip => Some("neigh IF|guests IF|mcg IF|path IF|coalesce IF"),
        Kind::Vnic => Some("vnic mac IF|vnic members IF"),
        Kind::Other => None,
    };
    let requests = requests.into_iter();
    sources.extend(requests.flat_map(|requests| with(&of_daemon, requests).map(Ask)));
    let about = "interface: link, addresses, routes, neighbours, groups, paths, offloads";
    Part {
        netns,
        ..part(&format!("interfaces/{full}.txt"), about, sources)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_a_process_never_runs() {
        let facts = Facts {
            processes: vec![1],
            ..Facts::default()
        };
        let parts = parts(&facts);
        let sources: Vec<_> = parts.iter().flat_map(|part| &part.sources).collect();
        for source in &sources {
            if let Run(words) | Lines(words, _) = source {
                assert!(!words[0].contains('/'), "{source:?}");
            }
        }
        assert!(sources.contains(&&Run(words("ls -l /proc/1/exe"))));
    }

    #[test]
    fn the_name_of_an_interface_is_never_a_program() {
        for (netns, name) in [(None, "a|reboot"), (Some("my net"), "IF")] {
            for kind in [Kind::Ip, Kind::Vnic] {
                let facts = Facts {
                    interfaces: vec![Interface {
                        netns: netns.map(str::to_owned),
                        name: name.to_owned(),
                        kind,
                    }],
                    ..Facts::default()
                };
                let parts = parts(&facts);
                let part = parts.iter().find(|p| p.name.starts_with("interfaces/"));
                let asked = netns.map_or(name.to_owned(), |netns| format!("{netns}/{name}"));
                for source in &part.unwrap().sources {
                    let (words, name) = match source {
                        Run(words) => {
                            assert!(["ip", "ethtool"].contains(&&*words[0]), "{source:?}");
                            (words, name)
                        }
                        Ask(words) => (words, &*asked),
                        other => panic!("{other:?}"),
                    };
                    let named = words.iter().filter(|word| *word == name);
                    assert_eq!(named.count(), 1, "{source:?}");
                }
            }
        }
    }
}
