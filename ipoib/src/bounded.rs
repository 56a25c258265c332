//! Tables that grow on demand, up to a bound.

/// Capacity of a table at its first entry.
const FIRST: usize = 16;

/// Adds an entry to a table of at most `max` entries. The capacity doubles on demand, because most
/// interfaces have few peers, but never exceeds `max`.
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
