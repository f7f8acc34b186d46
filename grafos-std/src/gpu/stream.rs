//! Streams and events as their owner holds them.

use alloc::sync::Arc;
use core::time::Duration;

use grafos_host_abi::{EventId, StreamId};

use super::session::{ensure_same, write_all};
use super::{EventStatus, FillPattern, GpuKernel, GpuMemHandle, KernelArgs, LaunchConfig};
use crate::error::{HandleKind, Result};
use crate::host::SessionCore;

/// A queue of work beside the session's default one.
///
/// Work on one stream runs in the order of the calls; work on two streams runs in any order unless
/// an event orders it. Dropping the stream lets its work finish.
#[derive(Debug)]
pub struct GpuStream {
    session: Arc<SessionCore>,
    id: StreamId,
}

impl GpuStream {
    pub(super) fn new(session: Arc<SessionCore>, id: StreamId) -> Self {
        Self { session, id }
    }

    pub(super) fn session(&self) -> &Arc<SessionCore> {
        &self.session
    }

    pub(super) fn id(&self) -> StreamId {
        self.id
    }

    /// Writes bytes to a buffer. `data` can be reused when the call returns.
    ///
    /// # Errors
    ///
    /// As [`GpuSession::mem_write`](super::GpuSession::mem_write).
    pub fn mem_write(&self, buffer: &GpuMemHandle, offset_bytes: u64, data: &[u8]) -> Result<()> {
        write_all(&self.session, self.id, buffer, offset_bytes, data)
    }

    /// Reads a buffer into a slice, and waits until it is filled.
    ///
    /// # Errors
    ///
    /// As [`GpuSession::mem_read`](super::GpuSession::mem_read).
    pub fn mem_read_into(
        &self,
        buffer: &GpuMemHandle,
        offset_bytes: u64,
        out: &mut [u8],
    ) -> Result<()> {
        ensure_same(
            &self.session,
            buffer.session(),
            HandleKind::Buffer,
            buffer.raw(),
        )?;
        self.session
            .mem_read(self.id, buffer.entry(), offset_bytes, out)
    }

    /// Copies between two buffers, or within one where the ranges do not overlap.
    ///
    /// # Errors
    ///
    /// As [`GpuSession::mem_copy`](super::GpuSession::mem_copy).
    pub fn mem_copy(
        &self,
        dst: (&GpuMemHandle, u64),
        src: (&GpuMemHandle, u64),
        len_bytes: u64,
    ) -> Result<()> {
        ensure_same(
            &self.session,
            dst.0.session(),
            HandleKind::Buffer,
            dst.0.raw(),
        )?;
        ensure_same(
            &self.session,
            src.0.session(),
            HandleKind::Buffer,
            src.0.raw(),
        )?;
        let dst = (dst.0.entry(), dst.1);
        let src = (src.0.entry(), src.1);
        self.session.mem_copy(self.id, dst, src, len_bytes)
    }

    /// Fills a part of a buffer with a pattern.
    ///
    /// # Errors
    ///
    /// As [`GpuSession::mem_fill`](super::GpuSession::mem_fill).
    pub fn mem_fill(
        &self,
        buffer: &GpuMemHandle,
        offset_bytes: u64,
        len_bytes: u64,
        pattern: FillPattern,
    ) -> Result<()> {
        ensure_same(
            &self.session,
            buffer.session(),
            HandleKind::Buffer,
            buffer.raw(),
        )?;
        self.session
            .mem_fill(self.id, buffer.entry(), offset_bytes, len_bytes, pattern)
    }

    /// Launches a kernel. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`GpuKernel::launch`]; `InvalidHandle` for a kernel of another session.
    pub fn launch(
        &self,
        kernel: &GpuKernel,
        config: LaunchConfig,
        args: &KernelArgs,
    ) -> Result<()> {
        ensure_same(
            &self.session,
            kernel.session(),
            HandleKind::Kernel,
            kernel.info().id.0,
        )?;
        kernel.launch_on(self.id, config, args)
    }

    /// Marks the present end of the stream with an event. Recording again moves the mark.
    ///
    /// # Errors
    ///
    /// `InvalidHandle` for an event of another session; driver errors.
    pub fn record(&self, event: &GpuEvent) -> Result<()> {
        ensure_same(&self.session, &event.session, HandleKind::Event, event.id.0)?;
        self.session.record_event(event.id, self.id)
    }

    /// Makes later work of the stream wait for an event. One that was never recorded is complete.
    ///
    /// # Errors
    ///
    /// `InvalidHandle` for an event of another session; driver errors.
    pub fn wait(&self, event: &GpuEvent) -> Result<()> {
        ensure_same(&self.session, &event.session, HandleKind::Event, event.id.0)?;
        self.session.wait_event(self.id, event.id)
    }

    /// Waits until all work of the stream has ended.
    ///
    /// # Errors
    ///
    /// Errors of the stream's work.
    pub fn sync(&self) -> Result<()> {
        self.session.sync_stream(self.id, None)
    }

    /// Waits until all work of the stream has ended, at most this long. The work goes on after a
    /// timeout.
    ///
    /// # Errors
    ///
    /// `Timeout`; errors of the stream's work.
    pub fn sync_timeout(&self, timeout: Duration) -> Result<()> {
        self.session.sync_stream(self.id, Some(timeout))
    }
}

impl Drop for GpuStream {
    fn drop(&mut self) {
        self.session.destroy_stream_on_drop(self.id);
    }
}

/// A mark in a stream.
#[derive(Debug)]
pub struct GpuEvent {
    session: Arc<SessionCore>,
    id: EventId,
}

impl GpuEvent {
    pub(super) fn new(session: Arc<SessionCore>, id: EventId) -> Self {
        Self { session, id }
    }

    pub(super) fn session(&self) -> &Arc<SessionCore> {
        &self.session
    }

    pub(super) fn id(&self) -> EventId {
        self.id
    }

    /// Tells whether the work before the event's last record has ended. Does not wait.
    ///
    /// # Errors
    ///
    /// Errors of earlier work.
    pub fn status(&self) -> Result<EventStatus> {
        self.session.query_event(self.id)
    }

    /// Waits for the event. One that was never recorded is complete.
    ///
    /// # Errors
    ///
    /// Errors of the work waited for.
    pub fn sync(&self) -> Result<()> {
        self.session.sync_event(self.id, None)
    }

    /// Waits for the event, at most this long. The work goes on after a timeout.
    ///
    /// # Errors
    ///
    /// `Timeout`; errors of the work waited for.
    pub fn sync_timeout(&self, timeout: Duration) -> Result<()> {
        self.session.sync_event(self.id, Some(timeout))
    }

    /// The device time from an earlier event to this one, in nanoseconds.
    ///
    /// # Errors
    ///
    /// `NotReady` when one of them has not been reached, `InvalidArgument` when one was never
    /// recorded, `Unsupported` where the device cannot time events, `InvalidHandle` for an event
    /// of another session.
    pub fn elapsed_ns_since(&self, start: &GpuEvent) -> Result<u64> {
        ensure_same(&self.session, &start.session, HandleKind::Event, start.id.0)?;
        self.session.elapsed_ns(start.id, self.id)
    }
}

impl Drop for GpuEvent {
    fn drop(&mut self) {
        self.session.destroy_event_on_drop(self.id);
    }
}
