//! The command line of `ibtapd`.

mod fs;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use proto::{DhcpMode, GidChoice, LinkMtu, Mode, PKey};

use crate::DEFAULT_SOCKET;
use crate::api::LogLevel;
use crate::config::vnic::{SwitchConfig, VnicConfig, VnicOption, parse_option};
use crate::config::{
    BusyPoll, Config, ConfigError, InterfaceConfig, IpoibConfig, PortConfig, PortName, QpnChoice,
    Source, values::CONNECTIONS, values::parse_connections, values::parse_interface,
    values::parse_mtu, values::parse_netns, values::parse_peer, values::parse_pkey,
    values::parse_queues, values::parse_rdma_device, values::parse_rdma_port,
};
pub use fs::FsArgs;

const EXIT_STATUS: &str = "\
Exit status: 0 success, 1 wrong usage or configuration, 2 the kernel or the
fabric refused.

Several daemons may run on one machine, each with underlays of its own. Give
each another --socket and another --name; `ibtap --socket PATH` finds them.";

/// Where the fabric comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Provider {
    /// Software RoCEv2 in this process, over an Ethernet interface.
    #[default]
    Soft,
    /// An RDMA device of the kernel: InfiniBand, RoCE or `rdma_rxe`.
    Verbs,
}

/// Carries IP over InfiniBand (IPoIB) and Ethernet (VNICs) for TAP interfaces, over a software RoCEv2
/// fabric or an RDMA device.
///
/// Makes an interface (ib0) whose traffic travels as IPoIB, in datagrams or over connections: in
/// RoCEv2 packets, UDP port 4791, on an Ethernet underlay, or over an InfiniBand or RoCE adapter.
/// Runs in the foreground until SIGTERM or SIGINT. Describe one interface by options, or any number
/// of them by --config FILE.
#[derive(Clone, Debug, Parser)]
#[command(name = "ibtapd", version, max_term_width = 80, after_help = EXIT_STATUS)]
#[command(override_usage = "ibtapd --underlay IF [OPTIONS]\n       \
    ibtapd --provider verbs --device DEVICE [--port N] [OPTIONS]\n       \
    ibtapd --config FILE [OPTIONS]\n       ibtapd --check-config FILE")]
pub struct Args {
    /// The interface, or the interfaces, that options describe.
    #[command(flatten)]
    pub described: Described,

    /// Control socket [default: /run/ibtap/ibtapd.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Read the devices from a TOML file [default: none]
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Check a configuration file and exit
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub check_config: Option<PathBuf>,

    /// What to log to stderr; `ibtap log LEVEL` changes it later [default: info]
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub log_level: Option<LogLevel>,
}

/// Options that describe interfaces, which a configuration file does otherwise.
#[derive(Clone, Debug, clap::Args)]
// Of each option by itself, since a group's conflict would have every option of the group in its error.
#[command(mut_args(|option| option.conflicts_with_all(["config", "check_config"])))]
pub struct Described {
    /// Ethernet interface that carries the software fabric's packets
    #[arg(long, short, value_name = "IF", value_parser = parse_interface)]
    #[arg(required_unless_present_any = ["config", "check_config", "provider", "device", "port"])]
    pub underlay: Option<String>,

    /// Where the fabric comes from: "soft" is RoCEv2 in this process on an --underlay, "verbs" an
    /// RDMA device of the kernel, named by --device [default: soft]
    #[arg(
        long,
        value_name = "soft|verbs",
        value_enum,
        hide_possible_values = true
    )]
    pub provider: Option<Provider>,

    /// RDMA device, as "rdma link" lists them: mlx5_0
    #[arg(long, value_name = "DEVICE", value_parser = parse_rdma_device)]
    pub device: Option<String>,

    /// Port of the RDMA device [default: 1]
    #[arg(long, value_name = "N", value_parser = parse_rdma_port)]
    pub port: Option<u8>,

    /// Name of the IPoIB interface to make [default: ib0; with --vnic none is made]
    #[arg(long, short, value_name = "NAME", value_parser = parse_interface)]
    pub name: Option<String>,

    /// Make a VNIC, an Ethernet interface on a virtual switch: "lan0=7" is lan0 on switch 7, "7" is
    /// vnic0 there; "lan0", or nothing, has an Ethernet Manager say on which. May be repeated. --pkey,
    /// --mtu, --queues, --netns, --down and --persist are VNICs', too [default: none]
    #[arg(long, value_name = "[NAME=]VESW", value_parser = parse_option)]
    #[arg(num_args = 0..=1, default_missing_value = "", action = clap::ArgAction::Append)]
    pub vnic: Vec<VnicOption>,

    /// IPoIB transport mode; `ibtap mode` changes it later
    #[arg(long, value_enum, default_value_t)]
    pub mode: Mode,

    /// How many connections it may have, those of peers included; 0: none are made nor taken
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS, value_parser = parse_connections)]
    #[arg(allow_negative_numbers = true)] // to refuse them by a sentence of ours
    pub connections: usize,

    /// Partition key, 0x0001 to 0xffff but 0x8000; bit 15 is full membership
    #[arg(long, value_name = "P_KEY", default_value = "0xffff", value_parser = parse_pkey)]
    pub pkey: PKey,

    /// Queue pair number: "stable" is made from GID, P_Key and name, so that peers do not notice a
    /// restart; "random" is another one at each start; or 0x000002 to 0xfffffe
    #[arg(long, value_name = "stable|random|QPN", default_value = "stable")]
    pub qpn: QpnChoice,

    /// IP MTU in bytes, 72 to 65520 [default: the largest that fits the underlay; in connected mode
    /// 65520]
    #[arg(long, value_name = "BYTES", value_parser = parse_mtu)]
    pub mtu: Option<u32>,

    /// TAP queues, each with a worker thread [default: one for each CPU, at most 4; on an RDMA device 1]
    #[arg(long, value_name = "N", value_parser = parse_queues)]
    pub queues: Option<usize>,

    /// The port's GID: "auto" is the underlay's IPv6 link-local address, "ipv4" its first IPv4
    /// address; or an address of the underlay; or the index of an RDMA device's GID table
    #[arg(long, value_name = "auto|ipv4|ADDRESS|INDEX", default_value = "auto")]
    #[arg(value_parser = super::values::parse_gid)]
    pub gid: GidChoice,

    /// Send multicast as unicast copies to these addresses; required with an IPv4 GID
    /// [default: IPv6 multicast on the underlay]
    #[arg(long, value_name = "A,B,...", value_delimiter = ',', value_parser = parse_peer)]
    pub peers: Vec<IpAddr>,

    /// Largest UD payload: "auto" is the IB MTU that fits the underlay, but all that fits where
    /// that IB MTU is below 2048; "exact" is all that fits; or bytes
    #[arg(long, value_name = "auto|exact|BYTES", default_value = "auto")]
    #[arg(value_parser = super::values::parse_link_mtu)]
    pub link_mtu: LinkMtu,

    /// On an RDMA device: do not offer connections in the address, since peers may be the kernel's
    /// IPoIB, whose requests do not reach ibtapd there [default: offered in connected mode]
    #[arg(long)]
    pub kernel_peers: bool,

    /// How long a data thread looks for the next packet before it sleeps, while packets come close
    /// together; 0 saves CPU time and costs latency
    #[arg(long, value_name = "MICROSECONDS", default_value_t)]
    pub busy_poll: BusyPoll,

    /// Leave the interface down, for `ip link set ib0 up` later [default: set it up]
    #[arg(long)]
    pub down: bool,

    /// Leave the interface in place at exit, so that a restart keeps its addresses and routes
    /// [default: remove it]
    #[arg(long)]
    pub persist: bool,

    /// What is done to DHCPv4: "broadcast" has servers answer clients on and behind the interface by
    /// broadcast, "rfc4390" also has requests leave as RFC 4390 wants them, "off" leaves it alone
    #[arg(
        long,
        value_name = "broadcast|rfc4390|off",
        value_enum,
        default_value_t
    )]
    #[arg(hide_possible_values = true)]
    pub dhcp: DhcpMode,

    /// Send frames for guests and groups back to the interface, too, as macvlans in VEPA mode need
    /// it [default: only to the fabric]
    #[arg(long)]
    pub reflect: bool,

    /// Network namespace that the interface goes to, one of `ip netns`; the underlay stays in the
    /// daemon's [default: the daemon's]
    #[arg(long, value_name = "NAME", value_parser = parse_netns)]
    pub netns: Option<String>,

    /// Child interfaces of these partitions, named like ib0.8001; `ibtap child` makes and removes
    /// others later [default: none]
    #[arg(long, value_name = "P_KEY,...", value_delimiter = ',', value_parser = parse_pkey)]
    pub child: Vec<PKey>,

    /// Have 802.1Q tags select partitions: VLAN n is P_Key 0x8000 | n [default: tagged frames are
    /// dropped]
    #[arg(long)]
    pub vlan_pkey: bool,
}

/// What the command line asks for.
#[derive(Clone, Debug)]
pub enum Action {
    /// Run with this configuration; the source is there to be read again.
    Run(Config, Option<Source>),
    /// The file is valid and holds this; say so and exit.
    Checked(PathBuf, Config),
}

impl Args {
    /// Reads and checks the configuration that the command line names, or makes it from the
    /// options. `--socket` and `--log-level` go before what a file says.
    ///
    /// # Errors
    /// A [`ConfigError`] that is one sentence for the user; exit with [`crate::exit::EXIT_USAGE`].
    pub fn action(self) -> Result<Action, ConfigError> {
        if let Some(file) = self.check_config {
            let config = Config::from_file(&file)?;
            return Ok(Action::Checked(file, config));
        }
        if let Some(file) = self.config {
            let source = Source {
                file,
                socket: self.socket,
                log_level: self.log_level,
            };
            return Ok(Action::Run(source.read()?, Some(source)));
        }
        let mut config = self.described.describe()?;
        if let Some(socket) = self.socket {
            config.socket = socket;
        }
        config.log_level = self.log_level.unwrap_or_default();
        Ok(Action::Run(config, None))
    }
}

impl Described {
    /// The configuration that the options describe: one device and any number of VNICs on one port.
    fn describe(self) -> Result<Config, ConfigError> {
        let name = self.port_name().map_err(ConfigError::options)?;
        let port = PortConfig {
            gid: self.gid,
            peers: self.peers.clone(),
            link_mtu: self.link_mtu,
            busy_poll: self.busy_poll,
            kernel_peers: self.kernel_peers,
            ..PortConfig::default()
        };
        port.check(&name)
            .map_err(|fault| ConfigError::options(fault.what))?;
        let devices = match (&self.name, self.vnic.is_empty()) {
            (None, false) => Vec::new(),
            _ => self.devices(&name).map_err(ConfigError::options)?,
        };
        let vnics = self.vnics(&name, &devices).map_err(ConfigError::options)?;
        Ok(Config {
            socket: DEFAULT_SOCKET.into(),
            log_level: LogLevel::default(),
            ports: [(name, port)].into(),
            ipoib: devices,
            vnics,
        })
    }

    /// The device, and its children behind it.
    fn devices(&self, port: &PortName) -> Result<Vec<IpoibConfig>, String> {
        let name = self.name.as_deref().unwrap_or("ib0");
        let device = IpoibConfig {
            interface: self.interface(name, port),
            origin: self.netns.clone(),
            vlan_pkey: self.vlan_pkey,
            mode: self.mode,
            connections: self.connections,
            pkey: self.pkey,
            qpn: self.qpn,
            dhcp: self.dhcp,
            reflect: self.reflect,
            ..IpoibConfig::new(name, port.clone())
        };
        device.check(&[]).map_err(|fault| fault.what)?;
        with_children(device, &self.child)
    }

    /// What the options say of every interface.
    fn interface(&self, name: &str, port: &PortName) -> InterfaceConfig {
        InterfaceConfig {
            name: name.to_owned(),
            netns: self.netns.clone(),
            port: port.clone(),
            mtu: self.mtu,
            queues: self.queues,
            persist: self.persist,
            up: !self.down,
        }
    }

    /// The VNICs, beside the devices.
    fn vnics(&self, port: &PortName, devices: &[IpoibConfig]) -> Result<Vec<VnicConfig>, String> {
        let mut vnics: Vec<VnicConfig> = Vec::new();
        for asked in &self.vnic {
            let index = VnicConfig::free_index(port, &vnics)?;
            let name = match &asked.name {
                Some(name) => name.clone(),
                None => self.free_vnic_name(&vnics),
            };
            let switch = asked.vesw.map(|vesw| SwitchConfig {
                pkey: self.pkey,
                ..SwitchConfig::new(vesw)
            });
            let vnic = VnicConfig {
                interface: self.interface(&name, port),
                switch,
                ..VnicConfig::new(&name, port.clone(), index)
            };
            let checked = vnic.check(devices, &vnics);
            checked.map_err(|fault| fault.what)?;
            vnics.push(vnic);
        }
        Ok(vnics)
    }

    /// The first of `vnic0`, `vnic1`, … that nothing is called.
    fn free_vnic_name(&self, vnics: &[VnicConfig]) -> String {
        let named = |name: &String| {
            let asked = self.vnic.iter().filter_map(|asked| asked.name.as_ref());
            let made = vnics.iter().map(|vnic| &vnic.name);
            asked
                .chain(made)
                .chain(&self.name)
                .any(|taken| taken == name)
        };
        (0..)
            .map(|n| format!("vnic{n}"))
            .find(|name| !named(name))
            .unwrap_or_default()
    }

    /// The port that the options name.
    fn port_name(&self) -> Result<PortName, String> {
        match (self.provider.unwrap_or_default(), &self.underlay) {
            (Provider::Soft, Some(_)) if self.device.is_some() => Err(
                "--underlay is for the software fabric and --device for RDMA devices (with \
                 --provider verbs); leave one of them out"
                    .into(),
            ),
            (Provider::Soft, _) if self.device.is_some() => Err(
                "--device names an RDMA device, which takes --provider verbs; or name an Ethernet \
                 interface with --underlay"
                    .into(),
            ),
            (Provider::Soft, _) if self.port.is_some() => Err(
                "--port is a port of an RDMA device; name that with --provider verbs --device DEVICE"
                    .into(),
            ),
            (Provider::Soft, Some(underlay)) => Ok(PortName::Underlay(underlay.clone())),
            (Provider::Soft, None) => Err(
                "the software fabric needs an Ethernet interface; name it with --underlay IF".into(),
            ),
            (Provider::Verbs, Some(_)) => Err(
                "an RDMA device needs no --underlay; leave it out, or name no --provider verbs".into(),
            ),
            (Provider::Verbs, None) => Ok(PortName::Rdma {
                device: self.device.clone().ok_or(
                    "--provider verbs needs an RDMA device; name it with --device (\"rdma link\" \
                     lists them)",
                )?,
                port: self.port.unwrap_or(1),
            }),
        }
    }
}

/// A device and its children behind it.
fn with_children(parent: IpoibConfig, pkeys: &[PKey]) -> Result<Vec<IpoibConfig>, String> {
    let mut devices = vec![parent.clone()];
    for pkey in pkeys {
        let child = parent.child(*pkey);
        child.check_child(&parent, &devices)?;
        child.check(&devices).map_err(|fault| fault.what)?;
        devices.push(child);
    }
    Ok(devices)
}

#[cfg(test)]
mod tests;
