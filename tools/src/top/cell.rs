//! Values of a table's cells: their text and their order.

use std::cmp::Ordering;

use control::output::printable;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Not known, or not known yet.
    Unknown,
    /// A text without control characters: see [`Cell::text`].
    Text(String),
    /// A number or a rate.
    Number(f64),
    /// A time in seconds.
    Time(f64),
}

impl Cell {
    /// A text from elsewhere.
    pub fn text(text: impl AsRef<str>) -> Cell {
        Cell::Text(printable(text.as_ref()))
    }

    /// A number, if there is one.
    pub fn number(value: Option<f64>) -> Cell {
        value.map_or(Cell::Unknown, Cell::Number)
    }

    /// A time in milliseconds.
    pub fn milliseconds(ms: u64) -> Cell {
        Cell::Time(ms as f64 / 1e3)
    }

    /// The text of the value; numbers and times have at most 5 characters below 1e18 and a million days.
    pub fn show(&self) -> String {
        match self {
            Cell::Unknown => "-".to_owned(),
            Cell::Text(text) => text.clone(),
            Cell::Number(value) => amount(*value),
            Cell::Time(seconds) => time(*seconds),
        }
    }

    /// The order of two values of a column: unknown values are first.
    pub fn order(&self, other: &Cell) -> Ordering {
        match (self, other) {
            (Cell::Text(a), Cell::Text(b)) => natural(a, b),
            (Cell::Number(a), Cell::Number(b)) | (Cell::Time(a), Cell::Time(b)) => a.total_cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Cell::Unknown => 0,
            Cell::Number(_) => 1,
            Cell::Time(_) => 2,
            Cell::Text(_) => 3,
        }
    }
}

/// A number with three digits and a decimal prefix.
pub fn amount(value: f64) -> String {
    let mut scaled = value;
    let mut prefixes = ["k", "M", "G", "T", "P"].into_iter();
    let mut prefix = "";
    // 999.5 and more would be rounded to four digits.
    while scaled >= 999.5
        && let Some(next) = prefixes.next()
    {
        scaled /= 1e3;
        prefix = next;
    }
    let digits = match scaled {
        _ if prefix.is_empty() && (scaled.fract() == 0.0 || scaled < 0.05) => 0,
        _ if prefix.is_empty() && scaled < 9.95 => 1,
        _ if prefix.is_empty() => 0,
        _ if scaled < 9.995 => 2,
        _ if scaled < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$}{prefix}")
}

/// A time in its largest useful unit.
pub fn time(seconds: f64) -> String {
    const MINUTE: f64 = 60.0;
    const HOUR: f64 = 60.0 * MINUTE;
    const DAY: f64 = 24.0 * HOUR;
    match seconds {
        s if s < 0.000_999_5 => format!("{:.0}us", s * 1e6),
        s if s < 0.009_95 => format!("{:.1}ms", s * 1e3),
        s if s < 0.999_5 => format!("{:.0}ms", s * 1e3),
        s if s < 99.95 => format!("{s:.1}s"),
        s if s < 100.0 * MINUTE => format!("{:.0}m", s / MINUTE),
        s if s < 100.0 * HOUR => format!("{:.0}h", s / HOUR),
        s => format!("{:.0}d", s / DAY),
    }
}

/// The order in which people count: ib2 is before ib10, and 10.9.0.2 before 10.9.0.10.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let (left, right) = (digits(a), digits(b));
        if !left.is_empty() && !right.is_empty() {
            let (m, n) = (left.trim_start_matches('0'), right.trim_start_matches('0'));
            let order = m.len().cmp(&n.len()).then_with(|| m.cmp(n));
            if order != Ordering::Equal {
                return order;
            }
            (a, b) = (&a[left.len()..], &b[right.len()..]);
            continue;
        }
        let (mut left, mut right) = (a.chars(), b.chars());
        match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (x, y) if x != y => return x.cmp(&y),
            _ => (a, b) = (left.as_str(), right.as_str()),
        }
    }
}

/// The digits at the beginning.
fn digits(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit());
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_three_digits_and_at_most_five_characters() {
        for (value, text) in [
            (0.0, "0"),
            (0.04, "0"),
            (0.5, "0.5"),
            (9.94, "9.9"),
            (9.96, "10"),
            (12.0, "12"),
            (999.0, "999"),
            (999.6, "1.00k"),
            (1234.0, "1.23k"),
            (9_996.0, "10.0k"),
            (123_456.0, "123k"),
            (9.87e9, "9.87G"),
            (1.8e19, "18000P"),
        ] {
            assert_eq!(amount(value), text);
        }
    }

    #[test]
    fn times_have_their_largest_useful_unit() {
        for (seconds, text) in [
            (0.0, "0us"),
            (0.000_023, "23us"),
            (0.001_23, "1.2ms"),
            (0.3, "300ms"),
            (1.04, "1.0s"),
            (99.0, "99.0s"),
            (100.0, "2m"),
            (7200.0, "2h"),
            (1e6, "12d"),
        ] {
            assert_eq!(time(seconds), text);
        }
    }

    #[test]
    fn texts_are_in_natural_order_and_unknown_values_first() {
        let mut names = ["ib10", "ib2", "ib0", "10.9.0.10", "10.9.0.2", "ib0.8001"].map(Cell::text);
        names.sort_by(Cell::order);
        let expected = ["10.9.0.2", "10.9.0.10", "ib0", "ib0.8001", "ib2", "ib10"];
        assert_eq!(names, expected.map(Cell::text));
        assert!(Cell::Unknown.order(&Cell::Number(-1.0)).is_lt());
        assert!(Cell::Number(2.0).order(&Cell::Number(10.0)).is_lt());
        assert_eq!(natural("a01", "a1"), Ordering::Equal);
    }

    #[test]
    fn names_cannot_control_the_terminal() {
        let name = "ib\x1b[2J\u{9b}0\u{202e}x\r\n";
        assert_eq!(Cell::text(name).show(), "ib?[2J?0?x??");
    }
}
