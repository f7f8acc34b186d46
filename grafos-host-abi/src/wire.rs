//! The codes that cross the boundary between a host and a wasm guest (`fabricbios_gpu_v1`).
//!
//! A call answers 0 or a count on success and [`ErrorKind::code`](crate::ErrorKind::code) on
//! failure. What a lease request asks for travels as type-length-value entries: a little-endian
//! `u16` type, a little-endian `u16` length in bytes, then the value.

/// The name of the import module.
pub const IMPORT_MODULE: &str = "fabricbios_gpu_v1";

/// The least device memory that a lease needs: a little-endian `u64` in bytes.
pub const TLV_LEASE_MIN_VRAM: u16 = 0x0901;
/// The most device memory that a lease may use: a little-endian `u64` in bytes.
pub const TLV_LEASE_MAX_VRAM: u16 = 0x0902;
/// The exclusivity class of a lease: one byte (0 shared, 1 session, 2 device, 3 partition).
pub const TLV_LEASE_GPU_EXCLUSIVITY: u16 = 0x0903;
/// One affinity constraint of a lease: a strength byte (0 preferred, 1 required), a direction
/// byte (0 toward, 1 away), a target-kind byte, then the target.
pub const TLV_LEASE_AFFINITY: u16 = 0x0904;

/// The status of a lease that has not reached its deadline.
pub const LEASE_ACTIVE: i32 = 0;
/// The status of a lease that has reached its deadline or was freed.
pub const LEASE_EXPIRED: i32 = 1;
/// The status of a lease that the host has taken back.
pub const LEASE_REVOKED: i32 = 2;
