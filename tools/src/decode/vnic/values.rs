//! The values of fields.

use std::fmt::Display;

use vnic::Mac;

use crate::decode::link;
use crate::decode::record::Value;

/// A number that is shown in hexadecimal.
pub fn number(n: impl Into<u64>) -> Value {
    Value::Number(n.into())
}

/// One that is shown in decimal.
pub fn count(n: impl Into<u64>) -> Value {
    Value::Count(n.into())
}

/// What has a form of its own.
pub fn text(t: impl Display) -> Value {
    Value::Text(t.to_string())
}

/// Several of those.
pub fn list(items: impl IntoIterator<Item = impl Display>) -> Value {
    Value::List(items.into_iter().map(|item| item.to_string()).collect())
}

/// An Ethernet address as it is shown.
pub fn mac(mac: &Mac) -> link::Mac {
    link::Mac(*mac)
}
