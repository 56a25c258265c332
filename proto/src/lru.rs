//! Order of use over the slots of a table: a doubly linked list of slot numbers.

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Links {
    before: u32,
    after: u32,
}

/// The links of a slot in a list. The table keeps it in the slot or beside it.
#[derive(Clone, Copy, Debug)]
pub struct Place(Links);

impl Default for Place {
    fn default() -> Place {
        Place(Links {
            before: NONE,
            after: NONE,
        })
    }
}

/// An entry of a table with a [`Place`].
pub trait Placed {
    /// The slot's links.
    fn place(&mut self) -> &mut Place;
}

impl Placed for Place {
    fn place(&mut self) -> &mut Place {
        self
    }
}

impl Default for Lru {
    fn default() -> Lru {
        Lru::new()
    }
}

/// A list, least recently used first. A slot is in at most one list; the table knows which one.
#[derive(Debug)]
pub struct Lru {
    first: u32,
    last: u32,
}

impl Lru {
    /// Creates an empty list.
    pub const fn new() -> Lru {
        Lru {
            first: NONE,
            last: NONE,
        }
    }

    /// The least recently used slot.
    pub fn oldest(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Appends a slot that is in no list.
    pub fn push(&mut self, table: &mut [impl Placed], slot: u32) {
        *table[slot as usize].place() = Place(Links {
            before: self.last,
            after: NONE,
        });
        match self.last {
            NONE => self.first = slot,
            last => table[last as usize].place().0.after = slot,
        }
        self.last = slot;
    }

    /// Removes a slot of this list.
    pub fn remove(&mut self, table: &mut [impl Placed], slot: u32) {
        let Links { before, after } = table[slot as usize].place().0;
        match before {
            NONE => self.first = after,
            b => table[b as usize].place().0.after = after,
        }
        match after {
            NONE => self.last = before,
            a => table[a as usize].place().0.before = before,
        }
    }

    /// Moves a slot of this list to the end.
    pub fn touch(&mut self, table: &mut [impl Placed], slot: u32) {
        if self.last != slot {
            self.remove(table, slot);
            self.push(table, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn oldest_first() {
        let mut t = vec![Place::default(); 4];
        let mut l = Lru::new();
        for s in 0..4 {
            l.push(&mut t, s);
        }
        l.touch(&mut t, 0);
        l.touch(&mut t, 2);
        l.remove(&mut t, 3);
        let mut order = Vec::new();
        while let Some(s) = l.oldest() {
            order.push(s);
            l.remove(&mut t, s);
        }
        assert_eq!(order, [1, 0, 2]);
        l.push(&mut t, 3);
        assert_eq!(l.oldest(), Some(3));
    }

    proptest! {
        /// Compares the list with a plain vector.
        #[test]
        fn the_list_is_in_the_order_of_use(uses in prop::collection::vec((0..8_u32, any::<bool>()), 0..60)) {
            let mut list = Lru::new();
            let mut t = [Place::default(); 8];
            let mut model: Vec<u32> = Vec::new();
            for (slot, takes_out) in uses {
                let at = model.iter().position(|s| *s == slot);
                match (at, takes_out) {
                    (None, _) => list.push(&mut t, slot),
                    (Some(_), true) => list.remove(&mut t, slot),
                    (Some(_), false) => list.touch(&mut t, slot),
                }
                if let Some(at) = at {
                    model.remove(at);
                }
                if at.is_none() || !takes_out {
                    model.push(slot);
                }
                prop_assert_eq!(list.oldest(), model.first().copied());
            }
            for slot in model {
                prop_assert_eq!(list.oldest(), Some(slot));
                list.remove(&mut t, slot);
            }
            prop_assert_eq!(list.oldest(), None);
        }
    }
}
