//! Why a port is not usable.

/// Why a port, or an entry of its GID table, is not usable. The text gives the missing condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unusable {
    /// The port may become usable.
    Waiting(String),
    /// The configuration asks for something that the port cannot do.
    Wrong(String),
}

impl Unusable {
    /// The reason as text.
    pub fn reason(&self) -> &str {
        match self {
            Unusable::Waiting(text) | Unusable::Wrong(text) => text,
        }
    }
}
