//! Opens a device, with an error sentence for each cause of failure.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};

use super::config::VerbsConfig;
use super::ibv::{Context, device_names};
use super::nodes;
use super::sys::{Library, Real};
use super::sysfs;
use crate::port::FabricError;

/// Loads the libraries of the system.
///
/// # Errors
/// [`FabricError::Unusable`] that says what to install.
pub fn library() -> Result<Arc<dyn Library>, FabricError> {
    match Real::load() {
        Ok(library) => Ok(library),
        Err(error) => Err(FabricError::Unusable(error.to_string())),
    }
}

/// Opens a device.
///
/// # Errors
/// [`FabricError::Unusable`] that says why the device cannot be opened and what to do.
pub fn device(library: &Arc<dyn Library>, name: &str) -> Result<Arc<Context>, FabricError> {
    Context::open(library, name).map_err(|error| {
        let text = if error.kind() == io::ErrorKind::NotFound && error.raw_os_error().is_none() {
            absent(name, &Surroundings::look(&**library, name))
        } else {
            match device_names(&**library) {
                Ok(names) if names.iter().any(|n| n == name) => {
                    let node = sysfs::uverbs(name);
                    let error = match &node {
                        Some(node) => nodes::why_closed(&nodes::path(node), error),
                        None => error,
                    };
                    match error.raw_os_error() {
                        Some(libc::ENOENT | libc::EACCES) if nodes::are_others() => {
                            only_after_restart(name)
                        }
                        _ => unopened(name, node.as_deref(), &error),
                    }
                }
                _ => absent(name, &Surroundings::look(&**library, name)),
            }
        };
        FabricError::Unusable(text)
    })
}

/// The system's state where a device is missing.
#[derive(Clone, Debug, Default)]
struct Surroundings {
    /// Devices in libibverbs' list.
    listed: Vec<String>,
    /// The kernel has RDMA: /sys/class/infiniband exists.
    class: bool,
    /// The kernel has the device in this network namespace.
    in_kernel: bool,
    /// Programs can use devices: /sys/class/infiniband_verbs exists.
    uverbs: bool,
    /// Programs can use this device.
    has_node: bool,
    /// Each device belongs to one network namespace (rdma-system(8), exclusive mode).
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

/// Why a device is missing in libibverbs' list.
fn absent(name: &str, around: &Surroundings) -> String {
    if !around.class {
        return format!(
            "there is no RDMA device {name}: the kernel's RDMA modules are not loaded; for an adapter \
             load its driver and ib_uverbs, for a software device: modprobe -a rdma_rxe ib_uverbs; rdma \
             link add rxe0 type rxe netdev eth0"
        );
    }
    if around.in_kernel && !around.uverbs {
        return format!(
            "programs cannot use {name} without the module ib_uverbs: modprobe ib_uverbs"
        );
    }
    // A removed device first loses its node, then waits until no program has it open.
    if around.in_kernel && !around.has_node {
        return format!(
            "{name} is being removed; the removal waits until all programs have closed it"
        );
    }
    if around.in_kernel {
        return format!(
            "the kernel has {name}, but libibverbs has no driver for it: install the providers, on \
             Debian: apt-get install ibverbs-providers"
        );
    }
    let listed = if around.listed.is_empty() {
        "no RDMA device is available; for a software device on an Ethernet interface: rdma link add rxe0 \
         type rxe netdev eth0"
            .to_owned()
    } else {
        format!("available: {}", around.listed.join(", "))
    };
    let hint = if around.exclusive {
        format!(
            "; each RDMA device belongs to one network namespace (exclusive mode): if {name} is in \
             another one, run there: rdma dev set {name} netns NAME, or: rdma system set netns shared"
        )
    } else {
        String::new()
    };
    format!("there is no RDMA device {name}; {listed}{hint}")
}

/// Why this process cannot open a device again, and the next one can.
fn only_after_restart(name: &str) -> String {
    format!(
        "cannot open {name}: restart ibtapd: the kernel has made /dev/infiniband again, and ibtapd may use only the \
         directory of its start"
    )
}

/// Why a listed device cannot be opened.
fn unopened(name: &str, uverbs: Option<&str>, error: &io::Error) -> String {
    let node = match uverbs {
        Some(node) => format!("/dev/infiniband/{node}"),
        None => "its node in /dev/infiniband".to_owned(),
    };
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO) => format!(
            "cannot open {name}: {node} is missing; udev creates it, a container needs the option \
             --device /dev/infiniband, a systemd unit the drop-in rdma.conf and a restart"
        ),
        Some(libc::EACCES) => format!(
            "cannot open {name}: no access to {node}; its group has access (usually rdma), a systemd \
             unit needs DeviceAllow=char-infiniband_verbs rw (drop-in rdma.conf)"
        ),
        Some(libc::EPERM) => format!(
            "cannot open {name}: the kernel denies access to {node} ({error}); a systemd unit needs \
             DeviceAllow=char-infiniband_verbs rw (drop-in rdma.conf); in exclusive mode (rdma system show) the device \
             must be in this network namespace: rdma dev set {name} netns NAME"
        ),
        _ => format!("cannot open {name}: {error}"),
    }
}

/// Checks that a device with so many ports has the configured one.
///
/// # Errors
/// [`FabricError::Unusable`] that lists the ports.
pub fn check_port(config: &VerbsConfig, ports: u8) -> Result<(), FabricError> {
    let VerbsConfig { device, port, .. } = config;
    if (1..=ports).contains(port) {
        return Ok(());
    }
    Err(FabricError::Unusable(match ports {
        1 => format!("{device} has no port {port}; its only port is 1"),
        _ => format!("{device} has no port {port}; its ports are 1 to {ports}"),
    }))
}

/// Warning for a device without enough shared receive queues for connections.
pub fn no_connections(name: &str) -> String {
    format!(
        "{name} has too few shared receive queues for connections: interfaces in connected mode use \
         datagrams"
    )
}

/// Error for failed memory registration; `needed` bytes are registered in total.
pub fn out_of_memory(name: &str, needed: u64, error: &io::Error) -> FabricError {
    let limit = getrlimit(Resource::Memlock).current;
    FabricError::Unusable(no_memory(name, needed, limit, error))
}

fn no_memory(name: &str, needed: u64, limit: Option<u64>, error: &io::Error) -> String {
    let kib = |bytes: u64| bytes.div_ceil(1024);
    match limit {
        Some(limit) if error.raw_os_error() == Some(libc::ENOMEM) && limit < needed => format!(
            "{name} needs {} KiB of locked memory, the limit is {} KiB: ulimit -l {}, or \
             LimitMEMLOCK=infinity in the systemd unit",
            kib(needed),
            kib(limit),
            kib(needed),
        ),
        _ => format!(
            "{name}: cannot register {} KiB of memory: {error}",
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
    fn without_rdma_in_the_kernel_the_text_names_the_modules() {
        let text = absent("rxe0", &Surroundings::default());
        assert!(text.contains("modprobe -a rdma_rxe ib_uverbs"), "{text}");
    }

    #[test]
    fn other_devices_are_listed() {
        let text = absent("mlx5_7", &around(&["mlx5_0", "rxe0"]));
        assert_eq!(
            text,
            "there is no RDMA device mlx5_7; available: mlx5_0, rxe0"
        );
        let text = absent("mlx5_7", &around(&[]));
        assert_eq!(
            text,
            "there is no RDMA device mlx5_7; no RDMA device is available; for a software device on an Ethernet \
             interface: rdma link add rxe0 type rxe netdev eth0"
        );
    }

    #[test]
    fn in_exclusive_mode_the_text_for_a_missing_device_says_so() {
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
        let text = |errno| {
            unopened(
                "rxe0",
                Some("uverbs3"),
                &io::Error::from_raw_os_error(errno),
            )
        };
        assert!(text(libc::ENOENT).contains("/dev/infiniband/uverbs3 is missing"));
        assert!(text(libc::EACCES).contains("DeviceAllow=char-infiniband_verbs"));
        assert!(text(libc::EPERM).contains("rdma dev set rxe0 netns NAME"));
        assert!(text(libc::EIO).contains("os error 5"));
    }

    #[test]
    fn a_memory_limit_is_blamed_only_when_it_is_too_small() {
        let full = io::Error::from_raw_os_error(libc::ENOMEM);
        let text = no_memory("rxe0", 3 << 20, Some(8 << 10), &full);
        assert_eq!(
            text,
            "rxe0 needs 3072 KiB of locked memory, the limit is 8 KiB: ulimit -l 3072, or \
             LimitMEMLOCK=infinity in the systemd unit"
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
    fn the_text_lists_the_ports() {
        let text = |ports| {
            let config = VerbsConfig::new("mlx5_0", 3);
            check_port(&config, ports).unwrap_err().to_string()
        };
        assert_eq!(text(1), "mlx5_0 has no port 3; its only port is 1");
        assert_eq!(text(2), "mlx5_0 has no port 3; its ports are 1 to 2");
    }
}
