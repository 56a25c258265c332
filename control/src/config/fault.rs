//! Errors of TOML files, with their places, for the configurations of all programs.

use std::io;
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
        // serde calls the members of a struct fields, and the values of an enum variants. TOML has keys and values.
        let what = error
            .message()
            .replace("unknown field", "unknown key")
            .replace("missing field", "missing key")
            .replace("unknown variant", "unknown value")
            .replace('\n', ", ");
        Fault {
            what,
            at: error.span().map(|span| span.start),
        }
    }
}

/// Advice if `ibtapd` may not read a file: because of the file's owner and mode, or of Landlock.
pub(super) const DENIED: &str = "the user of ibtapd must be able to read it (chown), and a running ibtapd reads only files in the \
     folder of its configuration; for another folder, restart ibtapd";

/// Reads a file. `denied` is the advice if the program may not read the file.
///
/// # Errors
/// One sentence with the name of the file.
pub fn read(path: &Path, denied: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| cannot_read(path, &error, denied))
}

fn cannot_read(path: &Path, error: &io::Error, denied: &str) -> String {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => denied,
        _ => "name a readable TOML file",
    };
    let name = path.display();
    format!("cannot read the configuration {name}: {error}; {advice}")
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
    fn the_advice_is_that_of_the_error() {
        let path = Path::new("/x/t.toml");
        let sentence = |kind: io::ErrorKind| cannot_read(path, &kind.into(), "become root");
        assert_eq!(
            sentence(io::ErrorKind::PermissionDenied),
            "cannot read the configuration /x/t.toml: permission denied; become root"
        );
        assert_eq!(
            sentence(io::ErrorKind::InvalidData),
            "cannot read the configuration /x/t.toml: invalid data; name a readable TOML file"
        );
    }

    #[test]
    fn lines_and_columns_begin_at_1() {
        assert_eq!(position("a\nä b", 5), (2, 3));
        assert_eq!(position("", 0), (1, 1));
    }
}
