//! Commands for children, partitions and moderation.

use std::str::FromStr;

use clap::{Args, Subcommand};
use control::api::Mode;
use control::config::values::{parse_interface, parse_mtu, parse_netns, parse_pkey, parse_queues};
use fabric::PKey;

/// Show, add and remove children: IPoIB interfaces in other partitions
///
/// A child, such as ib0.8001 of ib0, has its own P_Key, queue pair, mode, MTU, addresses and counters.
/// `ip tuntap add dev ib0.8001 mode tap` also adds a child, and `ip link del ib0.8001` removes it.
#[derive(Clone, Debug, Args)]
pub struct ChildArgs {
    /// Command [default: list]
    #[command(subcommand)]
    pub verb: Option<ChildVerb>,
}

/// Commands for children.
#[derive(Clone, Debug, Subcommand)]
pub enum ChildVerb {
    Add(ChildAddArgs),
    /// Remove a child and its interface
    #[command(alias = "delete")]
    Del {
        /// The child; with a P_Key, its parent
        #[arg(value_name = "CHILD|PARENT")]
        interface: String,
        /// The child's P_Key, with or without bit 15
        #[arg(value_name = "P_KEY", value_parser = parse_pkey)]
        pkey: Option<PKey>,
    },
    /// Show children with their P_Keys, modes and states
    #[command(alias = "show")]
    List {
        /// Only children of this interface [default: all]
        #[arg(value_name = "PARENT")]
        parent: Option<String>,
    },
}

/// Add a child, and print its name
///
/// The child lasts until it or its parent is removed. It ends with the daemon, unless systemd has stored its
/// queues or its parent has `persist`. Permanent children belong in the configuration file.
#[derive(Clone, Debug, Args)]
pub struct ChildAddArgs {
    /// The parent interface
    #[arg(value_name = "PARENT")]
    pub parent: String,
    /// Partition key, 0x0001 to 0xffff except 0x8000; ibtapd sets bit 15
    #[arg(value_name = "P_KEY", value_parser = parse_pkey)]
    pub pkey: PKey,
    /// Interface name [default: the first ten bytes of the parent's name, a dot and the P_Key, such as
    /// ib0.8001]
    #[arg(long, short, value_name = "NAME", value_parser = parse_interface)]
    pub name: Option<String>,
    /// Transport mode [default: the configured mode of the parent]
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,
    /// IP MTU in bytes [default: the largest of the mode]
    #[arg(long, value_name = "BYTES", value_parser = parse_mtu)]
    pub mtu: Option<u32>,
    /// TAP queues, at most one for each data thread of the port [default: 1]
    #[arg(long, value_name = "N", value_parser = parse_queues)]
    pub queues: Option<usize>,
    /// Network namespace of the child, a name of `ip netns` [default: the parent's]
    #[arg(long, value_name = "NETNS", value_parser = parse_netns)]
    pub netns: Option<String>,
}

/// Show or change the P_Key tables of the fabric ports
///
/// An interface has no carrier until its port's table has its partition.
#[derive(Clone, Debug, Args)]
pub struct PkeyArgs {
    /// Command [default: list]
    #[command(subcommand)]
    pub verb: Option<PkeyVerb>,
}

/// Commands for P_Key tables.
#[derive(Clone, Debug, Subcommand)]
pub enum PkeyVerb {
    /// Show the tables by index
    #[command(alias = "show")]
    List {
        /// Only the table of this port: soft/eth0, or eth0 for short [default: all]
        #[arg(value_name = "PORT")]
        port: Option<String>,
    },
    /// Replace a table, until the daemon starts again, or reloads a file with other `pkeys`
    Set {
        /// The port: soft/eth0, or eth0 for short
        #[arg(value_name = "PORT")]
        port: String,
        /// The entries; or "auto": the P_Keys of the interfaces
        #[arg(value_name = "P_KEY,...|auto")]
        table: Table,
    },
}

/// A P_Key table; empty: the P_Keys of the interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table(pub Vec<PKey>);

impl FromStr for Table {
    type Err = String;

    fn from_str(text: &str) -> Result<Table, String> {
        if text == "auto" {
            return Ok(Table(Vec::new()));
        }
        text.split(',')
            .map(parse_pkey)
            .collect::<Result<_, _>>()
            .map(Table)
    }
}

/// Show or change the moderation of received packets
///
/// If a data thread receives fewer than --rx-frames packets, it waits --rx-usecs before it polls again:
/// fewer wake-ups, but more latency. All interfaces of a port share the setting. With either value at 0,
/// the default, it polls at once. An RDMA device that supports moderation does this itself; its maxima
/// apply. `ethtool -C ib0 rx-frames N` also sets the number of packets.
#[derive(Clone, Debug, Args)]
pub struct CoalesceArgs {
    /// An interface of the port
    #[arg(value_name = "IF")]
    pub interface: String,
    /// Microseconds, 0 to 65535 [default: unchanged]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=65535))]
    pub rx_usecs: Option<u32>,
    /// Packets, 0 to 65535 [default: unchanged]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=65535))]
    pub rx_frames: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_lists_or_auto() {
        let table = |text: &str| text.parse::<Table>();
        let keys = vec![PKey::new(0xffff), PKey::new(1)];
        assert_eq!(table("0xffff,0x0001"), Ok(Table(keys)));
        assert_eq!(table("auto"), Ok(Table(vec![])));
        for wrong in ["", "0xffff,", "0x8000", "none", "0xffff 1"] {
            assert!(table(wrong).is_err(), "{wrong}");
        }
    }
}
