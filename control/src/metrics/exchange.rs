//! One connection: a request, an answer, the end (RFC 9112).

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::Instant;

use crate::api::ApiError;
use crate::connection::Waits;

/// Maximum number of bytes of a request: its first line and its headers.
const REQUEST_MAX: usize = 4096;

/// A connected socket that does not block.
pub trait Stream: Read + Write + AsFd {}

impl<S: Read + Write + AsFd> Stream for S {}

/// An answer: its head and its body.
struct Answer {
    head: Vec<u8>,
    body: Rc<str>,
    /// Bytes written of both.
    written: usize,
}

/// A connection with its request, then with its answer.
pub struct Exchange {
    stream: Box<dyn Stream>,
    since: Instant,
    request: Vec<u8>,
    answer: Option<Answer>,
}

impl Exchange {
    pub fn new(stream: Box<dyn Stream>) -> Exchange {
        Exchange {
            stream,
            since: Instant::now(),
            request: Vec::new(),
            answer: None,
        }
    }

    /// When the connection was accepted.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Reads, answers and writes without waiting. `metrics` returns the text; its argument is whether the client
    /// accepts the OpenMetrics format.
    pub fn turn(&mut self, metrics: &mut dyn FnMut(bool) -> Result<Rc<str>, ApiError>) -> Waits {
        // An error means that the client has disconnected.
        self.try_turn(metrics).unwrap_or(Waits::Over)
    }

    fn try_turn(
        &mut self,
        metrics: &mut dyn FnMut(bool) -> Result<Rc<str>, ApiError>,
    ) -> io::Result<Waits> {
        while self.answer.is_none() {
            let mut bytes = [0; 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(Waits::Over),
                Ok(n) => self.request.extend(&bytes[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Waits::ToRead),
                Err(e) => return Err(e),
            }
            let ends = self.request.windows(4).any(|four| four == b"\r\n\r\n");
            if ends || self.request.len() > REQUEST_MAX {
                self.answer = Some(answer(&self.request, ends, metrics));
            }
        }
        self.write()
    }

    fn write(&mut self) -> io::Result<Waits> {
        let Some(answer) = &mut self.answer else {
            return Ok(Waits::Over);
        };
        loop {
            let rest = match answer.head.get(answer.written..) {
                Some(rest) if !rest.is_empty() => rest,
                _ => &answer.body.as_bytes()[answer.written - answer.head.len()..],
            };
            if rest.is_empty() {
                return Ok(Waits::Over);
            }
            match self.stream.write(rest) {
                Ok(n) => answer.written += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Waits::ToWrite),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl AsFd for Exchange {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The answer to a request, which is incomplete if it does not end within [`REQUEST_MAX`].
fn answer(
    request: &[u8],
    is_complete: bool,
    metrics: &mut dyn FnMut(bool) -> Result<Rc<str>, ApiError>,
) -> Answer {
    const PLAIN: &str = "text/plain; charset=utf-8";
    const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";
    const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    let request = String::from_utf8_lossy(request);
    let mut lines = request.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let line = (words.next(), words.next(), words.next(), words.next());
    let (status, kind, body): (&str, &str, Rc<str>) = match line {
        _ if !is_complete => (
            "431 Request Header Fields Too Large",
            PLAIN,
            format!("the request has more than {REQUEST_MAX} bytes\n").into(),
        ),
        (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) => {
            let path = target.split('?').next().unwrap_or_default();
            let open = lines.any(accepts_open_metrics);
            match (method, path) {
                ("GET", "/metrics") => match metrics(open) {
                    Ok(text) => ("200 OK", if open { OPEN } else { CLASSIC }, text),
                    Err(error) => (
                        "503 Service Unavailable",
                        PLAIN,
                        format!("{error}\n").into(),
                    ),
                },
                ("GET", _) => (
                    "404 Not Found",
                    PLAIN,
                    "this page does not exist; the metrics are at /metrics\n".into(),
                ),
                _ => (
                    "405 Method Not Allowed",
                    PLAIN,
                    "only GET is served\n".into(),
                ),
            }
        }
        _ => (
            "400 Bad Request",
            PLAIN,
            "this is not a request of HTTP/1.1\n".into(),
        ),
    };
    let allow = if status.starts_with("405") {
        "Allow: GET\r\n"
    } else {
        ""
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    );
    Answer {
        head: head.into_bytes(),
        body,
        written: 0,
    }
}

/// Whether a header says that the client accepts the OpenMetrics format.
fn accepts_open_metrics(header: &str) -> bool {
    header.split_once(':').is_some_and(|(name, value)| {
        name.eq_ignore_ascii_case("accept") && value.contains("application/openmetrics-text")
    })
}
