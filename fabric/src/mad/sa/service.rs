//! ServiceRecord (IBA vol. 1, 15.2.5.14): a service that a port offers, registered with the SA.

use proto::{Gid, PKey, ServiceId};

use super::fields::{Reader, Writer};

/// ServiceID.
pub const ID: u64 = 1 << 0;
/// ServiceGID.
pub const GID: u64 = 1 << 1;
/// ServiceP_Key.
pub const PKEY: u64 = 1 << 2;
/// ServiceLease.
pub const LEASE: u64 = 1 << 4;
/// ServiceKey.
pub const KEY: u64 = 1 << 5;
/// ServiceName.
pub const NAME: u64 = 1 << 6;
/// All of the service's data.
pub const DATA: u64 = 0x3fff_ffff << 7;

/// Components of a registration: all except reserved fields.
pub const REGISTER: u64 = ID | GID | PKEY | LEASE | KEY | NAME | DATA;
/// Components that identify a registration (IBA vol. 1, 15.2.5.14: ServiceID, ServiceGID, ServiceP_Key).
pub const UNREGISTER: u64 = ID | GID | PKEY;

/// A lease without end.
pub const LEASE_INFINITE: u32 = u32::MAX;

/// A registered service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceRecord {
    /// The service.
    pub id: ServiceId,
    /// The port that offers the service.
    pub gid: Gid,
    /// The partition in which the port offers the service.
    pub pkey: PKey,
    /// Seconds until the SA forgets the registration, or [`LEASE_INFINITE`].
    pub lease: u32,
    /// Protects the registration, 0 if nothing does.
    pub key: [u8; 16],
    /// Name in UTF-8, zeros behind the name.
    pub name: [u8; 64],
    /// Data of the service: 16 bytes, 8 numbers of 16 bits, 4 of 32, 2 of 64, big-endian by convention.
    pub data: [u8; 64],
}

impl Default for ServiceRecord {
    /// All zero.
    fn default() -> ServiceRecord {
        ServiceRecord {
            id: ServiceId(0),
            gid: Gid::UNSPECIFIED,
            pkey: PKey::new(0),
            lease: 0,
            key: [0; 16],
            name: [0; 64],
            data: [0; 64],
        }
    }
}

impl ServiceRecord {
    /// Bytes of a record.
    pub const LEN: usize = 176;

    /// The bytes of a name for [`Self::name`]; what exceeds 64 bytes is cut off.
    pub fn name_bytes(name: &str) -> [u8; 64] {
        let mut bytes = [0; 64];
        for (to, from) in bytes.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        bytes
    }

    /// Reads a record; `None` if there are fewer than [`Self::LEN`] bytes.
    pub fn parse(bytes: &[u8]) -> Option<ServiceRecord> {
        let mut r = Reader::new(bytes);
        let (id, gid, pkey) = (ServiceId(r.u64()?), r.gid()?, PKey::new(r.u16()?));
        let (_reserved, lease) = (r.u16()?, r.u32()?);
        Some(ServiceRecord {
            id,
            gid,
            pkey,
            lease,
            key: r.bytes()?,
            name: r.bytes()?,
            data: r.bytes()?,
        })
    }

    /// The bytes of the wire.
    pub fn write(&self) -> [u8; Self::LEN] {
        Writer::new()
            .u64(self.id.0)
            .gid(self.gid)
            .u16(self.pkey.get())
            .u16(0)
            .u32(self.lease)
            .bytes(self.key)
            .bytes(self.name)
            .bytes(self.data)
            .done()
    }
}

super::record!(ServiceRecord, super::SERVICE_RECORD);
