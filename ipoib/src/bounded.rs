//! Tables that grow with what is in them, up to a bound.

/// Entries that a table has room for when it gets its first.
const FIRST: usize = 16;

/// Adds an entry to a table that never has more than `max`. Its memory grows by doubling, since most
/// interfaces have few peers, and never beyond what `max` entries take.
pub fn push_bounded<T>(table: &mut Vec<T>, max: usize, entry: T) {
    let len = table.len();
    if len == table.capacity() {
        let room = (2 * len).max(FIRST).min(max).max(len + 1);
        table.reserve_exact(room - len);
    }
    table.push(entry);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_by_doubling_and_not_beyond_the_bound() {
        let mut table = Vec::new();
        let mut rooms = Vec::new();
        for n in 0..100 {
            push_bounded(&mut table, 100, n);
            rooms.push(table.capacity());
        }
        rooms.dedup();
        assert_eq!(rooms, [16, 32, 64, 100]);
        assert_eq!(table, (0..100).collect::<Vec<_>>());
    }
}
