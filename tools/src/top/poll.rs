//! The daemon's control socket: queries become requests.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use control::api::{Interface, Selection, VersionInfo, methods};
use control::{ClientError, ControlClient};

use super::sample::{Answer, List, Listed, Query, Sample};
use super::view::Shown;
use crate::ask::{TIMEOUT, both};

/// A connection to the daemon that is made again after the daemon was away.
pub struct Poller {
    socket: PathBuf,
    /// The only interface to ask about.
    only: Option<String>,
    start: Instant,
    daemon: Option<(ControlClient, VersionInfo)>,
}

impl Poller {
    /// Makes no connection yet. Times of samples are since `start`.
    pub fn new(socket: PathBuf, only: Option<String>, start: Instant) -> Poller {
        Poller {
            socket,
            only,
            start,
            daemon: None,
        }
    }

    /// Asks, and sorts the errors.
    pub fn answer(&mut self, query: &Query) -> Answer {
        match self.ask(query) {
            Ok(sample) => Answer::Sample(Box::new(sample)),
            Err(error) if is_away(&error) => Answer::Away(error.to_string()),
            Err(error) => Answer::Refused(error.to_string()),
        }
    }

    /// Asks. The next call connects again if the daemon does not answer.
    pub fn ask(&mut self, query: &Query) -> Result<Sample, ClientError> {
        let (mut client, daemon) = match self.daemon.take() {
            Some(known) => known,
            None => {
                let mut client = ControlClient::connect(&self.socket, TIMEOUT)?;
                let daemon = client.call(methods::VERSION, &control::api::Nothing {})?;
                (client, daemon)
            }
        };
        let sample = self.sample(&mut client, daemon.clone(), query);
        if !sample.as_ref().is_err_and(is_away) {
            self.daemon = Some((client, daemon));
        }
        sample
    }

    fn sample(
        &self,
        client: &mut ControlClient,
        daemon: VersionInfo,
        query: &Query,
    ) -> Result<Sample, ClientError> {
        let only = self.only.as_deref();
        let shown = match query.interfaces {
            true => {
                let (ipoib, vnics) = both(client, only, methods::SHOW, methods::VNICS)?;
                let ipoib = ipoib.iter().map(Shown::ipoib);
                Some(ipoib.chain(vnics.iter().map(Shown::vnic)).collect())
            }
            false => None,
        };
        let (ipoib, vnics) = both(client, only, methods::STATS, methods::VNIC_STATS)?;
        let at = self.start.elapsed();
        let listed = match &query.list {
            Some(list) => Some(listed(client, only, list)?),
            None => None,
        };
        Ok(Sample {
            at,
            daemon,
            ipoib,
            vnics,
            shown,
            listing: listed
                .as_ref()
                .map_or(Duration::ZERO, |_| self.start.elapsed() - at),
            listed,
        })
    }
}

/// Asks for a table. The interface may have gone meanwhile.
fn listed(
    client: &mut ControlClient,
    only: Option<&str>,
    list: &List,
) -> Result<Listed, ClientError> {
    let listed = match list {
        List::Neighbours(of) => client
            .call(methods::NEIGHBOURS, &Interface::of(of))
            .map(|list| Listed::Neighbours(of.clone(), list)),
        List::Macs(of) => client
            .call(methods::VNIC_MACS, &Interface::of(of))
            .map(|list| Listed::Macs(of.clone(), list)),
        List::Connections => client
            .call(methods::CONNECTIONS, &Selection::of(only))
            .map(Listed::Connections),
    };
    match listed {
        Err(error) if !is_away(&error) => Ok(Listed::Refused(error.to_string())),
        listed => listed,
    }
}

/// Whether the connection is of no more use.
fn is_away(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Unreachable { .. } | ClientError::Silent { .. } | ClientError::Ended { .. }
    )
}
