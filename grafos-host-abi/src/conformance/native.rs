//! The driver's own objects.

use std::prelude::v1::*;

use super::busy;
use super::check::{Checked, Stop, ensure, ensure_eq, ensure_kind, ensure_same};
use super::module::computes;
use super::runner::Suite;
use crate::{BufferId, ErrorKind, FillPattern, NativeHandle, StreamId};

cases!("native":
    handles_without_the_ability_are_unsupported,
    handles_are_lent_once,
    buffers_are_described_in_order,
    unknown_buffers_are_refused,
    the_context_works_after_lending,
);

fn handles_without_the_ability_are_unsupported(suite: &Suite) -> Checked {
    if suite.info.capabilities.native_handle {
        return Err(Stop::unsupported("the device has the ability"));
    }
    let gpu = suite.open()?;
    let mut calls = 0;
    let lent = gpu.with_native(StreamId::DEFAULT, &[], &mut |_| calls += 1);
    ensure_kind("lending", lent, ErrorKind::Unsupported)?;
    ensure_eq("calls of the callback", calls, 0)
}

fn handles_are_lent_once(suite: &Suite) -> Checked {
    suite.need(suite.info.capabilities.native_handle, "native handles")?;
    let gpu = suite.open()?;
    let mut lent: Vec<NativeHandle> = Vec::new();
    for round in 1..=3 {
        let mut keep = |handle: &NativeHandle| lent.push(handle.clone());
        gpu.with_native(StreamId::DEFAULT, &[], &mut keep)?;
        ensure_eq("calls of the callback", lent.len(), round)?;
    }
    for handle in &lent {
        ensure("the API has no name", !handle.api.is_empty())?;
        ensure("there are no objects", !handle.objects.is_empty())?;
        ensure_eq("buffers that nobody asked for", handle.buffers.len(), 0)?;
        for object in &handle.objects {
            ensure_eq(
                format_args!("object {}", object.type_name),
                handle.object(object.type_name),
                Some(object.value),
            )?;
        }
    }
    ensure_eq("objects, lent again", &lent[1].objects, &lent[0].objects)
}

fn buffers_are_described_in_order(suite: &Suite) -> Checked {
    suite.need(suite.info.capabilities.native_handle, "native handles")?;
    let gpu = suite.open()?;
    let buffers = [gpu.buffer(1000)?, gpu.buffer(5)?, gpu.buffer(70_000)?];
    let ids = [buffers[2].id, buffers[0].id, buffers[1].id, buffers[0].id];
    let mut addresses = Vec::new();
    gpu.with_native(StreamId::DEFAULT, &ids, &mut |handle| {
        addresses.extend(handle.buffers.iter().map(|buffer| buffer.address));
    })?;
    let expected = [2, 0, 1, 0].map(|index: usize| buffers[index].address);
    ensure_eq("addresses", addresses.as_slice(), &expected)
}

fn unknown_buffers_are_refused(suite: &Suite) -> Checked {
    suite.need(suite.info.capabilities.native_handle, "native handles")?;
    let gpu = suite.open()?;
    let known = gpu.buffer(16)?;
    let freed = gpu.buffer(16)?;
    gpu.free(freed.id)?;
    for unknown in [freed.id, BufferId(u64::MAX)] {
        let mut calls = 0;
        let lent = gpu.with_native(StreamId::DEFAULT, &[known.id, unknown], &mut |_| calls += 1);
        ensure_kind("lending", lent, ErrorKind::InvalidHandle)?;
        ensure_eq("calls of the callback", calls, 0)?;
    }
    Ok(())
}

fn the_context_works_after_lending(suite: &Suite) -> Checked {
    suite.need(suite.info.capabilities.native_handle, "native handles")?;
    let gpu = suite.open()?;
    let buffer = gpu.buffer(256)?;
    gpu.fill(StreamId::DEFAULT, buffer.all(), FillPattern::U8(9))?;
    let work = busy::start(&gpu, StreamId::DEFAULT, 1)?;
    let mut calls = 0;
    gpu.with_native(StreamId::DEFAULT, &[buffer.id], &mut |_| calls += 1)?;
    ensure_eq("calls of the callback", calls, 1)?;
    gpu.fill(StreamId::DEFAULT, buffer.range(0, 128), FillPattern::U8(8))?;
    let mut expected = [9u8; 256];
    expected[..128].fill(8);
    ensure_same("bytes", &gpu.download(buffer)?, &expected)?;
    work.check(&gpu)?;
    computes(&gpu)
}
