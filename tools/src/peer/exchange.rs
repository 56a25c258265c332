//! What rdma-core's ping-pongs tell each other over TCP before they begin.
//!
//! The client says who it is, the server gets ready and says who it is, the client says that it is
//! ready, too.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use fabric::{Gid, Psn, Qpn};

/// Bytes of what one side says: `LID:QPN:PSN:GID` in hexadecimal, and a zero byte.
const LEN: usize = 52;

/// What the client ends with, with its zero byte.
const READY: &[u8; 5] = b"done\0";

/// Between two attempts to reach a server that is not there yet.
pub const RETRY: Duration = Duration::from_millis(100);

/// One side of a ping-pong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// The LID; 0 on Ethernet.
    pub lid: u16,
    /// The queue pair.
    pub qpn: Qpn,
    /// Where its packets begin.
    pub psn: Psn,
    /// The GID.
    pub gid: Gid,
}

impl Parameters {
    /// The bytes that go over TCP.
    pub fn to_bytes(self) -> [u8; LEN] {
        let (lid, qpn, psn) = (self.lid, self.qpn.get(), self.psn.get());
        let gid = u128::from_be_bytes(self.gid.0);
        let text = format!("{lid:04x}:{qpn:06x}:{psn:06x}:{gid:032x}");
        let mut bytes = [0; LEN];
        bytes[..LEN - 1].copy_from_slice(text.as_bytes());
        bytes
    }

    /// Reads them; `None` if they are anything else.
    pub fn from_bytes(bytes: &[u8; LEN]) -> Option<Parameters> {
        let (0, text) = bytes.split_last()? else {
            return None;
        };
        let mut fields = std::str::from_utf8(text).ok()?.split(':');
        let mut field = |digits: usize| {
            let text = fields.next().filter(|text| text.len() == digits)?;
            let only_digits = text.bytes().all(|b| b.is_ascii_hexdigit());
            only_digits.then(|| u128::from_str_radix(text, 16).ok())?
        };
        let (lid, qpn, psn, gid) = (field(4)?, field(6)?, field(6)?, field(32)?);
        Some(Parameters {
            lid: lid as u16,
            qpn: Qpn::new(qpn as u32),
            psn: Psn::new(psn as u32),
            gid: Gid(gid.to_be_bytes()),
        })
    }
}

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (qpn, psn, gid) = (self.qpn.get(), self.psn.get(), self.gid);
        write!(f, "QPN {qpn:#08x}, PSN {psn:#08x}, GID {gid}")
    }
}

/// The way to the other side while parameters are exchanged.
pub struct Exchange {
    stream: TcpStream,
}

impl Exchange {
    /// Waits for a client, for ever; once it is there it may be silent for `timeout`.
    ///
    /// # Errors
    /// The port is in use.
    pub fn accept(port: u16, timeout: Duration) -> Result<Exchange> {
        // IPv6 may be switched off.
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
            .with_context(|| format!("cannot listen on TCP port {port}"))?;
        println!("waiting for a client on TCP port {port}");
        let (stream, _) = listener.accept().context("cannot accept a client")?;
        Exchange::over(stream, timeout)
    }

    /// Goes to a server, which has `timeout` to be there.
    ///
    /// # Errors
    /// It is not.
    pub fn connect(host: &str, port: u16, timeout: Duration) -> Result<Exchange> {
        let end = Instant::now() + timeout;
        loop {
            match TcpStream::connect((host, port)) {
                Ok(stream) => return Exchange::over(stream, timeout),
                Err(e) if e.kind() == ErrorKind::ConnectionRefused && Instant::now() < end => {
                    std::thread::sleep(RETRY);
                }
                Err(e) => return Err(e).context(format!("cannot reach {host} on TCP port {port}")),
            }
        }
    }

    fn over(stream: TcpStream, timeout: Duration) -> Result<Exchange> {
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        stream.set_nodelay(true)?;
        Ok(Exchange { stream })
    }

    /// The client's part: gives what the server says.
    ///
    /// # Errors
    /// It says nothing, or something else than parameters.
    pub fn ask(&mut self, ours: Parameters) -> Result<Parameters> {
        self.say(&ours.to_bytes())?;
        self.parameters()
    }

    /// The end of the client's part, when it is ready.
    ///
    /// # Errors
    /// The server has gone.
    pub fn ready(&mut self) -> Result<()> {
        self.say(READY)
    }

    /// What the other side says of itself: the beginning of the server's part.
    ///
    /// # Errors
    /// It says nothing, or something else than parameters.
    pub fn parameters(&mut self) -> Result<Parameters> {
        let mut bytes = [0; LEN];
        self.hear(&mut bytes)?;
        let said = || String::from_utf8_lossy(&bytes).into_owned();
        Parameters::from_bytes(&bytes)
            .ok_or_else(|| anyhow!("the peer says {:?}, which are no parameters", said()))
    }

    /// The end of the server's part, when it is ready: waits until the client is.
    ///
    /// # Errors
    /// It does not say so.
    pub fn answer(&mut self, ours: Parameters) -> Result<()> {
        self.say(&ours.to_bytes())?;
        let mut bytes = [0; READY.len()];
        self.hear(&mut bytes)?;
        ensure!(&bytes == READY, "the peer does not say that it is ready");
        Ok(())
    }

    fn say(&mut self, bytes: &[u8]) -> Result<()> {
        let said = self.stream.write_all(bytes);
        said.context("the peer does not take our parameters")
    }

    fn hear(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.stream.read_exact(bytes).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => anyhow!("the peer left before it told its parameters"),
            _ => anyhow!("the peer does not tell its parameters: {e}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As `ibv_rc_pingpong` of rdma-core 44 was seen to write it.
    const SEEN: &[u8; LEN] = b"0000:000012:b3e408:00000000000000000000ffffc0a84d0a\0";

    #[test]
    fn rdma_cores_parameters_are_read() {
        let read = Parameters::from_bytes(SEEN).unwrap();
        assert_eq!(
            (read.lid, read.qpn, read.psn),
            (0, Qpn::new(0x12), Psn::new(0xb3_e408))
        );
        assert_eq!(read.gid, "192.168.77.10".parse().unwrap());
        assert_eq!(&read.to_bytes(), SEEN);
        let shown = "QPN 0x000012, PSN 0xb3e408, GID ::ffff:192.168.77.10";
        assert_eq!(read.to_string(), shown);
    }

    #[test]
    fn other_texts_are_no_parameters() {
        for (at, byte) in [
            (3, b'g'),
            (4, b'0'),
            (5, b'+'),
            (12, b'-'),
            (50, b':'),
            (51, b'0'),
        ] {
            let mut wrong = *SEEN;
            wrong[at] = byte;
            assert_eq!(Parameters::from_bytes(&wrong), None, "{at}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(lid: u16, qpn in 0..1u32 << 24, psn in 0..1u32 << 24, gid: u128) {
            let all = Parameters {
                lid,
                qpn: Qpn::new(qpn),
                psn: Psn::new(psn),
                gid: Gid(gid.to_be_bytes()),
            };
            prop_assert_eq!(Parameters::from_bytes(&all.to_bytes()), Some(all));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::array::uniform32(any::<u8>()), at in 0..20usize) {
            let mut all = *SEEN;
            all[at..at + 32].copy_from_slice(&bytes);
            if let Some(read) = Parameters::from_bytes(&all) {
                prop_assert_eq!(read.to_bytes().to_ascii_lowercase(), all.to_ascii_lowercase());
            }
        }
    }
}
