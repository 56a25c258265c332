//! The `children` of an interface: P_Keys, or tables with a P_Key and other settings.

use std::fmt;

use proto::{Mode, PKey};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use toml::Spanned;

use super::Fault;
use super::scalar::{Mtu, Name, Netns, Queues, Scalar, Value, from_signed};
use crate::config::IpoibConfig;

/// A child as in the file.
pub(super) struct Child(Written);

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    pkey: Value<PKey>,
    name: Option<Spanned<Value<Name>>>,
    mode: Option<Mode>,
    netns: Option<Value<Netns>>,
    mtu: Option<Value<Mtu>>,
    queues: Option<Spanned<Value<Queues>>>,
    up: Option<bool>,
    /// Present only to be refused, with a better sentence than "unknown key".
    children: Option<Spanned<IgnoredAny>>,
}

impl<'de> Deserialize<'de> for Child {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Child, D::Error> {
        struct Read;

        impl<'de> Visitor<'de> for Read {
            type Value = Child;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a P_Key such as 0x8001, or a table with a pkey")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Child, E> {
                PKey::from_text(text).map(Child::of).map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Child, E> {
                PKey::from_number(number).map(Child::of).map_err(E::custom)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Child, E> {
                from_signed(number).map(Child::of)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Child, A::Error> {
                Written::deserialize(MapAccessDeserializer::new(map)).map(Child)
            }
        }

        deserializer.deserialize_any(Read)
    }
}

impl Child {
    /// A child with only a P_Key.
    fn of(pkey: PKey) -> Child {
        Child(Written {
            pkey: Value(pkey),
            name: None,
            mode: None,
            netns: None,
            mtu: None,
            queues: None,
            up: None,
            children: None,
        })
    }

    fn read(&self, parent: &IpoibConfig) -> IpoibConfig {
        let written = &self.0;
        let mut child = parent.child(written.pkey.0);
        if let Some(name) = &written.name {
            child.name.clone_from(&name.get_ref().0.0);
        }
        child.mode = written.mode.unwrap_or(child.mode);
        if let Some(netns) = &written.netns {
            child.set_netns(Some(netns.0.0.clone()));
        }
        child.mtu = written.mtu.as_ref().map(|mtu| mtu.0.0);
        if let Some(queues) = &written.queues {
            child.queues = Some(queues.get_ref().0.0);
        }
        child.up = written.up.unwrap_or(child.up);
        child
    }
}

/// Checks the children of `parent` and appends them to `all`.
pub(super) fn check(
    raw: &[Spanned<Child>],
    parent: &IpoibConfig,
    all: &mut Vec<IpoibConfig>,
) -> Result<(), Fault> {
    for place in raw {
        let written = &place.get_ref().0;
        if let Some(children) = &written.children {
            let what = "a child cannot have children; list them next to the child";
            return Err(Fault::at(children, what));
        }
        let child = place.get_ref().read(parent);
        child
            .check_child(parent, all)
            .map_err(|what| Fault::at(place, what))?;
        child.check(all).map_err(|fault| {
            let name = written.name.as_ref().map(Spanned::span);
            let queues = written.queues.as_ref().map(Spanned::span);
            let own = if fault.key == "queues" { queues } else { name };
            Fault {
                what: fault.what,
                at: Some(own.unwrap_or(place.span()).start),
            }
        })?;
        all.push(child);
    }
    Ok(())
}
