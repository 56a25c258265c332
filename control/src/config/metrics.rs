//! The address on which the daemon serves its metrics.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// The address of the metrics' listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsAddress {
    /// A TCP port of an address.
    Tcp(SocketAddr),
    /// The path of a unix socket.
    Unix(PathBuf),
}

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<MetricsAddress, String> {
        if text.starts_with('/') {
            return Ok(MetricsAddress::Unix(text.into()));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() != 0 => Ok(MetricsAddress::Tcp(address)),
            _ => Err(format!(
                "{text:?} is not an address for metrics; use ADDRESS:PORT such as \"127.0.0.1:9345\" or \
                 \"[::1]:9345\", or the absolute path of a unix socket"
            )),
        }
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetricsAddress::Tcp(address) => address.fmt(f),
            MetricsAddress::Unix(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_ports_and_absolute_paths() {
        for text in ["127.0.0.1:9345", "[::1]:9345", "0.0.0.0:1", "/run/m.sock"] {
            assert_eq!(text.parse::<MetricsAddress>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "9345",
            "localhost:9345",
            "127.0.0.1:0",
            "::1:9345",
            "m.sock",
        ] {
            let error = text.parse::<MetricsAddress>().unwrap_err();
            assert!(error.contains("use ADDRESS:PORT"), "{text}: {error}");
        }
    }
}
