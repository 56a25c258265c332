//! Requests about VNICs, and about interfaces of both kinds.

use control::api::methods::{self, Method};
use control::api::{Interface, InterfaceInfo, InterfaceStats, Selection, VnicInfo, VnicStats};
use control::{ClientError, ControlClient};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cli::{VnicArgs, VnicVerb};
use crate::output::{Failure, Format, print};
use crate::text;

/// `ibtap vnic`.
pub fn vnic(format: Format, mut client: ControlClient, args: &VnicArgs) -> Result<(), Failure> {
    let verb = args.verb.as_ref();
    match verb.unwrap_or(&VnicVerb::List { interface: None }) {
        VnicVerb::List { interface } => print(
            format,
            &client.call(methods::VNICS, &Selection::of(interface.as_deref()))?,
            text::vnics,
        ),
        VnicVerb::Mac { interface } => print(
            format,
            &client.call(methods::VNIC_MACS, &Interface::of(interface))?,
            text::vnic_macs,
        ),
        VnicVerb::Members { interface } => print(
            format,
            &client.call(methods::VNIC_MEMBERS, &Interface::of(interface))?,
            text::vnic_members,
        ),
    }
}

/// An interface of either kind; JSON objects of VNICs have a key `kind`.
#[derive(Serialize)]
#[serde(untagged)]
enum Shown {
    Ipoib(Box<InterfaceInfo>),
    Vnic(Box<VnicInfo>),
}

/// `ibtap show`.
pub fn show(
    format: Format,
    mut client: ControlClient,
    interface: Option<&str>,
) -> Result<(), Failure> {
    let (ipoib, vnics) = both(&mut client, interface, methods::SHOW, methods::VNICS)?;
    let ipoib = ipoib.into_iter().map(Box::new).map(Shown::Ipoib);
    let vnics = vnics.into_iter().map(Box::new).map(Shown::Vnic);
    let all: Vec<Shown> = ipoib.chain(vnics).collect();
    print(format, &all, |all| {
        let block = |shown: &Shown| match shown {
            Shown::Ipoib(interface) => text::show(interface),
            Shown::Vnic(vnic) => text::show_vnic(vnic),
        };
        all.iter().map(block).collect()
    })
}

/// Counters of an interface of either kind; JSON objects of VNICs have a key `driver`.
#[derive(Serialize)]
#[serde(untagged)]
enum Counted {
    Ipoib(Box<InterfaceStats>),
    Vnic(Box<VnicStats>),
}

/// `ibtap stats`.
pub fn stats(
    format: Format,
    mut client: ControlClient,
    interface: Option<&str>,
    zeros: bool,
) -> Result<(), Failure> {
    let (ipoib, vnics) = both(&mut client, interface, methods::STATS, methods::VNIC_STATS)?;
    let ipoib = ipoib.into_iter().map(Box::new).map(Counted::Ipoib);
    let vnics = vnics.into_iter().map(Box::new).map(Counted::Vnic);
    let all: Vec<Counted> = ipoib.chain(vnics).collect();
    print(format, &all, |all| {
        let block = |counted: &Counted| match counted {
            Counted::Ipoib(stats) => text::stats(stats, zeros),
            Counted::Vnic(stats) => text::vnic_stats(stats, zeros),
        };
        all.iter().map(block).collect()
    })
}

/// Requests all interfaces of both kinds, or the named interface of either kind.
pub fn both<I: DeserializeOwned, V: DeserializeOwned>(
    client: &mut ControlClient,
    interface: Option<&str>,
    ipoib: Method<Selection, Vec<I>>,
    vnics: Method<Selection, Vec<V>>,
) -> Result<(Vec<I>, Vec<V>), ClientError> {
    let selection = Selection::of(interface);
    match client.call(vnics, &selection) {
        Ok(found) if interface.is_some() => Ok((Vec::new(), found)),
        Ok(found) => Ok((client.call(ipoib, &selection)?, found)),
        Err(ClientError::NoSuchInterface { .. }) => {
            Ok((client.call(ipoib, &selection)?, Vec::new()))
        }
        Err(error) => Err(error),
    }
}
