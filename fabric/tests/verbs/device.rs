//! The device that the tests use.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric::verbs::ibv::{Context, LinkLayer, device_names};
use fabric::verbs::sys::{Library, Real};

/// A device with an active port 1 on Ethernet, and its library. Only one test at a time has it.
pub struct Device {
    pub name: String,
    pub library: Arc<dyn Library>,
    _alone: MutexGuard<'static, ()>,
}

/// The device, or `None` with a message.
pub fn find() -> Option<Device> {
    static ALONE: Mutex<()> = Mutex::new(());
    if std::env::var_os("IBTAP_TEST_LOG").is_some() && log::set_logger(&Logger).is_ok() {
        log::set_max_level(log::LevelFilter::Debug);
    }
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let library: Arc<dyn Library> = match Real::load() {
        Ok(library) => library,
        Err(error) => return skip(&error),
    };
    let names = match device_names(&*library) {
        Ok(names) => names,
        Err(error) => return skip(&format_args!("no RDMA devices: {error}")),
    };
    let usable = |name: &String| {
        let port = Context::open(&library, name).and_then(|c| c.query_port(1));
        port.is_ok_and(|p| p.active && p.link_layer == LinkLayer::Ethernet)
    };
    match names.iter().find(|name| usable(name)) {
        Some(name) => Some(Device {
            name: name.clone(),
            library,
            _alone: alone,
        }),
        None => skip(&format_args!(
            "no active device on Ethernet among {names:?}"
        )),
    }
}

/// As [`find`], with the device's interface, for a test that removes the device: only if IBTAP_TEST_MAY_REMOVE is
/// set, as in a virtual machine, and only an rdma_rxe device.
pub fn removable() -> Option<(Device, String)> {
    if std::env::var_os("IBTAP_TEST_MAY_REMOVE").is_none() {
        kit::skip("IBTAP_TEST_MAY_REMOVE is not set");
        return None;
    }
    let d = find()?;
    let parent = format!("/sys/class/infiniband/{}/parent", d.name);
    match std::fs::read_to_string(parent) {
        Ok(netdev) => Some((d, netdev.trim().to_owned())),
        Err(_) => {
            kit::skip(format_args!("{} is no rdma_rxe", d.name));
            None
        }
    }
}

/// Whether the environment requests more failing calls of each function. That takes minutes.
pub fn is_thorough() -> bool {
    std::env::var_os("IBTAP_TEST_THOROUGH").is_some()
}

/// Writes the provider's log to stderr if IBTAP_TEST_LOG is set.
struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        let _ = writeln!(std::io::stderr(), "{}: {}", record.level(), record.args());
    }
    fn flush(&self) {}
}

fn skip(why: &dyn std::fmt::Display) -> Option<Device> {
    kit::skip(why);
    None
}
