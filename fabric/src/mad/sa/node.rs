//! NodeRecord (IBA vol. 1, 15.2.5.2): NodeInfo and NodeDescription of the node of a LID.

use proto::{Guid, Lid};

use super::fields::{Reader, Writer};

/// LID.
pub const LID: u64 = 1 << 0;
/// NodeType.
pub const NODE_TYPE: u64 = 1 << 4;
/// SystemImageGUID.
pub const SYSTEM_IMAGE_GUID: u64 = 1 << 6;
/// NodeGUID.
pub const NODE_GUID: u64 = 1 << 7;
/// PortGUID.
pub const PORT_GUID: u64 = 1 << 8;
/// NodeDescription.
pub const DESCRIPTION: u64 = 1 << 14;

/// What a node is (IBA vol. 1, 14.2.5.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeType(pub u8);

impl NodeType {
    /// A channel adapter.
    pub const CA: NodeType = NodeType(1);
    /// A switch.
    pub const SWITCH: NodeType = NodeType(2);
    /// A router.
    pub const ROUTER: NodeType = NodeType(3);

    /// `CA`, `switch`, `router`, `unknown`.
    pub const fn name(self) -> &'static str {
        match self {
            NodeType::CA => "CA",
            NodeType::SWITCH => "switch",
            NodeType::ROUTER => "router",
            _ => "unknown",
        }
    }
}

/// A node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeRecord {
    /// The LID of the port.
    pub lid: Lid,
    /// Base version of the node's management datagrams.
    pub base_version: u8,
    /// Class version of the node's management datagrams.
    pub class_version: u8,
    /// What the node is.
    pub node_type: NodeType,
    /// Number of physical ports.
    pub ports: u8,
    /// GUID of the system that the node is a part of.
    pub system_image_guid: Guid,
    /// GUID of the node.
    pub node_guid: Guid,
    /// GUID of the port.
    pub port_guid: Guid,
    /// Entries of the P_Key table of each port.
    pub partition_cap: u16,
    /// The vendor's number of the device.
    pub device_id: u16,
    /// The device's revision.
    pub revision: u32,
    /// The port's number.
    pub local_port: u8,
    /// The vendor, 24 bits.
    pub vendor_id: u32,
    /// UTF-8, zeros behind the text.
    pub description: [u8; 64],
}

impl NodeRecord {
    /// Bytes of a record; tables pad to 112.
    pub const LEN: usize = 108;

    /// The description up to the first zero; bytes that are not UTF-8 are replaced.
    pub fn description(&self) -> String {
        let text = self.description.split(|b| *b == 0).next();
        String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
    }

    /// Reads a record; `None` if there are fewer than [`Self::LEN`] bytes.
    pub fn parse(bytes: &[u8]) -> Option<NodeRecord> {
        let mut r = Reader::new(bytes);
        let (lid, _reserved) = (r.lid()?, r.u16()?);
        let [base_version, class_version, node_type, ports] = r.bytes()?;
        let (system_image_guid, node_guid, port_guid) = (r.guid()?, r.guid()?, r.guid()?);
        let (partition_cap, device_id, revision) = (r.u16()?, r.u16()?, r.u32()?);
        let vendor = r.u32()?;
        Some(NodeRecord {
            lid,
            base_version,
            class_version,
            node_type: NodeType(node_type),
            ports,
            system_image_guid,
            node_guid,
            port_guid,
            partition_cap,
            device_id,
            revision,
            local_port: (vendor >> 24) as u8,
            vendor_id: vendor & 0xff_ffff,
            description: r.bytes()?,
        })
    }

    /// The bytes of the wire.
    pub fn write(&self) -> [u8; Self::LEN] {
        Writer::new()
            .u16(self.lid.0)
            .u16(0)
            .bytes([
                self.base_version,
                self.class_version,
                self.node_type.0,
                self.ports,
            ])
            .bytes(self.system_image_guid.0)
            .bytes(self.node_guid.0)
            .bytes(self.port_guid.0)
            .u16(self.partition_cap)
            .u16(self.device_id)
            .u32(self.revision)
            .u32(u32::from(self.local_port) << 24 | self.vendor_id & 0xff_ffff)
            .bytes(self.description)
            .done()
    }
}

super::record!(NodeRecord, super::NODE_RECORD);
