//! Groups that a queue pair could not join, and when that is tried again.

use std::collections::{BTreeMap, BTreeSet};

use fabric::Gid;
use vnic::Time;

/// Milliseconds until the first repetition; doubled each time.
const PAUSE_MS: u64 = 1_000;
/// Between two repetitions at most.
const PAUSE_MAX_MS: u64 = 30_000;

/// The groups that were refused.
#[derive(Default)]
pub struct Refused {
    /// With what the port said.
    groups: BTreeMap<Gid, String>,
    /// When they are tried again, while there are any.
    again: Time,
    pause: u64,
}

/// What people may want to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// The first refusal since all was well: the group, and what the port said.
    Refused(Gid, String),
    /// What was refused is joined.
    Over,
}

impl Refused {
    /// The groups to join now: those that are wanted and not joined. One that was refused is when its time
    /// has come. What nobody wants is forgotten.
    pub fn to_join(
        &mut self,
        now: Time,
        wanted: &BTreeSet<Gid>,
        joined: &BTreeSet<Gid>,
    ) -> Vec<Gid> {
        self.groups.retain(|group, _| wanted.contains(group));
        let due = self.again <= now;
        let missing = wanted.difference(joined).copied();
        missing
            .filter(|group| due || !self.groups.contains_key(group))
            .collect()
    }

    /// These were tried, and of them these were refused.
    pub fn tried(&mut self, now: Time, tried: &[Gid], refused: Vec<(Gid, String)>) -> Option<News> {
        let before = self.groups.len();
        for group in tried {
            self.groups.remove(group);
        }
        let repeated = self.groups.len() < before;
        let first = refused.first().cloned();
        self.groups.extend(refused);
        if self.groups.is_empty() {
            return (before > 0).then_some(News::Over);
        }
        if before > 0 && !repeated {
            // The time of the others stays theirs.
            return None;
        }
        self.pause = match before {
            0 => PAUSE_MS,
            _ => (self.pause * 2).min(PAUSE_MAX_MS),
        };
        self.again = now.after(self.pause);
        let news = first.filter(|_| before == 0);
        news.map(|(group, why)| News::Refused(group, why))
    }

    /// Why a group could not be joined.
    pub fn why(&self, group: Gid) -> Option<&str> {
        self.groups.get(&group).map(String::as_str)
    }

    /// When something is to be tried again.
    pub fn next(&self) -> Option<Time> {
        (!self.groups.is_empty()).then_some(self.again)
    }

    /// What has refused them may be another one now.
    pub fn hurry(&mut self) {
        self.again = Time(0);
    }

    /// Nothing is wanted any more.
    pub fn clear(&mut self) {
        self.groups.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(n: u8) -> Gid {
        let mut raw = [0; 16];
        raw[0] = 0xff;
        raw[15] = n;
        Gid(raw)
    }

    fn groups(all: &[u8]) -> BTreeSet<Gid> {
        all.iter().map(|n| group(*n)).collect()
    }

    fn full(all: &[Gid]) -> Vec<(Gid, String)> {
        all.iter().map(|g| (*g, "full".to_owned())).collect()
    }

    #[test]
    fn what_is_refused_is_tried_after_1_to_30_seconds_and_told_once() {
        let mut refused = Refused::default();
        let (wanted, none) = (groups(&[1]), BTreeSet::new());
        let (mut tried, mut told) = (Vec::new(), 0);
        // It is looked at each 10 ms, as with a storm of datagrams.
        for now in (0..200_000).step_by(10).map(Time) {
            let join = refused.to_join(now, &wanted, &none);
            if !join.is_empty() {
                tried.push(now.0 / 1000);
                let news = refused.tried(now, &join, full(&join));
                told += usize::from(news.is_some());
                assert_eq!(refused.next().map(|next| next > now), Some(true));
            }
        }
        assert_eq!(tried, [0, 1, 3, 7, 15, 31, 61, 91, 121, 151, 181]);
        assert_eq!((told, refused.why(group(1))), (1, Some("full")));
        refused.hurry();
        let join = refused.to_join(Time(200_000), &wanted, &none);
        let over = refused.tried(Time(200_000), &join, Vec::new());
        assert_eq!((over, refused.next()), (Some(News::Over), None));
        // The next refusal is another one.
        let again = refused.tried(Time(200_000), &join, full(&join));
        assert_eq!(again, Some(News::Refused(group(1), "full".into())));
        assert_eq!(refused.next(), Some(Time(201_000)));
    }

    #[test]
    fn one_that_comes_meanwhile_is_tried_at_once_and_changes_no_times() {
        let mut refused = Refused::default();
        let first = groups(&[1]);
        let join = refused.to_join(Time(0), &first, &BTreeSet::new());
        refused.tried(Time(0), &join, full(&join));
        let both = groups(&[1, 2]);
        let join = refused.to_join(Time(500), &both, &BTreeSet::new());
        assert_eq!(join, [group(2)]);
        assert_eq!(refused.tried(Time(500), &join, full(&join)), None);
        assert_eq!(refused.next(), Some(Time(1000)));
        let join = refused.to_join(Time(1000), &both, &BTreeSet::new());
        assert_eq!(join, [group(1), group(2)]);
        // One of them is joined; the other one is no news.
        assert_eq!(refused.tried(Time(1000), &join, full(&join[1..])), None);
        assert_eq!(
            (refused.why(group(1)), refused.next()),
            (None, Some(Time(3000)))
        );
    }

    #[test]
    fn what_nobody_wants_is_forgotten() {
        let mut refused = Refused::default();
        let join = refused.to_join(Time(0), &groups(&[1]), &BTreeSet::new());
        refused.tried(Time(0), &join, full(&join));
        let none = BTreeSet::new();
        assert!(refused.to_join(Time(1), &none, &none).is_empty());
        assert_eq!((refused.why(group(1)), refused.next()), (None, None));
    }
}
