//! The plan of a ping: a checked request.

use std::net::IpAddr;
use std::time::Duration;

use control::api::{
    ApiError, PING_INTERVAL_MIN_MS, PING_INTERVAL_MS, PING_SIZE, PING_TIMEOUT_MAX_MS, PingRequest,
};
use fabric::Gid;
use ipoib::EchoTarget;

use super::Names;
use crate::datapath::LinkId;
use crate::port::PortId;

/// The shortest request in bytes: its header.
const SIZE_MIN: u32 = 40;

/// The longest request to all peers, in bytes; peers do not answer longer ones.
const SIZE_MAX_MANY: u32 = 128;

/// The interface that sends the requests.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// The link.
    pub link: LinkId,
    /// The port.
    pub port: PortId,
    /// The port's GID.
    pub gid: Gid,
    /// The largest UD payload in bytes.
    pub payload_max: u32,
    /// Neighbours and their IP addresses.
    pub names: &'a Names,
}

/// The target, number, size and times of a ping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The link.
    pub link: LinkId,
    /// The port.
    pub port: PortId,
    /// Interface name.
    pub interface: String,
    /// The peer or peers.
    pub target: EchoTarget,
    /// Number of requests; `None`: no end.
    pub count: Option<u32>,
    /// Bytes of IB payload in a request.
    pub size: usize,
    /// Time between requests.
    pub interval: Duration,
    /// How long to wait for an answer.
    pub timeout: Duration,
}

impl Plan {
    /// Checks a request.
    ///
    /// # Errors
    /// [`ApiError::BadArgument`] with a sentence that describes the error.
    pub fn new(request: &PingRequest, link: &Link<'_>) -> Result<Plan, ApiError> {
        let refused = |message| ApiError::BadArgument { message };
        let size = request.size.unwrap_or(PING_SIZE);
        let target = target(&request.target, link).map_err(refused)?;
        let asks_many = match target {
            EchoTarget::All => true,
            // The core sends requests to unknown GIDs to all peers.
            EchoTarget::Gid(gid) => !link.names.keys().any(|(known, _)| *known == gid),
            EchoTarget::Ip(_) => false,
        };
        let most = if asks_many {
            link.payload_max.min(SIZE_MAX_MANY)
        } else {
            link.payload_max
        };
        if !(SIZE_MIN..=most).contains(&size) {
            let more = match target {
                EchoTarget::Gid(_) if asks_many => {
                    "; larger sizes need a known peer: ping one of its IP addresses first"
                }
                _ => "",
            };
            return Err(refused(format!(
                "{size} bytes are out of range for an echo request to {} on {}; \
                 use {SIZE_MIN} to {most}{more}",
                request.target, request.interface
            )));
        }
        let interval = request.interval_ms.unwrap_or(PING_INTERVAL_MS);
        if interval < PING_INTERVAL_MIN_MS {
            return Err(refused(format!(
                "an interval of {interval} ms is too short; use {PING_INTERVAL_MIN_MS} or more"
            )));
        }
        let timeout = request.timeout_ms.unwrap_or(PING_INTERVAL_MS);
        if !(1..=PING_TIMEOUT_MAX_MS).contains(&timeout) {
            return Err(refused(format!(
                "a timeout of {timeout} ms is out of range; use 1 to {PING_TIMEOUT_MAX_MS}"
            )));
        }
        if request.count == Some(0) {
            return Err(refused("a count of 0 sends nothing; use 1 or more".into()));
        }
        Ok(Plan {
            link: link.link,
            port: link.port,
            interface: request.interface.clone(),
            target,
            count: request.count,
            size: size as usize,
            interval: Duration::from_millis(interval.into()),
            timeout: Duration::from_millis(timeout.into()),
        })
    }

    /// Whether several peers may answer one request.
    pub fn asks_many(&self) -> bool {
        self.target == EchoTarget::All
    }

    /// The error message if the first request could not be sent.
    pub fn refusal(&self) -> String {
        let interface = &self.interface;
        match self.target {
            EchoTarget::Ip(ip) if ip.is_multicast() => {
                format!("{ip} is not the address of a single peer; use \"all\" for all peers")
            }
            EchoTarget::Ip(ip) => format!(
                "{interface} has no neighbour with the address {ip}; run \"ping -c 1 {ip}\" first, \
                 or use the GID of the peer"
            ),
            EchoTarget::Gid(_) | EchoTarget::All => {
                format!("{interface} cannot send an echo request now; try again")
            }
        }
    }
}

/// Parses a target. IPv6 addresses and GIDs have the same format: an IPv6 address of a known neighbour is an
/// IP address, any other one a GID, because echo requests can find an unknown GID.
fn target(text: &str, link: &Link<'_>) -> Result<EchoTarget, String> {
    if text == "all" {
        return Ok(EchoTarget::All);
    }
    let address: IpAddr = text
        .parse()
        .map_err(|_| format!("{text:?} is not a peer; use an IP address, a GID, or \"all\""))?;
    let is_known = || link.names.values().flatten().any(|ip| *ip == address);
    if address.is_ipv4() || is_known() {
        return Ok(EchoTarget::Ip(address));
    }
    let gid = Gid::from(address);
    if gid.is_multicast() || gid == Gid::UNSPECIFIED {
        return Err(format!(
            "{text} is not the address of a single peer; use \"all\" for all peers"
        ));
    }
    if gid == link.gid {
        return Err(format!(
            "{text} is this host's own GID; use the GID of a peer (see \"ibtap neigh\")"
        ));
    }
    Ok(EchoTarget::Gid(gid))
}
