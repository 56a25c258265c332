//! What a client wants to know, checked.

use std::net::IpAddr;
use std::time::Duration;

use control::api::{ApiError, PING_INTERVAL_MS, PING_SIZE, PingRequest};
use fabric::Gid;
use ipoib::EchoTarget;

use super::Names;
use crate::datapath::LinkId;
use crate::port::PortId;

/// The shortest request in bytes: its header.
const SIZE_MIN: u32 = 40;

/// The longest request in bytes that peers answer when it was sent to everybody.
const SIZE_MAX_MANY: u32 = 128;

/// The shortest time between two requests of one client, in milliseconds: peers answer only so many
/// a second.
const INTERVAL_MIN_MS: u32 = 10;

/// The longest time to wait for an answer, in milliseconds; it bounds how many requests wait.
const TIMEOUT_MAX_MS: u32 = 60_000;

/// The interface that is asked through.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// It.
    pub device: LinkId,
    /// Its port.
    pub port: PortId,
    /// Its GID.
    pub gid: Gid,
    /// The largest UD payload in bytes.
    pub payload_max: u32,
    /// Its neighbours and their IP addresses.
    pub names: &'a Names,
}

/// Whom to ask, how often, with how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The interface.
    pub device: LinkId,
    /// Its port.
    pub port: PortId,
    /// Its name.
    pub interface: String,
    /// Who is asked.
    pub target: EchoTarget,
    /// Requests to send; none: no end.
    pub count: Option<u32>,
    /// Bytes of IB payload.
    pub size: usize,
    /// From one request to the next.
    pub interval: Duration,
    /// How long to wait for an answer.
    pub timeout: Duration,
}

impl Plan {
    /// Checks a request.
    ///
    /// # Errors
    /// [`ApiError::BadArgument`] with a sentence about what is wrong with it.
    pub fn new(request: &PingRequest, link: &Link<'_>) -> Result<Plan, ApiError> {
        let refused = |message| ApiError::BadArgument { message };
        let size = request.size.unwrap_or(PING_SIZE);
        let target = target(&request.target, link).map_err(refused)?;
        let asks_many = match target {
            EchoTarget::All => true,
            // It is looked for.
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
                    ", or more when it is known: ping one of its IP addresses first"
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
        if interval < INTERVAL_MIN_MS {
            return Err(refused(format!(
                "an interval of {interval} ms is too short; use {INTERVAL_MIN_MS} or more"
            )));
        }
        let timeout = request.timeout_ms.unwrap_or(PING_INTERVAL_MS);
        if !(1..=TIMEOUT_MAX_MS).contains(&timeout) {
            return Err(refused(format!(
                "a timeout of {timeout} ms is out of range; use 1 to {TIMEOUT_MAX_MS}"
            )));
        }
        if request.count == Some(0) {
            return Err(refused("a count of 0 asks nobody; use 1 or more".into()));
        }
        Ok(Plan {
            device: link.device,
            port: link.port,
            interface: request.interface.clone(),
            target,
            count: request.count,
            size: size as usize,
            interval: Duration::from_millis(interval.into()),
            timeout: Duration::from_millis(timeout.into()),
        })
    }

    /// Whether one request may be answered by several peers.
    pub fn asks_many(&self) -> bool {
        self.target == EchoTarget::All
    }

    /// Why the first request could not be sent.
    pub fn refusal(&self) -> String {
        let interface = &self.interface;
        match self.target {
            EchoTarget::Ip(ip) if ip.is_multicast() => {
                format!("{ip} is not the address of one peer; use \"all\" to ask everybody")
            }
            EchoTarget::Ip(ip) => format!(
                "{interface} knows no neighbour with the address {ip}; send it something first, \
                 as \"ping -c 1 {ip}\" does, or name its GID"
            ),
            EchoTarget::Gid(_) | EchoTarget::All => {
                format!("{interface} cannot send an echo request now; try again")
            }
        }
    }
}

/// An IPv6 address is a neighbour's where one is known to have it, and a GID otherwise: both look
/// alike, but a GID that nobody knows can be asked for.
fn target(text: &str, link: &Link<'_>) -> Result<EchoTarget, String> {
    if text == "all" {
        return Ok(EchoTarget::All);
    }
    let address: IpAddr = text.parse().map_err(|_| {
        format!("{text:?} is no peer; name it by an IP address or a GID, or use \"all\"")
    })?;
    let is_known = || link.names.values().flatten().any(|ip| *ip == address);
    if address.is_ipv4() || is_known() {
        return Ok(EchoTarget::Ip(address));
    }
    let gid = Gid::from(address);
    if gid.is_multicast() || gid == Gid::UNSPECIFIED {
        return Err(format!(
            "{text} is not the address of one peer; use \"all\" to ask everybody"
        ));
    }
    if gid == link.gid {
        return Err(format!(
            "{text} is this host's own GID; name a peer's, as \"ibtap neigh\" lists them"
        ));
    }
    Ok(EchoTarget::Gid(gid))
}
