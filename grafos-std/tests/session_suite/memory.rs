//! Buffers: bounds, sizes, copies, fills and what the queries say of them.

use grafos_std::FabricError;
use grafos_std::error::{BoundsFault, ErrorKind, HandleKind};
use grafos_std::gpu::{FillPattern, GpuBuilder, GpuSession};

use crate::target::{
    Must, Numbers, Target, Unsupported, download, ensure_kind, ensure_same, refused, upload,
};

crate::cases!("memory":
    bytes_come_back_at_every_offset,
    a_buffer_of_no_bytes_is_valid,
    ranges_that_wrap_are_out_of_bounds,
    impossible_sizes_are_refused_at_once,
    fills_repeat_their_pattern,
    ragged_fills_are_refused,
    copies_move_between_buffers_and_within_one,
    overlapping_copies_are_refused,
    queries_agree_with_quota_and_reservations,
    a_full_device_says_so_and_recovers,
    trim_returns_what_is_unused,
    large_transfers_are_exact,
);

fn bytes_come_back_at_every_offset(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let mut model = Numbers(3).bytes(67);
    let buffer = session.mem_alloc(67).must();
    assert_eq!(buffer.size_bytes(), 67);
    assert_ne!(buffer.raw(), 0);
    session.mem_write(&buffer, 0, &model).must();
    let mut numbers = Numbers(4);
    for offset in 0..67 {
        let len = (numbers.next() % (67 - offset as u64 + 1)) as usize;
        let bytes = numbers.bytes(len);
        session.mem_write(&buffer, offset as u64, &bytes).must();
        model[offset..][..len].copy_from_slice(&bytes);
        let found = session.mem_read(&buffer, offset as u64, len as u32).must();
        ensure_same("a part", &found, &model[offset..][..len]);
    }
    ensure_same(
        "the whole",
        &session.mem_read(&buffer, 0, 67).must(),
        &model,
    );
    Ok(())
}

fn a_buffer_of_no_bytes_is_valid(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (first, second) = (session.mem_alloc(0).must(), session.mem_alloc(0).must());
    assert_ne!(first.raw(), second.raw());
    assert_ne!(first, second);
    assert_eq!(first.size_bytes(), 0);
    session.mem_write(&first, 0, &[]).must();
    assert_eq!(session.mem_read(&first, 0, 0).must(), [0u8; 0]);
    session.mem_fill(&first, 0, 0, FillPattern::U32(1)).must();
    session.mem_copy((&first, 0), (&second, 0), 0).must();
    let outside = |offset_bytes, len_bytes| {
        FabricError::OutOfBounds(BoundsFault {
            offset_bytes,
            len_bytes,
            size_bytes: 0,
        })
    };
    assert_eq!(refused(session.mem_write(&first, 1, &[])), outside(1, 0));
    assert_eq!(refused(session.mem_read(&first, 1, 0)), outside(1, 0));
    assert_eq!(refused(session.mem_write(&first, 0, &[1])), outside(0, 1));
    assert_eq!(session.mem_info().must().live_buffers, 0);
    session.mem_free(first.clone()).must();
    ensure_kind(
        "freed",
        session.mem_write(&first, 0, &[]),
        ErrorKind::InvalidHandle,
    );
    ensure_kind(
        "freed twice",
        session.mem_free(first),
        ErrorKind::InvalidHandle,
    );
    Ok(())
}

fn ranges_that_wrap_are_out_of_bounds(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let buffer = upload(&session, &[0xAAAA_AAAAu32; 4]);
    let other = upload(&session, &[0xBBBB_BBBBu32; 4]);
    for (offset_bytes, len_bytes) in [
        (u64::MAX - 3, 8),
        (u64::MAX, 1),
        (u64::MAX - 7, 8),
        (1 << 63, 8),
        (16, 1),
        (9, 8),
        (17, 0),
    ] {
        let outside = FabricError::OutOfBounds(BoundsFault {
            offset_bytes,
            len_bytes,
            size_bytes: 16,
        });
        let data = vec![1; len_bytes as usize];
        assert_eq!(
            refused(session.mem_write(&buffer, offset_bytes, &data)),
            outside
        );
        assert_eq!(
            refused(session.mem_read(&buffer, offset_bytes, len_bytes as u32)),
            outside
        );
        let mut out = data.clone();
        assert_eq!(
            refused(session.mem_read_into(&buffer, offset_bytes, &mut out)),
            outside
        );
        assert_eq!(out, data);
        let fill = session.mem_fill(&buffer, offset_bytes, len_bytes, FillPattern::U8(1));
        assert_eq!(refused(fill), outside);
        let copies = [
            session.mem_copy((&buffer, offset_bytes), (&other, 0), len_bytes),
            session.mem_copy((&other, 0), (&buffer, offset_bytes), len_bytes),
        ];
        for copy in copies {
            assert_eq!(refused(copy), outside);
        }
    }
    ensure_kind(
        "a read of 4 GiB",
        session.mem_read(&buffer, 0, u32::MAX),
        ErrorKind::OutOfBounds,
    );
    let wide = session.mem_copy((&buffer, 8), (&other, 8), u64::MAX - 7);
    ensure_kind("a copy whose end wraps", wide, ErrorKind::OutOfBounds);
    assert_eq!(download::<u32>(&session, &buffer), [0xAAAA_AAAA; 4]);
    assert_eq!(download::<u32>(&session, &other), [0xBBBB_BBBB; 4]);
    Ok(())
}

fn impossible_sizes_are_refused_at_once(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let before = session.mem_info().must();
    let beyond = target.device.memory_bytes + 1;
    for requested in [u64::MAX, u64::MAX - 3, 1 << 63, 1 << 48, beyond] {
        match refused(session.mem_alloc(requested)) {
            FabricError::CapacityExceeded(fault) => {
                assert_eq!((fault.requested, fault.unit), (requested, "bytes"));
                assert!(
                    fault
                        .available
                        .is_some_and(|available| available < requested)
                );
            }
            other => panic!("{other:?}"),
        }
    }
    let after = session.mem_info().must();
    assert_eq!(
        (after.live_buffers, after.live_bytes, after.total_bytes),
        (0, 0, before.total_bytes)
    );
    let buffer = upload(&session, &[1u32, 2, 3]);
    assert_eq!(download::<u32>(&session, &buffer), [1, 2, 3]);
    Ok(())
}

fn fills_repeat_their_pattern(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let buffer = session.mem_alloc(101).must();
    let mut model = vec![0; 101];
    session.mem_fill(&buffer, 0, 101, FillPattern::U8(0)).must();
    let steps = [
        (1, 99, FillPattern::U8(0x5A)),
        (2, 42, FillPattern::U16(0x1234)),
        (12, 20, FillPattern::U32(0x89AB_CDEF)),
        (100, 1, FillPattern::U8(7)),
        (96, 4, FillPattern::U32(1)),
        (50, 0, FillPattern::U16(9)),
    ];
    for (offset, len, pattern) in steps {
        session.mem_fill(&buffer, offset, len, pattern).must();
        let unit = match pattern {
            FillPattern::U8(byte) => vec![byte],
            FillPattern::U16(half) => half.to_le_bytes().to_vec(),
            FillPattern::U32(word) => word.to_le_bytes().to_vec(),
        };
        for index in 0..len as usize {
            model[offset as usize + index] = unit[index % unit.len()];
        }
        let what = format!("after {len} bytes at {offset} of {pattern:?}");
        ensure_same(&what, &session.mem_read(&buffer, 0, 101).must(), &model);
    }
    Ok(())
}

fn ragged_fills_are_refused(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let buffer = upload(&session, &[3u32; 4]);
    let ragged = [
        (1, 2, FillPattern::U16(1)),
        (0, 3, FillPattern::U16(1)),
        (2, 4, FillPattern::U32(1)),
        (0, 6, FillPattern::U32(1)),
    ];
    for (offset, len, pattern) in ragged {
        let answer = session.mem_fill(&buffer, offset, len, pattern);
        ensure_kind("a ragged fill", answer, ErrorKind::InvalidArgument);
    }
    assert_eq!(download::<u32>(&session, &buffer), [3; 4]);
    Ok(())
}

fn copies_move_between_buffers_and_within_one(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (mut a, mut b) = (Numbers(5).bytes(64), Numbers(6).bytes(48));
    let first = session.mem_alloc(64).must();
    let second = session.mem_alloc(48).must();
    session.mem_write(&first, 0, &a).must();
    session.mem_write(&second, 0, &b).must();
    for (dst, src, len) in [(0, 0, 48), (3, 7, 33), (47, 63, 1), (48, 64, 0)] {
        session
            .mem_copy((&second, dst as u64), (&first, src as u64), len as u64)
            .must();
        b[dst..][..len].copy_from_slice(&a[src..][..len]);
    }
    for (dst, src, len) in [(0, 32, 32), (17, 3, 14), (60, 0, 4)] {
        session
            .mem_copy((&first, dst as u64), (&first, src as u64), len as u64)
            .must();
        a.copy_within(src..src + len, dst);
    }
    ensure_same("the first", &session.mem_read(&first, 0, 64).must(), &a);
    ensure_same("the second", &session.mem_read(&second, 0, 48).must(), &b);
    Ok(())
}

fn overlapping_copies_are_refused(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let buffer = upload(&session, &[1u32, 2, 3, 4]);
    for (dst, src, len) in [(0, 0, 16), (0, 4, 8), (4, 0, 8), (7, 8, 2)] {
        let answer = session.mem_copy((&buffer, dst), (&buffer, src), len);
        ensure_kind("a copy over itself", answer, ErrorKind::InvalidArgument);
    }
    assert_eq!(download::<u32>(&session, &buffer), [1, 2, 3, 4]);
    Ok(())
}

fn queries_agree_with_quota_and_reservations(target: &Target) -> Result<(), Unsupported> {
    const MIB: u64 = 1 << 20;
    let reserving = GpuBuilder::new()
        .min_vram(8 * MIB)
        .acquire_on(&target.host)
        .must();
    let limited = GpuBuilder::new()
        .max_vram(4 * MIB)
        .acquire_on(&target.host)
        .must();
    let session = GpuSession::new(&limited);
    let info = session.mem_info().must();
    assert_eq!((info.total_bytes, info.free_bytes), (4 * MIB, 4 * MIB));
    let buffer = session.mem_alloc(3 * MIB).must();
    let info = session.mem_info().must();
    assert_eq!((info.total_bytes, info.free_bytes), (4 * MIB, MIB));
    assert_eq!((info.live_bytes, info.live_buffers), (3 * MIB, 1));
    assert!(info.reserved_bytes >= info.live_bytes);
    match refused(session.mem_alloc(MIB + 1)) {
        FabricError::CapacityExceeded(fault) => {
            assert_eq!(
                (fault.resource, fault.available),
                ("lease quota", Some(MIB))
            );
        }
        other => panic!("{other:?}"),
    }
    drop(buffer);
    let rest = session.mem_alloc(4 * MIB).must();
    assert_eq!(session.mem_info().must().free_bytes, 0);
    drop(rest);
    // A third lease sees neither the reservation nor what the quota has left to the second.
    let (_lease, third) = target.session();
    let seen = third.mem_info().must().total_bytes;
    assert!(
        seen <= target.device.memory_bytes - 8 * MIB,
        "{seen} bytes in total"
    );
    drop(reserving);
    Ok(())
}

fn a_full_device_says_so_and_recovers(target: &Target) -> Result<(), Unsupported> {
    const PIECE: u64 = 1 << 20;
    let lease = GpuBuilder::new()
        .max_vram(16 * PIECE)
        .acquire_on(&target.host)
        .must();
    let session = GpuSession::new(&lease);
    for _ in 0..3 {
        let mut held = Vec::new();
        let refusal = loop {
            match session.mem_alloc(PIECE) {
                Ok(buffer) => held.push(buffer),
                Err(error) => break error,
            }
        };
        assert_eq!(refusal.kind(), ErrorKind::CapacityExceeded);
        assert_eq!(held.len(), 16);
        let mut addresses: Vec<u64> = held.iter().map(|buffer| buffer.raw()).collect();
        addresses.sort_unstable();
        assert!(
            addresses.windows(2).all(|pair| pair[1] - pair[0] >= PIECE),
            "buffers overlap"
        );
    }
    assert_eq!(session.mem_info().must().live_buffers, 0);
    Ok(())
}

fn trim_returns_what_is_unused(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    session.sync().must();
    session.mem_trim().must();
    let before = session.mem_info().must();
    for _ in 0..3 {
        let buffers: Vec<_> = (0..500)
            .map(|size| session.mem_alloc(4096 + size).must())
            .collect();
        let during = session.mem_info().must();
        assert_eq!(during.live_buffers, 500);
        assert_eq!(
            during.live_bytes,
            (0..500).map(|size| 4096 + size).sum::<u64>()
        );
        assert!(during.reserved_bytes >= during.live_bytes);
        drop(buffers);
        session.sync().must();
        session.mem_trim().must();
        let after = session.mem_info().must();
        assert_eq!((after.live_buffers, after.live_bytes), (0, 0));
        assert_eq!(
            after.reserved_bytes, before.reserved_bytes,
            "memory was kept after a trim"
        );
    }
    Ok(())
}

fn large_transfers_are_exact(target: &Target) -> Result<(), Unsupported> {
    const LEN: usize = (24 << 20) + 13;
    let (_lease, session) = target.session();
    let bytes: Vec<u8> = (0..LEN)
        .map(|index| (index ^ (index >> 8) ^ (index >> 16)) as u8)
        .collect();
    let (first, second) = (
        session.mem_alloc(LEN as u64).must(),
        session.mem_alloc(LEN as u64).must(),
    );
    session.mem_write(&first, 0, &bytes).must();
    session
        .mem_copy((&second, 0), (&first, 0), LEN as u64)
        .must();
    let mut out = vec![0; LEN];
    session.mem_read_into(&second, 0, &mut out).must();
    ensure_same("24 MiB", &out, &bytes);
    let late = session.mem_free(second.clone());
    late.must();
    match refused(session.mem_read(&second, 0, 1)) {
        FabricError::InvalidHandle(fault) => assert_eq!(fault.kind, HandleKind::Buffer),
        other => panic!("{other:?}"),
    }
    Ok(())
}
