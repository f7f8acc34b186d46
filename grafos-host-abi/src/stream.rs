//! Streams and events.

/// A queue of work that runs in order. Ids are never reused within a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

impl StreamId {
    /// The stream that every context has from the start.
    pub const DEFAULT: StreamId = StreamId(0);
}

/// A mark in a stream. Ids are never reused within a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub u64);

/// Whether the work before an event has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventStatus {
    /// Nobody has recorded the event yet.
    NotRecorded,
    /// Work before the event is still outstanding.
    Pending,
    /// All work before the event has ended.
    Complete,
}
