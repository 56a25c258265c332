//! Calls that are not answered.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::net::{SendFlags, send};
use serde::Serialize;

use super::{Call, ClientError, ControlClient, encode, qualified};
use crate::api::methods::Method;

/// Calls on a connection of their own that are not answered ("oneway"). Writing never waits; what the
/// daemon does not take yet is kept, and [`Posts::pending`] says how much that is.
#[derive(Debug)]
pub struct Posts {
    stream: UnixStream,
    path: PathBuf,
    output: Vec<u8>,
    /// Bytes of `output` that are out.
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
    /// [`ClientError::Protocol`] where the parameters cannot be written as JSON.
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

    /// Bytes that are still to be written. While there are some, the descriptor should be waited for.
    pub fn pending(&self) -> usize {
        self.output.len() - self.written
    }

    /// Writes what the daemon takes now.
    ///
    /// # Errors
    /// [`ClientError::Ended`] where it has gone away.
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
