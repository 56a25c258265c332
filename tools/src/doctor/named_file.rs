//! The files that another process names.
//!
//! In a container, a path leads to another file than here, and so does an absolute symbolic link on its way. Such a file
//! is opened below the root of the process, which resolves links there.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};

/// A file of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// The root of a process that has other files; `None`: the root here.
    root: Option<PathBuf>,
    path: PathBuf,
}

impl NamedFile {
    /// The file with this path here.
    pub fn here(path: PathBuf) -> NamedFile {
        NamedFile { root: None, path }
    }

    /// The file that a process calls `path`. `process` is the folder of the process (proc(5)).
    pub fn of_process(process: &Path, path: &Path) -> NamedFile {
        let Ok(path) = absolute(process, path) else {
            // The error of opening it gives the reason.
            return NamedFile::here(process.join("cwd").join(path));
        };
        let there = NamedFile {
            root: Some(process.join("root")),
            path: path.clone(),
        };
        let here = NamedFile::here(path);
        match (there.identity(), here.identity()) {
            // The short path is the better one in messages.
            (Ok(of_there), Ok(of_here)) if of_there == of_here => here,
            // Only root may look. Mostly the daemon has the files of the host.
            (Err(error), _) if error.kind() == ErrorKind::PermissionDenied => here,
            _ => there,
        }
    }

    /// Its path for messages.
    pub fn path(&self) -> PathBuf {
        match &self.root {
            None => self.path.clone(),
            Some(root) => root.join(self.path.strip_prefix("/").unwrap_or(&self.path)),
        }
    }

    /// Opens the file.
    ///
    /// Root opens what any user names, and to open a device can have an effect: a watchdog begins to count, a tape
    /// rewinds. So this refuses all but regular files, before it opens them. It also refuses files of size 0, as those
    /// of /proc and tracefs: some of them, such as /proc/kmsg, lose what a program reads.
    ///
    /// # Errors
    /// Errors of the operating system; the file is empty or no regular file.
    pub fn open(&self) -> io::Result<File> {
        let place = self.place()?;
        let found = fstat(&place)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || found.st_size == 0 {
            return Err(io::Error::other("the file is empty or no regular file"));
        }
        let path = format!("/proc/self/fd/{}", place.as_raw_fd());
        // Without NONBLOCK, this waits for another program's lease (fcntl(2)).
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(open(path, flags, Mode::empty())?.into())
    }

    /// The place in the file system. This has no effect on a device, and does not wait for the writer of a named pipe.
    fn place(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Some(root) = &self.root else {
            return Ok(open(&self.path, flags, Mode::empty())?);
        };
        let root = open(root, flags | OFlags::DIRECTORY, Mode::empty())?;
        let below = ResolveFlags::IN_ROOT;
        Ok(openat2(root, &self.path, flags, Mode::empty(), below)?)
    }

    /// Device and inode.
    fn identity(&self) -> io::Result<(u64, u64)> {
        let found = fstat(self.place()?)?;
        Ok((found.st_dev, found.st_ino))
    }
}

/// The path below the root of the process.
fn absolute(process: &Path, path: &Path) -> io::Result<PathBuf> {
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    let (root, folder) = (
        fs::read_link(process.join("root"))?,
        fs::read_link(process.join("cwd"))?,
    );
    let below = folder.strip_prefix(root).map_err(io::Error::other)?;
    Ok(Path::new("/").join(below).join(path))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, mknodat};

    use super::*;

    fn read(file: &NamedFile) -> String {
        let mut text = String::new();
        file.open().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn the_files_of_a_container_are_not_those_of_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let (here, process) = (folder.path().join("conf"), folder.path().join("process"));
        let root = folder.path().join("container");
        fs::create_dir(&process).unwrap();
        symlink(&root, process.join("root")).unwrap();
        symlink(root.join("folder"), process.join("cwd")).unwrap();
        let below = |path: &Path| root.join(path.strip_prefix("/").unwrap());
        let there = below(&here);
        let file = |path: &Path| NamedFile::of_process(&process, path);
        let of_container = process.join("root").join(here.strip_prefix("/").unwrap());
        fs::write(&here, "host").unwrap();
        // The process has no such file.
        fs::create_dir_all(there.parent().unwrap()).unwrap();
        assert_eq!(file(&here).path(), of_container);
        file(&here).open().unwrap_err();
        fs::write(&there, "container").unwrap();
        assert_eq!(file(&here).path(), of_container);
        assert_eq!(read(&file(&here)), "container");
        // A relative path.
        fs::create_dir(root.join("folder")).unwrap();
        fs::write(root.join("folder/conf"), "folder").unwrap();
        let relative = file(Path::new("conf"));
        assert_eq!(relative.path(), process.join("root/folder/conf"));
        assert_eq!(read(&relative), "folder");
        // An absolute link of the container.
        let link = folder.path().join("link");
        symlink(&here, below(&link)).unwrap();
        assert_eq!(read(&file(&link)), "container");
        symlink(&here, &link).unwrap();
        assert_eq!(read(&file(&link)), "container");
        // Without a container, both paths are of one file.
        fs::remove_file(&there).unwrap();
        fs::hard_link(&here, &there).unwrap();
        assert_eq!(file(&here), NamedFile::here(here));
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let [device, of_kernel] = ["/dev/null", "/proc/version"].map(PathBuf::from);
        for path in [device, of_kernel, pipe, folder.path().into()] {
            let why = NamedFile::here(path.clone()).open().unwrap_err();
            assert_eq!(
                why.to_string(),
                "the file is empty or no regular file",
                "{path:?}"
            );
        }
    }
}
