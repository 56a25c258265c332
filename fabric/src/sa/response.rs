//! Answers of the SA.

use std::fmt;

use zerocopy::FromBytes;

use crate::mad::sa::{CLASS_VERSION, DATA_LEN, Record, status};
use crate::mad::{BASE_VERSION, Header, SaHeader, class, method, status_name};
use crate::rmpp::flag;

/// Bytes of records in a full datagram of ibsim (0.10): the bytes behind them are undefined.
const IBSIM_DATA_LEN: usize = 168;

/// Bytes of the header of subnet administration, which the payload length of a segment includes.
const SEGMENT_HEADER_LEN: usize = 20;

/// An answer without an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// See [`method`].
    pub method: u8,
    /// See [`crate::mad::sa`].
    pub attribute: u16,
    /// The bytes of a record with its padding. Of an answer that is no table: all of its data.
    pub record_len: usize,
    /// The records, one after the other.
    pub data: Vec<u8>,
    /// Whether records are missing: ibsim delivers only the first 168 bytes of a table, and a carrier that
    /// should put segments together only the first 200.
    pub truncated: bool,
}

impl Response {
    /// The records, each [`Self::record_len`] bytes.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        self.data.chunks_exact(self.record_len.max(1))
    }

    /// The records of one type, without records that are too short; nothing if the answer has another
    /// attribute.
    pub fn all<R: Record>(&self) -> impl Iterator<Item = R> + '_ {
        let fits = self.attribute == R::ATTRIBUTE;
        let records = self.records().filter(move |_| fits);
        records.filter_map(|bytes| R::parse(bytes))
    }

    /// The first record; `None` if there is none of this type.
    pub fn first<R: Record>(&self) -> Option<R> {
        self.all().next()
    }
}

/// Why an answer cannot be used although it is the SA's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unusable {
    /// A table whose records have no length.
    NoRecordLength,
}

/// Why a request has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// No answer to any try.
    Timeout,
    /// The SA answered with this status; see [`crate::mad::sa::status`].
    Status(u16),
    /// The answer cannot be used.
    Malformed(Unusable),
    /// The transfer of a long answer ended with this RMPP status.
    Aborted(u8),
}

impl Failure {
    /// Whether the SA has decided nothing: it is silent or busy, and may answer the same request later.
    pub const fn is_undecided(self) -> bool {
        match self {
            Failure::Timeout => true,
            Failure::Status(status) => status & 0xff == status::BUSY,
            Failure::Malformed(_) | Failure::Aborted(_) => false,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Failure::Timeout => f.write_str("the subnet administrator does not answer"),
            Failure::Status(status) => match status_name(class::SUBN_ADM, status) {
                Some(name) => write!(
                    f,
                    "the subnet administrator refused the request: {name} (status {status:#06x})"
                ),
                None => write!(
                    f,
                    "the subnet administrator refused the request with status {status:#06x}"
                ),
            },
            Failure::Malformed(Unusable::NoRecordLength) => f.write_str(
                "the subnet administrator sent a table without the length of its records",
            ),
            Failure::Aborted(status) => write!(
                f,
                "the transfer of the subnet administrator's answer was aborted with RMPP status {status}"
            ),
        }
    }
}

impl std::error::Error for Failure {}

/// A received datagram, or several that the kernel put together: the headers of the first, then all
/// records.
pub(super) struct Received<'a> {
    pub header: Header,
    pub head: SaHeader,
    pub data: &'a [u8],
}

impl<'a> Received<'a> {
    /// Reads the headers; `None` if this is no datagram of subnet administration.
    pub fn parse(bytes: &'a [u8]) -> Option<Received<'a>> {
        let (header, rest) = Header::read_from_prefix(bytes).ok()?;
        let (head, data) = SaHeader::read_from_prefix(rest).ok()?;
        let versions = (header.base_version, header.mgmt_class, header.class_version);
        let expected = (BASE_VERSION, class::SUBN_ADM, CLASS_VERSION);
        (versions == expected).then_some(Received { header, head, data })
    }

    /// Whether this datagram is a segment, or the end, of a long answer.
    ///
    /// ibsim delivers the first datagram of a table with the active flag, but without type and
    /// length: this is no segment, since no other segment follows.
    pub const fn is_segment(&self) -> bool {
        self.head.rmpp_flags & flag::ACTIVE != 0 && self.head.rmpp_type != 0
    }

    /// The answer in this datagram, or in several that the kernel put together.
    ///
    /// # Errors
    /// [`Unusable`]
    pub fn response(&self) -> Result<Response, Unusable> {
        if self.is_table() {
            let data = self.table_data().to_vec();
            let truncated = self.is_cut() || self.is_first_of_several();
            return self.table(data, truncated);
        }
        Ok(Response {
            method: self.header.method,
            attribute: self.header.attribute_id.get(),
            record_len: self.data.len(),
            data: self.data.to_vec(),
            truncated: false,
        })
    }

    /// The answer to which this segment belongs, with the records of all segments.
    ///
    /// # Errors
    /// [`Unusable`]
    pub fn table(&self, data: Vec<u8>, truncated: bool) -> Result<Response, Unusable> {
        let record_len = usize::from(self.head.attribute_offset.get()) * 8;
        if record_len == 0 && !data.is_empty() {
            return Err(Unusable::NoRecordLength);
        }
        Ok(Response {
            method: self.header.method,
            attribute: self.header.attribute_id.get(),
            record_len,
            data,
            truncated,
        })
    }

    const fn is_table(&self) -> bool {
        matches!(
            self.header.method,
            method::GET_TABLE_RESP | method::GET_MULTI_RESP
        )
    }

    /// Whether ibsim delivered as much of a table as one datagram holds.
    const fn is_cut(&self) -> bool {
        let untyped = self.head.rmpp_flags & flag::ACTIVE != 0 && self.head.rmpp_type == 0;
        untyped && self.data.len() == DATA_LEN
    }

    /// Whether this is the first segment of several, which nobody put together.
    const fn is_first_of_several(&self) -> bool {
        let flags = self.head.rmpp_flags & (flag::ACTIVE | flag::FIRST | flag::LAST);
        flags == flag::ACTIVE | flag::FIRST && self.data.len() == DATA_LEN
    }

    /// The records of a table, without the padding of the datagram.
    fn table_data(&self) -> &'a [u8] {
        if self.is_cut() {
            return self.data.get(..IBSIM_DATA_LEN).unwrap_or_default();
        }
        if self.data.len() != DATA_LEN {
            return self.data;
        }
        let length = self.head.data2.get() as usize;
        if self.is_segment() {
            let used = length.checked_sub(SEGMENT_HEADER_LEN);
            return used.and_then(|n| self.data.get(..n)).unwrap_or(self.data);
        }
        // Without RMPP nothing says how many records there are: records of zeros are padding.
        let record_len = usize::from(self.head.attribute_offset.get()).max(1) * 8;
        let padding = |r: &&[u8]| r.iter().all(|b| *b == 0);
        let records = self.data.chunks_exact(record_len);
        let used = records.rev().skip_while(padding).count();
        self.data.get(..used * record_len).unwrap_or_default()
    }
}
