//! Contexts share nothing but the card.

use std::prelude::v1::*;
use std::vec;

use super::check::{Checked, ensure_eq, ensure_kind, ensure_same};
use super::gpu::Arg;
use super::module::computes;
use super::reference::Numbers;
use super::runner::Suite;
use crate::{ErrorKind, StreamId};

cases!("contexts":
    objects_of_another_context_are_unknown,
    two_contexts_compute_at_once,
    counts_are_of_one_context,
    closing_one_leaves_the_other,
    contexts_can_be_opened_many_times,
);

fn objects_of_another_context_are_unknown(suite: &Suite) -> Checked {
    let owner = suite.open()?;
    // This one stays empty, so that no id of the owner's can be one of its own.
    let stranger = suite.open()?;
    let content = Numbers::new(900).bytes(3000);
    let buffer = owner.upload(&content)?;
    let kernel = owner.load("fill")?;
    let event = owner.create_event()?;
    let kind = ErrorKind::InvalidHandle;
    ensure_kind("free", stranger.free(buffer.id), kind)?;
    ensure_kind("unload", stranger.unload_module(kernel.module), kind)?;
    ensure_kind("names", stranger.kernel_names(kernel.module), kind)?;
    ensure_kind("destroy of an event", stranger.destroy_event(event), kind)?;
    if suite.info.capabilities.streams {
        let stream = owner.create_stream()?;
        ensure_kind("destroy of a stream", stranger.destroy_stream(stream), kind)?;
    }
    ensure_same("the owner's buffer", &owner.download(buffer)?, &content)?;
    owner.kernel(kernel.module, "fill")?;
    owner.destroy_event(event)?;
    computes(&stranger)
}

fn two_contexts_compute_at_once(suite: &Suite) -> Checked {
    let contexts = [suite.open()?, suite.open()?];
    let mut work = Vec::new();
    for (index, gpu) in contexts.iter().enumerate() {
        let data = gpu.upload_words(&vec![index as u32 * 1000; 600])?;
        work.push((gpu, gpu.load("increment")?, data));
    }
    for _ in 0..50 {
        for (gpu, kernel, data) in &work {
            let args = [Arg::Buffer(*data), Arg::U32(600)];
            let block_len = gpu.block_len(kernel, 64);
            gpu.launch_linear(StreamId::DEFAULT, kernel, block_len, 600, &args)?;
        }
    }
    for (index, (gpu, _, data)) in work.into_iter().enumerate() {
        ensure_same(
            format_args!("context {index}"),
            &gpu.download_words(data)?,
            &vec![index as u32 * 1000 + 50; 600],
        )?;
    }
    Ok(())
}

fn counts_are_of_one_context(suite: &Suite) -> Checked {
    let (first, second) = (suite.open()?, suite.open()?);
    first.buffer(12_345)?;
    let info = second.memory_info()?;
    ensure_eq("buffers of the second", info.live_buffers, 0)?;
    ensure_eq("bytes of the second", info.live_bytes, 0)?;
    second.buffer(1)?;
    second.buffer(2)?;
    let info = first.memory_info()?;
    ensure_eq("buffers of the first", info.live_buffers, 1)?;
    ensure_eq("bytes of the first", info.live_bytes, 12_345)
}

fn closing_one_leaves_the_other(suite: &Suite) -> Checked {
    let content = Numbers::new(910).bytes(4000);
    let survivor = suite.open()?;
    let kept = survivor.upload(&content)?;
    let closed = suite.open()?;
    closed.upload(&content)?;
    closed.close(None)?;
    ensure_same("after a close", &survivor.download(kept)?, &content)?;
    drop(closed);
    let dropped = suite.open()?;
    dropped.load("fill")?;
    drop(dropped);
    ensure_same("after drops", &survivor.download(kept)?, &content)?;
    computes(&survivor)
}

fn contexts_can_be_opened_many_times(suite: &Suite) -> Checked {
    for round in 0..20u8 {
        let gpu = suite.open()?;
        let buffer = gpu.upload(&[round; 100])?;
        ensure_same("bytes", &gpu.download(buffer)?, &[round; 100])?;
        gpu.close(None)?;
    }
    computes(&suite.open()?)
}
