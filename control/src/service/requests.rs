//! A call read by serde: its method is the variant of a request, its parameters are what the variant has.
//! What is wrong is the name of a parameter, as varlink wants it said.

use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, EnumAccess, Error, MapAccess, VariantAccess, Visitor,
};
use serde::{Deserializer, forward_to_deserialize_any};
use serde_json::{Map, Value};

use super::Failure;

/// Reads a method's call as a variant of an enumeration of requests. `None`: it has no such variant.
pub(super) fn request<T: DeserializeOwned>(
    method: &str,
    parameters: Map<String, Value>,
) -> Option<Result<T, Failure>> {
    let call = Call {
        method: method.to_owned(),
        parameters,
    };
    match T::deserialize(call) {
        Ok(request) => Some(Ok(request)),
        Err(Fault::Method) => None,
        Err(Fault::Parameter(name)) => Some(Err(Failure::invalid(&name))),
    }
}

/// Reads parameters.
pub(super) fn parameters<T: DeserializeOwned>(
    parameters: Map<String, Value>,
) -> Result<T, Failure> {
    T::deserialize(Parameters::new(parameters)).map_err(|fault| match fault {
        Fault::Parameter(name) => Failure::invalid(&name),
        Fault::Method => Failure::invalid(""),
    })
}

/// What is wrong with a call.
#[derive(Debug)]
enum Fault {
    /// There is no such method.
    Method,
    /// This parameter is missing, unknown, or not what it should be.
    Parameter(String),
}

impl Error for Fault {
    fn custom<T: fmt::Display>(_: T) -> Fault {
        // Whatever is wrong inside a parameter has the parameter's name by then.
        Fault::Parameter(String::new())
    }

    fn unknown_variant(_: &str, _: &'static [&'static str]) -> Fault {
        Fault::Method
    }

    fn missing_field(name: &'static str) -> Fault {
        Fault::Parameter(name.to_owned())
    }

    fn unknown_field(name: &str, _: &'static [&'static str]) -> Fault {
        Fault::Parameter(name.to_owned())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Method => f.write_str("there is no such method"),
            Fault::Parameter(name) => write!(f, "the parameter {name:?} is wrong"),
        }
    }
}

impl std::error::Error for Fault {}

struct Call {
    method: String,
    parameters: Map<String, Value>,
}

impl<'de> Deserializer<'de> for Call {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_enum(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> EnumAccess<'de> for Call {
    type Error = Fault;
    type Variant = Parameters;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Parameters), Fault> {
        let method: StringDeserializer<Fault> = StringDeserializer::new(self.method);
        Ok((seed.deserialize(method)?, Parameters::new(self.parameters)))
    }
}

/// A call's parameters.
struct Parameters {
    rest: serde_json::map::IntoIter,
    current: Option<(String, Value)>,
}

impl Parameters {
    fn new(parameters: Map<String, Value>) -> Parameters {
        Parameters {
            rest: parameters.into_iter(),
            current: None,
        }
    }
}

impl<'de> VariantAccess<'de> for Parameters {
    type Error = Fault;

    fn unit_variant(mut self) -> Result<(), Fault> {
        match self.rest.next() {
            Some((name, _)) => Err(Fault::Parameter(name)),
            None => Ok(()),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_map(self)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_map(self)
    }
}

impl<'de> Deserializer<'de> for Parameters {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_map(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for Parameters {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        self.current = self.rest.next();
        let Some((name, _)) = &self.current else {
            return Ok(None);
        };
        let name: StringDeserializer<Fault> = StringDeserializer::new(name.clone());
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let (name, value) = self.current.take().unwrap_or_default();
        seed.deserialize(value).map_err(|_| Fault::Parameter(name))
    }
}
