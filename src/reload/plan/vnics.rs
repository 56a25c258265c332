//! What is to be done about VNICs.

use control::config::vnic::{Learning, SwitchConfig};
use control::config::{Config, InterfaceKey, VnicConfig};

use super::{Plan, Step};

/// A change of a VNIC that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VnicChange {
    Mtu(Option<u32>),
    Up(bool),
    Persist(bool),
    /// Whether addresses are learned, and how long they are known.
    Learning(Learning),
    /// Its switch, its place on that, the other members.
    Switch(SwitchConfig),
}

/// The VNICs of a configuration that another one does not have, or has otherwise than a VNIC can become.
pub fn without<'c>(from: &'c Config, to: &Config) -> Vec<&'c VnicConfig> {
    let all = from.vnics.iter();
    all.filter(|vnic| same(to, vnic).is_none_or(|other| is_remade(vnic, other)))
        .collect()
}

/// The VNIC of a configuration that is called so.
fn same<'c>(config: &'c Config, vnic: &VnicConfig) -> Option<&'c VnicConfig> {
    config.vnics.iter().find(|v| v.key() == vnic.key())
}

/// Whether one is to go and the other is to come.
fn is_remade(old: &VnicConfig, new: &VnicConfig) -> bool {
    old.port != new.port
        || old.index != new.index
        || old.switch.is_some() != new.switch.is_some()
        || old.queue_count() != new.queue_count()
        || old.learning.mac_limit != new.learning.mac_limit
}

impl Plan {
    /// What changes of the VNICs that stay.
    pub(super) fn vnics(&mut self, old: &Config, new: &Config) {
        for vnic in &old.vnics {
            if let Some(wanted) = same(new, vnic).filter(|w| !is_remade(vnic, w)) {
                self.vnic(vnic.key(), vnic, wanted);
            }
        }
    }

    fn vnic(&mut self, key: InterfaceKey, old: &VnicConfig, new: &VnicConfig) {
        let mut step = |differs: bool, change: fn(&VnicConfig) -> Option<VnicChange>| {
            let change = change(new).filter(|_| differs);
            self.steps
                .extend(change.map(|change| Step::Vnic(key.clone(), change)));
        };
        step(old.switch != new.switch, |v| {
            v.switch.clone().map(VnicChange::Switch)
        });
        step(old.mtu != new.mtu, |v| Some(VnicChange::Mtu(v.mtu)));
        step(old.up != new.up, |v| Some(VnicChange::Up(v.up)));
        step(old.persist != new.persist, |v| {
            Some(VnicChange::Persist(v.persist))
        });
        step(old.learning != new.learning, |v| {
            Some(VnicChange::Learning(v.learning))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text, "t.toml").unwrap()
    }

    const LAN: &str = "[[vnic]]\nname = \"lan\"\nunderlay = \"eth0\"\n";

    fn plan(old: &str, new: &str) -> Vec<Step> {
        let plan = Plan::new(&config(old), &config(new));
        assert_eq!(plan.refused, Vec::<String>::new());
        plan.steps
    }

    fn key() -> InterfaceKey {
        InterfaceKey {
            netns: None,
            name: "lan".into(),
        }
    }

    #[test]
    fn what_can_change_in_place_does() {
        let old = format!("{LAN}vesw = 1\n");
        let learning = Learning {
            on: false,
            ageing: 60,
            ..Learning::default()
        };
        for (line, change) in [
            ("mtu = 1400", VnicChange::Mtu(Some(1400))),
            ("up = false", VnicChange::Up(false)),
            ("persist = true", VnicChange::Persist(true)),
            (
                "learning = false\nageing = 60",
                VnicChange::Learning(learning),
            ),
        ] {
            let steps = plan(&old, &format!("{old}{line}\n"));
            assert_eq!(steps, [Step::Vnic(key(), change)], "{line}");
        }
        let new = format!("{LAN}vesw = 2\nlid = 7\npeers = [{{ lid = 8, gid = \"fe80::8\" }}]\n");
        let steps = plan(&old, &new);
        let [Step::Vnic(_, VnicChange::Switch(switch))] = &steps[..] else {
            panic!("{steps:?}");
        };
        assert_eq!(
            (switch.vesw, switch.peers.as_ref().map(Vec::len)),
            (2, Some(1))
        );
        assert_eq!(plan(&old, &old), []);
    }

    #[test]
    fn the_rest_is_remade() {
        let old = format!("{LAN}vesw = 1\nqueues = 1\n");
        for new in [
            format!("{LAN}queues = 1\n"),
            format!("{LAN}vesw = 1\nqueues = 2\n"),
            format!("{LAN}vesw = 1\nqueues = 1\nindex = 5\n"),
            format!("{LAN}vesw = 1\nqueues = 1\nmac_limit = 5\n"),
        ] {
            let steps = plan(&old, &new);
            let [Step::RemoveVnic(gone), Step::AddVnic(come)] = &steps[..] else {
                panic!("{steps:?}");
            };
            assert_eq!((gone, &come.key()), (&key(), &key()));
        }
    }

    #[test]
    fn ports_come_and_go_with_their_vnics() {
        let ib0 = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth1\"\n";
        let both = format!("{ib0}{LAN}vesw = 1\n");
        let steps = plan(ib0, &both);
        assert!(
            matches!(&steps[..], [Step::AddPort(..), Step::AddVnic(_)]),
            "{steps:?}"
        );
        let steps = plan(&both, ib0);
        assert!(
            matches!(&steps[..], [Step::RemoveVnic(_), Step::RemovePort(_)]),
            "{steps:?}"
        );
    }

    #[test]
    fn who_manages_changes_in_place() {
        let old = format!("{LAN}[port.eth0]\n");
        let new = format!("{old}managers = [\"fe80::1\"]\nvnic_create = true\n");
        let steps = plan(&old, &new);
        let [Step::Management(_, settings)] = &steps[..] else {
            panic!("{steps:?}");
        };
        assert!(settings.vnic_create);
        assert_eq!(settings.managers, ["fe80::1".parse().unwrap()]);
    }
}
