//! A parser for varlink's interface definition language, to check replies against a description.

use std::collections::BTreeMap;

use serde_json::Value;

/// A type expression.
#[derive(Clone, Debug)]
pub enum Type {
    Bool,
    Int,
    Text,
    Named(String),
    Optional(Box<Type>),
    List(Box<Type>),
    Map(Box<Type>),
    Struct(Vec<(String, Type)>),
    Enum(Vec<String>),
}

/// A parsed description.
pub struct Idl {
    pub name: String,
    types: BTreeMap<String, Type>,
    methods: BTreeMap<String, (Type, Type)>,
    errors: BTreeMap<String, Type>,
}

struct Tokens(std::vec::IntoIter<String>);

impl Tokens {
    fn of(text: &str) -> Tokens {
        let mut tokens: Vec<String> = Vec::new();
        for line in text.lines() {
            let code = line.split('#').next().unwrap();
            let mut word = String::new();
            for c in code.chars().chain([' ']) {
                if c.is_alphanumeric() || "._-".contains(c) {
                    word.push(c);
                    continue;
                }
                if !word.is_empty() {
                    tokens.push(std::mem::take(&mut word));
                }
                if !c.is_whitespace() {
                    tokens.push(c.into());
                }
            }
        }
        Tokens(tokens.into_iter())
    }

    fn next(&mut self) -> String {
        self.0.next().expect("the description ends too early")
    }

    fn peek(&self) -> &str {
        self.0.as_slice().first().map_or("", |token| token)
    }

    fn expect(&mut self, token: &str) {
        assert_eq!(self.next(), token);
    }

    fn skip(&mut self, token: &str) -> bool {
        let found = self.peek() == token;
        if found {
            self.next();
        }
        found
    }

    fn type_expression(&mut self) -> Type {
        match self.next().as_str() {
            "?" => Type::Optional(Box::new(self.type_expression())),
            "[" if self.skip("]") => Type::List(Box::new(self.type_expression())),
            "[" => {
                self.expect("string");
                self.expect("]");
                Type::Map(Box::new(self.type_expression()))
            }
            "(" => self.members(),
            "bool" => Type::Bool,
            "int" => Type::Int,
            "string" => Type::Text,
            name => Type::Named(name.to_owned()),
        }
    }

    /// The text after an opening parenthesis: members of a struct, or words of an enumeration.
    fn members(&mut self) -> Type {
        let (mut members, mut words) = (Vec::new(), Vec::new());
        while !self.skip(")") {
            let name = self.next();
            if self.skip(":") {
                members.push((name, self.type_expression()));
            } else {
                words.push(name);
            }
            self.skip(",");
        }
        assert!(members.is_empty() || words.is_empty());
        if words.is_empty() {
            Type::Struct(members)
        } else {
            Type::Enum(words)
        }
    }
}

impl Idl {
    pub fn parse(text: &str) -> Idl {
        let mut tokens = Tokens::of(text);
        tokens.expect("interface");
        let mut idl = Idl {
            name: tokens.next(),
            types: BTreeMap::new(),
            methods: BTreeMap::new(),
            errors: BTreeMap::new(),
        };
        while !tokens.peek().is_empty() {
            let (kind, name) = (tokens.next(), tokens.next());
            let first = tokens.type_expression();
            match kind.as_str() {
                "type" => drop(idl.types.insert(name, first)),
                "error" => drop(idl.errors.insert(name, first)),
                "method" => {
                    tokens.expect("-");
                    tokens.expect(">");
                    let second = tokens.type_expression();
                    idl.methods.insert(name, (first, second));
                }
                other => panic!("{other} is no definition"),
            }
        }
        idl
    }

    pub fn methods(&self) -> impl Iterator<Item = &str> {
        self.methods.keys().map(String::as_str)
    }

    pub fn method(&self, name: &str) -> (&Type, &Type) {
        let (takes, gives) = &self.methods[name];
        (takes, gives)
    }

    pub fn has_error(&self, name: &str) -> bool {
        self.errors.contains_key(name)
    }

    /// Whether the value has the type, without missing or additional keys.
    pub fn check(&self, kind: &Type, value: &Value) -> Result<(), String> {
        let wrong = || Err(format!("{value} is not {kind:?}"));
        match (kind, value) {
            (Type::Bool, Value::Bool(_)) | (Type::Text, Value::String(_)) => Ok(()),
            (Type::Int, Value::Number(n)) if n.is_i64() => Ok(()),
            (Type::Named(name), _) => self.check(&self.types[name], value),
            (Type::Optional(inner), _) => self.check(inner, value),
            (Type::List(inner), Value::Array(items)) => {
                items.iter().try_for_each(|item| self.check(inner, item))
            }
            (Type::Map(inner), Value::Object(map)) => {
                map.values().try_for_each(|item| self.check(inner, item))
            }
            (Type::Enum(words), Value::String(word)) if words.contains(word) => Ok(()),
            (Type::Struct(members), Value::Object(map)) => {
                if let Some(extra) = map.keys().find(|k| !members.iter().any(|(m, _)| m == *k)) {
                    return Err(format!("{extra} is not described"));
                }
                members
                    .iter()
                    .try_for_each(|(name, kind)| match map.get(name) {
                        Some(value) => self.check(kind, value),
                        None if matches!(kind, Type::Optional(_)) => Ok(()),
                        None => Err(format!("{name} is missing")),
                    })
            }
            _ => wrong(),
        }
    }
}
