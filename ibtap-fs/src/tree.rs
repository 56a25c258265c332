//! The files and their inode numbers.
//!
//! ```text
//! /                      one directory for each interface
//!   ib0/                 like /sys/class/net/ib0
//!     mode pkey ...      attributes
//!     statistics/        one file for each counter
//!   debug/               like the kernel's debugfs directory ipoib
//!     ib0_mcg ib0_path
//!   infiniband/          like /sys/class/infiniband, see [`crate::ports`]
//!     soft_eth0/
//! ```
//!
//! An inode number is the number of the interface from [`crate::interfaces`] times 256, plus the number of
//! the node within the interface. Number 0 is reserved for the tree's own nodes. The highest bit marks nodes below
//! `infiniband`; their numbers are from [`crate::paths`].

/// A file of an interface's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// The 20 bytes of the hardware address.
    Address,
    /// Length of the hardware address in bytes.
    AddrLen,
    /// The 20 bytes of the broadcast group's address.
    Broadcast,
    /// Whether the interface has a carrier.
    Carrier,
    /// Creates a child.
    CreateChild,
    /// Removes a child.
    DeleteChild,
    /// Number of a parent's port minus one, hexadecimal.
    DevId,
    /// Number of a parent's port minus one, decimal.
    DevPort,
    /// The interface's index in its network namespace.
    Ifindex,
    /// Datagram or connected.
    Mode,
    /// The IP MTU.
    Mtu,
    /// Name of the parent.
    Parent,
    /// The partition.
    Pkey,
    /// The hardware type of ARP: InfiniBand.
    Type,
    /// Whether multicast groups are left to programs.
    Umcast,
}

/// The interfaces that have a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    All,
    Parents,
    Children,
}

/// Names and permissions, in the order of a listing.
const ATTRIBUTES: [(Attribute, &str, u16, Of); 15] = [
    (Attribute::AddrLen, "addr_len", 0o444, Of::All),
    (Attribute::Address, "address", 0o444, Of::All),
    (Attribute::Broadcast, "broadcast", 0o444, Of::All),
    (Attribute::Carrier, "carrier", 0o444, Of::All),
    (Attribute::CreateChild, "create_child", 0o200, Of::Parents),
    (Attribute::DeleteChild, "delete_child", 0o200, Of::Parents),
    (Attribute::DevId, "dev_id", 0o444, Of::All),
    (Attribute::DevPort, "dev_port", 0o444, Of::All),
    (Attribute::Ifindex, "ifindex", 0o444, Of::All),
    (Attribute::Mode, "mode", 0o644, Of::All),
    (Attribute::Mtu, "mtu", 0o644, Of::All),
    (Attribute::Parent, "parent", 0o444, Of::Children),
    (Attribute::Pkey, "pkey", 0o444, Of::All),
    (Attribute::Type, "type", 0o444, Of::All),
    (Attribute::Umcast, "umcast", 0o644, Of::All),
];

/// The daemon's counters, by their names in sysfs.
pub const STATISTICS: [&str; 8] = [
    "multicast",
    "rx_bytes",
    "rx_dropped",
    "rx_packets",
    "tx_bytes",
    "tx_dropped",
    "tx_errors",
    "tx_packets",
];

/// The directory of counters.
const STATISTICS_DIRECTORY: &str = "statistics";
/// The directory of dumps.
pub const DEBUG_DIRECTORY: &str = "debug";
/// The directory of ports.
pub const PORTS_DIRECTORY: &str = "infiniband";

/// A dump of debugfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// The multicast groups.
    Groups,
    /// The paths.
    Paths,
}

impl Dump {
    /// All dumps, in the order of a listing.
    pub const ALL: [Dump; 2] = [Dump::Groups, Dump::Paths];

    /// The part of the file name after the interface's name (`ipoib_fs.c ipoib_create_debug_files`).
    pub fn suffix(self) -> &'static str {
        match self {
            Dump::Groups => "_mcg",
            Dump::Paths => "_path",
        }
    }

    /// The interface's name and the dump of a file's name.
    pub fn named(file: &str) -> Option<(&str, Dump)> {
        Dump::ALL
            .into_iter()
            .find_map(|dump| Some((file.strip_suffix(dump.suffix())?, dump)))
    }
}

/// A node of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// The directory of the interface.
    Directory,
    /// The directory of counters.
    Statistics,
    /// A file in the interface's directory.
    Attribute(Attribute),
    /// A counter, by its place in [`STATISTICS`].
    Counter(usize),
    /// A file in the directory of dumps.
    Dump(Dump),
}

/// A node of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The root.
    Root,
    /// The directory of dumps.
    Debug,
    /// A node of the interface with this number, which is not 0.
    Interface(u64, Node),
    /// A directory of ports, or below one, by the number of its path.
    PortDirectory(u64),
    /// A file of a port, by the number of its path.
    PortFile(u64),
}

const ROOT: u64 = 1;
const DEBUG: u64 = 2;
const ATTRIBUTES_FROM: u64 = 2;
const COUNTERS_FROM: u64 = 64;
const DUMPS_FROM: u64 = 128;
/// Marks the inode numbers below the directory of ports.
const OF_PORTS: u64 = 1 << 63;
/// With [`OF_PORTS`]: a directory.
const PORT_DIRECTORY: u64 = 1 << 62;

impl Place {
    /// The directory of ports.
    pub const PORTS: Place = Place::PortDirectory(0);

    /// Inode number. The root has the number that FUSE requires (`FUSE_ROOT_ID`).
    pub fn inode(self) -> u64 {
        match self {
            Place::Root => ROOT,
            Place::Debug => DEBUG,
            Place::Interface(interface, node) => (interface << 8) + node.number(),
            Place::PortDirectory(number) => OF_PORTS | PORT_DIRECTORY | number,
            Place::PortFile(number) => OF_PORTS | number,
        }
    }

    /// The node with this inode number.
    pub fn of_inode(inode: u64) -> Option<Place> {
        if inode & OF_PORTS != 0 {
            let number = inode & !(OF_PORTS | PORT_DIRECTORY);
            // A path needs one lookup for its number, so numbers stay small.
            return match inode & PORT_DIRECTORY {
                _ if number > u64::from(u32::MAX) => None,
                0 => (number != 0).then_some(Place::PortFile(number)),
                _ => Some(Place::PortDirectory(number)),
            };
        }
        match (inode >> 8, inode & 0xff) {
            (0, ROOT) => Some(Place::Root),
            (0, DEBUG) => Some(Place::Debug),
            (0, _) => None,
            (interface, number) => Some(Place::Interface(interface, Node::numbered(number)?)),
        }
    }

    /// Whether the node is a directory.
    pub fn is_directory(self) -> bool {
        matches!(
            self,
            Place::Root
                | Place::Debug
                | Place::PortDirectory(_)
                | Place::Interface(_, Node::Directory | Node::Statistics)
        )
    }

    /// Permissions, the same as the kernel's: root alone enters debugfs. Root owns all files.
    pub fn permissions(self) -> u16 {
        match self {
            Place::Interface(_, Node::Attribute(attribute)) => entry(attribute).2,
            Place::Interface(_, Node::Counter(_)) | Place::PortFile(_) => 0o444,
            Place::Interface(_, Node::Dump(_)) => 0o400,
            Place::Debug => 0o700,
            _ => 0o755,
        }
    }

    /// The size for stat(2), whatever the contents: that of sysfs, for dumps that of debugfs.
    pub fn size(self) -> u64 {
        match self {
            Place::Interface(_, Node::Attribute(_) | Node::Counter(_)) | Place::PortFile(_) => 4096,
            _ => 0,
        }
    }
}

impl Node {
    /// The node with this name in an interface's directory.
    pub fn in_directory(name: &str, is_child: bool) -> Option<Node> {
        if name == STATISTICS_DIRECTORY {
            return Some(Node::Statistics);
        }
        attributes(is_child)
            .find(|(_, known)| *known == name)
            .map(|(attribute, _)| Node::Attribute(attribute))
    }

    /// The node with this name in the directory of counters.
    pub fn in_statistics(name: &str) -> Option<Node> {
        let at = STATISTICS.iter().position(|known| *known == name)?;
        Some(Node::Counter(at))
    }

    /// The entries of an interface's directory.
    pub fn directory(is_child: bool) -> impl Iterator<Item = (Node, &'static str)> {
        attributes(is_child)
            .map(|(attribute, name)| (Node::Attribute(attribute), name))
            .chain([(Node::Statistics, STATISTICS_DIRECTORY)])
    }

    /// The entries of the directory of counters.
    pub fn statistics() -> impl Iterator<Item = (Node, &'static str)> {
        STATISTICS
            .iter()
            .enumerate()
            .map(|(at, name)| (Node::Counter(at), *name))
    }

    fn number(self) -> u64 {
        match self {
            Node::Directory => 0,
            Node::Statistics => 1,
            Node::Attribute(attribute) => ATTRIBUTES_FROM + place_of(attribute) as u64,
            Node::Counter(at) => COUNTERS_FROM + at as u64,
            Node::Dump(Dump::Groups) => DUMPS_FROM,
            Node::Dump(Dump::Paths) => DUMPS_FROM + 1,
        }
    }

    fn numbered(number: u64) -> Option<Node> {
        let at = |from: u64| usize::try_from(number.checked_sub(from)?).ok();
        match number {
            0 => Some(Node::Directory),
            1 => Some(Node::Statistics),
            DUMPS_FROM.. => Dump::ALL.get(at(DUMPS_FROM)?).copied().map(Node::Dump),
            COUNTERS_FROM.. => at(COUNTERS_FROM)
                .filter(|at| *at < STATISTICS.len())
                .map(Node::Counter),
            _ => ATTRIBUTES
                .get(at(ATTRIBUTES_FROM)?)
                .map(|entry| Node::Attribute(entry.0)),
        }
    }
}

/// The files in the directory of a child or parent.
fn attributes(is_child: bool) -> impl Iterator<Item = (Attribute, &'static str)> {
    let wanted = match is_child {
        true => Of::Children,
        false => Of::Parents,
    };
    ATTRIBUTES
        .iter()
        .filter(move |(_, _, _, of)| *of == Of::All || *of == wanted)
        .map(|(attribute, name, _, _)| (*attribute, *name))
}

fn place_of(attribute: Attribute) -> usize {
    ATTRIBUTES
        .iter()
        .position(|(known, ..)| *known == attribute)
        .expect("every attribute is in the table, as a test checks")
}

fn entry(attribute: Attribute) -> (Attribute, &'static str, u16, Of) {
    ATTRIBUTES[place_of(attribute)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Vec<Place> {
        let mut places = vec![Place::Root, Place::Debug, Place::PORTS];
        places.extend([1, 77].map(Place::PortDirectory));
        places.extend([2, u64::from(u32::MAX)].map(Place::PortFile));
        for interface in [1, 77, u64::from(u32::MAX)] {
            let nodes = [Node::Directory, Node::Statistics]
                .into_iter()
                .chain(Node::directory(true).map(|(node, _)| node))
                .chain(Node::directory(false).map(|(node, _)| node))
                .chain(Node::statistics().map(|(node, _)| node))
                .chain(Dump::ALL.map(Node::Dump));
            places.extend(nodes.map(|node| Place::Interface(interface, node)));
        }
        places
    }

    #[test]
    fn inode_numbers_say_which_node_it_is() {
        let mut seen = std::collections::HashMap::new();
        for place in places() {
            assert_eq!(Place::of_inode(place.inode()), Some(place));
            assert_eq!(*seen.entry(place.inode()).or_insert(place), place);
        }
        assert_eq!(Place::Root.inode(), 1, "FUSE_ROOT_ID");
    }

    #[test]
    fn other_inode_numbers_are_nothing() {
        let known: Vec<u64> = places().into_iter().map(Place::inode).collect();
        for inode in (0..512).filter(|inode| !known.contains(inode)) {
            assert_eq!(Place::of_inode(inode), None, "{inode}");
        }
        for inode in [u64::MAX, u64::MAX << 8 | 200, OF_PORTS] {
            assert_eq!(Place::of_inode(inode), None, "{inode}");
        }
    }

    #[test]
    fn names_are_found_where_they_are_listed() {
        for is_child in [true, false] {
            for (node, name) in Node::directory(is_child) {
                assert_eq!(Node::in_directory(name, is_child), Some(node));
            }
        }
        for (node, name) in Node::statistics() {
            assert_eq!(Node::in_statistics(name), Some(node));
        }
        assert_eq!(Node::in_directory("create_child", true), None);
        assert_eq!(Node::in_directory("parent", false), None);
        assert_eq!(Node::in_directory("..", false), None);
        assert_eq!(Node::in_statistics("rx"), None);
    }

    #[test]
    fn dumps_are_named_after_their_interface() {
        assert_eq!(Dump::named("ib0_mcg"), Some(("ib0", Dump::Groups)));
        assert_eq!(
            Dump::named("ib0.8001_path"),
            Some(("ib0.8001", Dump::Paths))
        );
        assert_eq!(Dump::named("a_mcg_path"), Some(("a_mcg", Dump::Paths)));
        assert_eq!(Dump::named("ib0"), None);
    }

    #[test]
    fn permissions_are_sysfs_own() {
        let of = |name: &str| {
            let node = Node::in_directory(name, false).unwrap();
            Place::Interface(1, node).permissions()
        };
        assert_eq!(of("create_child"), 0o200);
        assert_eq!(of("mode"), 0o644);
        assert_eq!(of("pkey"), 0o444);
        assert_eq!(of("statistics"), 0o755);
        let dump = Place::Interface(1, Node::Dump(Dump::Groups));
        assert_eq!(
            (dump.permissions(), Place::Debug.permissions()),
            (0o400, 0o700)
        );
    }
}
