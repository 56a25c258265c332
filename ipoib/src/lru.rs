//! Order of use over the slots of a table: a doubly linked list of slot numbers.

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Links {
    before: u32,
    after: u32,
}

/// A slot's place in the list, kept by the table beside its entry.
#[derive(Clone, Copy)]
pub struct Place(Links);

impl Default for Place {
    fn default() -> Place {
        Place(Links {
            before: NONE,
            after: NONE,
        })
    }
}

/// Gives access to the places of a table's slots.
pub trait Places {
    fn place(&mut self, slot: u32) -> &mut Place;
}

/// One list, least recently used first.
pub struct Lru {
    first: u32,
    last: u32,
}

impl Lru {
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

    /// Puts a slot that is in no list at the end.
    pub fn push(&mut self, places: &mut impl Places, slot: u32) {
        *places.place(slot) = Place(Links {
            before: self.last,
            after: NONE,
        });
        match self.last {
            NONE => self.first = slot,
            last => places.place(last).0.after = slot,
        }
        self.last = slot;
    }

    /// Takes a slot out of this list.
    pub fn remove(&mut self, places: &mut impl Places, slot: u32) {
        let Links { before, after } = places.place(slot).0;
        match before {
            NONE => self.first = after,
            b => places.place(b).0.after = after,
        }
        match after {
            NONE => self.last = before,
            a => places.place(a).0.before = before,
        }
    }

    /// Moves a slot of this list to the end.
    pub fn touch(&mut self, places: &mut impl Places, slot: u32) {
        if self.last != slot {
            self.remove(places, slot);
            self.push(places, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Table(Vec<Place>);

    impl Places for Table {
        fn place(&mut self, slot: u32) -> &mut Place {
            &mut self.0[slot as usize]
        }
    }

    #[test]
    fn oldest_first() {
        let mut t = Table(vec![Place::default(); 4]);
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
}
