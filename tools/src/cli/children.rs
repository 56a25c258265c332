//! The commands about children, partitions and moderation.

use std::str::FromStr;

use clap::{Args, Subcommand};
use control::api::Mode;
use control::config::values::{parse_interface, parse_mtu, parse_netns, parse_pkey, parse_queues};
use fabric::PKey;

/// Interfaces of other partitions beside an interface
///
/// A child, such as ib0.8001 of ib0, has its P_Key, queue pair, mode, MTU, addresses and counters to
/// itself. `ip tuntap add dev ib0.8001 mode tap` makes one, too, and `ip link del ib0.8001` removes it.
#[derive(Clone, Debug, Args)]
pub struct ChildArgs {
    /// What to do [default: list]
    #[command(subcommand)]
    pub verb: Option<ChildVerb>,
}

/// What to do with children.
#[derive(Clone, Debug, Subcommand)]
pub enum ChildVerb {
    Add(ChildAddArgs),
    /// Remove a child with its interface
    #[command(alias = "delete")]
    Del {
        /// The child; or its parent, if a P_Key follows
        #[arg(value_name = "CHILD|PARENT")]
        interface: String,
        /// The child's P_Key, with or without bit 15
        #[arg(value_name = "P_KEY", value_parser = parse_pkey)]
        pkey: Option<PKey>,
    },
    /// Children with their P_Keys, modes and states
    #[command(alias = "show")]
    List {
        /// Only those of this interface [default: all]
        #[arg(value_name = "PARENT")]
        parent: Option<String>,
    },
}

/// Make a child, and print its name
///
/// It stays until it is removed, its parent is, or the daemon ends. Children that are to be there at
/// the next start belong in the configuration file.
#[derive(Clone, Debug, Args)]
pub struct ChildAddArgs {
    /// The interface beside which it is made
    #[arg(value_name = "PARENT")]
    pub parent: String,
    /// Its partition, 0x0001 to 0xffff but 0x8000; bit 15 is set in either case
    #[arg(value_name = "P_KEY", value_parser = parse_pkey)]
    pub pkey: PKey,
    /// Its name [default: the parent's, a dot and the P_Key, such as ib0.8001]
    #[arg(long, short, value_name = "NAME", value_parser = parse_interface)]
    pub name: Option<String>,
    /// How its packets travel [default: as the parent is configured]
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,
    /// IP MTU in bytes [default: the largest of its mode]
    #[arg(long, value_name = "BYTES", value_parser = parse_mtu)]
    pub mtu: Option<u32>,
    /// TAP queues, at most one for each of the port's threads [default: 1]
    #[arg(long, value_name = "N", value_parser = parse_queues)]
    pub queues: Option<usize>,
    /// Network namespace that it goes to, one of `ip netns` [default: the parent's]
    #[arg(long, value_name = "NETNS", value_parser = parse_netns)]
    pub netns: Option<String>,
}

/// Show or change the P_Key tables of the fabric ports
///
/// A device whose partition is not in its port's table waits without carrier until it is.
#[derive(Clone, Debug, Args)]
pub struct PkeyArgs {
    /// What to do [default: list]
    #[command(subcommand)]
    pub verb: Option<PkeyVerb>,
}

/// What to do with P_Key tables.
#[derive(Clone, Debug, Subcommand)]
pub enum PkeyVerb {
    /// The tables by index
    #[command(alias = "show")]
    List {
        /// Only that of this port: soft/eth0, or eth0 for short [default: all]
        #[arg(value_name = "PORT")]
        port: Option<String>,
    },
    /// Replace a table, until the daemon starts again or its configuration is reloaded
    Set {
        /// The port: soft/eth0, or eth0 for short
        #[arg(value_name = "PORT")]
        port: String,
        /// The entries; or "auto": what the interfaces ask for
        #[arg(value_name = "P_KEY,...|auto")]
        table: Table,
    },
}

/// A P_Key table; empty: what the interfaces ask for.
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

/// Show or change how long received packets are let gather
///
/// After fewer than --rx-frames packets, a data thread looks for more only when --rx-usecs have passed:
/// fewer wake-ups, later packets. All interfaces of a port share its threads. With either at 0, the
/// default, it looks at once. `ethtool -C ib0 rx-frames N` sets the one as well.
#[derive(Clone, Debug, Args)]
pub struct CoalesceArgs {
    /// An interface of the port
    #[arg(value_name = "IF")]
    pub interface: String,
    /// Microseconds, 0 to 65535 [default: as it is]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=65535))]
    pub rx_usecs: Option<u32>,
    /// Packets, 0 to 65535 [default: as it is]
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
