//! Parsing of numbers as in the kernel's files (`lib/vsprintf.c`, `lib/kstrtox.c`). The digits select the
//! base: `0x` hexadecimal, `0` octal, otherwise decimal.

/// `sscanf("%i")`: skips leading blanks, ignores the rest. The kernel truncates numbers to 32 bits and reads
/// 0x100008001 as 0x8001. This function returns the number, or the nearest i64: out of range for the caller.
pub fn scanned(text: &[u8]) -> Option<i64> {
    let blanks = text.iter().take_while(|byte| is_space(**byte)).count();
    let text = &text[blanks..];
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (magnitude, rest) = leading(digits);
    if rest.len() == digits.len() {
        return None;
    }
    let magnitude = i64::try_from(magnitude.unwrap_or(u64::MAX)).unwrap_or(i64::MAX);
    Some(if negative { -magnitude } else { magnitude })
}

/// `simple_strtoul`: 0 without a number.
pub fn lenient(text: &[u8]) -> u64 {
    leading(text).0.unwrap_or(u64::MAX)
}

/// `kstrtoul`: a number only, with an optional plus sign before and one line feed after it.
pub fn strict(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    let (value, rest) = leading(digits);
    let whole = rest.len() < digits.len() && matches!(rest, [] | [b'\n']);
    value.filter(|_| whole)
}

/// The bytes up to the first NUL.
pub fn as_string(data: &[u8]) -> &[u8] {
    let end = data.iter().position(|byte| *byte == 0);
    &data[..end.unwrap_or(data.len())]
}

/// The number at the beginning, `None` if it exceeds 64 bits, and the rest. Without digits the number is 0
/// and the rest is the whole text.
fn leading(text: &[u8]) -> (Option<u64>, &[u8]) {
    let (radix, digits) = match text {
        [b'0', b'x' | b'X', digit, ..] if digit.is_ascii_hexdigit() => (16, &text[2..]),
        [b'0', ..] => (8, text),
        _ => (10, text),
    };
    let mut value = Some(0u64);
    for (i, byte) in digits.iter().enumerate() {
        let Some(digit) = char::from(*byte).to_digit(radix) else {
            return (value, &digits[i..]);
        };
        value = value
            .and_then(|value| value.checked_mul(radix.into()))
            .and_then(|value| value.checked_add(digit.into()));
    }
    (value, &[])
}

/// `isspace` of the kernel's `lib/ctype.c`, in ASCII.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn scanned_takes_the_three_bases_and_ignores_what_follows() {
        for (text, value) in [
            ("0x8001\n", Some(0x8001)),
            ("0X8001", Some(0x8001)),
            ("32769\n", Some(0x8001)),
            ("0100001", Some(0x8001)),
            (" \t\n\u{b}1", Some(1)),
            ("1 2", Some(1)),
            ("0x8001garbage", Some(0x8001)),
            ("08", Some(0)),
            ("0xg", Some(0)),
            ("0x", Some(0)),
            ("-1", Some(-1)),
            ("-0x10", Some(-16)),
            ("0x100008001", Some(0x1_0000_8001)),
            ("99999999999999999999", Some(i64::MAX)),
            ("-99999999999999999999", Some(-i64::MAX)),
            ("", None),
            ("\n", None),
            ("+1", None),
            ("x8001", None),
            ("--1", None),
            ("- 1", None),
        ] {
            assert_eq!(scanned(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn strict_takes_a_number_and_nothing_else() {
        for (text, value) in [
            ("2044\n", Some(2044)),
            ("+0x7fc", Some(2044)),
            ("03774", Some(2044)),
            ("0", Some(0)),
            ("2044\n\n", None),
            (" 2044", None),
            ("2044 ", None),
            ("-1", None),
            ("", None),
            ("+", None),
            ("\n", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(strict(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn lenient_takes_anything() {
        for (text, value) in [
            ("1\n", 1),
            ("0x10", 16),
            ("no", 0),
            (" 1", 0),
            ("-1", 0),
            ("", 0),
        ] {
            assert_eq!(lenient(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn a_nul_ends_the_string() {
        assert_eq!(as_string(b"1\x002"), b"1");
        assert_eq!(as_string(b"1"), b"1");
    }

    proptest! {
        #[test]
        fn what_is_written_in_any_base_is_read_again(value: u32, tail in "[ \ng-z].*") {
            for text in [format!("{value}"), format!("{value:#x}"), format!("0{value:o}")] {
                prop_assert_eq!(scanned(text.as_bytes()), Some(value.into()));
                prop_assert_eq!(scanned(format!(" -{text}{tail}").as_bytes()), Some(-i64::from(value)));
                prop_assert_eq!(lenient(text.as_bytes()), u64::from(value));
                prop_assert_eq!(strict(format!("{text}\n").as_bytes()), Some(value.into()));
            }
        }

        #[test]
        fn no_bytes_make_them_panic(bytes: Vec<u8>) {
            scanned(&bytes);
            lenient(&bytes);
            strict(&bytes);
        }
    }
}
