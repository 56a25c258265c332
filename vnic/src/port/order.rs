//! Order of use over the slots of a table: a doubly linked list of slot numbers.

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Links {
    before: u32,
    after: u32,
}

/// A list of slots, that which was used least lately first. Every slot is in it once at most; the table
/// knows which are.
pub struct Order {
    links: Vec<Links>,
    first: u32,
    last: u32,
}

impl Default for Order {
    fn default() -> Order {
        Order {
            links: Vec::new(),
            first: NONE,
            last: NONE,
        }
    }
}

impl Order {
    /// The slot that was used least lately.
    pub fn oldest(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Puts a slot that is not in the list at its end.
    pub fn push(&mut self, slot: u32) {
        let links = Links {
            before: self.last,
            after: NONE,
        };
        let at = slot as usize;
        if at >= self.links.len() {
            self.links.resize(at + 1, links);
        }
        self.links[at] = links;
        match self.last {
            NONE => self.first = slot,
            last => self.links[last as usize].after = slot,
        }
        self.last = slot;
    }

    /// Takes a slot out of the list that it is in.
    pub fn remove(&mut self, slot: u32) {
        let Links { before, after } = self.links[slot as usize];
        match before {
            NONE => self.first = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            NONE => self.last = before,
            after => self.links[after as usize].before = before,
        }
    }

    /// Moves a slot of the list to its end.
    pub fn touch(&mut self, slot: u32) {
        if self.last != slot {
            self.remove(slot);
            self.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a vector in which slots are searched for.
        #[test]
        fn the_list_is_in_the_order_of_use(uses in prop::collection::vec((0..8_u32, any::<bool>()), 0..60)) {
            let mut list = Order::default();
            let mut model: Vec<u32> = Vec::new();
            for (slot, takes_out) in uses {
                let at = model.iter().position(|s| *s == slot);
                match (at, takes_out) {
                    (None, _) => list.push(slot),
                    (Some(_), true) => list.remove(slot),
                    (Some(_), false) => list.touch(slot),
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
                list.remove(slot);
            }
            prop_assert_eq!(list.oldest(), None);
        }
    }
}
