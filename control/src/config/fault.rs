//! Errors of TOML files, with their places, for the configurations of all programs.

use std::path::Path;

use toml::Spanned;

/// An error in a file.
#[derive(Debug)]
pub struct Fault {
    /// One sentence for the user.
    pub what: String,
    /// Byte of the text.
    pub at: Option<usize>,
}

impl Fault {
    /// An error at a value.
    pub fn at<T>(place: &Spanned<T>, what: impl Into<String>) -> Fault {
        Fault {
            what: what.into(),
            at: Some(place.span().start),
        }
    }

    /// One sentence with the name of the file, and with line and column of the error in its text.
    pub fn sentence(&self, text: &str, name: &str) -> String {
        match self.at.map(|at| position(text, at)) {
            Some((line, column)) => format!("{name}:{line}:{column}: {}", self.what),
            None => format!("{name}: {}", self.what),
        }
    }
}

impl From<toml::de::Error> for Fault {
    fn from(error: toml::de::Error) -> Fault {
        // serde calls a struct's members fields; TOML calls them keys.
        let what = error
            .message()
            .replace("unknown field", "unknown key")
            .replace("missing field", "missing key")
            .replace('\n', ", ");
        Fault {
            what,
            at: error.span().map(|span| span.start),
        }
    }
}

/// Reads a file.
///
/// # Errors
/// One sentence with the name of the file.
pub fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| {
        let name = path.display();
        format!("cannot read the configuration {name}: {error}; name a readable TOML file")
    })
}

/// Line and column (in characters), both from 1, of byte `at`.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_begin_at_1() {
        assert_eq!(position("a\nä b", 5), (2, 3));
        assert_eq!(position("", 0), (1, 1));
    }
}
