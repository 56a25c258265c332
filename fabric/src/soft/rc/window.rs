//! The window: the number of packets that may be in flight. It grows with acknowledgements and shrinks,
//! once a round trip, on loss, on growing delay and on congestion notifications.
//!
//! Underlays drop when a socket buffer overflows, so the bytes in flight are bounded as well.

/// Initial window in packets, unless the minimum is larger.
const START: u32 = 64;

/// Minimum window in packets: two rounds of acknowledgements of a peer that waits for sixteen packets.
/// It also keeps random loss from slowing a fast network too much.
const FLOOR: u32 = 32;

/// Minimum window in payload bytes: two messages. With less than a message, the interface would wait for the peer
/// within each message, and a busy peer answers late.
const BYTES_MIN: u32 = 128 << 10;

/// Minimum window in packets of `path_mtu` payload bytes.
const fn packets_min(path_mtu: u32) -> u32 {
    let packets = BYTES_MIN / path_mtu;
    if packets > FLOOR { packets } else { FLOOR }
}

/// What growing delay leaves of the window, in parts of the maximum: 512 KiB, four milliseconds of 1 Gbit/s. Acknowledgements
/// are late, too, if a processor is busy. A smaller window makes the sender slow, and shortens no queue.
const LEFT_BY_DELAY: u32 = 4;

/// Maximum payload bytes in flight: what a stream of 15 Gbit/s has outstanding in a round trip of a
/// millisecond, which data threads that share a processor need.
pub const BYTES_MAX: u32 = 2 << 20;

/// Maximum window in packets of `path_mtu` payload bytes.
pub const fn packets_max(path_mtu: u32) -> u32 {
    let packets = BYTES_MAX / path_mtu;
    if packets > START { packets } else { START }
}

/// Tolerated loss: one packet in so many. It is no sign of a full queue, so the window need not shrink;
/// overflowing buffers lose more.
const TOLERATED: u32 = 32;

/// Number of packets over which the loss is measured.
const SHARE_OVER: u32 = 512;

/// Why the window shrinks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Congestion {
    /// Packets were lost.
    Loss,
    /// A network node or the receiver reported congestion.
    Notified,
    /// Packets wait in a queue.
    Delay,
    /// Acknowledgement timeout.
    Timeout,
}

/// The window of one queue pair. Positions count packets since its start.
#[derive(Debug)]
pub struct Window {
    packets: u32,
    min: u32,
    max: u32,
    /// Below the threshold the window grows by the acknowledged packets, above it by a part of them.
    threshold: u32,
    /// Packets acknowledged towards the next step above the threshold.
    earned: u32,
    /// Packets before this position were sent before the last reduction.
    mark: u64,
    /// Packets recently lost and acknowledged.
    lost: u32,
    arrived: u32,
}

impl Window {
    /// Creates an initial window for packets of `path_mtu` payload bytes.
    pub fn new(path_mtu: u32) -> Window {
        let (min, max) = (packets_min(path_mtu), packets_max(path_mtu));
        Window {
            packets: START.max(min),
            min,
            max,
            threshold: max,
            earned: 0,
            mark: 0,
            lost: 0,
            arrived: 0,
        }
    }

    /// Packets that may be in flight.
    pub const fn packets(&self) -> u32 {
        self.packets
    }

    /// Records `n` acknowledged packets.
    pub fn arrived(&mut self, n: u32) {
        self.arrived = self.arrived.saturating_add(n);
        while self.arrived > SHARE_OVER {
            self.arrived /= 2;
            self.lost /= 2;
        }
    }

    /// Records `n` lost packets, one of them at position `at`. Shrinks the window if more than the
    /// tolerated share is lost.
    pub fn lost(&mut self, n: u32, at: u64, next: u64) {
        self.lost = self.lost.saturating_add(n);
        if self.lost.saturating_mul(TOLERATED) > self.arrived.max(SHARE_OVER / 2) {
            self.shrink(Congestion::Loss, at, next);
        }
    }

    /// Grows the window after `n` packets were acknowledged while the window was in use.
    pub fn grow(&mut self, n: u32) {
        if self.packets < self.threshold {
            self.packets = self.packets.saturating_add(n).min(self.max);
            return;
        }
        // Four packets a round trip.
        self.earned = self.earned.saturating_add(n);
        let step = (self.packets / 4).max(1);
        while self.earned >= step && self.packets < self.max {
            self.earned -= step;
            self.packets += 1;
        }
        self.earned = self.earned.min(step);
    }

    /// Shrinks because of an event of the packet at position `at`, unless the packet was sent before
    /// the last reduction; `next` is the next position to send. Returns whether the window has shrunk.
    pub fn shrink(&mut self, why: Congestion, at: u64, next: u64) -> bool {
        if at < self.mark {
            return false;
        }
        if why == Congestion::Delay && self.packets <= self.max / LEFT_BY_DELAY {
            // The window grows slowly, and a loss after this event counts.
            self.threshold = self.threshold.min(self.packets);
            return false;
        }
        self.mark = next;
        let left = match why {
            Congestion::Loss => self.packets / 10 * 7,
            Congestion::Notified => self.packets / 2,
            Congestion::Delay => (self.packets / 8 * 7).max(self.max / LEFT_BY_DELAY),
            Congestion::Timeout => self.min,
        };
        self.packets = left.max(self.min);
        self.threshold = self.packets;
        self.earned = 0;
        (self.lost, self.arrived) = (0, 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_stays_between_its_floor_and_two_mebibytes() {
        let mut window = Window::new(4096);
        for _ in 0..100 {
            window.grow(64);
        }
        assert_eq!(window.packets(), 512);
        for k in 0..100 {
            window.shrink(Congestion::Loss, k * 10, k * 10 + 5);
        }
        assert_eq!(window.packets(), FLOOR);
    }

    #[test]
    fn two_messages_fit_into_every_window() {
        for path_mtu in [256, 512, 1024, 2048, 4096] {
            let mut window = Window::new(path_mtu);
            assert!(window.packets() * path_mtu >= 128 << 10);
            for k in 0..100 {
                window.shrink(Congestion::Delay, k * 10, k * 10 + 5);
            }
            window.shrink(Congestion::Timeout, 2000, 2005);
            assert!(window.packets() * path_mtu >= 128 << 10);
        }
    }

    #[test]
    fn delay_leaves_half_a_mebibyte() {
        let mut window = Window::new(4096);
        assert!(!window.shrink(Congestion::Delay, 10, 60));
        assert_eq!(window.packets(), START, "it does not grow");
        assert!(window.shrink(Congestion::Notified, 10, 60), "it counts");
        let mut window = Window::new(4096);
        for _ in 0..8 {
            window.grow(64);
        }
        for k in 1..100 {
            window.shrink(Congestion::Delay, k * 10, k * 10 + 5);
        }
        assert_eq!(window.packets() * 4096, 512 << 10);
    }

    #[test]
    fn it_shrinks_once_a_round_trip() {
        let mut window = Window::new(4096);
        assert!(window.shrink(Congestion::Loss, 10, 60));
        let after_one = window.packets();
        assert!(!window.shrink(Congestion::Loss, 11, 60));
        assert!(!window.shrink(Congestion::Notified, 59, 70));
        assert_eq!(window.packets(), after_one);
        assert!(window.shrink(Congestion::Notified, 60, 80));
        assert!(window.packets() < after_one);
    }

    #[test]
    fn a_lossy_network_is_not_a_full_one() {
        let mut window = Window::new(4096);
        for k in 0..1000 {
            window.arrived(99);
            window.lost(1, k * 100, k * 100 + 64);
        }
        assert_eq!(window.packets(), START);
        // One in twenty is too much.
        for k in 1000..1020 {
            window.arrived(19);
            window.lost(1, k * 100, k * 100 + 64);
        }
        assert!(window.packets() < START);
        // So is a burst.
        let before = window.packets();
        window.lost(9, 200_000, 200_064);
        assert!(window.packets() < before);
    }

    #[test]
    fn any_number_of_losses_can_be_counted() {
        let mut window = Window::new(4096);
        window.shrink(Congestion::Loss, 0, 1000);
        for _ in 0..3 {
            window.lost(u32::MAX, 10, 1000);
        }
        assert!(window.packets() >= FLOOR);
    }

    #[test]
    fn after_a_loss_it_grows_by_four_packets_a_round_trip() {
        let mut window = Window::new(4096);
        window.shrink(Congestion::Loss, 0, 1);
        let before = window.packets();
        window.grow(before);
        assert!((3..=5).contains(&(window.packets() - before)));
    }
}
