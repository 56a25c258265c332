//! The files that another process names.
//!
//! In a container, a path leads to another file than here, and so does an absolute symbolic link on its way. Such a file
//! is opened below the root of the process, which resolves links there.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, open, openat2};

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

    /// Opens the file. Opening and reading do not wait for a writer, which a named pipe would do.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn open(&self) -> io::Result<File> {
        self.open_with(OFlags::RDONLY | OFlags::NONBLOCK)
    }

    fn open_with(&self, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC;
        let file = match &self.root {
            None => open(&self.path, flags, Mode::empty())?,
            Some(root) => {
                let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let root = open(root, how, Mode::empty())?;
                openat2(
                    root,
                    &self.path,
                    flags,
                    Mode::empty(),
                    ResolveFlags::IN_ROOT,
                )?
            }
        };
        Ok(file.into())
    }

    /// Device and inode.
    fn identity(&self) -> io::Result<(u64, u64)> {
        let found = fstat(self.open_with(OFlags::PATH)?)?;
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

    use rustix::fs::{CWD, FileType, mknodat};

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
    fn nothing_waits_for_the_writer_of_a_named_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert_eq!(read(&NamedFile::here(path)), "");
    }
}
