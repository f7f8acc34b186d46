//! What a lease tells about itself.

/// Whether a lease can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseStatus {
    /// Its deadline lies ahead.
    Active,
    /// It has reached its deadline, or was freed.
    Expired,
    /// The host has taken it back.
    Revoked,
}

/// A lease at one moment.
///
/// The unix times are for display. What counts is a monotonic deadline: setting the system's
/// clock forward or back neither ends nor extends a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseInfo {
    /// The lease's id.
    pub lease_id: u128,
    /// When it was acquired, in unix seconds.
    pub created_at_unix_secs: u64,
    /// When it ends, in unix seconds, by the clock at the time it was acquired.
    pub expires_at_unix_secs: u64,
    /// Whether it can be used.
    pub status: LeaseStatus,
}
