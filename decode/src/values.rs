//! Values of fields.

use std::fmt::Display;

use vnic::Mac;

use super::link;
use super::record::Value;

/// A number, shown in hexadecimal.
pub fn number(n: impl Into<u64>) -> Value {
    Value::Number(n.into())
}

/// A number, shown in decimal.
pub fn count(n: impl Into<u64>) -> Value {
    Value::Count(n.into())
}

/// A value with its own text.
pub fn text(t: impl Display) -> Value {
    Value::Text(t.to_string())
}

/// A list of values with their own texts.
pub fn list(items: impl IntoIterator<Item = impl Display>) -> Value {
    Value::List(items.into_iter().map(|item| item.to_string()).collect())
}

/// A MAC as it is shown.
pub fn mac(mac: &Mac) -> link::Mac {
    link::Mac(*mac)
}
