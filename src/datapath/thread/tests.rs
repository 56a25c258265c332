use super::super::testing::{Call, Rig};
use super::*;

#[test]
fn the_fabric_s_deadline_is_handled_in_time() {
    let rig = Rig::new();
    rig.state.lock().unwrap().deadline = Some(fabric::Instant(1));
    assert_eq!(rig.run([]), [Call::Timeout, Call::Flush]);
    let rig = Rig::new();
    rig.state.lock().unwrap().deadline = Some(fabric::Instant(u64::MAX));
    assert_eq!(rig.run([]), [Call::Flush]);
}

#[test]
fn the_thread_sleeps_until_the_fabric_s_deadline() {
    let mut rig = Rig::new();
    assert_eq!(rig.thread.timeout(), None);
    rig.state.lock().unwrap().deadline = Some(fabric::Instant(1));
    let past = rig.thread.timeout().unwrap();
    assert_eq!((past.tv_sec, past.tv_nsec), (0, 0));
    let later = nanoseconds() + 5_000_000_000;
    rig.state.lock().unwrap().deadline = Some(fabric::Instant(later));
    let left = rig.thread.timeout().unwrap();
    assert!(left.tv_sec < 5 && (left.tv_sec, left.tv_nsec) > (0, 0));
}
