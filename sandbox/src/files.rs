//! The files that a process uses, enforced by Landlock (landlock(7)).

use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus,
    PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
    RulesetStatus,
};

use crate::Thread;

/// The newest kernel interface whose rights are used: 5 has ioctls of devices (Linux 6.10).
const NEWEST: ABI = ABI::V5;

/// What may be done with a file, or with the files of a directory at any depth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read files and list directories.
    Read,
    /// Read and write files that exist.
    Write,
    /// Read and write devices, with their ioctls.
    Device,
    /// Remove files.
    RemoveFiles,
    /// Remove empty directories.
    RemoveDirectories,
}

/// A file or directory that may be used. One that does not exist at the start stays forbidden.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// The path; symbolic links are followed at the start.
    pub path: PathBuf,
    /// What may be done.
    pub access: Access,
}

impl Access {
    fn rights(self) -> BitFlags<AccessFs> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        match self {
            Access::Read => read,
            Access::Write => read | AccessFs::WriteFile | AccessFs::Truncate,
            Access::Device => read | AccessFs::WriteFile | AccessFs::IoctlDev,
            Access::RemoveFiles => AccessFs::RemoveFile.into(),
            Access::RemoveDirectories => AccessFs::RemoveDir.into(),
        }
    }
}

/// The rules for these files; nothing else may be opened, and TCP is forbidden.
pub(crate) fn ruleset(files: &[Allowed]) -> Option<RulesetCreated> {
    let create = || -> Result<RulesetCreated, RulesetError> {
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))?
            .handle_access(AccessNet::from_all(NEWEST))?
            .create()?;
        for Allowed { path, access } in files {
            match PathFd::new(path) {
                Ok(file) => {
                    // A file takes no rights of directories.
                    let of_kind = match path.is_dir() {
                        true => BitFlags::all(),
                        false => AccessFs::from_file(NEWEST),
                    };
                    let rights = access.rights() & of_kind;
                    ruleset = ruleset.add_rule(PathBeneath::new(file, rights))?;
                }
                Err(error) => log::debug!("Landlock: no rule for {}: {error}", path.display()),
            }
        }
        Ok(ruleset)
    };
    create()
        .map_err(|error| log::warn!("Landlock does not restrict files: {error}"))
        .ok()
}

/// Applies the rules to the calling thread. The control thread reports what the kernel does not support.
pub(crate) fn enter(ruleset: &RulesetCreated, thread: Thread) {
    let restricted = ruleset.try_clone().map_err(|error| error.to_string());
    let restricted = restricted.and_then(|rules| rules.restrict_self().map_err(|e| e.to_string()));
    match restricted {
        Ok(status) if thread == Thread::Control => match (status.ruleset, status.landlock) {
            (RulesetStatus::FullyEnforced, _) => log::info!("Landlock restricts files and TCP"),
            (RulesetStatus::NotEnforced, LandlockStatus::NotEnabled) => log::info!(
                "the kernel has Landlock switched off: files are not restricted; add landlock to the kernel's \
                 parameter lsm="
            ),
            (RulesetStatus::NotEnforced, _) => {
                log::info!("the kernel has no Landlock: files are not restricted")
            }
            (RulesetStatus::PartiallyEnforced, landlock) => log::info!(
                "Landlock restricts files; this kernel cannot restrict {}",
                missing(landlock.into())
            ),
        },
        Ok(_) => {}
        Err(error) => log::warn!("Landlock does not restrict the files of a thread: {error}"),
    }
}

/// The restrictions that newer kernels have.
fn missing(abi: ABI) -> String {
    let since = [
        (ABI::V2, "links and renames between directories"),
        (ABI::V3, "truncation of files"),
        (ABI::V4, "TCP"),
        (ABI::V5, "ioctls of devices"),
    ];
    let missing = since.iter().filter(|(version, _)| *version > abi);
    let names: Vec<&str> = missing.map(|(_, name)| *name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;

    use super::*;

    /// A process that was taken over reads keys and writes to start scripts. Under the rules it does neither.
    #[test]
    fn files_without_a_rule_are_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        for directory in ["read", "secret", "removed"] {
            fs::create_dir(path(directory)).unwrap();
            fs::write(path(directory).join("file"), "text").unwrap();
        }
        let allowed = |name: &str, access| Allowed {
            path: path(name),
            access,
        };
        let rules = ruleset(&[
            allowed("read", Access::Read),
            allowed("removed", Access::RemoveFiles),
            allowed("absent", Access::Read),
        ]);
        let rules = rules.unwrap();
        let thread = || {
            let open = |name: &str| fs::read_to_string(path(name).join("file"));
            assert!(
                ["read", "secret", "removed"]
                    .iter()
                    .all(|d| open(d).is_ok())
            );
            enter(&rules, Thread::Data);
            let refused = ErrorKind::PermissionDenied;
            assert_eq!(open("read").unwrap(), "text");
            assert_eq!(open("secret").unwrap_err().kind(), refused);
            assert_eq!(open("removed").unwrap_err().kind(), refused);
            let written = fs::write(path("read").join("file"), "other");
            assert_eq!(written.unwrap_err().kind(), refused);
            let created = fs::write(path("read").join("new"), "");
            assert_eq!(created.unwrap_err().kind(), refused);
            fs::remove_file(path("removed").join("file")).unwrap();
            // A replaced file has the rule of its directory.
            assert_eq!(open("read").unwrap(), "text");
        };
        std::thread::scope(|scope| scope.spawn(thread).join().unwrap());
    }

    #[test]
    fn the_missing_restrictions_are_those_of_newer_interfaces() {
        assert_eq!(missing(ABI::V5), "");
        assert_eq!(missing(ABI::V4), "ioctls of devices");
        assert_eq!(
            missing(ABI::V2),
            "truncation of files, TCP, ioctls of devices"
        );
    }
}
