//! The text of an enumeration whose variants have names only.

/// Implements `Display` for enumerations of unit variants: the text is the name that `Serialize` writes. So a name
/// stands once, and is the same in the configuration, in JSON and in texts for people.
#[macro_export]
macro_rules! display_as_serialized {
    ($($name:ty),+) => {$(
        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::serde::Serialize::serialize(self, f)
            }
        }
    )+};
}
