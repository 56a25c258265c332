//! Why a port carries no management datagrams: one sentence for each fault.

use std::io;
use std::path::{Path, PathBuf};

use super::holders::holders;
use super::port::Agent;
use crate::verbs::sysfs;

/// Why a call failed. `port` is `mlx5_0/1`.
#[derive(Debug, thiserror::Error)]
pub enum UmadError {
    /// libibumad is not installed.
    #[error("cannot load libibumad ({reason}): install it, on Debian: apt-get install libibumad3")]
    Absent {
        /// The loader's error.
        reason: String,
    },
    /// libibumad is too old.
    #[error("libibumad.so.3 has no function {function}: install rdma-core 22 or later")]
    Lacking {
        /// The function.
        function: &'static str,
    },
    /// The kernel has no `ib_umad`.
    #[error(
        "the kernel offers no management datagrams to programs: load its module: modprobe ib_umad"
    )]
    NoModule,
    /// No such device.
    #[error("there is no RDMA device {device}: {there}")]
    NoDevice {
        /// The device that was named.
        device: String,
        /// The devices that exist.
        there: String,
    },
    /// The device has no such port with management datagrams.
    #[error(
        "{port} has no management datagrams: the device has no port of that number, or its link is \
         no InfiniBand (ibstat shows both)"
    )]
    NoPort {
        /// The port.
        port: String,
    },
    /// The node in /dev cannot be opened.
    #[error("cannot open {} of {port} ({reason}): {advice}", node.display())]
    Node {
        /// The port.
        port: String,
        /// `/dev/infiniband/umad0`.
        node: PathBuf,
        /// The error of open(2).
        reason: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// Another agent of the port has these methods.
    #[error("{port} refuses an agent of class {class}: {held}")]
    Held {
        /// The port.
        port: String,
        /// The class.
        class: u8,
        /// Who may hold what, and what to do.
        held: String,
    },
    /// Registration failed otherwise.
    #[error("{port} refuses an agent of class {class}: {reason}")]
    Register {
        /// The port.
        port: String,
        /// The class.
        class: u8,
        /// The kernel's error.
        reason: io::Error,
    },
    /// A MAD was not sent.
    #[error("cannot send a management datagram on {port}: {reason}")]
    Send {
        /// The port.
        port: String,
        /// The kernel's error. EINVAL: the transaction id is outstanding, or the agent has left.
        reason: io::Error,
    },
    /// The attributes of the port cannot be read.
    #[error("cannot read the attributes of {port}: {reason}")]
    Attributes {
        /// The port.
        port: String,
        /// The error.
        reason: io::Error,
    },
    /// No MAD will be received any more.
    #[error(
        "{port} receives no management datagrams any more ({reason}): its device was removed, or its driver \
         restarted"
    )]
    Ended {
        /// The port.
        port: String,
        /// The kernel's error.
        reason: io::Error,
    },
    /// A thread or an eventfd could not be made.
    #[error("cannot start receiving management datagrams on {port}: {reason}")]
    Start {
        /// The port.
        port: String,
        /// The kernel's error.
        reason: io::Error,
    },
}

/// The error of umad_open_port(3); `there` has the devices.
pub fn of_open(
    device: &str,
    number: u8,
    port: &str,
    reason: io::Error,
    there: &[String],
) -> UmadError {
    let missing = !there.iter().any(|name| name == device);
    let in_kernel = |name: &String| sysfs::has_device(name);
    if !sysfs::has_umad() && !there.is_empty() && there.iter().all(in_kernel) {
        return UmadError::NoModule;
    }
    if missing {
        return UmadError::NoDevice {
            device: device.to_owned(),
            there: match there {
                [] => "the kernel has none; load the driver of the adapter".to_owned(),
                names => format!("the kernel has {}", names.join(", ")),
            },
        };
    }
    if reason.raw_os_error() == Some(libc::ENODEV) {
        return UmadError::NoPort {
            port: port.to_owned(),
        };
    }
    UmadError::Node {
        port: port.to_owned(),
        node: node(device, number).unwrap_or_else(|| PathBuf::from("/dev/infiniband/umad*")),
        advice: match reason.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                "run the program as root, or give the user of the program access to the node with a udev rule; \
                 for ibtapd: KERNEL==\"umad*\", OWNER=\"ibtap\", MODE=\"0600\""
            }
            Some(libc::ENOENT | libc::ENXIO) => {
                "udev makes the node; a container needs --device for it"
            }
            _ => "the kernel's log may say more",
        },
        reason,
    }
}

/// The error of umad_register(3).
pub fn of_register(
    device: &str,
    number: u8,
    port: &str,
    agent: &Agent,
    reason: io::Error,
) -> UmadError {
    let (port, class) = (port.to_owned(), agent.class);
    // The kernel's answer for a method that another agent of the port has (`ib_register_mad_agent`).
    if reason.raw_os_error() != Some(libc::EINVAL) || agent.methods == 0 {
        return UmadError::Register {
            port,
            class,
            reason,
        };
    }
    let others = match node(device, number).map(|node| holders(&node)) {
        Some(names) if !names.is_empty() => {
            format!("{} has the port's umad open", names.join(", "))
        }
        _ => "another program has these methods".to_owned(),
    };
    let held = match class {
        7 if Path::new("/sys/module/ib_cm").exists() => {
            "the kernel's ib_cm has the messages of connections; unload it (rmmod ib_ipoib rdma_ucm \
             rdma_cm ib_cm), or use rdma_cm"
                .to_owned()
        }
        3 => format!("{others}; one program of a port receives Reports: stop the other one"),
        _ => format!("{others}; stop it"),
    };
    UmadError::Held { port, class, held }
}

fn node(device: &str, number: u8) -> Option<PathBuf> {
    sysfs::umad(device, number).map(|name| Path::new("/dev/infiniband").join(name))
}
