//! Device memory: allocations, their addresses, and the calls that move bytes.

mod words;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use grafos_host_abi::{
    BoundsFault, BufferDesc, BufferId, BufferInfo, BufferRange, FillPattern, GpuError, HandleKind,
    MemoryInfo, Result, StreamId,
};
use parking_lot::Mutex;

use crate::context::{Core, State};
use crate::error::{invalid_argument, invalid_handle, out_of_memory};
use crate::fault::Operation;
use crate::kernel::KernelTrap;
use crate::stream::Work;

pub(crate) use words::{WORD_BYTES, store_masked};

/// Where the first context's memory begins; drivers place theirs about there.
const FIRST_ADDRESS: u64 = 0x7f10_0000_0000;
/// How many addresses each context has to itself.
const CONTEXT_ADDRESSES: u64 = 1 << 44;
/// How many contexts have addresses of their own before the ranges are given out again.
const CONTEXT_RANGES: u64 = 1 << 18;
/// Every allocation begins at a multiple of this, in bytes.
const ALIGN_BYTES: u64 = 512;
/// Addresses that stay unused behind each allocation, so that running past one is noticed.
const GAP_BYTES: u64 = 64 << 10;
/// How many freed allocations are remembered for explaining an access to one.
const REMEMBERED_FREES: usize = 256;

/// Memory of a context, at an address.
pub(crate) struct Allocation {
    label: Label,
    address: u64,
    size_bytes: u64,
    words: Box<[AtomicU64]>,
    /// The sequence number of its free; launches enqueued after that must not use it.
    freed_at: AtomicU64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Label {
    Buffer(BufferId),
    Global { name: String, id: BufferId },
}

impl Label {
    fn id(&self) -> BufferId {
        match self {
            Self::Buffer(id) | Self::Global { id, .. } => *id,
        }
    }
}

impl Allocation {
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn id(&self) -> BufferId {
        self.label.id()
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The size in bytes; it was allocated, so it fits.
    pub(crate) fn len(&self) -> usize {
        self.size_bytes as usize
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    pub(crate) fn write(&self, offset: usize, data: &[u8]) {
        words::write(&self.words, offset, data);
    }

    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) {
        words::read(&self.words, offset, out);
    }

    fn is_buffer(&self) -> bool {
        matches!(self.label, Label::Buffer(_))
    }
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, &self.label, self.address, self.size_bytes)
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn describe(f: &mut fmt::Formatter<'_>, label: &Label, address: u64, size: u64) -> fmt::Result {
    match label {
        Label::Buffer(id) => write!(f, "buffer {:#x}", id.0)?,
        Label::Global { name, .. } => write!(f, "global {name:?}")?,
    }
    write!(f, " ({size} bytes at {address:#x})")
}

/// A checked part of an allocation, in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) allocation: Arc<Allocation>,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl Span {
    pub(crate) fn fill(&self, pattern: [u8; 4]) {
        words::fill(&self.allocation.words, self.offset, self.len, pattern);
    }

    pub(crate) fn copy_from(&self, src: &Span) {
        words::copy(
            &self.allocation.words,
            self.offset,
            &src.allocation.words,
            src.offset,
            self.len,
        );
    }
}

type Live = BTreeMap<u64, Arc<Allocation>>;

/// The addresses of one context.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    base: u64,
    /// Where the next allocation goes: addresses are used again only when all have been used.
    cursor: u64,
    /// What has an address, freed memory that is still in use included. Running launches share
    /// it; it is copied when it changes under them.
    live: Arc<Live>,
    freed: Arc<Mutex<VecDeque<Freed>>>,
}

#[derive(Debug)]
struct Freed {
    label: Label,
    address: u64,
    size_bytes: u64,
}

impl AddressSpace {
    pub(crate) fn new(context: u64) -> Self {
        let base = FIRST_ADDRESS + (context % CONTEXT_RANGES) * CONTEXT_ADDRESSES;
        Self {
            base,
            cursor: base,
            live: Arc::default(),
            freed: Arc::default(),
        }
    }

    /// What a launch sees while it runs.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            live: Arc::clone(&self.live),
            freed: Arc::clone(&self.freed),
        }
    }

    /// Gives memory an address; `None` when the range has no room of that size left.
    fn place(
        &mut self,
        label: Label,
        size: u64,
        words: Box<[AtomicU64]>,
    ) -> Option<Arc<Allocation>> {
        let needed = size
            .checked_next_multiple_of(ALIGN_BYTES)?
            .checked_add(GAP_BYTES)?;
        let end = self.base + CONTEXT_ADDRESSES;
        let next = self.live.range(self.cursor..).next();
        let limit = next.map_or(end, |(address, _)| *address);
        let address = if limit - self.cursor >= needed {
            self.cursor
        } else {
            self.first_room(needed)?
        };
        self.cursor = address + needed;
        let allocation = Arc::new(Allocation {
            label,
            address,
            size_bytes: size,
            words,
            freed_at: AtomicU64::new(u64::MAX),
        });
        Arc::make_mut(&mut self.live).insert(address, Arc::clone(&allocation));
        Some(allocation)
    }

    /// Finds the lowest free place, once the cursor has met the range's end or live memory.
    fn first_room(&self, needed: u64) -> Option<u64> {
        let mut start = self.base;
        for allocation in self.live.values() {
            if allocation.address - start >= needed {
                break;
            }
            start = allocation.address
                + allocation.size_bytes.next_multiple_of(ALIGN_BYTES)
                + GAP_BYTES;
        }
        let end = self.base + CONTEXT_ADDRESSES;
        (end - start >= needed).then_some(start)
    }

    fn remove(&mut self, allocation: &Allocation) {
        Arc::make_mut(&mut self.live).remove(&allocation.address);
        let mut freed = self.freed.lock();
        if freed.len() == REMEMBERED_FREES {
            freed.pop_front();
        }
        freed.push_back(Freed {
            label: allocation.label.clone(),
            address: allocation.address,
            size_bytes: allocation.size_bytes,
        });
    }

    fn clear(&mut self) {
        self.live = Arc::default();
    }
}

/// The addresses of a context at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    live: Arc<Live>,
    freed: Arc<Mutex<VecDeque<Freed>>>,
}

impl Snapshot {
    /// Finds the memory at an address for a launch with a sequence number.
    pub(crate) fn resolve(
        &self,
        address: u64,
        sequence: u64,
    ) -> Result<(&Allocation, usize), KernelTrap> {
        let below = self.live.range(..=address).next_back();
        if let Some((start, allocation)) = below
            && address - start < allocation.size_bytes
            && allocation.freed_at.load(Ordering::Acquire) > sequence
        {
            return Ok((allocation, (address - start) as usize));
        }
        Err(self.explain(address, below.map(|(_, allocation)| &**allocation)))
    }

    #[cold]
    fn explain(&self, address: u64, below: Option<&Allocation>) -> KernelTrap {
        if let Some(allocation) = below {
            let offset = address - allocation.address;
            if offset < allocation.size_bytes {
                return KernelTrap::new(format!(
                    "address {address:#x} is in {allocation}, which was freed before the launch"
                ));
            }
            if offset - allocation.size_bytes < GAP_BYTES {
                return KernelTrap::new(format!(
                    "address {address:#x} is {} bytes past the end of {allocation}",
                    offset - allocation.size_bytes
                ));
            }
        }
        let freed = self.freed.lock();
        let hit = freed.iter().rev().find(|freed| {
            address
                .checked_sub(freed.address)
                .is_some_and(|offset| offset < freed.size_bytes)
        });
        match hit {
            Some(freed) => KernelTrap::new(format!("address {address:#x} is in {freed}")),
            None => KernelTrap::new(format!(
                "address {address:#x} is in no memory of this context"
            )),
        }
    }
}

impl fmt::Display for Freed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, &self.label, self.address, self.size_bytes)?;
        f.write_str(", which was freed")
    }
}

impl State {
    /// Resolves a range; the host has checked it, and a slip must still not reach other memory.
    fn span(&self, range: BufferRange) -> Result<Span> {
        let allocation = self
            .buffers
            .get(&range.buffer)
            .ok_or_else(|| invalid_handle(HandleKind::Buffer, range.buffer.0))?;
        let BufferRange {
            offset_bytes,
            len_bytes,
            ..
        } = range;
        let size_bytes = allocation.size_bytes;
        if offset_bytes > size_bytes || len_bytes > size_bytes - offset_bytes {
            return Err(GpuError::OutOfBounds(BoundsFault {
                offset_bytes,
                len_bytes,
                size_bytes,
            }));
        }
        Ok(Span {
            allocation: Arc::clone(allocation),
            offset: offset_bytes as usize,
            len: len_bytes as usize,
        })
    }

    /// Takes memory out of the tables; it is released when the work before this has ended.
    pub(crate) fn retire(&mut self, id: BufferId) -> Option<()> {
        let allocation = self.buffers.remove(&id)?;
        if allocation.is_buffer() {
            self.live_buffers -= 1;
            self.live_bytes -= allocation.size_bytes;
        }
        let sequence = self.next_sequence();
        allocation.freed_at.store(sequence, Ordering::Release);
        self.retired.push_back((sequence, allocation));
        Some(())
    }
}

impl Core {
    /// Makes an allocation known: its bytes count against the device until they are released.
    pub(crate) fn allocate(
        &self,
        size_bytes: u64,
        label: impl FnOnce(BufferId) -> Label,
    ) -> Result<Arc<Allocation>> {
        self.device.reserve(size_bytes)?;
        let Some(words) = words::allocate(size_bytes) else {
            self.device.release(size_bytes);
            return Err(out_of_memory(
                "host memory behind the device",
                size_bytes,
                0,
            ));
        };
        let mut state = self.state.lock();
        let id = BufferId(state.next_id());
        let placed = match state.check(self.id) {
            Ok(()) => state
                .space
                .place(label(id), size_bytes, words)
                .ok_or_else(|| out_of_memory("device addresses", size_bytes, 0)),
            Err(error) => Err(error),
        };
        match placed {
            Ok(allocation) => {
                state.reserved_bytes += size_bytes;
                if allocation.is_buffer() {
                    state.live_buffers += 1;
                    state.live_bytes += size_bytes;
                }
                state.buffers.insert(id, Arc::clone(&allocation));
                Ok(allocation)
            }
            Err(error) => {
                self.device.release(size_bytes);
                Err(error)
            }
        }
    }

    pub(crate) fn alloc(&self, desc: &BufferDesc) -> Result<BufferInfo> {
        drop(self.begin(Operation::Alloc)?);
        if desc.size_bytes == 0 {
            return Err(invalid_argument("a buffer of 0 bytes"));
        }
        let allocation = self.allocate(desc.size_bytes, Label::Buffer)?;
        Ok(BufferInfo {
            id: allocation.id(),
            address: allocation.address,
            size_bytes: allocation.size_bytes,
        })
    }

    pub(crate) fn free(&self, buffer: BufferId) -> Result<()> {
        let mut state = self.begin_teardown(Operation::Free)?;
        let known = state.buffers.get(&buffer).is_some_and(|it| it.is_buffer());
        if known {
            state.retire(buffer);
            self.release_retired(&mut state);
        } else if state.lost.is_none() {
            return Err(invalid_handle(HandleKind::Buffer, buffer.0));
        }
        Ok(())
    }

    /// Releases what was freed before all outstanding work.
    pub(crate) fn release_retired(&self, state: &mut State) {
        if state.retired.is_empty() {
            return;
        }
        let oldest = state.oldest_outstanding().unwrap_or(u64::MAX);
        while let Some((_, allocation)) = state.retired.pop_front_if(|(at, _)| *at < oldest) {
            state.space.remove(&allocation);
            state.reserved_bytes -= allocation.size_bytes;
            self.device.release(allocation.size_bytes);
        }
    }

    /// Releases everything: the context has ended and none of its work runs.
    pub(crate) fn release_all(&self, state: &mut State) {
        self.device.release(state.reserved_bytes);
        state.reserved_bytes = 0;
        state.live_bytes = 0;
        state.live_buffers = 0;
        state.buffers.clear();
        state.retired.clear();
        state.modules.clear();
        state.kernels.clear();
        state.events.clear();
        state.space.clear();
    }

    pub(crate) fn write(
        self: &Arc<Self>,
        stream: StreamId,
        dst: BufferRange,
        data: &[u8],
    ) -> Result<()> {
        let (mut state, gate) = self.begin_enqueued(Operation::Write)?;
        let dst = state.span(dst)?;
        if dst.len != data.len() {
            return Err(invalid_argument(format!(
                "a write of {} bytes from {} bytes",
                dst.len,
                data.len()
            )));
        }
        if gate.is_none() && state.stream_is_idle(stream)? {
            let sequence = state.next_sequence();
            self.run_in_call(state, stream, sequence, || {
                dst.allocation.write(dst.offset, data);
            })
        } else {
            let data = data.to_vec();
            self.enqueue(&mut state, stream, gate, Work::Write { dst, data })
        }
    }

    pub(crate) fn read(
        self: &Arc<Self>,
        stream: StreamId,
        src: BufferRange,
        out: &mut [u8],
    ) -> Result<()> {
        let (mut state, gate) = self.begin_enqueued(Operation::Read)?;
        let src = state.span(src)?;
        if src.len != out.len() {
            return Err(invalid_argument(format!(
                "a read of {} bytes into {} bytes",
                src.len,
                out.len()
            )));
        }
        let sequence = if state.stream_is_idle(stream)? {
            state.next_sequence()
        } else {
            self.wait_for_turn(&mut state, stream)?
        };
        self.run_in_call(state, stream, sequence, || {
            if let Some(gate) = &gate {
                gate.pass();
            }
            src.allocation.read(src.offset, out);
        })
    }

    pub(crate) fn copy(
        self: &Arc<Self>,
        stream: StreamId,
        dst: BufferRange,
        src: BufferRange,
    ) -> Result<()> {
        let (mut state, gate) = self.begin_enqueued(Operation::Copy)?;
        let (dst, src) = (state.span(dst)?, state.span(src)?);
        if dst.len != src.len {
            return Err(invalid_argument(format!(
                "a copy of {} bytes to {} bytes",
                src.len, dst.len
            )));
        }
        self.enqueue(&mut state, stream, gate, Work::Copy { dst, src })
    }

    pub(crate) fn fill(
        self: &Arc<Self>,
        stream: StreamId,
        dst: BufferRange,
        pattern: FillPattern,
    ) -> Result<()> {
        let (mut state, gate) = self.begin_enqueued(Operation::Fill)?;
        let dst = state.span(dst)?;
        let pattern = pattern.to_word_bytes();
        self.enqueue(&mut state, stream, gate, Work::Fill { dst, pattern })
    }

    pub(crate) fn memory_info(&self) -> Result<MemoryInfo> {
        let state = self.begin(Operation::MemoryInfo)?;
        Ok(MemoryInfo {
            total_bytes: self.device.info().memory_bytes,
            free_bytes: self.device.free_bytes(),
            live_bytes: state.live_bytes,
            live_buffers: state.live_buffers,
            reserved_bytes: state.reserved_bytes,
        })
    }

    /// Nothing is cached, so there is nothing to give back beyond what has just ended.
    pub(crate) fn trim(&self) -> Result<u64> {
        let mut state = self.begin(Operation::Trim)?;
        let before = state.reserved_bytes;
        self.release_retired(&mut state);
        Ok(before - state.reserved_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(space: &mut AddressSpace, id: u64, size: u64) -> Arc<Allocation> {
        space
            .place(Label::Buffer(BufferId(id)), size, Box::default())
            .unwrap()
    }

    #[test]
    fn addresses_are_aligned_apart_and_not_used_again_soon() {
        let mut space = AddressSpace::new(0);
        let first = place(&mut space, 1, 1000);
        let second = place(&mut space, 2, 1);
        assert_eq!(first.address, FIRST_ADDRESS);
        assert_eq!(second.address % 256, 0);
        assert!(second.address >= first.address + 1000 + GAP_BYTES);
        space.remove(&first);
        assert!(place(&mut space, 3, 1000).address > second.address);
    }

    #[test]
    fn contexts_have_ranges_of_their_own() {
        let mut first = AddressSpace::new(0);
        let mut second = AddressSpace::new(1);
        let first = place(&mut first, 1, 8 << 30).address;
        let second = place(&mut second, 1, 8 << 30).address;
        assert_eq!(second - first, CONTEXT_ADDRESSES);
    }

    #[test]
    fn a_used_up_range_is_used_again_where_it_is_free() {
        let quarter = CONTEXT_ADDRESSES / 4 - GAP_BYTES;
        let mut space = AddressSpace::new(0);
        let blocks: Vec<_> = (0..4).map(|id| place(&mut space, id, quarter)).collect();
        let full = space.place(Label::Buffer(BufferId(9)), 1, Box::default());
        assert!(full.is_none());
        space.remove(&blocks[1]);
        space.remove(&blocks[3]);
        // Two allocations fit the first hole; the next goes to the second.
        let half = quarter / 2 - GAP_BYTES;
        let places: Vec<_> = (10..13)
            .map(|id| place(&mut space, id, half).address)
            .collect();
        assert_eq!(places[0], blocks[1].address);
        assert!(places[1] > places[0] && places[1] < blocks[2].address);
        assert_eq!(places[2], blocks[3].address);
    }

    #[test]
    fn traps_explain_an_address() {
        let mut space = AddressSpace::new(0);
        let first = place(&mut space, 1, 64);
        let second = place(&mut space, 2, 64);
        let third = place(&mut space, 3, 64);
        second.freed_at.store(10, Ordering::Release);
        space.remove(&third);
        let snapshot = space.snapshot();
        let explain = |address| {
            let trap = snapshot.resolve(address, 11).unwrap_err();
            trap.reason().to_owned()
        };
        assert_eq!(snapshot.resolve(first.address + 63, 11).unwrap().1, 63);
        assert_eq!(snapshot.resolve(second.address, 9).unwrap().1, 0);
        assert_eq!(
            explain(first.address + 64),
            "address 0x7f1000000040 is 0 bytes past the end of \
             buffer 0x1 (64 bytes at 0x7f1000000000)"
        );
        assert_eq!(
            explain(second.address + 8),
            format!(
                "address {:#x} is in buffer 0x2 (64 bytes at {:#x}), \
                 which was freed before the launch",
                second.address + 8,
                second.address
            )
        );
        assert_eq!(
            explain(third.address),
            format!(
                "address {0:#x} is in buffer 0x3 (64 bytes at {0:#x}), which was freed",
                third.address
            )
        );
        assert_eq!(
            explain(0x1000),
            "address 0x1000 is in no memory of this context"
        );
    }
}
