//! The exchange of parameters over TCP by rdma-core's ping-pongs.
//!
//! The client sends its parameters. The server gets ready and sends its parameters. The client gets ready and
//! sends `done`.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use control::output::print_line;
use fabric::{Gid, Psn, Qpn};

/// Bytes of parameters: `LID:QPN:PSN:GID` in hexadecimal, and a zero byte.
const LEN: usize = 52;

/// The client's last message.
const READY: &[u8; 5] = b"done\0";

/// Time between two attempts to reach a server.
pub const RETRY: Duration = Duration::from_millis(100);

/// Parameters of one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// The LID; 0 on Ethernet.
    pub lid: u16,
    /// The queue pair.
    pub qpn: Qpn,
    /// The first PSN that it sends.
    pub psn: Psn,
    /// The GID.
    pub gid: Gid,
}

impl Parameters {
    /// The bytes sent over TCP.
    pub fn to_bytes(self) -> [u8; LEN] {
        let (lid, qpn, psn) = (self.lid, self.qpn.get(), self.psn.get());
        let gid = u128::from_be_bytes(self.gid.0);
        let text = format!("{lid:04x}:{qpn:06x}:{psn:06x}:{gid:032x}");
        let mut bytes = [0; LEN];
        bytes[..LEN - 1].copy_from_slice(text.as_bytes());
        bytes
    }

    /// Parses parameters; `None` for other bytes.
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

/// The TCP connection to the other side.
pub struct Exchange {
    stream: TcpStream,
}

impl Exchange {
    /// Waits for a client without limit. `timeout` is the client's maximum silence.
    ///
    /// # Errors
    /// The port is in use.
    pub fn accept(port: u16, timeout: Duration) -> Result<Exchange> {
        // IPv6 may be disabled.
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
            .with_context(|| format!("cannot listen on TCP port {port}"))?;
        print_line(format_args!("waiting for a client on TCP port {port}"))?;
        let (stream, _) = listener.accept().context("cannot accept a client")?;
        Exchange::over(stream, timeout)
    }

    /// Connects to a server; tries again until `timeout`.
    ///
    /// # Errors
    /// The server cannot be reached.
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

    /// The client sends its parameters and receives the server's.
    ///
    /// # Errors
    /// The server sends no parameters.
    pub fn ask(&mut self, ours: Parameters) -> Result<Parameters> {
        self.send(&ours.to_bytes())?;
        self.parameters()
    }

    /// The client reports that it is ready.
    ///
    /// # Errors
    /// The server has ended.
    pub fn ready(&mut self) -> Result<()> {
        self.send(READY)
    }

    /// The server receives the client's parameters.
    ///
    /// # Errors
    /// The client sends no parameters.
    pub fn parameters(&mut self) -> Result<Parameters> {
        let mut bytes = [0; LEN];
        self.receive(&mut bytes)?;
        let text = || String::from_utf8_lossy(&bytes).into_owned();
        Parameters::from_bytes(&bytes)
            .ok_or_else(|| anyhow!("the peer sent {:?}, which are no parameters", text()))
    }

    /// The server, when it is ready, sends its parameters and waits until the client is ready.
    ///
    /// # Errors
    /// The client does not report that it is ready.
    pub fn answer(&mut self, ours: Parameters) -> Result<()> {
        self.send(&ours.to_bytes())?;
        let mut bytes = [0; READY.len()];
        self.receive(&mut bytes)?;
        ensure!(&bytes == READY, "the peer does not report that it is ready");
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let sent = self.stream.write_all(bytes);
        sent.context("the peer does not accept the parameters")
    }

    fn receive(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.stream.read_exact(bytes).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => anyhow!("the peer left before it sent its parameters"),
            _ => anyhow!("the peer does not send its parameters: {e}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Captured from `ibv_rc_pingpong` of rdma-core 44.
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
