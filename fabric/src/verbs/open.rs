//! Opening a device, and the sentence for each way in which that fails.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};

use super::ibv::{Context, device_names};
use super::sys::{Library, Real};
use super::sysfs;
use crate::port::FabricError;

/// The libraries of the system.
///
/// # Errors
/// [`FabricError::Unusable`], which says what to install.
pub fn library() -> Result<Arc<dyn Library>, FabricError> {
    match Real::load() {
        Ok(library) => Ok(library),
        Err(error) => Err(FabricError::Unusable(error.to_string())),
    }
}

/// Opens a device.
///
/// # Errors
/// [`FabricError::Unusable`], which says why it cannot be opened and how to get on.
pub fn device(library: &Arc<dyn Library>, name: &str) -> Result<Arc<Context>, FabricError> {
    Context::open(library, name).map_err(|error| {
        let text = if error.kind() == io::ErrorKind::NotFound && error.raw_os_error().is_none() {
            absent(name, &Surroundings::look(&**library, name))
        } else {
            match device_names(&**library) {
                Ok(names) if names.iter().any(|n| n == name) => {
                    unopened(name, sysfs::uverbs(name).as_deref(), &error)
                }
                _ => absent(name, &Surroundings::look(&**library, name)),
            }
        };
        FabricError::Unusable(text)
    })
}

/// What there is to be seen where a device is missing.
#[derive(Clone, Debug, Default)]
struct Surroundings {
    /// Devices that libibverbs lists.
    listed: Vec<String>,
    /// The kernel has RDMA at all: /sys/class/infiniband is there.
    class: bool,
    /// The kernel has the device, in this network namespace.
    in_kernel: bool,
    /// The kernel hands devices to programs: /sys/class/infiniband_verbs is there.
    uverbs: bool,
    /// The kernel hands this one to programs.
    has_node: bool,
    /// Each device belongs to one network namespace (rdma-system(8)).
    exclusive: bool,
}

impl Surroundings {
    fn look(library: &dyn Library, name: &str) -> Surroundings {
        Surroundings {
            listed: device_names(library).unwrap_or_default(),
            class: Path::new(sysfs::CLASS).exists(),
            in_kernel: sysfs::has_device(name),
            uverbs: Path::new(sysfs::UVERBS_CLASS).exists(),
            has_node: sysfs::uverbs(name).is_some(),
            exclusive: fs::read_to_string("/sys/module/ib_core/parameters/netns_mode")
                .is_ok_and(|mode| mode.trim() == "N"),
        }
    }
}

/// Why a device is not in libibverbs' list.
fn absent(name: &str, around: &Surroundings) -> String {
    if !around.class {
        return format!(
            "there is no RDMA device {name}: the kernel's RDMA modules are not loaded; for an adapter \
             load its driver and ib_uverbs, for a software device: modprobe -a rdma_rxe ib_uverbs; rdma \
             link add rxe0 type rxe netdev eth0"
        );
    }
    if around.in_kernel && !around.uverbs {
        return format!("{name} cannot be used by programs: modprobe ib_uverbs");
    }
    // It loses its node first, and then waits until no program has it open.
    if around.in_kernel && !around.has_node {
        return format!(
            "{name} is being removed, which waits until no program has it open any more"
        );
    }
    if around.in_kernel {
        return format!(
            "the kernel has {name}, but libibverbs has no driver for it: install the providers, on \
             Debian: apt-get install ibverbs-providers"
        );
    }
    let listed = if around.listed.is_empty() {
        "there are none here".to_owned()
    } else {
        format!("there are: {}", around.listed.join(", "))
    };
    let hint = if around.exclusive {
        format!(
            "; here every RDMA device is in one network namespace, and if it is in another one: rdma dev \
             set {name} netns NAME, from where it is, or: rdma system set netns shared"
        )
    } else {
        String::new()
    };
    format!("there is no RDMA device {name}, {listed}{hint}")
}

/// Why a device that libibverbs lists could not be opened.
fn unopened(name: &str, uverbs: Option<&str>, error: &io::Error) -> String {
    let node = match uverbs {
        Some(node) => format!("/dev/infiniband/{node}"),
        None => "its node in /dev/infiniband".to_owned(),
    };
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO) => format!(
            "{name} cannot be opened: {node} is missing; udev makes it, and a container has to be given \
             it (--device /dev/infiniband)"
        ),
        Some(libc::EACCES) => format!(
            "{name} cannot be opened: {node} is not ours to open; its group may (usually rdma), and a \
             unit of systemd needs DeviceAllow=char-infiniband_verbs rw"
        ),
        Some(libc::EPERM) => format!(
            "{name} cannot be opened: the kernel forbids {node} ({error}); a unit of systemd needs \
             DeviceAllow=char-infiniband_verbs rw, and in exclusive mode (rdma system show) the device \
             must be in this network namespace: rdma dev set {name} netns NAME"
        ),
        _ => format!("{name} cannot be opened: {error}"),
    }
}

/// For a device without the port.
pub fn no_such_port(name: &str, port: u8, ports: u8) -> FabricError {
    FabricError::Unusable(match ports {
        1 => format!("{name} has no port {port}, it has one port: 1"),
        _ => format!("{name} has no port {port}, its ports are 1 to {ports}"),
    })
}

/// For a port on InfiniBand of which no way to anybody is known.
pub fn no_lids(name: &str) -> String {
    format!(
        "{name} is a port on InfiniBand, and subnet administration is not there yet: only the ports \
         and groups that [port.\"{name}\".lids] lists can be reached"
    )
}

/// For a device that cannot receive messages of several connections in one queue.
pub fn no_connections(name: &str) -> String {
    format!(
        "{name} has too few shared receive queues for connections: datagrams are all there is, in \
         connected mode, too"
    )
}

/// For memory or queues that could not be had: `needed` bytes are registered in all.
pub fn out_of_memory(name: &str, needed: u64, error: &io::Error) -> FabricError {
    let limit = getrlimit(Resource::Memlock).current;
    FabricError::Unusable(no_memory(name, needed, limit, error))
}

fn no_memory(name: &str, needed: u64, limit: Option<u64>, error: &io::Error) -> String {
    let kib = |bytes: u64| bytes.div_ceil(1024);
    match limit {
        Some(limit) if error.raw_os_error() == Some(libc::ENOMEM) && limit < needed => format!(
            "{name} needs {} KiB of locked memory and may have {}: ulimit -l {}, or LimitMEMLOCK=infinity \
             in its unit",
            kib(needed),
            kib(limit),
            kib(needed),
        ),
        _ => format!(
            "{name}: {} KiB of memory cannot be registered: {error}",
            kib(needed)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(listed: &[&str]) -> Surroundings {
        Surroundings {
            listed: listed.iter().map(|s| (*s).to_owned()).collect(),
            class: true,
            uverbs: true,
            ..Surroundings::default()
        }
    }

    #[test]
    fn a_kernel_without_rdma_is_told_what_to_load() {
        let text = absent("rxe0", &Surroundings::default());
        assert!(text.contains("modprobe -a rdma_rxe ib_uverbs"), "{text}");
    }

    #[test]
    fn other_devices_are_listed() {
        let text = absent("mlx5_7", &around(&["mlx5_0", "rxe0"]));
        assert_eq!(
            text,
            "there is no RDMA device mlx5_7, there are: mlx5_0, rxe0"
        );
        let text = absent("mlx5_7", &around(&[]));
        assert_eq!(text, "there is no RDMA device mlx5_7, there are none here");
    }

    #[test]
    fn exclusive_mode_is_told_of_where_the_device_is_not_seen() {
        let exclusive = Surroundings {
            exclusive: true,
            ..around(&[])
        };
        let text = absent("mlx5_0", &exclusive);
        assert!(text.contains("rdma dev set mlx5_0 netns NAME"), "{text}");
        let here = Surroundings {
            in_kernel: true,
            ..exclusive
        };
        assert!(!absent("mlx5_0", &here).contains("netns"));
    }

    #[test]
    fn a_device_of_the_kernel_alone_lacks_a_module_or_a_driver() {
        let in_kernel = Surroundings {
            in_kernel: true,
            ..around(&[])
        };
        assert!(absent("rxe0", &in_kernel).contains("is being removed"));
        let with_node = Surroundings {
            has_node: true,
            ..in_kernel.clone()
        };
        assert!(absent("rxe0", &with_node).contains("ibverbs-providers"));
        let no_uverbs = Surroundings {
            uverbs: false,
            ..in_kernel
        };
        assert!(absent("rxe0", &no_uverbs).contains("modprobe ib_uverbs"));
    }

    #[test]
    fn a_node_that_is_missing_or_forbidden_is_named() {
        let said = |errno| {
            unopened(
                "rxe0",
                Some("uverbs3"),
                &io::Error::from_raw_os_error(errno),
            )
        };
        assert!(said(libc::ENOENT).contains("/dev/infiniband/uverbs3 is missing"));
        assert!(said(libc::EACCES).contains("DeviceAllow=char-infiniband_verbs"));
        assert!(said(libc::EPERM).contains("rdma dev set rxe0 netns NAME"));
        assert!(said(libc::EIO).contains("os error 5"));
    }

    #[test]
    fn a_memory_limit_is_blamed_only_when_it_is_too_small() {
        let full = io::Error::from_raw_os_error(libc::ENOMEM);
        let text = no_memory("rxe0", 3 << 20, Some(8 << 10), &full);
        assert_eq!(
            text,
            "rxe0 needs 3072 KiB of locked memory and may have 8: ulimit -l 3072, or \
             LimitMEMLOCK=infinity in its unit"
        );
        for (limit, errno) in [
            (None, libc::ENOMEM),
            (Some(4 << 20), libc::ENOMEM),
            (Some(0), libc::EIO),
        ] {
            let error = io::Error::from_raw_os_error(errno);
            assert!(!no_memory("rxe0", 3 << 20, limit, &error).contains("LimitMEMLOCK"));
        }
    }

    #[test]
    fn ports_that_there_are_are_told() {
        let text = |ports| no_such_port("mlx5_0", 3, ports).to_string();
        assert_eq!(text(1), "mlx5_0 has no port 3, it has one port: 1");
        assert_eq!(text(2), "mlx5_0 has no port 3, its ports are 1 to 2");
    }
}
