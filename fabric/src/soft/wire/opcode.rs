//! BTH opcodes (IBA vol. 1, 9.2.1, table 38; include/rdma/ib_pack.h) and the headers of each.

/// Transport bits of the reliable connection opcodes.
pub const RC: u8 = 0x00;
/// Transport bits of the unreliable connection opcodes.
pub const UC: u8 = 0x20;
/// Transport bits of the unreliable datagram opcodes.
pub const UD: u8 = 0x60;

/// RC SEND First.
pub const RC_SEND_FIRST: u8 = 0x00;
/// RC SEND Middle.
pub const RC_SEND_MIDDLE: u8 = 0x01;
/// RC SEND Last.
pub const RC_SEND_LAST: u8 = 0x02;
/// RC SEND Last with Immediate.
pub const RC_SEND_LAST_IMM: u8 = 0x03;
/// RC SEND Only.
pub const RC_SEND_ONLY: u8 = 0x04;
/// RC SEND Only with Immediate.
pub const RC_SEND_ONLY_IMM: u8 = 0x05;
/// RC RDMA WRITE First.
pub const RC_WRITE_FIRST: u8 = 0x06;
/// RC RDMA WRITE Middle.
pub const RC_WRITE_MIDDLE: u8 = 0x07;
/// RC RDMA WRITE Last.
pub const RC_WRITE_LAST: u8 = 0x08;
/// RC RDMA WRITE Last with Immediate.
pub const RC_WRITE_LAST_IMM: u8 = 0x09;
/// RC RDMA WRITE Only.
pub const RC_WRITE_ONLY: u8 = 0x0a;
/// RC RDMA WRITE Only with Immediate.
pub const RC_WRITE_ONLY_IMM: u8 = 0x0b;
/// RC RDMA READ Request.
pub const RC_READ_REQUEST: u8 = 0x0c;
/// RC RDMA READ Response First.
pub const RC_READ_RESPONSE_FIRST: u8 = 0x0d;
/// RC RDMA READ Response Middle.
pub const RC_READ_RESPONSE_MIDDLE: u8 = 0x0e;
/// RC RDMA READ Response Last.
pub const RC_READ_RESPONSE_LAST: u8 = 0x0f;
/// RC RDMA READ Response Only.
pub const RC_READ_RESPONSE_ONLY: u8 = 0x10;
/// RC Acknowledge.
pub const RC_ACKNOWLEDGE: u8 = 0x11;
/// RC Atomic Acknowledge.
pub const RC_ATOMIC_ACKNOWLEDGE: u8 = 0x12;
/// RC Compare and Swap.
pub const RC_COMPARE_SWAP: u8 = 0x13;
/// RC Fetch and Add.
pub const RC_FETCH_ADD: u8 = 0x14;
/// RC SEND Last with Invalidate.
pub const RC_SEND_LAST_INVALIDATE: u8 = 0x16;
/// RC SEND Only with Invalidate.
pub const RC_SEND_ONLY_INVALIDATE: u8 = 0x17;
/// UD SEND Only.
pub const UD_SEND_ONLY: u8 = 0x64;
/// UD SEND Only with Immediate.
pub const UD_SEND_ONLY_IMM: u8 = 0x65;
/// Congestion Notification Packet (IBA vol. 1, annex A17.9.3).
pub const CNP: u8 = 0x81;

/// The headers of an opcode, in wire order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Headers {
    /// [`super::Deth`].
    pub deth: bool,
    /// [`super::Reth`].
    pub reth: bool,
    /// [`super::AtomicEth`].
    pub atomic_eth: bool,
    /// [`super::Aeth`].
    pub aeth: bool,
    /// [`super::AtomicAckEth`].
    pub atomic_ack_eth: bool,
    /// [`super::ImmDt`].
    pub imm_dt: bool,
    /// [`super::Ieth`].
    pub ieth: bool,
    /// The 16 reserved bytes of a CNP.
    pub cnp: bool,
    /// Whether payload may follow.
    pub payload: bool,
}

impl Headers {
    const NONE: Headers = Headers {
        deth: false,
        reth: false,
        atomic_eth: false,
        aeth: false,
        atomic_ack_eth: false,
        imm_dt: false,
        ieth: false,
        cnp: false,
        payload: false,
    };
    const PAYLOAD: Headers = Headers {
        payload: true,
        ..Headers::NONE
    };

    const fn deth(self) -> Headers {
        Headers { deth: true, ..self }
    }

    const fn reth(self) -> Headers {
        Headers { reth: true, ..self }
    }

    const fn aeth(self) -> Headers {
        Headers { aeth: true, ..self }
    }

    const fn imm_dt(self) -> Headers {
        Headers {
            imm_dt: true,
            ..self
        }
    }

    const fn ieth(self) -> Headers {
        Headers { ieth: true, ..self }
    }
}

/// The headers of `opcode`, or `None` for an opcode that no RoCEv2 peer sends: reliable datagram, XRC
/// and reserved ones.
pub const fn headers(opcode: u8) -> Option<Headers> {
    const P: Headers = Headers::PAYLOAD;
    const N: Headers = Headers::NONE;
    let connected = match opcode & 0x1f {
        0x00..=0x02 | 0x04 | 0x07 | 0x08 => P,
        0x03 | 0x05 | 0x09 => P.imm_dt(),
        0x06 | 0x0a => P.reth(),
        0x0b => P.reth().imm_dt(),
        _ => N,
    };
    Some(match opcode {
        0x00..=0x0b | 0x20..=0x2b => connected,
        RC_READ_REQUEST => N.reth(),
        RC_READ_RESPONSE_FIRST | RC_READ_RESPONSE_LAST | RC_READ_RESPONSE_ONLY => P.aeth(),
        RC_READ_RESPONSE_MIDDLE => P,
        RC_ACKNOWLEDGE => N.aeth(),
        RC_ATOMIC_ACKNOWLEDGE => Headers {
            atomic_ack_eth: true,
            ..N.aeth()
        },
        RC_COMPARE_SWAP | RC_FETCH_ADD => Headers {
            atomic_eth: true,
            ..N
        },
        RC_SEND_LAST_INVALIDATE | RC_SEND_ONLY_INVALIDATE => P.ieth(),
        UD_SEND_ONLY => P.deth(),
        UD_SEND_ONLY_IMM => P.deth().imm_dt(),
        CNP => Headers { cnp: true, ..N },
        _ => return None,
    })
}

/// The name of an opcode, transport and operation: `RC SEND_FIRST`. `None` where [`headers`] returns
/// `None`.
pub const fn name(opcode: u8) -> Option<&'static str> {
    const NAMES: [&str; 0x18] = [
        "RC SEND_FIRST",
        "RC SEND_MIDDLE",
        "RC SEND_LAST",
        "RC SEND_LAST_IMM",
        "RC SEND_ONLY",
        "RC SEND_ONLY_IMM",
        "RC WRITE_FIRST",
        "RC WRITE_MIDDLE",
        "RC WRITE_LAST",
        "RC WRITE_LAST_IMM",
        "RC WRITE_ONLY",
        "RC WRITE_ONLY_IMM",
        "RC READ_REQUEST",
        "RC READ_RESPONSE_FIRST",
        "RC READ_RESPONSE_MIDDLE",
        "RC READ_RESPONSE_LAST",
        "RC READ_RESPONSE_ONLY",
        "RC ACKNOWLEDGE",
        "RC ATOMIC_ACKNOWLEDGE",
        "RC COMPARE_SWAP",
        "RC FETCH_ADD",
        "",
        "RC SEND_LAST_INVALIDATE",
        "RC SEND_ONLY_INVALIDATE",
    ];
    const UC_NAMES: [&str; 0x0c] = [
        "UC SEND_FIRST",
        "UC SEND_MIDDLE",
        "UC SEND_LAST",
        "UC SEND_LAST_IMM",
        "UC SEND_ONLY",
        "UC SEND_ONLY_IMM",
        "UC WRITE_FIRST",
        "UC WRITE_MIDDLE",
        "UC WRITE_LAST",
        "UC WRITE_LAST_IMM",
        "UC WRITE_ONLY",
        "UC WRITE_ONLY_IMM",
    ];
    Some(match opcode {
        0x00..=0x14 | 0x16 | 0x17 => NAMES[opcode as usize],
        0x20..=0x2b => UC_NAMES[(opcode - UC) as usize],
        UD_SEND_ONLY => "UD SEND_ONLY",
        UD_SEND_ONLY_IMM => "UD SEND_ONLY_IMM",
        CNP => "CNP",
        _ => return None,
    })
}
