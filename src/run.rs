//! The process: starts the daemon, runs it until a signal, stops it.

mod confinement;
mod starting;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use control::config::{Config, Source};
use control::exit::{EXIT_OK, EXIT_REFUSED};
use control::logging;
use control::metrics::MetricsServer;
use control::signals::{SIGHUP, SIGINT, SIGTERM, Signals};
use control::{BindError, ControlServer};

use crate::daemon::{Daemon, DaemonError, Running, notify};
use crate::port::PortSpec;

/// How long a port may take at the start until it has a usable GID.
const GID_WAIT: Duration = Duration::from_secs(10);

/// Runs the daemon until SIGTERM or SIGINT; returns the exit status. SIGHUP reads `source` again.
pub fn run(config: Config, source: Option<Source>) -> u8 {
    logging::init(config.log_level);
    match serve(config, source) {
        Ok(()) => EXIT_OK,
        Err(error) => {
            logging::report_end("ibtapd", &error);
            EXIT_REFUSED
        }
    }
}

fn serve(config: Config, source: Option<Source>) -> Result<(), Failure> {
    let caught = |e| DaemonError::Os("cannot catch signals", e);
    let mut stops = Signals::catch(&[SIGTERM, SIGINT]).map_err(caught)?;
    let mut reloads = Signals::catch(&[SIGHUP]).map_err(caught)?;
    let mut server = ControlServer::bind(&config.socket)?;
    server.set_group_access(config.group_access);
    let mut metrics = listen_for_metrics(&config)?;
    let sockets = [
        Some((server.path(), server.made())),
        metrics.as_ref().and_then(MetricsServer::files),
    ];
    confinement::begin(&config, source.as_ref(), &sockets);
    let give_up = stops.descriptor().map_err(caught)?;
    let specs = port_specs(&config, &Arc::new(give_up));
    let started = starting::answer_while(&mut server, || Daemon::start(specs))
        .map_err(|e| DaemonError::Os("cannot serve the control socket", e))?;
    let mut daemon = match started {
        Ok(daemon) => daemon,
        Err(_) if stops.take() => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if !confinement::has_devices(&config) {
        sandbox::enter(sandbox::Thread::Control);
    }
    daemon.running = source.map(|source| Running { source, config });
    notify::ready(&daemon.interfaces);
    loop {
        let mut waited = vec![stops.as_fd(), reloads.as_fd(), server.as_fd()];
        waited.extend(metrics.as_ref().map(AsFd::as_fd));
        daemon
            .wait(&waited)
            .map_err(|e| DaemonError::Os("cannot wait for events", e))?;
        if stops.take() {
            break;
        }
        if reloads.take()
            && let Err(error) = daemon.reload()
        {
            log::error!("not reloaded: {error}");
        }
        daemon.process()?;
        server
            .process(&mut daemon)
            .map_err(|e| DaemonError::Os("cannot serve the control socket", e))?;
        if let Some(metrics) = &mut metrics {
            metrics
                .process(&mut || daemon.metrics())
                .map_err(|e| DaemonError::Os("cannot serve metrics", e))?;
        }
    }
    log::info!("stopping");
    notify::stopping();
    daemon.stop();
    Ok(())
}

/// Opens the listener of metrics, if the configuration has one and its address is free. Any local user can take a TCP
/// port, which must keep no interface from its service. There is no later try: Landlock forbids it.
fn listen_for_metrics(config: &Config) -> Result<Option<MetricsServer>, BindError> {
    match config.metrics.as_ref().map(MetricsServer::bind) {
        Some(Err(e)) if e.is_in_use() => {
            log::error!("no metrics until the next start of ibtapd: {e}");
            Ok(None)
        }
        bound => bound.transpose(),
    }
}

/// Why [`serve`] failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Listen(#[from] BindError),
}

fn port_specs(config: &Config, give_up: &Arc<OwnedFd>) -> Vec<PortSpec> {
    config
        .ports
        .iter()
        .map(|(name, port)| {
            let ipoibs = config.ipoib.iter().filter(|i| i.port == *name);
            let vnics = config.vnics.iter().filter(|v| v.port == *name);
            let interfaces = (&*ipoibs.collect::<Vec<_>>(), &*vnics.collect::<Vec<_>>());
            PortSpec::of(name, port, interfaces, GID_WAIT, Some(give_up))
        })
        .collect()
}
