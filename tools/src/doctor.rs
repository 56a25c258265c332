//! `ibtap doctor`: finds faults and gives advice.
//!
//! Each check is a module: `gather` reads facts from the system; `judge` turns facts into findings, without
//! access to the system. If a daemon answers, the checks run in its network namespace.

mod daemon;
mod finding;
mod firewall;
mod gid;
mod host;
mod modules;
mod multicast;
mod named_file;
mod namespace;
mod rdma;
mod rights;
mod target;
#[cfg(test)]
mod tests;
mod udp_port;
mod underlay;

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use control::api::{InterfaceInfo, VnicInfo};
use control::config::SCOPE;
use control::config::{Config, PortName, values::parse_interface};
use control::exit::{EXIT_OK, EXIT_REFUSED};
use control::{ClientError, ControlClient};
use netdev::netns::Namespace;
use rtnl::Requests;

use crate::output::{Failure, Format, after, no_color, print_coloured};
use daemon::View;
use finding::{Finding, Level, any_failed};
use target::Target;

pub use named_file::NamedFile;
pub use target::{file_of_process as file_of, of_process as config_of, of_unit as unit_file};

/// Time that a daemon on a loaded machine has to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Find faults and print advice
///
/// Checks rights, underlay or RDMA device, GID, port, firewall, multicast and, if one runs, the daemon.
/// Changes nothing; sends a ping or an echo to all hosts on each interface.
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// Only this interface of the daemon [default: all]
    #[arg(value_name = "IF")]
    pub interface: Option<String>,

    /// Check this underlay [default: that of the daemon or the configuration, or a likely one]
    #[arg(long, short, value_name = "IF", value_parser = parse_interface)]
    pub underlay: Option<String>,

    /// Check port N of this RDMA device [default: that of the daemon or the configuration; port 1]
    #[arg(long, short, value_name = "DEVICE[/N]", value_parser = PortName::parse_rdma)]
    #[arg(conflicts_with = "underlay")]
    pub device: Option<PortName>,

    /// Check this configuration file and its ports
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["underlay", "device"])]
    pub config: Option<PathBuf>,
}

impl DoctorArgs {
    /// The port of the command line.
    fn port(&self) -> Option<PortName> {
        let underlay = || self.underlay.clone().map(PortName::Underlay);
        self.device.clone().or_else(underlay)
    }
}

/// Runs all checks, prints the findings, and returns the exit status: `EXIT_REFUSED` if a fault keeps ibtap
/// from working.
///
/// # Errors
/// The interface does not exist; writing to stdout fails.
pub fn run(args: &DoctorArgs, socket: &Path, format: Format) -> Result<u8, Failure> {
    let findings = examine(args, socket)?;
    let colour = std::io::stdout().is_terminal() && !no_color();
    let printed = print_coloured(format, &findings, |all| finding::text(all, colour));
    let status = match any_failed(&findings) {
        true => EXIT_REFUSED,
        false => EXIT_OK,
    };
    after(printed, status)
}

fn examine(args: &DoctorArgs, socket: &Path) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    let rehearsal = args.port().is_some() || args.config.is_some();
    let mut daemon = udp_port::Daemon::Absent;
    let client = ControlClient::connect(socket, TIMEOUT);
    let listener = client.as_ref().ok().and_then(ControlClient::process);
    let interface = args.interface.as_deref();
    let asked = client.and_then(|mut client| match daemon::gather(&mut client, interface) {
        // An interface of a file that the daemon has not read yet.
        Err(ClientError::NoSuchInterface { .. }) if rehearsal => daemon::gather(&mut client, None),
        asked => asked,
    });
    let view = match asked {
        Ok(view) => Some(view),
        // There is no such interface, or several.
        Err(error @ (ClientError::NoSuchInterface { .. } | ClientError::Refused(_)))
            if !rehearsal =>
        {
            return Err(error.into());
        }
        Err(error) => {
            if daemon::is_there(&error) {
                daemon = udp_port::Daemon::Unasked(listener);
            }
            findings.push(daemon::judge_absence(&error, rehearsal));
            None
        }
    };
    let process = view.as_ref().and_then(|v| v.pid);
    findings.extend(view.iter().flat_map(daemon::judge));
    let rights = rights::gather(process);
    findings.extend(rights::judge(&rights));
    findings.extend(modules::judge(modules::gather()));
    findings.extend(process.and_then(namespace::enter));
    if any_failed_in(&findings, namespace::CHECK) {
        return Ok(findings);
    }
    match Requests::new() {
        Ok(requests) => Examination {
            view,
            daemon,
            requests,
            socket,
            locking: rights.locking(),
        }
        .examine(args, &mut findings)?,
        Err(error) => findings.push(unreadable(&error)),
    }
    Ok(findings)
}

/// Moves the calling thread to the network namespace of a process. Returns the reason if that fails.
pub fn enter_namespace_of(pid: u32) -> Option<String> {
    let failed = namespace::enter(pid).filter(|finding| finding.level == Level::Fail);
    failed.map(|finding| finding.found)
}

/// A program of the system, with output in English.
pub fn program(name: impl AsRef<OsStr>) -> Command {
    // The PATH of an ordinary user lacks these directories.
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(name);
    command
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("LC_ALL", "C");
    command
}

fn any_failed_in(findings: &[Finding], check: &str) -> bool {
    let mut of_check = findings.iter().filter(|f| f.check == check);
    of_check.any(|f| f.level == Level::Fail)
}

fn unreadable(error: &rtnl::Error) -> Finding {
    Finding::new("netlink", Level::Fail, "", error.to_string())
        .advise("a container or seccomp filter may block AF_NETLINK; run this on the host")
}

/// The network namespace of the checks, and the daemon that serves it.
struct Examination<'a> {
    view: Option<View>,
    /// Without a `view`: whether a daemon is there.
    daemon: udp_port::Daemon,
    requests: Requests,
    socket: &'a Path,
    /// The memory that the daemon may lock.
    locking: rights::Locking,
}

impl Examination<'_> {
    fn examine(mut self, args: &DoctorArgs, findings: &mut Vec<Finding>) -> Result<(), Failure> {
        let targets = self.targets(args, findings)?;
        let mut walls = Vec::new();
        for target in &targets {
            match &target.name {
                PortName::Underlay(name) => match self.underlay(name, target, findings) {
                    Ok(wall) => walls.extend(wall),
                    Err(error) => findings.push(unreadable(&error)),
                },
                PortName::Rdma { device, port } => {
                    let config = fabric::verbs::VerbsConfig {
                        gid: target.port.gid,
                        link_mtu: target.port.link_mtu,
                        workers: target.data_threads,
                        ..fabric::verbs::VerbsConfig::new(device, *port)
                    };
                    let facts = rdma::gather(&config, target, &mut self.requests);
                    findings.extend(rdma::judge(&facts, &config, self.locking));
                }
            }
        }
        if !walls.is_empty() {
            let rules = firewall::gather();
            findings.extend(firewall::judge(&rules, &walls));
            findings.extend(firewall::judge_local_users(&rules, &walls));
        }
        for interface in targets.iter().flat_map(|t| &t.interfaces) {
            match self.interface(interface) {
                Ok(found) => findings.extend(found),
                Err(error) => findings.push(unreadable(&error)),
            }
        }
        Ok(())
    }

    /// The ports to check.
    ///
    /// # Errors
    /// The file has no interface of this name.
    fn targets(
        &mut self,
        args: &DoctorArgs,
        findings: &mut Vec<Finding>,
    ) -> Result<Vec<Target>, Failure> {
        let file = match &args.config {
            Some(file) => config(file, findings),
            None => None,
        };
        let (served, vnics): (&[InterfaceInfo], &[VnicInfo]) = match &self.view {
            Some(view) => (&view.interfaces, &view.vnics),
            None => (&[], &[]),
        };
        let started = || self.view.as_ref().and_then(|v| target::of_process(v.pid?));
        let started = started();
        let of_daemon = target::of_daemon(served, vnics, file.as_ref().or(started.as_ref()));
        if let Some(port) = args.port() {
            let known = of_daemon.into_iter().find(|t| t.name == port);
            return Ok(vec![known.unwrap_or_else(|| target::of_name(port))]);
        }
        if let Some(path) = &args.config {
            let of_file = file.map(|c| target::of_config(&c, args.interface.as_deref()));
            if let (Some([]), Some(name)) = (of_file.as_deref(), &args.interface) {
                let path = path.display();
                return Err(Failure::Usage(format!(
                    "{path} has no interface named {name:?}"
                )));
            }
            return Ok(merge(of_file.unwrap_or_default(), of_daemon));
        }
        if self.view.is_some() {
            return Ok(of_daemon);
        }
        Ok(self.likely(args, findings))
    }

    /// The ports that a daemon would most likely use.
    fn likely(&mut self, args: &DoctorArgs, findings: &mut Vec<Finding>) -> Vec<Target> {
        if let Some(file) = target::of_unit() {
            let config = config(&file, findings);
            let targets = config.map(|c| target::of_config(&c, args.interface.as_deref()));
            return targets.unwrap_or_default();
        }
        let links = self.requests.links().unwrap_or_default();
        match target::guess(&links) {
            Some(link) => {
                findings.push(
                    Finding::new(
                        "underlay",
                        Level::Note,
                        &link.name,
                        "is the most likely underlay",
                    )
                    .advise("for another one: --underlay IF, --device DEVICE, or --config FILE"),
                );
                vec![target::of_name(PortName::Underlay(link.name.clone()))]
            }
            None => {
                findings.push(
                    Finding::new(
                        "underlay",
                        Level::Warn,
                        "",
                        "this namespace has no Ethernet interface",
                    )
                    .advise("name a port: --underlay IF, --device DEVICE, or --config FILE"),
                );
                Vec::new()
            }
        }
    }

    /// Checks an underlay; returns its view of the firewall, if the underlay exists.
    fn underlay(
        &mut self,
        name: &str,
        target: &Target,
        findings: &mut Vec<Finding>,
    ) -> Result<Option<firewall::PortAddress>, rtnl::Error> {
        let facts = underlay::gather(name, &mut self.requests)?;
        findings.extend(underlay::judge(name, &facts, &target.port));
        findings.extend(gid::judge(name, &facts.seen, target.port.gid));
        let Some(link) = &facts.seen.link else {
            return Ok(None);
        };
        let has_vnics = |view: &daemon::View| {
            let mut ports = view.vnics.iter().map(|v| PortName::of_running(&v.port));
            ports.any(|port| port.as_ref() == Some(&target.name))
        };
        let served = !target.interfaces.is_empty() || self.view.as_ref().is_some_and(has_vnics);
        let daemon = self.view.as_ref().map_or(self.daemon, |view| {
            let pid = view.pid;
            udp_port::Daemon::Answers {
                pid,
                serves: served,
            }
        });
        let port = udp_port::Facts {
            user: fabric::soft::port_user(name, link.index),
            daemon,
            rxe: modules::gather().rdma_rxe,
        };
        findings.push(udp_port::judge(name, &port));
        let multicast = self.multicast(name, target);
        findings.extend(multicast::judge(name, &multicast));
        let user = self
            .view
            .as_ref()
            .and_then(|v| fabric::soft::user_of(v.pid?));
        Ok(wall(name, target, &facts, user, multicast.peers.is_some()))
    }

    fn multicast(&mut self, name: &str, target: &Target) -> multicast::Facts {
        let peers = target.port.peers.len();
        // An interface that is down has left its groups. Another check reports it.
        let groups = target.interfaces.iter().filter(|i| i.up && i.carrier);
        multicast::Facts {
            groups: groups.map(|i| (i.name.clone(), i.broadcast)).collect(),
            joined: multicast::joined(name),
            peers: (peers != 0 || target.port.gid.is_ipv4()).then_some(peers),
            bridges: multicast::bridges(name, &mut self.requests),
        }
    }

    /// Checks an interface of the daemon, in the interface's network namespace.
    fn interface(&mut self, interface: &InterfaceInfo) -> Result<Vec<Finding>, rtnl::Error> {
        let Some(netns) = &interface.netns else {
            let (view, socket) = (self.view.as_ref(), self.socket);
            return look_at(interface, view, socket, &mut self.requests);
        };
        let (view, socket) = (self.view.as_ref(), self.socket);
        let look = || look_at(interface, view, socket, &mut Requests::new()?);
        let seen = Namespace::named(netns).and_then(|there| there.visit(look));
        seen.unwrap_or_else(|error| Ok(vec![namespace::closed(interface, netns, &error)]))
    }
}

/// Checks an interface in the calling thread's network namespace.
fn look_at(
    interface: &InterfaceInfo,
    view: Option<&View>,
    socket: &Path,
    requests: &mut Requests,
) -> Result<Vec<Finding>, rtnl::Error> {
    let Some(view) = view else {
        return Ok(Vec::new());
    };
    let name = interface.qualified_name();
    let none = Vec::new();
    let neighbours = view.neighbours.get(&name).unwrap_or(&none);
    let mut host = host::gather(interface, neighbours.len(), requests)?;
    if host.link.is_none() && daemon::is_gone(socket, TIMEOUT, &name) {
        return Ok(Vec::new());
    }
    host.guests = view.guests.get(&name).copied().unwrap_or(0);
    let mut findings = host::judge(interface, &host);
    if let Some(netns) = &interface.netns {
        findings.iter_mut().for_each(|f| f.happens_in(netns));
    }
    findings.extend(gid::duplicates(interface, &view.resources, neighbours));
    if let Some(stats) = view.stats.get(&name) {
        findings.extend(daemon::judge_counters(&name, stats));
        let up = host.link.filter(|link| link.is_usable());
        let ask = |link: rtnl::Link| match link.master {
            Some(_) => multicast::echo(socket, &name),
            None => multicast::probe(link.index).ok(),
        };
        let heard = multicast::Heard {
            neighbours: neighbours.len(),
            multicast: stats.multicast,
            received: stats.rx_packets,
            probe: up.and_then(ask),
        };
        if interface.carrier {
            findings.push(multicast::judge_heard(&name, heard));
        }
    }
    Ok(findings)
}

/// Reads a configuration, and reports the result.
fn config(file: &Path, findings: &mut Vec<Finding>) -> Option<Config> {
    let subject = file.display().to_string();
    match Config::from_file(file) {
        Ok(config) => {
            let found = format!("describes {}", config.what_is_served());
            findings.push(Finding::new("config", Level::Ok, subject, found));
            Some(config)
        }
        Err(error) => {
            findings.push(
                Finding::new("config", Level::Fail, subject, error.to_string())
                    .advise("man ibtapd.toml shows every key"),
            );
            None
        }
    }
}

/// The ports of the file, with the daemon's interfaces on them.
fn merge(of_file: Vec<Target>, of_daemon: Vec<Target>) -> Vec<Target> {
    of_file
        .into_iter()
        .map(|mut target| {
            let served = of_daemon.iter().find(|t| t.name == target.name);
            target.interfaces = served.map(|t| t.interfaces.clone()).unwrap_or_default();
            target
        })
        .collect()
}

/// A port from the firewall's view; `None` while it has no address.
fn wall(
    name: &str,
    target: &Target,
    facts: &underlay::Facts,
    user: Option<u32>,
    copies: bool,
) -> Option<firewall::PortAddress> {
    let (choice, mtu) = (target.port.gid, fabric::LinkMtu::Exact);
    let usable = fabric::soft::evaluate(name, &facts.seen, choice, mtu, None).ok()?;
    let address = usable.address;
    let own = facts.seen.addresses.iter().find(|a| a.ip == address)?;
    let served = target.interfaces.first().map(|i| i.broadcast);
    let broadcast = served.unwrap_or_else(|| ipoib::broadcast_mgid(fabric::PKey::DEFAULT, SCOPE));
    Some(firewall::PortAddress {
        interface: name.to_owned(),
        address,
        prefix_len: own.prefix_len,
        user: user.unwrap_or(0),
        broadcast: (!copies).then(|| broadcast.to_ip()),
    })
}
