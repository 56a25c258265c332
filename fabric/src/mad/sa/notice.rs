//! Notice (IBA vol. 1, 13.4.8.2): what a Trap or a Report says.

use std::fmt;

use proto::{Gid, Lid};

use super::fields::{Reader, Writer};

/// Numbers of generic traps (IBA vol. 1, 14.2.5.1).
pub mod trap {
    /// A port came into service; the GID is the port's.
    pub const GID_IN_SERVICE: u16 = 64;
    /// A port went out of service; the GID is the port's.
    pub const GID_OUT_OF_SERVICE: u16 = 65;
    /// A multicast group was created; the GID is the group's.
    pub const GROUP_CREATED: u16 = 66;
    /// A multicast group was deleted; the GID is the group's.
    pub const GROUP_DELETED: u16 = 67;
}

/// A notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    /// True for a notice of the IBA, false for a vendor's.
    pub is_generic: bool,
    /// 0 fatal, 1 urgent, 2 security, 3 subnet management, 4 information; 7 bits.
    pub kind: u8,
    /// 1 channel adapter, 2 switch, 3 router, 4 class manager, or a vendor; 24 bits.
    pub producer: u32,
    /// Trap number (generic), or device id.
    pub trap: u16,
    /// The LID of the port that saw the event.
    pub issuer_lid: Lid,
    /// The notice toggle and the number of notices in the queue.
    pub toggle_count: u16,
    /// Details; their layout depends on the trap.
    pub details: [u8; 54],
    /// The GID of the port that saw the event.
    pub issuer_gid: Gid,
}

impl Notice {
    /// Bytes of the attribute.
    pub const LEN: usize = 80;

    /// A notice of the SA with one of the traps 64 to 67.
    pub fn of_gid(trap: u16, gid: Gid, issuer_lid: Lid, issuer_gid: Gid) -> Notice {
        let mut details = [0; 54];
        for (to, from) in details.iter_mut().skip(6).zip(gid.0) {
            *to = from;
        }
        Notice {
            is_generic: true,
            kind: 3,
            producer: 4,
            trap,
            issuer_lid,
            toggle_count: 0,
            details,
            issuer_gid,
        }
    }

    /// The GID of traps 64 to 67: a port's or a group's. `None` for other notices.
    pub fn gid(&self) -> Option<Gid> {
        let named =
            self.is_generic && (trap::GID_IN_SERVICE..=trap::GROUP_DELETED).contains(&self.trap);
        let mut details = Reader::new(&self.details);
        let _reserved = details.bytes::<6>()?;
        details.gid().filter(|_| named)
    }

    /// Reads the attribute; `None` if there are fewer than [`Self::LEN`] bytes.
    pub fn parse(bytes: &[u8]) -> Option<Notice> {
        let mut r = Reader::new(bytes);
        let producer = r.u32()?;
        Some(Notice {
            is_generic: producer >> 31 != 0,
            kind: (producer >> 24) as u8 & 0x7f,
            producer: producer & 0xff_ffff,
            trap: r.u16()?,
            issuer_lid: r.lid()?,
            toggle_count: r.u16()?,
            details: r.bytes()?,
            issuer_gid: r.gid()?,
        })
    }

    /// The bytes of the wire.
    pub fn write(&self) -> [u8; Self::LEN] {
        let producer = u32::from(self.is_generic) << 31
            | u32::from(self.kind & 0x7f) << 24
            | self.producer & 0xff_ffff;
        Writer::new()
            .u32(producer)
            .u16(self.trap)
            .u16(self.issuer_lid.0)
            .u16(self.toggle_count)
            .bytes(self.details)
            .gid(self.issuer_gid)
            .done()
    }
}

/// Formats like `group ff12:401b:ffff::ffff:ffff was created` or `trap 128`.
impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(gid) = self.gid() else {
            return write!(f, "trap {}", self.trap);
        };
        match self.trap {
            trap::GID_IN_SERVICE => write!(f, "port {gid} came into service"),
            trap::GID_OUT_OF_SERVICE => write!(f, "port {gid} went out of service"),
            trap::GROUP_CREATED => write!(f, "group {gid} was created"),
            _ => write!(f, "group {gid} was deleted"),
        }
    }
}

super::record!(Notice, super::NOTICE);
