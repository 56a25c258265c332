//! Paths below `infiniband` known to the kernel (FUSE), and their numbers.

use crate::remembered::Remembered;

/// Paths with inodes in the kernel. Only paths that exist get a number.
#[derive(Debug, Default)]
pub struct Paths(Remembered<String, ()>);

impl Paths {
    /// Counts a lookup by the kernel. Returns the number of the path, which is not 0.
    pub fn looked_up(&mut self, path: &str) -> u64 {
        self.0.looked_up(path.to_owned(), ())
    }

    /// The kernel forgets this number of lookups.
    pub fn forgotten(&mut self, number: u64, lookups: u64) {
        self.0.forgotten(number, lookups);
    }

    /// The path with this number; 0 is the root, the empty path.
    pub fn get(&self, number: u64) -> Option<&str> {
        match number {
            0 => Some(""),
            _ => self.0.get(number).map(|(path, ())| path.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_lasts_as_long_as_the_kernel_remembers() {
        let mut paths = Paths::default();
        let number = paths.looked_up("soft_eth0/ports");
        assert_eq!(paths.looked_up("soft_eth0/ports"), number);
        assert_ne!(paths.looked_up("soft_eth0"), number);
        paths.forgotten(number, 1);
        assert_eq!(paths.get(number), Some("soft_eth0/ports"));
        paths.forgotten(number, 1);
        assert_eq!(paths.get(number), None);
        assert_ne!(paths.looked_up("soft_eth0/ports"), number);
        assert_eq!(paths.get(0), Some(""));
        paths.forgotten(77, 1);
    }
}
