//! The table of mounts: `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The table's file.
pub const FILE: &str = "/proc/self/mountinfo";

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Unique number of the mount.
    pub id: u64,
    /// File system type.
    pub fs_type: String,
    point: PathBuf,
}

/// The visible mount at a mount point: the last one; `None` without a mount.
///
/// # Errors
/// Errors of reading the table.
pub fn top(point: &Path) -> io::Result<Option<Entry>> {
    let table = fs::read(FILE)?;
    let mut entries = table.split(|byte| *byte == b'\n').filter_map(entry);
    Ok(entries.rfind(|entry| entry.point == point))
}

/// Parses a line: `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw`.
fn entry(line: &[u8]) -> Option<Entry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let point = fields.nth(3)?;
    // Any number of optional fields is between the options and the dash.
    fields.find(|field| *field == b"-")?;
    let fs_type = String::from_utf8(fields.next()?.to_vec()).ok()?;
    Some(Entry {
        id,
        fs_type,
        point: PathBuf::from(OsString::from_vec(unescaped(point))),
    })
}

/// Decodes blanks, tabs, line feeds and backslashes, which are written as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let (byte, tail) = match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), tail)
            }
            _ => (*first, tail),
        };
        bytes.push(byte);
        rest = tail;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_is_read() {
        let line =
            b"531 29 0:47 / /run/ibtap\\040fs rw,nosuid shared:1 master:2 - fuse.ibtap ibtap-fs rw";
        let found = entry(line).unwrap();
        assert_eq!(found.id, 531);
        assert_eq!(found.fs_type, "fuse.ibtap");
        assert_eq!(found.point, Path::new("/run/ibtap fs"));
    }

    #[test]
    fn the_root_of_this_machine_is_mounted() {
        let root = top(Path::new("/")).unwrap();
        assert!(!root.unwrap().fs_type.is_empty());
        assert_eq!(top(Path::new("/no/such/directory")).unwrap(), None);
    }

    proptest! {
        #[test]
        fn a_path_is_found_as_the_kernel_writes_it(path in prop::collection::vec(1u8.., 1..40)) {
            let mut written = Vec::new();
            for byte in &path {
                match byte {
                    b' ' | b'\t' | b'\n' | b'\\' => written.extend(format!("\\{byte:03o}").bytes()),
                    other => written.push(*other),
                }
            }
            prop_assert_eq!(unescaped(&written), path);
        }

        #[test]
        fn no_line_makes_it_panic(line: Vec<u8>) {
            entry(&line);
        }
    }
}
