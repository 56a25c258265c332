//! Reads one member of a JSON object as its type, in the order of the text. (A map would lose the order of
//! counters.)

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};

/// Reads the member of this name, and ignores other members.
pub(super) struct Member<S> {
    name: &'static str,
    seed: S,
}

impl<T> Member<PhantomData<T>> {
    /// Reads the member as a `T`.
    pub(super) fn named(name: &'static str) -> Member<PhantomData<T>> {
        Member::of(name, PhantomData)
    }
}

impl<S> Member<S> {
    /// Reads the member with `seed`.
    pub(super) fn of(name: &'static str, seed: S) -> Member<S> {
        Member { name, seed }
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Member<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Member<S> {
    type Value = S::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with {:?}", self.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<S::Value, A::Error> {
        let Member { name, seed } = self;
        let mut seed = Some(seed);
        let mut found = None;
        while let Some(key) = object.next_key::<String>()? {
            match seed.take_if(|_| key == name) {
                Some(seed) => found = Some(object.next_value_seed(seed)?),
                None => drop(object.next_value::<IgnoredAny>()?),
            }
        }
        found.ok_or_else(|| A::Error::missing_field(name))
    }
}
