//! Routing control and service classes of a switch.

use toml::Spanned;
use vnic::attribute::ServiceClasses;

use super::super::values::{Written, number};
use super::{Fault, Rc, Sc, narrow, optional};

pub(super) fn routing(raw: &Rc) -> Result<u32, Fault> {
    let classes = [
        ("default", &raw.default),
        ("ipv4", &raw.ipv4),
        ("ipv4_udp", &raw.ipv4_udp),
        ("ipv4_tcp", &raw.ipv4_tcp),
        ("ipv6", &raw.ipv6),
        ("ipv6_tcp", &raw.ipv6_tcp),
        ("ipv6_udp", &raw.ipv6_udp),
    ];
    let mut word = 0;
    for (place, (key, written)) in classes.into_iter().enumerate() {
        let rc: u32 = optional(key, written, 0..=7, 0)?;
        word |= rc << (4 * place);
    }
    Ok(word)
}

/// Service classes of a switch. Virtual lanes are local to an adapter; they are 0 here.
pub(super) fn classes(raw: &Sc) -> Result<ServiceClasses, Fault> {
    let untagged: [u8; 2] = service_classes("untagged", raw.untagged.as_ref())?;
    Ok(ServiceClasses {
        pcp_unicast: service_classes("pcp_unicast", raw.pcp_unicast.as_ref())?,
        pcp_multicast: service_classes("pcp_multicast", raw.pcp_multicast.as_ref())?,
        unicast: untagged[0],
        multicast: untagged[1],
        ..ServiceClasses::default()
    })
}

fn service_classes<const N: usize>(
    key: &str,
    raw: Option<&Spanned<Vec<Written>>>,
) -> Result<[u8; N], Fault> {
    let mut classes = [0; N];
    let Some(raw) = raw else {
        return Ok(classes);
    };
    let values = raw.get_ref();
    if values.len() != N {
        let what = format!("{key} has {} service classes; it needs {N}", values.len());
        return Err(Fault::at(raw, what));
    }
    for (class, written) in classes.iter_mut().zip(values) {
        *class = narrow(number(key, written, 0..=31)?);
        // Service class 15 is reserved for management.
        if *class == 15 {
            let what = format!("{key} = 15 is the service class of management; use another");
            return Err(Fault::at(written, what));
        }
    }
    Ok(classes)
}
