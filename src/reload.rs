//! Reading the configuration again while the daemon runs: what can change changes, without a flap of
//! what has not; for the rest there is a sentence.

mod apply;
mod interface;
mod vnics;

use control::api::{ApiError, Happening, Reloaded};
use control::config::plan::Plan;
use control::config::{Config, InterfaceKey, Source};

use crate::daemon::Daemon;
use crate::interface::Subject;

/// The configuration that is in force, which is that of the file but for what was refused.
#[derive(Clone, Debug)]
pub struct Running {
    /// Where it came from.
    pub source: Source,
    /// What it says.
    pub config: Config,
}

impl Daemon {
    /// Reads the configuration again and does what has changed. The log and those who watch are
    /// told, too, and so is systemd (sd_notify(3)).
    ///
    /// # Errors
    /// [`ApiError::Refused`]: there is no file, or it is wrong. Nothing has changed then.
    pub fn reload(&mut self) -> Result<Reloaded, ApiError> {
        let refused = |message| Err(ApiError::Refused { message });
        let Some(running) = &self.running else {
            return refused(
                "ibtapd was started without --config, so there is no file to read again; \
                 restart it with other options"
                    .to_owned(),
            );
        };
        let new = match running.source.read() {
            Ok(new) => new,
            Err(error) => return refused(error.to_string()),
        };
        crate::run::notify_reloading();
        let reloaded = self.change_to(&new);
        crate::run::notify_ready(self);
        for sentence in &reloaded.applied {
            log::info!("reloaded: {sentence}");
        }
        for sentence in &reloaded.refused {
            log::warn!("not reloaded: {sentence}");
        }
        if reloaded == Reloaded::default() {
            log::info!("reloaded: nothing has changed");
        }
        let told = Happening::Reloaded {
            applied: reloaded.applied.clone(),
            refused: reloaded.refused.clone(),
        };
        self.events.push(Subject::Daemon, told);
        Ok(reloaded)
    }

    fn change_to(&mut self, new: &Config) -> Reloaded {
        let Some(mut running) = self.running.take() else {
            return Reloaded::default();
        };
        // What was deleted by hand is made again.
        let served = |key: InterfaceKey| {
            let mut all = self.interfaces.iter();
            all.any(|(_, payload)| payload.config().key() == key)
        };
        let config = &mut running.config;
        config.ipoib.retain(|d| served(d.key()));
        config.vnics.retain(|v| served(v.key()));
        let plan = Plan::new(config, new);
        let mut reloaded = Reloaded {
            applied: Vec::new(),
            refused: plan.refused,
        };
        for step in &plan.steps {
            match self.apply(step, config) {
                Ok(sentence) => reloaded.applied.push(sentence),
                Err(sentence) => reloaded.refused.push(sentence),
            }
        }
        self.running = Some(running);
        reloaded
    }
}
