//! The daemon's life: start, serve until a signal, stop.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use control::ControlServer;
use control::config::{self, Config, IpoibConfig, PortConfig, PortName, Source, VnicConfig};
use control::exit::{EXIT_OK, EXIT_REFUSED};
use control::logging;
use fabric::soft::SoftConfig;
use fabric::verbs::VerbsConfig;
use fabric::{PKey, ProviderConfig};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::daemon::{Daemon, DaemonError, PortSpec};
use crate::port::PortSettings;
use crate::reload::Running;
use crate::starting;

/// How long to wait at the start for a port to have a usable GID.
const GID_WAIT: Duration = Duration::from_secs(10);

/// Runs until SIGTERM or SIGINT; gives the exit status. With a source, SIGHUP has it read again.
pub fn run(config: Config, source: Option<Source>) -> u8 {
    logging::init(config.log_level);
    match serve(config, source) {
        Ok(()) => EXIT_OK,
        Err(error) => {
            eprintln!("ibtapd: {error}");
            EXIT_REFUSED
        }
    }
}

fn serve(config: Config, source: Option<Source>) -> Result<(), Failure> {
    let caught = |e| DaemonError::Os("cannot catch signals", e);
    let mut stops = signals(&[SIGTERM, SIGINT]).map_err(caught)?;
    let mut reloads = signals(&[SIGHUP]).map_err(caught)?;
    let mut server = ControlServer::bind(&config.socket)?;
    let specs = port_specs(
        &config,
        &Arc::new(OwnedFd::from(stops.try_clone().map_err(caught)?)),
    );
    let started = starting::answer_while(&mut server, || Daemon::start(specs))
        .map_err(|e| DaemonError::Os("cannot serve the control socket", e))?;
    let mut daemon = match started {
        Ok(daemon) => daemon,
        Err(_) if is_signalled(&mut stops) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    daemon.running = source.map(|source| Running { source, config });
    notify_ready(&daemon);
    loop {
        daemon.tend_vlans();
        daemon
            .wait(&[stops.as_fd(), reloads.as_fd(), server.as_fd()])
            .map_err(|e| DaemonError::Os("cannot wait for events", e))?;
        if is_signalled(&mut stops) {
            break;
        }
        if is_signalled(&mut reloads)
            && let Err(error) = daemon.reload()
        {
            log::error!("not reloaded: {error}");
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
    Control(#[from] control::BindError),
}

/// A stream that becomes readable with each of the signals.
fn signals(which: &[i32]) -> std::io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    for signal in which {
        signal_hook::low_level::pipe::register(*signal, write.try_clone()?)?;
    }
    Ok(read)
}

fn is_signalled(signals: &mut UnixStream) -> bool {
    signals.read(&mut [0; 16]).is_ok_and(|n| n > 0)
}

/// Tells systemd that the configuration is being read again; [`notify_ready`] ends it.
pub(crate) fn notify_reloading() {
    match sd_notify::NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[sd_notify::NotifyState::Reloading, now]),
        Err(e) => log::debug!("cannot read the clock for the service manager: {e}"),
    }
}

/// Tells systemd how many interfaces are in service.
pub(crate) fn notify_ready(daemon: &Daemon) {
    let served = config::interfaces(
        daemon.interfaces.ips().count(),
        daemon.interfaces.ethernets().count(),
    );
    notify(&[
        sd_notify::NotifyState::Ready,
        sd_notify::NotifyState::Status(&served),
    ]);
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
        .map(|(name, port)| {
            let devices = config.ipoib.iter().filter(|d| d.port == *name);
            let vnics = config.vnics.iter().filter(|v| v.port == *name);
            let on_it = (&*devices.collect::<Vec<_>>(), &*vnics.collect::<Vec<_>>());
            port_spec(name, port, on_it, Some(give_up))
        })
        .collect()
}

/// What a configuration asks of a port and of its devices and VNICs. Waiting for a GID ends when
/// `give_up` is readable.
pub(crate) fn port_spec(
    name: &PortName,
    port: &PortConfig,
    (devices, vnics): (&[&IpoibConfig], &[&VnicConfig]),
    give_up: Option<&Arc<OwnedFd>>,
) -> PortSpec {
    let pkeys: Vec<PKey> = port.pkeys.clone().unwrap_or_else(|| {
        let of_devices = devices.iter().map(|d| d.pkey);
        of_devices.chain(vnics.iter().map(|v| v.pkey())).collect()
    });
    let devices: Vec<IpoibConfig> = devices.iter().map(|d| (*d).clone()).collect();
    let vnics: Vec<VnicConfig> = vnics.iter().map(|v| (*v).clone()).collect();
    let queues = devices.iter().map(|d| d.queue_count());
    let queues = queues.chain(vnics.iter().map(|v| v.queue_count())).max();
    // Those that a manager will make are to have as many as any.
    let workers = queues.unwrap_or_else(|| name.default_queues());
    let fabric = match name {
        PortName::Underlay(underlay) => ProviderConfig::Soft(SoftConfig {
            gid: port.gid,
            peers: port.peers.clone(),
            pkeys,
            link_mtu: port.link_mtu,
            workers,
            gid_wait: GID_WAIT,
            give_up: give_up.cloned(),
            ..SoftConfig::new(underlay)
        }),
        PortName::Rdma {
            device,
            port: number,
        } => ProviderConfig::Verbs(VerbsConfig {
            gid_wait: GID_WAIT,
            give_up: give_up.cloned(),
            gid: port.gid,
            link_mtu: port.link_mtu,
            lids: port.lids.clone(),
            ..VerbsConfig::new(device, *number)
        }),
    };
    PortSpec {
        fabric,
        name: name.clone(),
        settings: PortSettings {
            automatic_pkeys: port.pkeys.is_none(),
            kernel_peers: port.kernel_peers,
            busy_poll: port.busy_poll.duration(),
        },
        management: port.management(),
        devices,
        vnics,
    }
}
