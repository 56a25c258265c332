//! Acknowledgements in words (IBA vol. 1, 9.7.5.2.1 and 9.7.5.2.8, tables 44 to 46).

use fabric::soft::wire::{Acknowledgement, Aeth};

/// The meaning: `ACK`, `ACK credits 24`, `NAK PSN sequence error`, `RNR NAK 0.64 ms`.
pub fn meaning(aeth: &Aeth) -> String {
    const NAKS: [&str; 5] = [
        "PSN sequence error",
        "invalid request",
        "remote access error",
        "remote operational error",
        "invalid RD request",
    ];
    match aeth.acknowledgement() {
        // 31: the credit field is invalid.
        Acknowledgement::Ack { credits: 31 } => "ACK".to_owned(),
        Acknowledgement::Ack { credits } => format!("ACK credits {}", step(credits)),
        Acknowledgement::Rnr { timer } => {
            // Code 0 is the longest time.
            let hundredths = step(if timer == 0 { 32 } else { timer });
            format!("RNR NAK {}.{:02} ms", hundredths / 100, hundredths % 100)
        }
        Acknowledgement::Nak { code } => match NAKS.get(usize::from(code)) {
            Some(name) => format!("NAK {name}"),
            None => format!("NAK code {code}"),
        },
        Acknowledgement::Reserved => format!("reserved syndrome {:#04x}", aeth.syndrome),
    }
}

/// 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, …: the credits of a credit code, or the hundredths of a millisecond of
/// an RNR timer code.
fn step(code: u8) -> u32 {
    match u32::from(code) {
        code @ 0..=3 => code,
        code => (2 + (code & 1)) << (code / 2 - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syndromes_read_as_the_tables_of_the_standard() {
        let meaning_of = |syndrome| {
            meaning(&Aeth {
                syndrome,
                msn: [0; 3],
            })
        };
        assert_eq!(meaning_of(0x1f), "ACK");
        assert_eq!(meaning_of(0x00), "ACK credits 0");
        assert_eq!(meaning_of(0x05), "ACK credits 6");
        assert_eq!(meaning_of(0x0d), "ACK credits 96");
        assert_eq!(meaning_of(0x1e), "ACK credits 32768");
        assert_eq!(meaning_of(0x20), "RNR NAK 655.36 ms");
        assert_eq!(meaning_of(0x21), "RNR NAK 0.01 ms");
        assert_eq!(meaning_of(0x2c), "RNR NAK 0.64 ms");
        assert_eq!(meaning_of(0x3f), "RNR NAK 491.52 ms");
        assert_eq!(meaning_of(0x60), "NAK PSN sequence error");
        assert_eq!(meaning_of(0x63), "NAK remote operational error");
        assert_eq!(meaning_of(0x65), "NAK code 5");
        assert_eq!(meaning_of(0x41), "reserved syndrome 0x41");
    }
}
