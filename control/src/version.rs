//! The version that programs print.

use std::sync::LazyLock;

use clap::ValueEnum;

use crate::config::args::Provider;

/// Version and git revision. The revision is `IBTAP_REVISION` at compile time, which `scripts/install` and
/// `scripts/package` set.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let revision = option_env!("IBTAP_REVISION").unwrap_or("unknown");
    format!("{} (revision {revision})", env!("CARGO_PKG_VERSION"))
});

/// The same, and the providers of the fabric.
static OF_DAEMON: LazyLock<String> = LazyLock::new(|| {
    let names: Vec<_> = Provider::value_variants()
        .iter()
        .filter_map(|provider| Some(provider.to_possible_value()?.get_name().to_owned()))
        .collect();
    format!("{}\nproviders: {}", *VERSION, names.join(", "))
});

/// What `--version` prints behind the name of a program.
pub fn version() -> &'static str {
    &VERSION
}

/// What `ibtapd --version` prints behind the name.
pub fn of_daemon() -> &'static str {
    &OF_DAEMON
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_has_the_revision_and_the_providers() {
        let (first, second) = of_daemon().split_once('\n').expect("two lines");
        assert_eq!(first, version());
        assert!(first.starts_with(concat!(env!("CARGO_PKG_VERSION"), " (revision ")));
        assert_eq!(second, "providers: soft, verbs");
    }
}
