//! Random sequences of memory calls, compared call by call with vectors of bytes.

mod support;

use grafos_std::error::{ErrorKind, Result};
use grafos_std::gpu::{FillPattern, GpuMemHandle, GpuSession};
use proptest::prelude::*;
use support::Bench;

const CAPACITY_BYTES: u64 = 4096;
const SLOTS: usize = 4;

#[derive(Debug, Clone)]
enum Step {
    Alloc {
        slot: usize,
        size: u64,
    },
    Write {
        slot: usize,
        offset: u64,
        len: usize,
        first: u8,
    },
    Read {
        slot: usize,
        offset: u64,
        len: u32,
    },
    Copy {
        dst: (usize, u64),
        src: (usize, u64),
        len: u64,
    },
    Fill {
        slot: usize,
        offset: u64,
        len: u64,
        pattern: FillPattern,
    },
    Free {
        slot: usize,
    },
    Drop {
        slot: usize,
    },
}

/// Mostly small offsets, some at the end of the 64 bits.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![12 => 0u64..140, 1 => u64::MAX - 8..=u64::MAX]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![12 => 0u64..140, 1 => u64::MAX - 8..=u64::MAX]
}

fn pattern() -> impl Strategy<Value = FillPattern> {
    prop_oneof![
        any::<u8>().prop_map(FillPattern::U8),
        any::<u16>().prop_map(FillPattern::U16),
        any::<u32>().prop_map(FillPattern::U32),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let slot = 0..SLOTS;
    let size = prop_oneof![
        8 => 0u64..130,
        1 => CAPACITY_BYTES - 64..CAPACITY_BYTES + 2,
        1 => u64::MAX - 1..=u64::MAX,
    ];
    prop_oneof![
        3 => (slot.clone(), size).prop_map(|(slot, size)| Step::Alloc { slot, size }),
        4 => (slot.clone(), offset(), 0usize..140, any::<u8>())
            .prop_map(|(slot, offset, len, first)| Step::Write { slot, offset, len, first }),
        4 => (slot.clone(), offset(), 0u32..140)
            .prop_map(|(slot, offset, len)| Step::Read { slot, offset, len }),
        3 => ((slot.clone(), offset()), (slot.clone(), offset()), length())
            .prop_map(|(dst, src, len)| Step::Copy { dst, src, len }),
        3 => (slot.clone(), offset(), length(), pattern())
            .prop_map(|(slot, offset, len, pattern)| Step::Fill { slot, offset, len, pattern }),
        1 => slot.clone().prop_map(|slot| Step::Free { slot }),
        1 => slot.prop_map(|slot| Step::Drop { slot }),
    ]
}

/// A buffer, its model, and whether it has been freed while a clone of its handle is kept.
struct Slot {
    handle: GpuMemHandle,
    bytes: Vec<u8>,
    freed: bool,
}

impl Slot {
    /// What a call on this range must answer.
    fn expect(&self, offset: u64, len: u64) -> Option<ErrorKind> {
        if self.freed {
            return Some(ErrorKind::InvalidHandle);
        }
        let end = u128::from(offset) + u128::from(len);
        (end > self.bytes.len() as u128).then_some(ErrorKind::OutOfBounds)
    }
}

fn kind<T>(answer: &Result<T>) -> Option<ErrorKind> {
    answer.as_ref().err().map(|error| error.kind())
}

fn fill_model(bytes: &mut [u8], pattern: FillPattern) {
    let word = match pattern {
        FillPattern::U8(byte) => vec![byte],
        FillPattern::U16(half) => half.to_le_bytes().to_vec(),
        FillPattern::U32(word) => word.to_le_bytes().to_vec(),
    };
    for (position, byte) in bytes.iter_mut().enumerate() {
        *byte = word[position % word.len()];
    }
}

fn run(session: &GpuSession, slots: &mut [Option<Slot>; SLOTS], step: Step) {
    let live = |slots: &[Option<Slot>; SLOTS]| -> u64 {
        let held = slots.iter().flatten().filter(|slot| !slot.freed);
        held.map(|slot| slot.bytes.len() as u64).sum()
    };
    match step {
        Step::Alloc { slot, size } => {
            slots[slot] = None;
            let free = CAPACITY_BYTES - live(slots);
            let answer = session.mem_alloc(size);
            let expected = (size > free).then_some(ErrorKind::CapacityExceeded);
            assert_eq!(kind(&answer), expected, "{size} bytes with {free} free");
            if let Ok(handle) = answer {
                // A new buffer's content is undefined.
                session
                    .mem_fill(&handle, 0, size, FillPattern::U8(0))
                    .expect("the range is the whole buffer");
                let bytes = vec![0; size as usize];
                slots[slot] = Some(Slot {
                    handle,
                    bytes,
                    freed: false,
                });
            }
        }
        Step::Write {
            slot,
            offset,
            len,
            first,
        } => {
            let Some(slot) = &mut slots[slot] else { return };
            let data: Vec<u8> = (0..len)
                .map(|index| first.wrapping_add(index as u8))
                .collect();
            let expected = slot.expect(offset, len as u64);
            let answer = session.mem_write(&slot.handle, offset, &data);
            assert_eq!(kind(&answer), expected);
            if expected.is_none() {
                slot.bytes[offset as usize..][..len].copy_from_slice(&data);
            }
        }
        Step::Read { slot, offset, len } => {
            let Some(slot) = &slots[slot] else { return };
            let answer = session.mem_read(&slot.handle, offset, len);
            // A read makes room for its answer, so it checks the bounds first.
            let end = u128::from(offset) + u128::from(len);
            let outside = end > slot.bytes.len() as u128;
            let expected = if outside {
                Some(ErrorKind::OutOfBounds)
            } else {
                slot.expect(offset, len.into())
            };
            assert_eq!(kind(&answer), expected);
            if let Ok(read) = answer {
                assert_eq!(read, slot.bytes[offset as usize..][..len as usize]);
            }
        }
        Step::Copy { dst, src, len } => {
            let (Some(to), Some(from)) = (&slots[dst.0], &slots[src.0]) else {
                return;
            };
            let ends = |offset: u64| u128::from(offset) + u128::from(len);
            let meets = dst.0 == src.0
                && len > 0
                && u128::from(dst.1) < ends(src.1)
                && u128::from(src.1) < ends(dst.1);
            let expected = to
                .expect(dst.1, len)
                .or_else(|| from.expect(src.1, len))
                .or(meets.then_some(ErrorKind::InvalidArgument));
            let answer = session.mem_copy((&to.handle, dst.1), (&from.handle, src.1), len);
            assert_eq!(kind(&answer), expected);
            if expected.is_none() {
                let moved = from.bytes[src.1 as usize..][..len as usize].to_vec();
                if let Some(to) = &mut slots[dst.0] {
                    to.bytes[dst.1 as usize..][..len as usize].copy_from_slice(&moved);
                }
            }
        }
        Step::Fill {
            slot,
            offset,
            len,
            pattern,
        } => {
            let Some(slot) = &mut slots[slot] else { return };
            let width = pattern.len_bytes();
            let ragged = offset % width != 0 || len % width != 0;
            let expected = if ragged {
                Some(ErrorKind::InvalidArgument)
            } else {
                slot.expect(offset, len)
            };
            let answer = session.mem_fill(&slot.handle, offset, len, pattern);
            assert_eq!(kind(&answer), expected);
            if expected.is_none() {
                fill_model(&mut slot.bytes[offset as usize..][..len as usize], pattern);
            }
        }
        Step::Free { slot } => {
            let Some(slot) = &mut slots[slot] else { return };
            let expected = slot.freed.then_some(ErrorKind::InvalidHandle);
            assert_eq!(kind(&session.mem_free(slot.handle.clone())), expected);
            slot.freed = true;
        }
        Step::Drop { slot } => slots[slot] = None,
    }
    let info = session.mem_info().expect("memory info");
    let held = slots
        .iter()
        .flatten()
        .filter(|slot| !slot.freed && !slot.bytes.is_empty());
    assert_eq!(info.live_buffers, held.count() as u64);
    assert_eq!(info.live_bytes, live(slots));
}

proptest! {
    #[test]
    fn memory_behaves_like_vectors_of_bytes(steps in prop::collection::vec(step(), 0..60)) {
        let bench = Bench::with_memory(CAPACITY_BYTES);
        let lease = bench.lease();
        let session = GpuSession::new(&lease);
        let mut slots = [const { None }; SLOTS];
        for step in steps {
            run(&session, &mut slots, step);
        }
        for slot in slots.iter().flatten().filter(|slot| !slot.freed) {
            let len = slot.bytes.len() as u32;
            prop_assert_eq!(&session.mem_read(&slot.handle, 0, len).unwrap(), &slot.bytes);
        }
        session.sync().unwrap();
        let info = session.mem_info().unwrap();
        prop_assert_eq!(info.free_bytes, CAPACITY_BYTES - info.live_bytes);
    }
}
