//! Questions to subnet administration.

use std::str::FromStr;

use clap::{Args, Subcommand};
use control::config::values::parse_number;
use fabric::{Gid, Guid, Lid, PKey, ServiceId};

use super::Milliseconds;

/// Ask subnet administration of an InfiniBand subnet, in the style of saquery
///
/// Needs no daemon: management datagrams go through libibumad. Prints records with the field names of
/// saquery; with --json, objects.
#[derive(Clone, Debug, Args)]
pub struct SaArgs {
    /// RDMA device [default: the first one with an active InfiniBand port]
    #[arg(long, value_name = "DEVICE", global = true)]
    pub device: Option<String>,
    /// Port of the device
    #[arg(long, value_name = "N", global = true, default_value = "1",
        value_parser = clap::value_parser!(u8).range(1..=254))]
    pub port: u8,
    /// Seconds to wait for an answer; there are three tries
    #[arg(
        long,
        short = 'W',
        value_name = "SECONDS",
        global = true,
        default_value = "1"
    )]
    pub timeout: Milliseconds,
    /// SM_Key, for records that only trusted programs see
    #[arg(long, value_name = "KEY", global = true, value_parser = number::<u64>, default_value = "0",
        hide_default_value = true)]
    pub sm_key: u64,
    /// What to ask for
    #[command(subcommand)]
    pub verb: SaVerb,
}

/// What to ask for.
#[derive(Clone, Debug, Subcommand)]
pub enum SaVerb {
    /// Show multicast groups and their members
    ///
    /// Without the SM_Key, subnet administration shows one record for each group, without its members.
    #[command(visible_alias = "group")]
    Mcmember {
        /// Only this group
        #[arg(long, value_name = "MGID")]
        mgid: Option<Gid>,
        /// Only the group with this MLID
        #[arg(long, value_name = "MLID", value_parser = lid)]
        lid: Option<Lid>,
        /// Only memberships of the port with this GID
        #[arg(long, value_name = "GID")]
        gid: Option<Gid>,
        /// Only groups of this partition
        #[arg(long, value_name = "KEY", value_parser = pkey)]
        pkey: Option<PKey>,
    },
    /// Show paths between ports
    ///
    /// A port is a LID, a GID or the name of its node.
    Path(PathArgs),
    /// Show nodes: adapters, switches, routers
    Node {
        /// Only the node with this LID
        #[arg(long, value_name = "LID", value_parser = lid)]
        lid: Option<Lid>,
        /// Only the node with this port GUID
        #[arg(long, value_name = "GUID", value_parser = guid)]
        guid: Option<Guid>,
        /// Only nodes with this description
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Show registered services
    Service {
        /// Only services of this name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Only services with this service id
        #[arg(long, value_name = "ID", value_parser = service)]
        id: Option<ServiceId>,
        /// Only services of the port with this GID
        #[arg(long, value_name = "GID")]
        gid: Option<Gid>,
        /// Only services in this partition
        #[arg(long, value_name = "KEY", value_parser = pkey)]
        pkey: Option<PKey>,
    },
    /// Show the subnet manager: LID, GUID, priority, state
    Sminfo,
    /// Print Reports of ports and groups as they arrive
    ///
    /// Subscribes to the traps 64 to 67: a port came or went, a group was created or deleted. Prints a
    /// line for each Report, with --json an object, until Ctrl-C. One program of a port receives Reports.
    Inform,
}

/// Which paths to show.
#[derive(Clone, Debug, Args)]
pub struct PathArgs {
    /// Source of the path
    #[arg(value_name = "FROM", requires = "destination", conflicts_with_all = ["from", "to"])]
    pub source: Option<End>,
    /// Destination of the path
    #[arg(value_name = "TO")]
    pub destination: Option<End>,
    /// Only paths from this port
    #[arg(long, value_name = "PORT")]
    pub from: Option<End>,
    /// Only paths to this port
    #[arg(long, value_name = "PORT")]
    pub to: Option<End>,
    /// Only paths in this partition
    #[arg(long, value_name = "KEY", value_parser = pkey)]
    pub pkey: Option<PKey>,
}

/// One end of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A number.
    Lid(Lid),
    /// An address.
    Gid(Gid),
    /// Anything else: the description of a node.
    Name(String),
}

impl FromStr for End {
    type Err = String;

    fn from_str(text: &str) -> Result<End, String> {
        if let Ok(lid) = lid(text) {
            return Ok(End::Lid(lid));
        }
        match text.parse() {
            Ok(gid) => Ok(End::Gid(gid)),
            Err(_) if text.is_empty() => Err("name a LID, a GID or a node".to_owned()),
            Err(_) => Ok(End::Name(text.to_owned())),
        }
    }
}

/// A number, with `0x` in base 16.
fn number<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number = parse_number(text).and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| format!("{text:?} is no number of this size; use 1 or 0x1"))
}

fn lid(text: &str) -> Result<Lid, String> {
    number(text).map(Lid)
}

fn pkey(text: &str) -> Result<PKey, String> {
    number(text).map(PKey::new)
}

fn service(text: &str) -> Result<ServiceId, String> {
    number(text).map(ServiceId)
}

/// A GUID as saquery prints it, or in groups of four digits as sysfs does.
fn guid(text: &str) -> Result<Guid, String> {
    if text.contains(':') {
        let digits: String = text.split(':').collect();
        return guid(&format!("0x{digits}"));
    }
    number(text).map(|guid: u64| Guid(guid.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_paths() {
        assert_eq!("18".parse(), Ok(End::Lid(Lid(18))));
        assert_eq!("0x12".parse(), Ok(End::Lid(Lid(18))));
        let gid = "fe80::10:1".parse().unwrap();
        assert_eq!("fe80::10:1".parse(), Ok(End::Gid(gid)));
        assert_eq!("65536".parse(), Ok(End::Name("65536".to_owned())));
        assert_eq!("n1 HCA-1".parse(), Ok(End::Name("n1 HCA-1".to_owned())));
        assert!("".parse::<End>().is_err());
    }

    #[test]
    fn numbers_have_a_size_and_two_bases() {
        assert_eq!(number::<u16>("0xFFFF"), Ok(65535));
        assert!(number::<u16>("65536").is_err());
        assert!(number::<u16>("-1").is_err());
        assert!(number::<u64>("0x").is_err());
        let expected = Guid([0, 2, 0xc9, 3, 0, 0, 0, 1]);
        for text in ["0x0002c90300000001", "0002:c903:0000:0001"] {
            assert_eq!(guid(text), Ok(expected));
        }
        assert!(guid("0002:c903:0000:0001:0000").is_err());
    }
}
