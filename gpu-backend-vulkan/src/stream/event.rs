//! Events: marks in streams, with the time at which they were reached.

use std::sync::Arc;
use std::time::Duration;

use grafos_host_abi::{
    EventId, EventStatus, GpuError, HandleFault, HandleKind, Result, StreamId, UnsupportedFault,
};
use parking_lot::Mutex;

use super::Stream;
use crate::context::{Garbage, Shared};
use crate::driver::{Device, QueryPool};

/// Timestamps in one query pool.
const POOL_TIMESTAMPS: u32 = 256;

/// A mark that can be set anew.
#[derive(Default)]
pub(crate) struct Event {
    mark: Mutex<Option<Mark>>,
}

#[derive(Clone)]
struct Mark {
    stream: Arc<Stream>,
    value: u64,
    timestamp: Option<Timestamp>,
}

/// A place for a timestamp.
#[derive(Clone)]
pub(crate) struct Timestamp {
    pool: Arc<QueryPool>,
    index: u32,
}

/// The timestamps of a context.
#[derive(Default)]
pub(crate) struct Timestamps {
    spare: Mutex<Vec<Timestamp>>,
}

impl Timestamps {
    fn take(&self, device: &Arc<Device>) -> Result<Timestamp> {
        if let Some(timestamp) = self.spare.lock().pop() {
            return Ok(timestamp);
        }
        let pool = Arc::new(QueryPool::new(device, POOL_TIMESTAMPS)?);
        let mut spare = self.spare.lock();
        spare.extend((1..POOL_TIMESTAMPS).map(|index| Timestamp {
            pool: Arc::clone(&pool),
            index,
        }));
        Ok(Timestamp { pool, index: 0 })
    }

    pub(crate) fn give_back(&self, timestamp: Timestamp) {
        self.spare.lock().push(timestamp);
    }
}

impl Shared {
    fn event(&self, event: EventId) -> Result<Arc<Event>> {
        let events = self.events.read();
        events.get(event.0).cloned().ok_or(unknown(event))
    }

    fn mark(&self, event: EventId) -> Result<Option<Mark>> {
        Ok(self.event(event)?.mark.lock().clone())
    }

    pub(crate) fn create_event(&self) -> Result<EventId> {
        self.device.ensure_alive()?;
        let event = Arc::new(Event::default());
        Ok(EventId(self.events.write().insert(event)))
    }

    pub(crate) fn destroy_event(&self, event: EventId) -> Result<()> {
        let removed = self.events.write().remove(event.0);
        let removed = removed.ok_or(unknown(event))?;
        let mark = removed.mark.lock().take();
        self.discard_mark(mark);
        Ok(())
    }

    fn discard_mark(&self, mark: Option<Mark>) {
        if let Some(Mark {
            stream,
            value,
            timestamp: Some(timestamp),
        }) = mark
        {
            let after = [(stream, value)].into_iter().collect();
            self.discard_after(Garbage::Timestamp(timestamp), after);
        }
    }

    pub(crate) fn record_event(&self, event: EventId, stream: StreamId) -> Result<()> {
        self.device.ensure_alive()?;
        let event = self.event(event)?;
        let stream = self.stream(stream)?;
        let timestamp = if self.info.capabilities.event_timing {
            Some(self.timestamps.take(&self.device)?)
        } else {
            None
        };
        // Held over the recording, so that marks are in the order of the recordings.
        let mut mark = event.mark.lock();
        let mut value = stream.recorded();
        if timestamp.is_some() || !stream.has_reached(value) {
            self.record(&stream, |batch| {
                match &timestamp {
                    Some(timestamp) => batch.timestamp(&timestamp.pool, timestamp.index),
                    None => batch.order_everything(),
                }
                value = batch.value();
                Ok(())
            })?;
            // Work after the mark goes into another batch: the event does not wait for it.
            stream.seal()?;
        }
        let earlier = mark.replace(Mark {
            stream,
            value,
            timestamp,
        });
        drop(mark);
        self.discard_mark(earlier);
        Ok(())
    }

    pub(crate) fn wait_event(&self, stream: StreamId, event: EventId) -> Result<()> {
        self.device.ensure_alive()?;
        let stream = self.stream(stream)?;
        let Some(mark) = self.mark(event)? else {
            return Ok(());
        };
        if Arc::ptr_eq(&stream, &mark.stream) || mark.stream.has_reached(mark.value) {
            return Ok(());
        }
        // Submitted first: streams can share a queue, which must not wait for what is behind.
        mark.stream.flush(&self.device, &self.memory.staging)?;
        if mark.stream.refresh()? >= mark.value {
            return Ok(());
        }
        stream.seal()?;
        self.record(&stream, |batch| {
            batch.wait_for(Arc::clone(mark.stream.semaphore()), mark.value);
            Ok(())
        })
    }

    pub(crate) fn query_event(&self, event: EventId) -> Result<EventStatus> {
        self.device.ensure_alive()?;
        let Some(mark) = self.mark(event)? else {
            return Ok(EventStatus::NotRecorded);
        };
        mark.stream.flush(&self.device, &self.memory.staging)?;
        if mark.stream.refresh()? >= mark.value {
            Ok(EventStatus::Complete)
        } else {
            Ok(EventStatus::Pending)
        }
    }

    pub(crate) fn sync_event(&self, event: EventId, timeout: Option<Duration>) -> Result<()> {
        self.device.ensure_alive()?;
        let Some(mark) = self.mark(event)? else {
            return Ok(());
        };
        mark.stream.flush(&self.device, &self.memory.staging)?;
        self.wait_for_value(&mark.stream, mark.value, timeout)
    }

    pub(crate) fn elapsed_ns(&self, start: EventId, end: EventId) -> Result<u64> {
        self.device.ensure_alive()?;
        if !self.info.capabilities.event_timing {
            return Err(GpuError::Unsupported(UnsupportedFault {
                what: "event timing".into(),
                reason: format!("queues of {} have no timestamps", self.info.name),
            }));
        }
        let not_reached = |which| GpuError::NotReady {
            what: format!("the {which} event has not been reached"),
        };
        let reached = [(start, "start"), (end, "end")].map(|(event, which)| {
            let mark = self.mark(event)?.ok_or_else(|| GpuError::InvalidArgument {
                reason: format!("the {which} event has never been recorded"),
            })?;
            mark.stream.flush(&self.device, &self.memory.staging)?;
            if mark.stream.refresh()? < mark.value {
                return Err(not_reached(which));
            }
            Ok((mark, which))
        });
        // No timestamp is read before both are there: lavapipe waits for the whole device to read
        // one.
        let [start, end] = reached;
        let [start, end] = [start?, end?].map(|(mark, which)| {
            let timestamp = mark.timestamp.as_ref();
            let timestamp = timestamp.ok_or_else(|| not_reached(which))?;
            timestamp
                .pool
                .timestamp(timestamp.index)?
                .ok_or_else(|| not_reached(which))
        });
        let bits = self.device.family().timestamp_valid_bits;
        Ok(difference_ns(start?, end?, bits, self.timestamp_period_ns))
    }
}

/// The time between two timestamps that wrap after `valid_bits` bits; 0 when they are reversed.
fn difference_ns(start: u64, end: u64, valid_bits: u32, period_ns: f32) -> u64 {
    let mask = u64::MAX >> (64 - valid_bits.clamp(1, 64));
    let ticks = end.wrapping_sub(start) & mask;
    // More than half of the range ahead is behind.
    if ticks > mask / 2 {
        return 0;
    }
    (ticks as f64 * f64::from(period_ns)) as u64
}

fn unknown(event: EventId) -> GpuError {
    GpuError::InvalidHandle(HandleFault {
        kind: HandleKind::Event,
        id: event.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_nanoseconds() {
        assert_eq!(difference_ns(100, 350, 64, 1.0), 250);
        assert_eq!(difference_ns(100, 350, 64, 10.0), 2500);
        assert_eq!(difference_ns(0, 3, 64, 0.5), 1);
    }

    #[test]
    fn timestamps_wrap_after_their_valid_bits() {
        assert_eq!(difference_ns(0xFF_FFFF_FFF0, 0x10, 40, 1.0), 0x20);
        assert_eq!(difference_ns(u64::MAX, 4, 64, 1.0), 5);
        // Bits above the valid ones mean nothing.
        assert_eq!(
            difference_ns(0xAB00_0000_0001, 0xCD00_0000_0003, 40, 1.0),
            2
        );
    }

    #[test]
    fn a_reversed_pair_takes_no_time() {
        assert_eq!(difference_ns(350, 100, 64, 1.0), 0);
        assert_eq!(difference_ns(0x20, 0x10, 36, 1.0), 0);
    }
}
