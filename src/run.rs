//! The daemon's life: start, serve until a signal, stop.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use fabric::PKey;
use fabric::soft::{self, SoftConfig};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::api::Mode;
use crate::args::{EXIT_OK, EXIT_REFUSED, EXIT_USAGE};
use crate::config::{Config, DeviceConfig, GidChoice, LinkMtu, PortConfig, default_queues};
use crate::control::ControlServer;
use crate::daemon::{Daemon, DaemonError, PortSpec};
use crate::device::DeviceSpec;
use crate::logging;

/// How long to wait at the start for the underlay to have a usable GID.
const GID_WAIT: Duration = Duration::from_secs(10);

/// The scope nibble of the broadcast group: link-local, as the kernel has it
/// (`ipoib_main.c ipv4_bcast_addr`).
pub const SCOPE: u8 = 2;

/// Runs until SIGTERM or SIGINT; gives the exit status.
pub fn run(config: Config) -> u8 {
    logging::init(config.log_level);
    if let Some(device) = config.devices.iter().find(|d| d.mode == Mode::Connected) {
        eprintln!(
            "ibtapd: {}: connected mode is not available in this version; use mode \"datagram\"",
            device.name
        );
        return EXIT_USAGE;
    }
    match serve(config) {
        Ok(()) => EXIT_OK,
        Err(error) => {
            eprintln!("ibtapd: {error}");
            EXIT_REFUSED
        }
    }
}

fn serve(config: Config) -> Result<(), Failure> {
    let caught = |e| DaemonError::Os("cannot catch signals", e);
    let mut signals = signals().map_err(caught)?;
    let mut server = ControlServer::bind(&config.socket)?;
    let specs = port_specs(
        &config,
        &Arc::new(OwnedFd::from(signals.try_clone().map_err(caught)?)),
    );
    let mut daemon = match Daemon::start(specs) {
        Ok(daemon) => daemon,
        Err(_) if is_signalled(&mut signals) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    notify(&[
        sd_notify::NotifyState::Ready,
        sd_notify::NotifyState::Status(&format!("{} device(s)", config.devices.len())),
    ]);
    loop {
        daemon
            .wait(&[signals.as_fd(), server.as_fd()])
            .map_err(|e| DaemonError::Os("cannot wait for events", e))?;
        if is_signalled(&mut signals) {
            break;
        }
        daemon.process()?;
        server
            .process(&mut daemon)
            .map_err(|e| DaemonError::Os("cannot serve the control socket", e))?;
    }
    log::info!("stopping");
    notify(&[sd_notify::NotifyState::Stopping]);
    daemon.stop();
    Ok(())
}

/// Why serving ended.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Control(#[from] crate::control::BindError),
}

/// A stream that becomes readable with SIGTERM or SIGINT.
fn signals() -> std::io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    for signal in [SIGTERM, SIGINT] {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
    }
    Ok(read)
}

fn is_signalled(signals: &mut UnixStream) -> bool {
    signals.read(&mut [0; 16]).is_ok_and(|n| n > 0)
}

/// Tells systemd, if it listens.
fn notify(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        log::debug!("cannot notify the service manager: {e}");
    }
}

fn port_specs(config: &Config, give_up: &Arc<OwnedFd>) -> Vec<PortSpec> {
    config
        .ports
        .iter()
        .map(|(underlay, port)| {
            let devices: Vec<&DeviceConfig> = config
                .devices
                .iter()
                .filter(|d| d.underlay == *underlay)
                .collect();
            port_spec(underlay, port, &devices, give_up)
        })
        .collect()
}

fn port_spec(
    underlay: &str,
    port: &PortConfig,
    devices: &[&DeviceConfig],
    give_up: &Arc<OwnedFd>,
) -> PortSpec {
    let pkeys: Vec<PKey> = port
        .pkeys
        .clone()
        .unwrap_or_else(|| devices.iter().map(|d| d.pkey).collect());
    let devices: Vec<DeviceSpec> = devices.iter().map(|d| device_spec(d)).collect();
    PortSpec {
        soft: SoftConfig {
            underlay: underlay.to_owned(),
            gid: gid_choice(port.gid),
            peers: port.peers.clone(),
            pkeys,
            link_mtu: link_mtu(port.link_mtu),
            workers: devices.iter().map(|d| d.queues).max().unwrap_or(1),
            gid_wait: GID_WAIT,
            give_up: Some(give_up.clone()),
        },
        busy_poll: port.busy_poll.duration(),
        devices,
    }
}

fn device_spec(device: &DeviceConfig) -> DeviceSpec {
    DeviceSpec {
        name: device.name.clone(),
        pkey: device.pkey,
        qkey: device.qkey,
        scope: SCOPE,
        mtu: device.mtu,
        queues: device.queues.unwrap_or_else(default_queues),
        persist: device.persist,
        up: device.up,
        dhcp: ipoib::DhcpMode::default(),
        reflect: false,
    }
}

/// The choice of a GID in the fabric's words.
pub fn gid_choice(gid: GidChoice) -> soft::GidChoice {
    match gid {
        GidChoice::Auto => soft::GidChoice::Auto,
        GidChoice::Ipv4 => soft::GidChoice::Ipv4,
        GidChoice::Address(address) => soft::GidChoice::Address(address),
    }
}

/// The link MTU in the fabric's words.
pub fn link_mtu(mtu: LinkMtu) -> soft::LinkMtu {
    match mtu {
        LinkMtu::Auto => soft::LinkMtu::Auto,
        LinkMtu::Exact => soft::LinkMtu::Exact,
        LinkMtu::Bytes(bytes) => soft::LinkMtu::Bytes(bytes),
    }
}
