//! The files that the daemon uses after its start, for Landlock.

use std::path::{Path, PathBuf};

use control::config::{Config, PortConfig, PortName, Source};
use control::{directory_of, logging};
use proto::SaChoice;
use sandbox::{Access, Allowed, Confinement};

/// Files and directories that do not depend on the configuration. The libraries of RDMA devices are loaded when a
/// reload adds such a port.
const FIXED: [(&str, Access); 16] = [
    ("/dev/net", Access::Device),
    ("/dev/infiniband", Access::Device),
    ("/dev/null", Access::Write),
    ("/dev/urandom", Access::Read),
    ("/proc", Access::Read),
    // Settings of an interface that has moved to another namespace.
    ("/proc/sys/net", Access::Write),
    ("/sys", Access::Read),
    ("/etc/ld.so.cache", Access::Read),
    ("/etc/libibverbs.d", Access::Read),
    ("/etc/rdma", Access::Read),
    ("/usr/lib", Access::Read),
    ("/usr/lib64", Access::Read),
    ("/usr/local/lib", Access::Read),
    ("/opt", Access::Read),
    ("/lib", Access::Read),
    ("/lib64", Access::Read),
];

/// The path of a listening unix socket, and the outermost directory that was created for it.
pub(super) type SocketFiles<'a> = (&'a Path, Option<&'a Path>);

/// Restricts the process as the configuration says. Comes before the first thread.
pub(super) fn begin(config: &Config, source: Option<&Source>, sockets: &[Option<SocketFiles<'_>>]) {
    let files = files(source.map(|source| source.file.as_path()), sockets);
    let confinement = config.sandbox.then_some(Confinement {
        files: &files,
        report: |args| logging::warn_in_signal_handler("ibtapd::sandbox", args),
    });
    if config.sandbox {
        // Landlock has a rule for the directory that is there now.
        fabric::verbs::only_these_nodes();
    }
    let is_rdma = |name: &PortName| matches!(name, PortName::Rdma { .. });
    sandbox::begin(config.ports.keys().any(is_rdma), confinement);
    if has_devices(config) {
        sandbox::enter(sandbox::Thread::Control);
    }
}

/// Whether the daemon opens RDMA devices at the start: rights must not change after that.
pub(super) fn has_devices(config: &Config) -> bool {
    let is_device = |(name, port): (&PortName, &PortConfig)| {
        matches!(name, PortName::Rdma { .. }) || matches!(port.sa, Some(SaChoice::Umad))
    };
    config.ports.iter().any(is_device)
}

/// The fixed files, the configuration and the sockets.
fn files(configuration: Option<&Path>, sockets: &[Option<SocketFiles<'_>>]) -> Vec<Allowed> {
    let allow = |path: PathBuf, access| Allowed { path, access };
    let mut files: Vec<Allowed> = FIXED
        .iter()
        .map(|(path, access)| allow(path.into(), *access))
        .collect();
    // `ip netns add` creates the directory of names with the first namespace, maybe later.
    let names = ["/run/netns", "/run"].map(Path::new);
    let names = names.into_iter().find(|path| path.exists());
    files.extend(names.map(|path| allow(path.to_owned(), Access::Read)));
    // The directories: editors replace the file. A link may lead to another directory.
    let configurations = configuration
        .into_iter()
        .flat_map(|file| [Some(file.to_owned()), file.canonicalize().ok()]);
    let directories = configurations
        .flatten()
        .map(|file| directory_of(&file).to_owned());
    files.extend(directories.map(|directory| allow(directory, Access::Read)));
    // At the end, the sockets and the directories made for them are removed.
    for (path, made) in sockets.iter().flatten() {
        files.push(allow(directory_of(path).to_owned(), Access::RemoveFiles));
        let made = made.map(|made| directory_of(made).to_owned());
        files.extend(made.map(|directory| allow(directory, Access::RemoveDirectories)));
    }
    files
}
