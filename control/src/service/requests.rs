//! Reads calls with serde: the method selects a variant of a request, the parameters are the variant's content.
//! An error has the name of the wrong parameter, as varlink requires.

use std::fmt;

use serde::de::value::{EnumAccessDeserializer, MapAccessDeserializer, StringDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, EnumAccess, Error, MapAccess, VariantAccess, Visitor,
};
use serde_json::{Map, Value};

use super::Failure;

/// Reads a call as a variant of an enumeration of requests. `None`: the method has no variant.
pub(super) fn request<T: DeserializeOwned>(
    method: &str,
    parameters: Map<String, Value>,
) -> Option<Result<T, Failure>> {
    let call = Call {
        method: method.to_owned(),
        parameters,
    };
    match T::deserialize(EnumAccessDeserializer::new(call)) {
        Ok(request) => Some(Ok(request)),
        Err(Fault::Method) => None,
        Err(Fault::Parameter(name)) => Some(Err(Failure::invalid(&name))),
    }
}

/// Reads the parameters of a call.
///
/// # Errors
/// A failure with the name of the wrong parameter.
pub fn parameters<T: DeserializeOwned>(parameters: Map<String, Value>) -> Result<T, Failure> {
    let parameters = MapAccessDeserializer::new(Parameters::new(parameters));
    T::deserialize(parameters).map_err(|fault| match fault {
        Fault::Parameter(name) => Failure::invalid(&name),
        Fault::Method => Failure::invalid(""),
    })
}

/// The fault of a call.
#[derive(Debug)]
enum Fault {
    /// The method does not exist.
    Method,
    /// This parameter is missing, unknown or wrong.
    Parameter(String),
}

impl Error for Fault {
    fn custom<T: fmt::Display>(_: T) -> Fault {
        // `next_value_seed` adds the name of the parameter.
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
            Fault::Method => f.write_str("the method does not exist"),
            Fault::Parameter(name) => write!(f, "the parameter {name:?} is wrong"),
        }
    }
}

impl std::error::Error for Fault {}

struct Call {
    method: String,
    parameters: Map<String, Value>,
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
        seed.deserialize(MapAccessDeserializer::new(self))
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
