//! Checks of names from callers.

use crate::Error;

/// The longest interface name in bytes (IFNAMSIZ without its NUL, netdevice(7)).
pub const NAME_MAX: usize = 15;

/// The reason why an interface cannot have this name, if any. The kernel has the same rules
/// (net/core/dev.c, dev_valid_name and dev_alloc_name), but some of its calls silently cut a long name, and
/// replace `%d` by a number.
pub fn name_fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("it is empty")
    } else if name.len() > NAME_MAX {
        Some("it is longer than 15 bytes")
    } else if name == "." || name == ".." {
        Some("it names a directory")
    } else if name.contains('%') {
        Some("'%' would make the kernel choose a number; give the full name")
    } else if name.bytes().any(is_refused) {
        Some("'/', ':' and white space are not allowed")
    } else {
        None
    }
}

/// The bytes that `dev_valid_name` refuses, and the NUL that ends a name. The kernel reads a name as Latin-1
/// (lib/ctype.c), so 0xa0 is white space, also as a part of a UTF-8 character.
fn is_refused(byte: u8) -> bool {
    matches!(byte, b'/' | b':' | 0 | b'\t'..=b'\r' | b' ' | 0xa0)
}

pub(crate) fn check_name(what: &str, name: &str) -> Result<(), Error> {
    match name_fault(name) {
        None => Ok(()),
        Some(fault) => Err(Error::Invalid {
            what: what.to_owned(),
            reason: format!("{name:?} cannot be an interface name: {fault}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_kernel_would_refuse_or_change() {
        for name in ["ib0", "ib0.8001", "fifteen-bytes-x", "\u{e4}", "a\u{2003}"] {
            assert_eq!(name_fault(name), None, "{name:?}");
        }
        for name in [
            "",
            ".",
            "..",
            "ib%d",
            "a/b",
            "a b",
            "a:b",
            "a\tb",
            "a\u{b}",
            // 0xc3 0xa0.
            "\u{e0}",
            "a\0b",
            "sixteen-bytes-xx",
            // 15 characters, 16 bytes: the limit counts bytes.
            "fourteen-bytes\u{e4}",
        ] {
            assert!(name_fault(name).is_some(), "{name:?}");
        }
    }
}
