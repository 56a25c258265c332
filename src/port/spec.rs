//! The configuration of a port.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use control::config::{IpoibConfig, ManagementSettings, PortConfig, PortName, VnicConfig};
use fabric::soft::SoftConfig;
use fabric::verbs::VerbsConfig;
use fabric::{PKey, ProviderConfig};
use proto::{GidPrefix, SaChoice};

use super::PortSettings;

/// A port and the interfaces on it.
#[derive(Clone, Debug)]
pub struct PortSpec {
    /// Configuration of the fabric port.
    pub fabric: ProviderConfig,
    /// Port name in the configuration.
    pub name: PortName,
    /// Settings of the port.
    pub settings: PortSettings,
    /// Settings of the management of VNICs.
    pub management: ManagementSettings,
    /// Who may send datagrams and ask for connections; `None`: all.
    pub allow: Option<Vec<GidPrefix>>,
    /// IPoIB interfaces to create.
    pub ipoib: Vec<IpoibConfig>,
    /// VNICs to create.
    pub vnics: Vec<VnicConfig>,
}

impl PortSpec {
    /// Combines the configuration of a port and of the interfaces on it. The port waits up to `gid_wait` for
    /// a usable GID, but stops waiting when `give_up` is readable.
    pub fn of(
        name: &PortName,
        port: &PortConfig,
        (ipoib, vnics): (&[&IpoibConfig], &[&VnicConfig]),
        gid_wait: Duration,
        give_up: Option<&Arc<OwnedFd>>,
    ) -> PortSpec {
        let pkeys: Vec<PKey> = port.pkeys.clone().unwrap_or_else(|| {
            let of_ipoib = ipoib.iter().map(|d| d.pkey);
            of_ipoib.chain(vnics.iter().map(|v| v.pkey())).collect()
        });
        let ipoib: Vec<IpoibConfig> = ipoib.iter().map(|d| (*d).clone()).collect();
        let vnics: Vec<VnicConfig> = vnics.iter().map(|v| (*v).clone()).collect();
        let queues = ipoib.iter().map(|d| d.queue_count());
        // VNICs of a manager are not counted: they use the existing workers.
        let workers = name.data_threads(queues.chain(vnics.iter().map(|v| v.queue_count())));
        let fabric = match name {
            PortName::Underlay(underlay) => {
                let config = SoftConfig {
                    gid: port.gid,
                    peers: port.peers.clone(),
                    pkeys,
                    link_mtu: port.link_mtu,
                    workers,
                    gid_wait,
                    give_up: give_up.cloned(),
                    ..SoftConfig::new(underlay)
                };
                match port.sa {
                    Some(SaChoice::Umad) => ProviderConfig::Administered(config, None),
                    Some(SaChoice::Port(gid)) => ProviderConfig::Administered(config, Some(gid)),
                    Some(SaChoice::None) | None => ProviderConfig::Soft(config),
                }
            }
            PortName::Rdma {
                device,
                port: number,
            } => ProviderConfig::Verbs(VerbsConfig {
                gid_wait,
                give_up: give_up.cloned(),
                gid: port.gid,
                link_mtu: port.link_mtu,
                cm: port.cm,
                workers,
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
                moderation: port.moderation,
            },
            management: port.management(),
            allow: port.allow.clone(),
            ipoib,
            vnics,
        }
    }
}
