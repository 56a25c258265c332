//! How often the log tells of one kind of thing, which others can make happen as often as they like.

use vnic::Time;

/// One is told of in this time.
const APART_MS: u64 = 1000;

/// Things of one kind.
#[derive(Debug, Default)]
pub struct Ration {
    next: Time,
    untold: u64,
}

impl Ration {
    /// One has happened. If it is to be told of: how many before it were not.
    pub fn take(&mut self, now: Time) -> Option<u64> {
        if now < self.next {
            self.untold += 1;
            return None;
        }
        self.next = now.after(APART_MS);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_is_told_of_and_how_many_were_not() {
        let mut ration = Ration::default();
        assert_eq!(ration.take(Time(5000)), Some(0));
        assert!((5001..6000).all(|now| ration.take(Time(now)).is_none()));
        assert_eq!(ration.take(Time(6000)), Some(999));
        assert_eq!(ration.take(Time(6999)), None);
        assert_eq!(ration.take(Time(60_000)), Some(1));
        assert_eq!(ration.take(Time(61_000)), Some(0));
    }
}
