//! Streams, events, waits and native handles.

use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use grafos_host_abi::{EventId, EventStatus, NativeHandle, StreamId};

use super::{BufferEntry, SessionCore};
use crate::error::{FabricError, Result};

impl SessionCore {
    pub(crate) fn create_stream(&self) -> Result<StreamId> {
        self.ensure_usable()?;
        self.check(self.context.create_stream())
    }

    pub(crate) fn destroy_stream_on_drop(&self, stream: StreamId) {
        if self.lease.is_active() {
            // There is nobody to tell: the stream is gone, or the device is lost.
            let _ = self.context.destroy_stream(stream);
        }
    }

    pub(crate) fn sync_stream(&self, stream: StreamId, timeout: Option<Duration>) -> Result<()> {
        self.ensure_usable()?;
        self.check(self.context.sync_stream(stream, timeout))
    }

    pub(crate) fn sync(&self, timeout: Option<Duration>) -> Result<()> {
        self.ensure_usable()?;
        self.check(self.context.sync(timeout))
    }

    pub(crate) fn poll(&self) -> Result<bool> {
        self.ensure_usable()?;
        self.check(self.context.poll())
    }

    /// Whether nothing is outstanding, by the context's own word; a context that fails has
    /// nothing that runs.
    #[cfg(not(target_arch = "wasm32"))]
    pub(in crate::host) fn is_idle(&self) -> bool {
        self.context.poll().unwrap_or(true)
    }

    pub(crate) fn create_event(&self) -> Result<EventId> {
        self.ensure_usable()?;
        self.check(self.context.create_event())
    }

    pub(crate) fn destroy_event_on_drop(&self, event: EventId) {
        if self.lease.is_active() {
            // There is nobody to tell: the event is gone, or the device is lost.
            let _ = self.context.destroy_event(event);
        }
    }

    pub(crate) fn record_event(&self, event: EventId, stream: StreamId) -> Result<()> {
        self.ensure_usable()?;
        self.check(self.context.record_event(event, stream))
    }

    pub(crate) fn wait_event(&self, stream: StreamId, event: EventId) -> Result<()> {
        self.ensure_usable()?;
        self.check(self.context.wait_event(stream, event))
    }

    pub(crate) fn query_event(&self, event: EventId) -> Result<EventStatus> {
        self.ensure_usable()?;
        self.check(self.context.query_event(event))
    }

    pub(crate) fn sync_event(&self, event: EventId, timeout: Option<Duration>) -> Result<()> {
        self.ensure_usable()?;
        self.check(self.context.sync_event(event, timeout))
    }

    pub(crate) fn elapsed_ns(&self, start: EventId, end: EventId) -> Result<u64> {
        self.ensure_usable()?;
        self.check(self.context.elapsed_ns(start, end))
    }

    pub(crate) fn with_native(
        &self,
        stream: StreamId,
        buffers: &[&BufferEntry],
        use_handle: &mut dyn FnMut(&NativeHandle),
    ) -> Result<()> {
        self.ensure_usable()?;
        let mut inside = Vec::with_capacity(buffers.len());
        let mut ids = Vec::with_capacity(buffers.len());
        for entry in buffers {
            let Some(id) = entry.id else {
                return Err(FabricError::invalid_argument(format!(
                    "buffer {:#x} has no bytes, so there is no driver object for it",
                    entry.address
                )));
            };
            inside.push(self.enter_buffer(entry)?);
            ids.push(id);
        }
        self.check(self.context.with_native(stream, &ids, use_handle))
    }
}
