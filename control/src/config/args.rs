//! The command line of `ibtapd`.

mod fs;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use proto::{ClaimCheck, CmChoice, DhcpMode, GidChoice, Inspect, LinkMtu, Mode, MssChoice, PKey};

use crate::DEFAULT_SOCKET;
use crate::api::{LogLevel, Moderation};
use crate::config::vnic::{SwitchConfig, VnicConfig, VnicOption, parse_option};
use crate::config::{
    BusyPoll, Config, ConfigError, GroupAccess, InterfaceConfig, IpoibConfig, PortConfig, PortName,
    QpnChoice, Source, settings, values::CONNECTIONS, values::parse_connections,
    values::parse_interface, values::parse_moderation, values::parse_mtu, values::parse_netns,
    values::parse_peer, values::parse_pkey, values::parse_queues, values::parse_rdma_device,
    values::parse_rdma_port,
};
pub use fs::FsArgs;

const EXIT_STATUS: &str = "\
Exit status: 0 success, 1 wrong usage or configuration, 2 error of the kernel
or the fabric.

Several daemons can run on one machine. Each needs its own underlays, --socket
and --name; `ibtap --socket PATH` selects a daemon.";

/// Implementation of the fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Provider {
    /// Software RoCEv2 in this process, over an Ethernet interface.
    #[default]
    Soft,
    /// An RDMA device of the kernel, through libibverbs.
    Verbs,
}

/// Carries IP over InfiniBand (IPoIB) and Ethernet (VNICs) for TAP interfaces, over a software RoCEv2
/// fabric or an RDMA device.
///
/// Creates a TAP interface (ib0) and carries its traffic as IPoIB, in datagrams or over connections.
/// The software fabric sends RoCEv2 packets (UDP port 4791) on an Ethernet underlay. RDMA devices of
/// the kernel are used through libibverbs; tested with rdma_rxe, not with adapters. Runs in the
/// foreground until SIGTERM or SIGINT. Options describe one IPoIB interface and VNICs; --config FILE
/// describes any number of both.
#[derive(Clone, Debug, Parser)]
#[command(name = "ibtapd", version = crate::version::of_daemon(), max_term_width = 80, after_help = EXIT_STATUS)]
#[command(override_usage = "ibtapd --underlay IF [OPTIONS]\n       \
    ibtapd --provider verbs --device DEVICE [--port N] [OPTIONS]\n       \
    ibtapd --config FILE [OPTIONS]\n       ibtapd --check-config FILE")]
pub struct Args {
    /// Interfaces that options describe.
    #[command(flatten)]
    pub described: Described,

    /// Control socket [default: /run/ibtap/ibtapd.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Read the configuration from a TOML file [default: none]
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Check a configuration file and exit
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub check_config: Option<PathBuf>,

    /// Log level on stderr; `ibtap log LEVEL` changes it later [default: info]
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub log_level: Option<LogLevel>,

    /// Do not restrict the daemon's system calls and files; core dumps and debuggers work then
    /// [default: restrict them]
    #[arg(long)]
    pub no_sandbox: bool,
}

/// Options that describe interfaces; a configuration file replaces them.
#[derive(Clone, Debug, clap::Args)]
// Each option has its own conflict: the error of a group's conflict would list all options of the group.
#[command(mut_args(|option| option.conflicts_with_all(["config", "check_config"])))]
pub struct Described {
    /// Ethernet interface that carries the software fabric's packets
    #[arg(long, short, value_name = "IF", value_parser = parse_interface)]
    #[arg(required_unless_present_any = ["config", "check_config", "provider", "device", "port"])]
    pub underlay: Option<String>,

    /// Implementation of the fabric: "soft" is RoCEv2 in this process on an --underlay, "verbs" an
    /// RDMA device of the kernel, named by --device [default: soft]
    #[arg(
        long,
        value_name = "soft|verbs",
        value_enum,
        hide_possible_values = true
    )]
    pub provider: Option<Provider>,

    /// RDMA device, such as mlx5_0; "rdma link" lists them
    #[arg(long, value_name = "DEVICE", value_parser = parse_rdma_device)]
    pub device: Option<String>,

    /// Port of the RDMA device [default: 1]
    #[arg(long, value_name = "N", value_parser = parse_rdma_port)]
    pub port: Option<u8>,

    /// Name of the IPoIB interface [default: ib0; with --vnic: no IPoIB interface]
    #[arg(long, short, value_name = "NAME", value_parser = parse_interface)]
    pub name: Option<String>,

    /// Create a VNIC, an Ethernet interface on a virtual switch: "lan0=7" is lan0 on switch 7, "7" is
    /// vnic0 on switch 7. With "lan0" or no value, an Ethernet Manager assigns the switch. May be
    /// repeated. --pkey, --mtu, --queues, --netns, --down and --persist also apply to VNICs
    /// [default: none]
    #[arg(long, value_name = "[NAME=]VESW", value_parser = parse_option)]
    #[arg(num_args = 0..=1, default_missing_value = "", action = clap::ArgAction::Append)]
    pub vnic: Vec<VnicOption>,

    /// IPoIB transport mode; `ibtap mode` changes it later
    #[arg(long, value_enum, default_value_t)]
    pub mode: Mode,

    /// Maximum number of connections, incoming and outgoing, 0 to 16384; the data threads share it.
    /// 0 disables connections
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS, value_parser = parse_connections)]
    #[arg(allow_negative_numbers = true)]
    // the parser refuses them with a better sentence than clap's
    pub connections: usize,

    /// Partition key, 0x0001 to 0xffff except 0x8000; bit 15 marks full membership
    #[arg(long, value_name = "P_KEY", default_value = "0xffff", value_parser = parse_pkey)]
    pub pkey: PKey,

    /// Queue pair number: "stable" derives it from GID, P_Key and name, so that a restart keeps it;
    /// "random" chooses a new one at each start; or 0x000002 to 0xfffffe
    #[arg(long, value_name = "stable|random|QPN", default_value = "stable")]
    pub qpn: QpnChoice,

    /// IP MTU in bytes, 72 to 65520 [default: the largest that fits the underlay; in connected mode
    /// 65520]
    #[arg(long, value_name = "BYTES", value_parser = parse_mtu)]
    pub mtu: Option<u32>,

    /// TAP queues, each with a data thread [default: one for each CPU, at most 4; on an RDMA device 1]
    #[arg(long, value_name = "N", value_parser = parse_queues)]
    pub queues: Option<usize>,

    /// GID of the port: "auto" is the underlay's IPv6 link-local address, "ipv4" its first IPv4
    /// address; or an address of the underlay; or an index in the GID table of an RDMA device
    #[arg(long, value_name = "auto|ipv4|ADDRESS|INDEX", default_value = "auto")]
    #[arg(value_parser = super::values::parse_gid)]
    pub gid: GidChoice,

    /// Send multicast as unicast copies to these addresses; required with an IPv4 GID
    /// [default: IPv6 multicast on the underlay]
    #[arg(long, value_name = "A,B,...", value_delimiter = ',', value_parser = parse_peer)]
    pub peers: Vec<IpAddr>,

    /// Largest UD payload: "auto" is the largest IB MTU that fits the underlay; if that is below
    /// 2048, all bytes that fit; "exact" is all bytes that fit; or a number of bytes
    #[arg(long, value_name = "auto|exact|BYTES", default_value = "auto")]
    #[arg(value_parser = super::values::parse_link_mtu)]
    pub link_mtu: LinkMtu,

    /// On a RoCE port: do not advertise connections in the address, because peers run the kernel's
    /// IPoIB. No effect on InfiniBand: see --cm [default: advertised in connected mode]
    #[arg(long)]
    pub kernel_peers: bool,

    /// On an RDMA device with InfiniBand: "umad" manages connections in ibtapd, "rdma_cm" in the kernel,
    /// "off" has none; "auto" is umad if the kernel's ib_cm is not loaded, else rdma_cm
    #[arg(
        long,
        value_name = "auto|umad|rdma_cm|off",
        value_enum,
        default_value_t
    )]
    #[arg(hide_possible_values = true)]
    pub cm: CmChoice,

    /// Time that a data thread polls for the next packet before it sleeps, while packets arrive in
    /// quick succession; 0 to 1000. 0 saves CPU time and costs latency
    #[arg(long, value_name = "MICROSECONDS", default_value_t)]
    pub busy_poll: BusyPoll,

    /// If a data thread receives fewer than --rx-frames packets, it waits this time before it polls again:
    /// fewer wake-ups, but more latency. 0 to 65535; 0 disables the wait. An RDMA device that
    /// supports moderation does this itself; its maxima apply. `ibtap coalesce` changes it later
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0, value_parser = parse_moderation)]
    pub rx_usecs: u32,

    /// Number of packets for --rx-usecs, 0 to 65535; 0 disables the wait
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse_moderation)]
    pub rx_frames: u32,

    /// Do not set the interface up; `ip link set ib0 up` does that later [default: set it up]
    #[arg(long)]
    pub down: bool,

    /// Keep the interface at exit, so that it keeps its addresses and routes over a restart
    /// [default: remove it]
    #[arg(long)]
    pub persist: bool,

    /// Largest segment of TCP in connected mode: "train" is the largest that one system call sends, "mtu" the
    /// largest that fits the MTU
    #[arg(
        long,
        value_name = "train|mtu|BYTES",
        value_parser = super::values::parse_mss,
        default_value_t
    )]
    pub mss: MssChoice,

    /// Changes to DHCPv4 requests of clients on and behind the interface: "broadcast" asks servers to
    /// answer by broadcast, "rfc4390" also uses the format of RFC 4390, "off" changes nothing
    #[arg(
        long,
        value_name = "broadcast|rfc4390|off",
        value_enum,
        default_value_t
    )]
    #[arg(hide_possible_values = true)]
    pub dhcp: DhcpMode,

    /// What an address in ARP and neighbour discovery must have in common with its sender: "gid" the GID,
    /// "qpn" also the queue pair, "off" nothing
    #[arg(long, value_name = "off|gid|qpn", value_enum, default_value_t)]
    #[arg(hide_possible_values = true)]
    pub claims: ClaimCheck,

    /// Refuse requests for connections in datagram mode [default: accept them]
    #[arg(long)]
    pub refuse_requests: bool,

    /// Claims of the address of a live neighbour: "warn" reports them, "enforce" also drops them, "off"
    /// follows them
    #[arg(long, value_name = "off|warn|enforce", value_enum, default_value_t)]
    #[arg(hide_possible_values = true)]
    pub inspect: Inspect,

    /// Do not verify checksums of TCP and UDP in packets from connections; their ICRCs are verified
    /// [default: verify]
    #[arg(long)]
    pub trust_checksums: bool,

    /// Also send frames for guests and groups back to the interface; macvlans in VEPA mode need this
    /// [default: only to the fabric]
    #[arg(long)]
    pub reflect: bool,

    /// Network namespace of the interface, a name of `ip netns`; the underlay stays in the daemon's
    /// [default: the daemon's]
    #[arg(long, value_name = "NAME", value_parser = parse_netns)]
    pub netns: Option<String>,

    /// Child interfaces in these partitions, named like ib0.8001; `ibtap child` adds and removes
    /// children later [default: none]
    #[arg(long, value_name = "P_KEY,...", value_delimiter = ',', value_parser = parse_pkey)]
    pub child: Vec<PKey>,

    /// Select partitions by 802.1Q tags: VLAN n is P_Key 0x8000 | n [default: drop tagged frames]
    #[arg(long)]
    pub vlan_pkey: bool,
}

/// Action that the command line requests.
#[derive(Clone, Debug)]
pub enum Action {
    /// Run with this configuration; a reload reads the source again.
    Run(Config, Option<Source>),
    /// Report that the file is valid and contains this configuration, and exit.
    Checked(PathBuf, Config),
}

impl Args {
    /// Reads and checks the configuration file of the command line, or builds a configuration from
    /// the options. `--socket`, `--log-level` and `--no-sandbox` override the file.
    ///
    /// # Errors
    /// A [`ConfigError`] with one sentence for the user; exit with [`crate::exit::EXIT_USAGE`].
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
                no_sandbox: self.no_sandbox,
            };
            return Ok(Action::Run(source.read()?, Some(source)));
        }
        let mut config = self.described.describe()?;
        if let Some(socket) = self.socket {
            config.socket = socket;
        }
        config.log_level = self.log_level.unwrap_or_default();
        config.sandbox = !self.no_sandbox;
        Ok(Action::Run(config, None))
    }
}

impl Described {
    /// Builds the configuration: at most one IPoIB interface with its children, and any number of
    /// VNICs, on one port.
    fn describe(self) -> Result<Config, ConfigError> {
        let name = self.port_name().map_err(ConfigError::options)?;
        let port = PortConfig {
            gid: self.gid,
            peers: self.peers.clone(),
            link_mtu: self.link_mtu,
            busy_poll: self.busy_poll,
            moderation: Moderation {
                rx_usecs: self.rx_usecs,
                rx_frames: self.rx_frames,
            },
            kernel_peers: self.kernel_peers,
            cm: self.cm,
            ..PortConfig::default()
        };
        port.check(&name)
            .map_err(|fault| ConfigError::options(fault.what))?;
        let ipoib = match (&self.name, self.vnic.is_empty()) {
            (None, false) => {
                self.check_without_ipoib(&name)
                    .map_err(ConfigError::options)?;
                Vec::new()
            }
            _ => self.ipoib(&name).map_err(ConfigError::options)?,
        };
        let vnics = self.vnics(&name, &ipoib).map_err(ConfigError::options)?;
        Ok(Config {
            socket: DEFAULT_SOCKET.into(),
            log_level: LogLevel::default(),
            sandbox: true,
            group_access: GroupAccess::default(),
            metrics: None,
            ports: [(name, port)].into(),
            ipoib,
            vnics,
        })
    }

    /// The IPoIB interface, followed by its children.
    fn ipoib(&self, port: &PortName) -> Result<Vec<IpoibConfig>, String> {
        let name = self.name.as_deref().unwrap_or("ib0");
        let ipoib = self.parent(name, port);
        ipoib.check(&[]).map_err(|fault| fault.what)?;
        with_children(ipoib, &self.child)
    }

    /// Refuses options that change nothing if there are only VNICs.
    fn check_without_ipoib(&self, port: &PortName) -> Result<(), String> {
        let (plain, given) = (IpoibConfig::new("", port.clone()), self.parent("", port));
        let is_of_vnics = |key| settings::VNIC.iter().any(|setting| setting.key == key);
        let mut options: Vec<String> = settings::IPOIB
            .iter()
            .filter(|setting| !is_of_vnics(setting.key) && (setting.differs)(&plain, &given))
            .map(|setting| format!("--{}", setting.key.replace('_', "-")))
            .collect();
        options.extend((!self.child.is_empty()).then(|| "--child".to_owned()));
        let need = match options.len() {
            0 => return Ok(()),
            1 => "needs",
            _ => "need",
        };
        Err(format!(
            "{} {need} an IPoIB interface; add --name ib0",
            options.join(" and ")
        ))
    }

    /// The IPoIB interface without children.
    fn parent(&self, name: &str, port: &PortName) -> IpoibConfig {
        IpoibConfig {
            interface: self.interface(name, port),
            origin: self.netns.clone(),
            vlan_pkey: self.vlan_pkey,
            mode: self.mode,
            connections: self.connections,
            pkey: self.pkey,
            qpn: self.qpn,
            mss: self.mss,
            dhcp: self.dhcp,
            claims: self.claims,
            refuse_requests: self.refuse_requests,
            inspect: self.inspect,
            trust_checksums: self.trust_checksums,
            reflect: self.reflect,
            ..IpoibConfig::new(name, port.clone())
        }
    }

    /// The settings of every interface.
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

    /// The VNICs, checked against the IPoIB interfaces.
    fn vnics(&self, port: &PortName, ipoib: &[IpoibConfig]) -> Result<Vec<VnicConfig>, String> {
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
            let checked = vnic.check(ipoib, &vnics);
            checked.map_err(|fault| fault.what)?;
            vnics.push(vnic);
        }
        Ok(vnics)
    }

    /// The first unused name of `vnic0`, `vnic1`, ….
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
                "--underlay selects the software fabric and --device an RDMA device (with --provider \
                 verbs); leave one of them out"
                    .into(),
            ),
            (Provider::Soft, _) if self.device.is_some() => Err(
                "--device names an RDMA device and needs --provider verbs; add that, or name an \
                 Ethernet interface with --underlay"
                    .into(),
            ),
            (Provider::Soft, _) if self.port.is_some() => Err(
                "--port is a port of an RDMA device; name the device with --provider verbs --device \
                 DEVICE"
                    .into(),
            ),
            (Provider::Soft, Some(underlay)) => Ok(PortName::Underlay(underlay.clone())),
            (Provider::Soft, None) => Err(
                "the software fabric needs an Ethernet interface; name it with --underlay IF".into(),
            ),
            (Provider::Verbs, Some(_)) => Err(
                "an RDMA device needs no --underlay; leave out --underlay or --provider verbs".into(),
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

/// An IPoIB interface, followed by its children.
fn with_children(parent: IpoibConfig, pkeys: &[PKey]) -> Result<Vec<IpoibConfig>, String> {
    let mut ipoib = vec![parent.clone()];
    for pkey in pkeys {
        let child = parent.child(*pkey);
        child.check_child(&parent, &ipoib)?;
        child.check(&ipoib).map_err(|fault| fault.what)?;
        ipoib.push(child);
    }
    Ok(ipoib)
}

#[cfg(test)]
mod tests;
