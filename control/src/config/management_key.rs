//! The key that authenticates the management of VNICs, in a file of its own.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::fault;
use crate::api::Hex;

/// Bytes of a key.
const KEY_LEN: usize = 32;
/// Maximum number of keys in a file: an old one and a new one, and some more.
const KEYS_MAX: usize = 4;
/// Maximum number of bytes that are read of a file.
const FILE_MAX: u64 = 4096;

/// The keys of a file: one of 64 hexadecimal digits on each line. The first is used for sending, each of them
/// for receiving. `Debug` does not print them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ManagementKeys(Vec<[u8; KEY_LEN]>);

impl ManagementKeys {
    /// The keys; empty: management is not authenticated.
    pub fn keys(&self) -> &[[u8; KEY_LEN]] {
        &self.0
    }

    /// Reads a file.
    ///
    /// # Errors
    /// One sentence: the file cannot be read, other users may read it, or it has wrong contents.
    pub fn read(path: &Path) -> Result<ManagementKeys, String> {
        let name = path.display();
        let cannot = |error| cannot_read(path, &error);
        let file = File::open(path).map_err(cannot)?;
        if file.metadata().map_err(cannot)?.permissions().mode() & 0o007 != 0 {
            return Err(format!(
                "every user may read or write the key file {name}; make it private: chmod 600 {name}"
            ));
        }
        let mut text = String::new();
        file.take(FILE_MAX)
            .read_to_string(&mut text)
            .map_err(cannot)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let keys: Option<Vec<_>> = lines.map(parse).collect();
        match keys {
            Some(keys) if (1..=KEYS_MAX).contains(&keys.len()) => Ok(ManagementKeys(keys)),
            _ => Err(format!(
                "the key file {name} needs 1 to {KEYS_MAX} lines of {} hexadecimal digits; make one: \
                 openssl rand -hex {KEY_LEN}",
                2 * KEY_LEN
            )),
        }
    }
}

fn cannot_read(path: &Path, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => format!("; {}", fault::DENIED),
        _ => String::new(),
    };
    format!(
        "cannot read the key file {}: {error}{advice}",
        path.display()
    )
}

impl fmt::Debug for ManagementKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ManagementKeys({})", self.0.len())
    }
}

fn parse(line: &str) -> Option<[u8; KEY_LEN]> {
    line.parse::<Hex>().ok()?.0.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    fn read(text: &str, mode: u32) -> Result<ManagementKeys, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let place = path.display().to_string();
        ManagementKeys::read(&path).map_err(|error| error.replace(&place, "KEY"))
    }

    #[test]
    fn each_line_is_a_key() {
        let (one, two) = ("0123456789abcdef".repeat(4), "FF".repeat(32));
        let keys = read(&format!("{one}\n\n {two}\n"), 0o640).unwrap();
        assert_eq!(keys.keys().len(), 2);
        assert_eq!(keys.keys()[0][..3], [0x01, 0x23, 0x45]);
        assert_eq!(keys.keys()[1], [0xff; 32]);
        assert_eq!(format!("{keys:?}"), "ManagementKeys(2)");
    }

    #[test]
    fn wrong_files_are_refused_with_one_sentence() {
        let key = format!("{}\n", "5a".repeat(32));
        let wrong = "the key file KEY needs 1 to 4 lines of 64 hexadecimal digits; make one: openssl rand -hex 32";
        for text in [
            "",
            "secret",
            &key[1..],
            &key.replace('5', "x"),
            &key.repeat(5),
        ] {
            assert_eq!(read(text, 0o600).unwrap_err(), wrong, "{text:?}");
        }
        for mode in [0o604, 0o602, 0o644] {
            assert_eq!(
                read(&key, mode).unwrap_err(),
                "every user may read or write the key file KEY; make it private: chmod 600 KEY"
            );
        }
        let missing = ManagementKeys::read(Path::new("/nonexistent/key")).unwrap_err();
        let expected =
            "cannot read the key file /nonexistent/key: No such file or directory (os error 2)";
        assert_eq!(missing, expected);
        let denied = cannot_read(Path::new("KEY"), &io::ErrorKind::PermissionDenied.into());
        assert_eq!(
            denied,
            "cannot read the key file KEY: permission denied; the user of ibtapd must be able to read it (chown), and a \
             running ibtapd reads only files in the folder of its configuration; for another folder, restart ibtapd"
        );
    }
}
