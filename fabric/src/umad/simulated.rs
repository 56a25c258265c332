//! What a simulated port needs: ibsim does less than the kernel and a real port.
//!
//! The sysfs of ibsim's preload does not change, so the port is asked for its attributes.
//!
//! The questions are subnet management MADs along a directed route without hops, which ibsim answers for
//! the port that asks (IBA vol. 1, 14.2.1.2).

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::attributes::{LinkState, PortAttributes};
use super::message::{Received, To};
use crate::mad::class::SUBN_DIRECTED_ROUTE;
use crate::mad::sa::PortInfo;
use crate::mad::smp::{self, DATA, PKEY_TABLE, PORT_INFO, SM_INFO, SmInfo};
use crate::mad::{MAD_LEN, method};
use crate::{Guid, Lid, PKey};

/// The class of the questions.
pub const CLASS: u8 = SUBN_DIRECTED_ROUTE;
/// The LID of both ends of a directed route.
pub const PERMISSIVE: Lid = Lid(0xffff);
/// P_Keys in a block of the table.
const BLOCK: usize = 32;
/// ibsim answers at once.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers to the questions, from the thread of the port.
#[derive(Debug, Default)]
pub struct Answers {
    /// Serves one asker at a time, and has the last transaction id.
    asking: Mutex<u32>,
    last: Mutex<Option<Vec<u8>>>,
    arrived: Condvar,
}

impl Answers {
    /// Takes an answer.
    pub fn add(&self, mad: Vec<u8>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(mad);
        self.arrived.notify_all();
    }

    /// Replaces what changes on a port by the port's answers. `send` sends a MAD to the port itself.
    ///
    /// # Errors
    /// Those of `send`; ETIMEDOUT without an answer within a second.
    pub fn refresh(
        &self,
        port: u8,
        mut seen: PortAttributes,
        mut send: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<PortAttributes> {
        let mut id = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ask = |attribute, modifier| {
            *id = id.wrapping_add(1);
            send(&question(*id, attribute, modifier))?;
            self.wait(*id)
        };
        read_port_info(&ask(PORT_INFO, port.into())?, &mut seen);
        let blocks = seen.pkeys.len().div_ceil(BLOCK);
        for block in 0..blocks {
            let answer = ask(PKEY_TABLE, u32::try_from(block).unwrap_or(0))?;
            let keys = answer.get(DATA..).unwrap_or_default().as_chunks().0.iter();
            let places = seen.pkeys.iter_mut().skip(block * BLOCK).take(BLOCK);
            for (place, key) in places.zip(keys) {
                *place = PKey::new(u16::from_be_bytes(*key));
            }
        }
        Ok(seen)
    }

    fn wait(&self, id: u32) -> io::Result<Vec<u8>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(mad) = last.take()
                && smp::answers(&mad, id)
            {
                return Ok(mad);
            }
            let (guard, late) = self
                .arrived
                .wait_timeout(last, PATIENCE)
                .unwrap_or_else(PoisonError::into_inner);
            last = guard;
            if late.timed_out() && last.is_none() {
                return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
            }
        }
    }
}

/// A Get of a subnet management attribute of the own port.
fn question(id: u32, attribute: u16, modifier: u32) -> [u8; MAD_LEN] {
    let mut mad = smp::get(CLASS, id, attribute, modifier);
    // DrSLID and DrDLID: the permissive LID at both ends.
    mad[32..36].fill(0xff);
    mad
}

/// The answer to a subnet manager that asks the port for its own manager: it is not active. Without an
/// answer OpenSM's sweep waits for ever, because nobody returns its question under ibsim.
pub fn manager_answer(question: &Received, guid: Guid) -> Option<(To, Vec<u8>)> {
    let mut mad = question.mad.clone();
    let asked = (*mad.get(3)?, mad.get(16..18)?);
    if asked != (method::GET, &SM_INFO.to_be_bytes()[..]) {
        return None;
    }
    let directed = *mad.get(1)? == CLASS;
    let info = mad.get_mut(DATA..DATA + SmInfo::LEN)?;
    info.fill(0);
    info.get_mut(..8)?.copy_from_slice(&guid.0);
    *mad.get_mut(3)? = method::GET_RESP;
    // The direction bit of a directed route.
    *mad.get_mut(4)? |= if directed { 0x80 } else { 0 };
    let lid = if directed { PERMISSIVE } else { question.slid };
    Some((To::smi(lid), mad))
}

/// Takes what changes from the port's PortInfo; nothing if the MAD is short.
fn read_port_info(mad: &[u8], seen: &mut PortAttributes) {
    let Some(info) = mad.get(DATA..).and_then(PortInfo::parse) else {
        return;
    };
    seen.gid_prefix = info.gid_prefix.to_be_bytes();
    seen.lid = Lid(info.lid);
    seen.sm_lid = Lid(info.sm_lid);
    seen.capability_mask = info.capability_mask;
    seen.state = LinkState::from_number(info.state.into());
    seen.lmc = info.lmc;
    seen.sm_sl = info.sm_sl;
}

#[cfg(test)]
mod tests {
    use super::*;

    const VECTORS: &str = include_str!("../../../tests/data/subnet-administration/smp.txt");

    fn vector(name: &str) -> Vec<u8> {
        let line = VECTORS.lines().find_map(|line| line.strip_prefix(name));
        let (pairs, _) = line.unwrap().trim().as_bytes().as_chunks::<2>();
        let byte = |pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        pairs.iter().map(|pair| byte(pair)).collect()
    }

    /// The questions that ibsim got, and its answers.
    #[test]
    fn a_port_of_ibsim_is_read() {
        let answers = Answers::default();
        let before = PortAttributes {
            lid: Lid(0),
            lmc: 7,
            sm_lid: Lid(0),
            sm_sl: 7,
            state: LinkState::Down,
            gid_prefix: [0; 8],
            guid: Guid([1; 8]),
            rate: 10,
            capability_mask: 0,
            infiniband: true,
            pkeys: vec![PKey::new(0); 2],
        };
        let mut names = ["port-info", "p-key-table"].into_iter();
        let send = |mad: &[u8]| {
            let name = names.next().unwrap();
            assert_eq!(mad, vector(&format!("{name} sent")), "{name}");
            answers.add(vector(&format!("{name} received")));
            Ok(())
        };
        let seen = answers.refresh(1, before.clone(), send).unwrap();
        let expected = PortAttributes {
            lid: Lid(0x20),
            lmc: 0,
            sm_lid: Lid(1),
            sm_sl: 0,
            state: LinkState::Active,
            gid_prefix: [0xfe, 0x80, 0, 0, 0, 0, 0, 0],
            capability_mask: 0x0050_c048,
            pkeys: vec![PKey::DEFAULT, PKey::new(0)],
            ..before
        };
        assert_eq!(seen, expected);
    }

    #[test]
    fn sm_info_of_opensm_is_read() {
        let question = smp::get(crate::mad::class::SUBN_LID_ROUTED, 1, SM_INFO, 0);
        assert_eq!(question[..], vector("sm-info sent"));
        let info = SmInfo::parse(&vector("sm-info received")).unwrap();
        let expected = SmInfo {
            guid: Guid([0, 0x99, 0, 0xff, 0xfe, 0, 0, 1]),
            activity_count: 70,
            priority: 9,
            state: SmInfo::MASTER,
        };
        assert_eq!(info, expected);
    }
}
