//! Tests messages between threads: order, sums, failures, and the end of a rank.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lockstep_topology::Rank;

use super::super::{Combine, Region, RegionMut, Tag, Transport, TransportError, control};
use super::{ends, run};

fn region(data: &mut [f32]) -> RegionMut {
    // SAFETY: tests keep the data until the messages are done or the job is over.
    unsafe { RegionMut::new(data.as_mut_ptr(), data.len()) }
}

fn read(data: &[f32]) -> Region {
    // SAFETY: as above.
    unsafe { Region::new(data.as_ptr(), data.len()) }
}

#[test]
fn equal_tags_match_in_order_and_other_tags_do_not_match() {
    // Rank 0 sends 1, 2 under tag A and 30 under tag B; rank 1 posts B first, then A twice (copy 1, then sum 2 onto 10).
    let (a, b) = (Tag::exchange(0, 0), Tag::exchange(0, 1));
    let mut ends = ends(2, 0);
    let (mut one, mut zero) = (ends.pop().unwrap(), ends.pop().unwrap());
    let data = [1.0, 2.0, 30.0];
    let sent: Vec<_> = [(a, 0), (a, 1), (b, 2)]
        .map(|(tag, at)| zero.post_send(Rank(1), tag, read(&data).part(at..at + 1)).unwrap())
        .into();
    let mut got = [0.0, 10.0, 0.0];
    let into = region(&mut got);
    let third = one.post_recv(Rank(0), b, into.part(2..3), Combine::Copy, RegionMut::empty()).unwrap();
    let first = one.post_recv(Rank(0), a, into.part(0..1), Combine::Copy, RegionMut::empty()).unwrap();
    let second = one.post_recv(Rank(0), a, into.part(1..2), Combine::Sum, RegionMut::empty()).unwrap();
    assert_eq!(one.recv_done(second), Ok(false));
    one.poll().unwrap();
    // Queried in another order than posted: the matching is the same.
    assert_eq!(one.recv_done(second), Ok(true));
    assert_eq!(zero.send_done(sent[0]), Ok(false));
    assert_eq!((one.recv_done(first), one.recv_done(third)), (Ok(true), Ok(true)));
    assert_eq!(got, [1.0, 12.0, 30.0]);
    for id in sent {
        assert_eq!(zero.send_done(id), Ok(true));
    }
}

#[test]
fn messages_carry_the_bits_of_every_format() {
    let bytes: Vec<u8> = (0..=250).chain(0..=2).collect();
    let words = vec![0x7f80_0001u32, 0, u32::MAX];
    let got = run(vec![(); 2], 0, |end, ()| {
        if end.rank().0 == 0 {
            control::send_elements(end, Rank(1), 1, bytes.clone())?;
            control::send_elements(end, Rank(1), 2, words.clone())?;
            return Ok(None);
        }
        let got: Vec<u8> = control::receive_elements(end, Rank(0), 1, bytes.len())?;
        Ok::<_, TransportError>(Some((got, control::receive_elements(end, Rank(0), 2, 3)?)))
    });
    assert_eq!(got.unwrap(), [None, Some((bytes, words))]);
}

#[test]
fn parts_of_a_region_are_elements_of_its_format() {
    let (mut bytes, mut words) = ([1u8, 2, 3, 4], [5u32, 6, 7]);
    // SAFETY: the arrays outlive their regions, which are used one after the other.
    let [bytes, words] = unsafe { [RegionMut::new(bytes.as_mut_ptr(), 4), RegionMut::new(words.as_mut_ptr(), 3)] };
    assert_eq!((bytes.part(1..3).bytes(), words.part(1..3).bytes()), (2, 8));
    bytes.part(0..1).combine(bytes.part(3..4).read(), Combine::Copy);
    words.part(0..1).combine(words.part(2..3).read(), Combine::Copy);
    let (mut first, mut second) = ([0u8; 4], [0u32; 3]);
    // SAFETY: as above.
    let [all_bytes, all_words] =
        unsafe { [RegionMut::new(first.as_mut_ptr(), 4), RegionMut::new(second.as_mut_ptr(), 3)] };
    all_bytes.combine(bytes.read(), Combine::Copy);
    all_words.combine(words.read(), Combine::Copy);
    assert_eq!((first, second), ([4, 2, 3, 4], [7, 6, 7]));
}

#[test]
#[should_panic(expected = "the host adds fp32 and bf16, not u32")]
fn sums_of_other_formats_are_refused() {
    let mut words = [1u32, 2];
    // SAFETY: the array outlives its region.
    let region = unsafe { RegionMut::new(words.as_mut_ptr(), 2) };
    region.part(0..1).combine(region.part(1..2).read(), Combine::Sum);
}

#[test]
#[should_panic(expected = "differ in length or format")]
fn a_message_of_another_format_is_refused() {
    let (mut words, mut floats) = ([1u32], [1.0f32]);
    // SAFETY: the arrays outlive their regions.
    let [words, floats] = unsafe { [RegionMut::new(words.as_mut_ptr(), 1), RegionMut::new(floats.as_mut_ptr(), 1)] };
    floats.combine(words.read(), Combine::Copy);
}

#[test]
fn a_message_to_the_same_rank_arrives() {
    let mut end = ends(1, 0).pop().unwrap();
    let mut data = [5.0, 0.0];
    let all = region(&mut data);
    let sent = end.post_send(Rank(0), Tag::exchange(3, 0), all.read().part(0..1)).unwrap();
    let id = end.post_recv(Rank(0), Tag::exchange(3, 0), all.part(1..2), Combine::Copy, RegionMut::empty()).unwrap();
    end.wait(None).unwrap();
    end.poll().unwrap();
    assert_eq!((end.recv_done(id), end.send_done(sent)), (Ok(true), Ok(true)));
    assert_eq!(data, [5.0, 5.0]);
}

#[test]
fn a_wrong_length_is_an_error_with_both_lengths() {
    let mut ends = ends(2, 0);
    let data = [1.0, 2.0, 3.0];
    ends[0].post_send(Rank(1), Tag::exchange(0, 0), read(&data)).unwrap();
    let mut got = [0.0; 2];
    let id = ends[1].post_recv(Rank(0), Tag::exchange(0, 0), region(&mut got), Combine::Copy, RegionMut::empty());
    ends[1].poll().unwrap();
    let error = ends[1].recv_done(id.unwrap()).unwrap_err().to_string();
    assert_eq!(error, "rank 0 sent 3 elements as exchange 0 slot 0, rank 1 expects 2");
}

#[test]
fn a_barrier_holds_all_ranks_until_the_last() {
    for ranks in 1..10 {
        let arrived = AtomicU32::new(0);
        run(vec![(); ranks as usize], 0, |end, ()| {
            for round in 1..=20 {
                arrived.fetch_add(1, Ordering::SeqCst);
                control::barrier(end)?;
                assert!(arrived.load(Ordering::SeqCst) >= round * ranks);
                control::barrier(end)?;
            }
            Ok::<(), TransportError>(())
        })
        .unwrap();
    }
}

#[test]
fn all_64_bits_of_a_control_message_survive() {
    let values = [0, 1, u64::MAX, 0x7fa0_0001_ff80_0000, 0x8000_0000_7f80_0001, 1 << 63];
    run(vec![(); 2], 0, |end, ()| {
        let peer = Rank(1 - end.rank().0);
        for value in values {
            if end.rank().0 == 0 {
                control::send(end, peer, 1, value)?;
                assert_eq!(control::receive(end, peer, 2)?, !value);
            } else {
                assert_eq!(control::receive(end, peer, 1)?, value);
                control::send(end, peer, 2, !value)?;
            }
            assert_eq!(control::swap(end, peer, peer, 3, value)?, value);
        }
        Ok::<(), TransportError>(())
    })
    .unwrap();
}

/// Ranks 0, 1 and 3 wait for rank 2, which does what `rank_2` says.
fn while_others_wait(rank_2: impl Fn() -> Result<(), TransportError> + Sync) -> (TransportError, Duration) {
    let began = Instant::now();
    let result = run(vec![(); 4], 0, |end, ()| {
        control::barrier(end)?;
        match end.rank().0 {
            2 => rank_2(),
            _ => control::receive(end, Rank(2), 9).map(|_| ()),
        }
    });
    (result.unwrap_err(), began.elapsed())
}

#[test]
fn a_panic_ends_every_wait_with_its_cause() {
    let (error, took) = while_others_wait(|| panic!("bad luck in layer {}", 3));
    assert_eq!(error, TransportError::Aborted { rank: Rank(2), cause: "panic: bad luck in layer 3".to_owned() });
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn an_error_ends_every_wait_with_its_cause() {
    let (error, took) = while_others_wait(|| Err(TransportError::Unsupported("no such layer".to_owned())));
    assert_eq!(error.to_string(), "the job ended because rank 2 failed: no such layer");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_rank_that_leaves_early_is_named() {
    let (error, took) = while_others_wait(|| Ok(()));
    assert!(error.to_string().contains("waits for control message 9 with rank 2, which has ended"), "{error}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_dropped_end_withdraws_its_messages() {
    let mut ends = ends(2, 0);
    let (mut one, mut zero) = (ends.pop().unwrap(), ends.pop().unwrap());
    let gone = vec![1.0; 1000];
    zero.post_send(Rank(1), Tag::exchange(0, 0), read(&gone)).unwrap();
    drop(zero);
    drop(gone);
    let mut got = vec![0.0; 1000];
    let error = one.post_recv(Rank(0), Tag::exchange(0, 0), region(&mut got), Combine::Copy, RegionMut::empty());
    assert_eq!(
        error.unwrap_err().to_string(),
        "the job ended because rank 0 failed: it ended with 1 of its messages open"
    );
}

#[test]
fn a_wait_ends_at_its_deadline() {
    let mut ends = ends(2, 10);
    let began = Instant::now();
    ends[0].wait(Some(began + Duration::from_millis(20))).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(20));
}
