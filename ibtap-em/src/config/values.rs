//! Single values of the file. Errors name the key, the value and the allowed values.

use std::ops::RangeInclusive;

use control::api::LinkAddress;
use control::config::fault::Fault;
use proto::Mac;
use toml::{Spanned, Value};

/// A value and its place in the text.
pub(super) type Written = Spanned<Value>;

/// A number, also as a string, for hexadecimal digits.
pub(super) fn number(
    key: &str,
    written: &Written,
    allowed: RangeInclusive<i64>,
) -> Result<i64, Fault> {
    let number = read_number(written.get_ref());
    number
        .filter(|number| allowed.contains(number))
        .ok_or_else(|| {
            let (low, high) = (show(*allowed.start()), show(*allowed.end()));
            let what = format!(
                "{key} = {} is not a number from {low} to {high}",
                written.get_ref()
            );
            Fault::at(written, what)
        })
}

fn read_number(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        Value::String(text) => match text.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        },
        _ => None,
    }
}

/// Large limits such as 0xf00000 are shown in hexadecimal.
fn show(limit: i64) -> String {
    if limit > 0xffff {
        format!("{limit:#x}")
    } else {
        limit.to_string()
    }
}

/// A non-empty string.
pub(super) fn text(key: &str, written: &Written) -> Result<String, Fault> {
    match written.get_ref() {
        Value::String(text) if !text.is_empty() => Ok(text.clone()),
        other => Err(Fault::at(
            written,
            format!("{key} = {other} is not a non-empty string in quotation marks"),
        )),
    }
}

/// A unicast Ethernet address.
pub(super) fn unicast_mac(key: &str, written: &Written) -> Result<Mac, Fault> {
    let text = text(key, written)?;
    unicast(key, &text).map_err(|what| Fault::at(written, what))
}

/// A multicast Ethernet address, not broadcast.
pub(super) fn group_mac(key: &str, written: &Written) -> Result<Mac, Fault> {
    let text = text(key, written)?;
    let what = match parse_mac(&text) {
        Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => {
            format!("{key} = {text:?} is the broadcast address, which always goes to u_mcast_dlid")
        }
        Some(mac) if mac[0] & 1 != 0 => return Ok(mac),
        Some(_) => format!("{key} = {text:?} is not a multicast address, whose first byte is odd"),
        None => {
            format!("{key} = {text:?} is not an Ethernet address such as \"01:00:5e:00:00:fb\"")
        }
    };
    Err(Fault::at(written, what))
}

/// One address, or the two ends of a range with a hyphen between them.
pub(super) fn mac_range(key: &str, written: &Written) -> Result<(Mac, Mac), Fault> {
    let text = text(key, written)?;
    let (low, high) = text.split_once('-').unwrap_or((&text, &text));
    let range = (|| {
        let (low, high) = (unicast(key, low.trim())?, unicast(key, high.trim())?);
        if low > high {
            return Err(format!(
                "{key} = {text:?} ends before it begins; write the lower address first"
            ));
        }
        // With different first bytes, the range would include multicast addresses.
        if low[0] != high[0] {
            return Err(format!(
                "{key} = {text:?} is too large; the first byte of both addresses must be the same"
            ));
        }
        Ok((low, high))
    })();
    range.map_err(|what| Fault::at(written, what))
}

fn unicast(key: &str, text: &str) -> Result<Mac, String> {
    match parse_mac(text) {
        Some(mac) if mac[0] & 1 == 0 && mac != [0; 6] => Ok(mac),
        Some(_) => Err(format!(
            "{key} = {text:?} is a multicast address or zero; use a unicast address"
        )),
        None => Err(format!(
            "{key} = {text:?} is not an Ethernet address such as \"02:00:00:00:00:01\""
        )),
    }
}

/// Parses an Ethernet address: six pairs of hexadecimal digits with colons between them.
#[must_use]
pub fn parse_mac(text: &str) -> Option<Mac> {
    text.parse().ok().map(|LinkAddress(mac)| mac)
}
