//! Handing a mount over. The program that serves the files then needs no right to mount, and can have a mount
//! namespace of its own. A unix socket carries the descriptor of the kernel's requests.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// A message needs a byte beside the descriptor. The answer is the same byte.
const MOUNT: [u8; 1] = *b"M";

/// A socket that waits for a mount. The socket of a former `ibtap-fs` is replaced; another file is the user's.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::other("the file exists and is not a socket")),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    UnixListener::bind(path)
}

/// Waits for a mount: its descriptor, and the stream for [`confirm`].
pub fn take(listener: &UnixListener) -> io::Result<(OwnedFd, UnixStream)> {
    loop {
        let (stream, _) = listener.accept()?;
        if let Some(device) = receive(&stream)? {
            return Ok((device, stream));
        }
    }
}

/// Tells the giver that the files are served.
pub fn confirm(mut stream: UnixStream) -> io::Result<()> {
    stream.write_all(&MOUNT)
}

/// Sends the descriptor of a mount, and waits until the files are served.
pub fn give(path: &Path, device: OwnedFd) -> io::Result<()> {
    let mut stream = UnixStream::connect(path)?;
    let descriptors = [device.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(
        &stream,
        &[IoSlice::new(&MOUNT)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    // The mount ends with its last descriptor, so the kernel reports a taker that ends now.
    drop(device);
    stream.read_exact(&mut [0; MOUNT.len()])
}

/// `None`: the client sent no descriptor.
fn receive(stream: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = MOUNT;
    let text = &mut [IoSliceMut::new(&mut text)];
    recvmsg(stream, text, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.flatten().next())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_client_without_a_mount_is_passed_over() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("socket");
        let listener = listen(&path).unwrap();
        drop(UnixStream::connect(&path).unwrap());
        let mut silent = UnixStream::connect(&path).unwrap();
        silent.write_all(b"x").unwrap();
        let giver = thread::spawn({
            let path = path.clone();
            move || give(&path, std::fs::File::open("/dev/null").unwrap().into())
        });
        let (device, stream) = take(&listener).unwrap();
        assert!(std::fs::File::from(device).metadata().is_ok());
        confirm(stream).unwrap();
        giver.join().unwrap().unwrap();
    }

    #[test]
    fn only_a_socket_is_replaced() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("notes");
        std::fs::write(&path, "of the user").unwrap();
        let link = scratch.path().join("link");
        drop(listen(&scratch.path().join("socket")).unwrap());
        std::os::unix::fs::symlink("socket", &link).unwrap();
        for path in [&path, &link] {
            let error = listen(path).unwrap_err();
            assert_eq!(error.to_string(), "the file exists and is not a socket");
            assert!(path.symlink_metadata().is_ok());
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "of the user");
    }

    #[test]
    fn a_taker_that_ends_is_an_error_of_the_giver() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("socket");
        let listener = listen(&path).unwrap();
        let taker = thread::spawn(move || drop(take(&listener).unwrap()));
        let device = std::fs::File::open("/dev/null").unwrap().into();
        let error = give(&path, device).unwrap_err();
        taker.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        // The file stays; the next taker replaces it.
        listen(&path).unwrap();
    }
}
