//! Rights of ibtapd: capabilities, /dev/net/tun, locked memory; and the kernel's version.

use std::fs;
use std::io;

use super::finding::{Finding, Level};

const CHECK: &str = "rights";
const TUN: &str = "/dev/net/tun";

// Bits of capabilities (include/uapi/linux/capability.h).
const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_IPC_LOCK: u64 = 1 << 14;
/// To enter other network namespaces.
const CAP_SYS_ADMIN: u64 = 1 << 21;
/// To receive notifications of other network namespaces.
const CAP_NET_BROADCAST: u64 = 1 << 11;

/// The first Linux version where SO_BINDTOIFINDEX needs no CAP_NET_RAW, which ibtapd gives up.
const LINUX_NEEDED: (u32, u32) = (5, 7);
/// The oldest Linux version that runs the tests (docs/service.md).
const LINUX_TESTED: (u32, u32) = (6, 1);
/// The first Linux version with TUN_F_USO4 and TUN_F_USO6.
const LINUX_WITH_USO: (u32, u32) = (6, 2);

/// Locked memory of a port of an RDMA device, about, in bytes.
const MEMLOCK_WANTED: u64 = 64 << 20;

/// Facts of this check.
#[derive(Debug)]
pub struct Facts {
    /// Effective capabilities of this process.
    pub own: Option<u64>,
    /// The daemon's process, and its effective capabilities.
    pub daemon: Option<(u32, Option<u64>)>,
    /// Whether /dev/net/tun opens.
    pub tun: io::Result<()>,
    /// RLIMIT_MEMLOCK of the daemon, or of this process without a daemon, in bytes; `u64::MAX`: no limit.
    pub memlock: Option<u64>,
    /// The kernel's release, such as `6.1.0-18-amd64`.
    pub release: String,
}

/// The memory that may be locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Locking {
    /// RLIMIT_MEMLOCK in bytes; `u64::MAX`: no limit.
    pub limit: Option<u64>,
    /// CAP_IPC_LOCK disables the limit.
    pub unlimited: bool,
}

impl Facts {
    /// The memory that the daemon may lock, or this process without a daemon.
    pub fn locking(&self) -> Locking {
        let caps = self.daemon.map_or(self.own, |(_, caps)| caps);
        Locking {
            limit: self.memlock,
            unlimited: caps.is_some_and(|caps| caps & CAP_IPC_LOCK != 0),
        }
    }
}

/// Reads the facts; `daemon` is the daemon's process in this process namespace.
pub fn gather(daemon: Option<u32>) -> Facts {
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    let process = daemon.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    Facts {
        own: effective(&read("/proc/thread-self/status".into())),
        daemon: daemon.map(|pid| (pid, effective(&read(format!("/proc/{pid}/status"))))),
        tun: fs::File::options()
            .read(true)
            .write(true)
            .open(TUN)
            .map(drop),
        memlock: memlock(&read(format!("/proc/{process}/limits"))),
        release: read("/proc/sys/kernel/osrelease".into()).trim().to_owned(),
    }
}

/// CapEff of proc_pid_status(5).
fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// The soft limit of proc_pid_limits(5).
fn memlock(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|l| l.strip_prefix("Max locked memory"))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        bytes => bytes.parse().ok(),
    }
}

/// Judges the facts.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![capabilities(facts), tun(facts)];
    findings.extend(namespaces(facts));
    findings.extend(kernel(&facts.release));
    findings.extend(facts.memlock.map(locked_memory));
    findings
}

fn capabilities(facts: &Facts) -> Finding {
    let has = |caps: Option<u64>| caps.is_some_and(|c| c & CAP_NET_ADMIN != 0);
    match facts.daemon {
        Some((pid, caps)) if has(caps) => Finding::new(
            CHECK,
            Level::Ok,
            format!("process {pid}"),
            "ibtapd has CAP_NET_ADMIN",
        ),
        Some((pid, Some(_))) => Finding::new(
            CHECK,
            Level::Warn,
            format!("process {pid}"),
            "ibtapd runs without CAP_NET_ADMIN: it cannot follow changes or recreate interfaces",
        )
        .advise("start it as root, or with AmbientCapabilities=CAP_NET_ADMIN as in the unit"),
        Some((pid, None)) => Finding::new(
            CHECK,
            Level::Note,
            format!("process {pid}"),
            "this process cannot read the capabilities of ibtapd",
        ),
        None if has(facts.own) => Finding::new(CHECK, Level::Ok, "", "this user has CAP_NET_ADMIN"),
        None => Finding::new(
            CHECK,
            Level::Warn,
            "",
            "this user has no CAP_NET_ADMIN, which ibtapd needs; some checks also need root",
        )
        .advise("run this and ibtapd as root; in a container: --cap-add NET_ADMIN"),
    }
}

/// Judges the rights for interfaces in other network namespaces.
fn namespaces(facts: &Facts) -> Option<Finding> {
    let (subject, caps) = match facts.daemon {
        Some((pid, caps)) => (format!("process {pid}"), caps?),
        None => (String::new(), facts.own?),
    };
    let missing: Vec<&str> = [
        ("CAP_SYS_ADMIN", CAP_SYS_ADMIN),
        ("CAP_NET_BROADCAST", CAP_NET_BROADCAST),
    ]
    .into_iter()
    .filter_map(|(name, bit)| (caps & bit == 0).then_some(name))
    .collect();
    (!missing.is_empty()).then(|| {
        let missing = missing.join(" and ");
        let found = format!(
            "without {missing}, ibtapd does not follow changes of interfaces in other network namespaces"
        );
        Finding::new(CHECK, Level::Note, subject, found).advise(
            "if interfaces should move: install the drop-in namespaces.conf (man ibtap-namespaces), or start \
             ibtapd as root",
        )
    })
}

fn tun(facts: &Facts) -> Finding {
    let Err(error) = &facts.tun else {
        return Finding::new(CHECK, Level::Ok, TUN, "opens");
    };
    // A running daemon has opened the device already.
    let level = if facts.daemon.is_some() {
        Level::Note
    } else {
        Level::Fail
    };
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "run ibtapd as root, or change the mode of the file; in a container: --device /dev/net/tun"
        }
        _ => "modprobe tun; in a container: --device /dev/net/tun",
    };
    Finding::new(CHECK, level, TUN, format!("does not open: {error}")).advise(advice)
}

fn kernel(release: &str) -> Option<Finding> {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    let version = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    let finding = |level, found| Finding::new(CHECK, level, format!("Linux {release}"), found);
    let tested = "use a newer kernel; ibtapd was tested on Linux 6.1 and 6.18";
    Some(if version < LINUX_NEEDED {
        let found = "is too old: SO_BINDTOIFINDEX is missing, or needs CAP_NET_RAW";
        finding(Level::Fail, found).advise(tested)
    } else if version < LINUX_TESTED {
        finding(
            Level::Note,
            "is untested, and divides large UDP sends into packets",
        )
        .advise(tested)
    } else if version < LINUX_WITH_USO {
        finding(Level::Note, "divides large UDP sends into packets")
            .advise("Linux 6.2 and later pass large UDP sends to ib0 whole")
    } else {
        finding(Level::Ok, "has all features that ibtapd uses")
    })
}

fn locked_memory(bytes: u64) -> Finding {
    let found = if bytes < MEMLOCK_WANTED {
        format!(
            "{} KiB may be locked: enough for the software fabric (RDMA devices need \
             LimitMEMLOCK=infinity)",
            bytes >> 10
        )
    } else {
        "the limit is large enough".to_owned()
    };
    Finding::new(CHECK, Level::Ok, "memlock", found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            own: Some(u64::MAX),
            daemon: None,
            tun: Ok(()),
            memlock: Some(u64::MAX),
            release: "6.8.0-31-generic".into(),
        }
    }

    fn worst(facts: &Facts) -> (Level, String) {
        let findings = judge(facts);
        let worst = findings.iter().max_by_key(|f| f.level).unwrap();
        (worst.level, worst.found.clone())
    }

    #[test]
    fn all_is_there() {
        assert_eq!(worst(&facts()).0, Level::Ok);
        assert_eq!(judge(&facts()).len(), 4);
    }

    #[test]
    fn no_capability() {
        let mut f = facts();
        f.own = Some(!CAP_NET_ADMIN);
        let (level, found) = worst(&f);
        assert_eq!(level, Level::Warn);
        assert!(found.contains("CAP_NET_ADMIN"), "{found}");
        // Only the daemon needs the capability.
        f.daemon = Some((7, Some(CAP_NET_ADMIN | CAP_SYS_ADMIN | CAP_NET_BROADCAST)));
        assert_eq!(worst(&f).0, Level::Ok);
        f.daemon = Some((7, Some(0)));
        assert_eq!(worst(&f).0, Level::Warn);
        f.daemon = Some((7, None));
        assert_eq!(worst(&f).0, Level::Note);
    }

    #[test]
    fn other_namespaces_take_more() {
        let mut f = facts();
        for (caps, missing) in [
            (CAP_NET_ADMIN, "CAP_SYS_ADMIN and CAP_NET_BROADCAST"),
            (CAP_NET_ADMIN | CAP_SYS_ADMIN, "without CAP_NET_BROADCAST"),
            (CAP_NET_ADMIN | CAP_NET_BROADCAST, "without CAP_SYS_ADMIN"),
        ] {
            f.daemon = Some((7, Some(caps)));
            let (level, found) = worst(&f);
            assert_eq!(level, Level::Note, "{found}");
            assert!(found.contains(missing), "{found}");
        }
        f.daemon = Some((7, None));
        assert_eq!(namespaces(&f), None);
    }

    #[test]
    fn no_tun_is_fatal_unless_a_daemon_has_it_open() {
        let mut f = facts();
        f.tun = Err(io::ErrorKind::NotFound.into());
        let finding = judge(&f).into_iter().find(|f| f.subject == TUN).unwrap();
        assert_eq!(finding.level, Level::Fail);
        assert!(finding.advice.unwrap().contains("modprobe tun"));
        f.daemon = Some((7, Some(CAP_NET_ADMIN)));
        assert_eq!(worst(&f).0, Level::Note);
    }

    #[test]
    fn versions_are_numbers() {
        for (release, level) in [
            ("4.19.0", Level::Fail),
            ("5.6.19", Level::Fail),
            ("5.7.0", Level::Note),
            ("5.10.0-28-amd64", Level::Note),
            ("6.1.0", Level::Note),
            ("6.2", Level::Ok),
            ("6.18.44-x", Level::Ok),
            ("10.0", Level::Ok),
        ] {
            assert_eq!(kernel(release).unwrap().level, level, "{release}");
        }
        assert_eq!(kernel("unknown"), None);
        for (release, untested) in [("5.7.0", true), ("6.0.19", true), ("6.1.0-18-amd64", false)] {
            let found = kernel(release).unwrap().found;
            assert!(found.contains("UDP sends"), "{found}");
            assert_eq!(found.contains("untested"), untested, "{release}");
        }
    }

    #[test]
    fn the_kernels_tables_are_read() {
        assert_eq!(
            effective("Name:\tx\nCapEff:\t00000000000010ff\n"),
            Some(0x10ff)
        );
        assert_eq!(effective(""), None);
        let line = "Max locked memory         8388608              8388608              bytes";
        assert_eq!(memlock(line), Some(8 << 20));
        assert_eq!(
            memlock("Max locked memory  unlimited unlimited bytes"),
            Some(u64::MAX)
        );
        let mut f = facts();
        f.memlock = Some(8 << 20);
        let found = judge(&f).pop().unwrap().found;
        assert!(found.starts_with("8192 KiB may be locked"), "{found}");
        let here = gather(None);
        assert!(here.own.is_some() && here.memlock.is_some() && !here.release.is_empty());
    }
}
