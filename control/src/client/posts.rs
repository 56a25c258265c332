//! Calls without replies.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::net::{SendFlags, send};
use serde::Serialize;

use super::{Call, ClientError, ControlClient, encode, qualified};
use crate::api::methods::Method;

/// A connection for calls without replies ("oneway"). Writing never waits. Calls wait in memory until the daemon
/// reads them; [`Posts::pending`] is their size.
#[derive(Debug)]
pub struct Posts {
    stream: UnixStream,
    path: PathBuf,
    output: Vec<u8>,
    /// Written bytes of `output`.
    written: usize,
}

impl Posts {
    pub(super) fn new(client: ControlClient) -> Posts {
        Posts {
            stream: client.stream,
            path: client.path,
            output: Vec::new(),
            written: 0,
        }
    }

    /// Adds a call; [`Posts::flush`] writes it.
    ///
    /// # Errors
    /// [`ClientError::Protocol`] if the parameters cannot be written as JSON.
    pub fn push<P: Serialize, R>(
        &mut self,
        method: Method<P, R>,
        parameters: &P,
    ) -> Result<(), ClientError> {
        let method = qualified(method.name);
        let call = Call {
            oneway: true,
            ..Call::once(&method, parameters)
        };
        self.output.extend(encode(&call)?);
        Ok(())
    }

    /// Bytes to write. While it is not 0, wait until the descriptor is writable.
    pub fn pending(&self) -> usize {
        self.output.len() - self.written
    }

    /// Writes as much as possible without waiting.
    ///
    /// # Errors
    /// [`ClientError::Ended`] if the daemon has closed the connection.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        while self.pending() > 0 {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.stream, &self.output[self.written..], flags) {
                Ok(n) => self.written += n,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.ended(error.into())),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }

    fn ended(&self, source: io::Error) -> ClientError {
        ClientError::Ended {
            path: self.path.clone(),
            source,
        }
    }
}

impl AsFd for Posts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
