//! The imports of a guest, and a safe function for each that takes a pointer.
//!
//! A lease id travels as its high and low half. Lengths are in bytes unless they are counts of
//! elements. Numbers behind pointers are little-endian, as wasm memory is.
#![expect(
    unsafe_code,
    reason = "imports are foreign functions; some of them take pointers"
)]

use alloc::string::String;

// Imports that take numbers only: the host cannot touch the guest's memory through them.
#[link(wasm_import_module = "fabricbios_gpu_v1")]
unsafe extern "C" {
    pub(super) safe fn unix_time_secs() -> u64;
    pub(super) safe fn gpu_lease_query(high: u64, low: u64) -> i32;
    pub(super) safe fn gpu_lease_renew(high: u64, low: u64, duration_secs: u64) -> i32;
    pub(super) safe fn gpu_lease_free(high: u64, low: u64) -> i32;
    pub(super) safe fn gpu_session_mem_free(high: u64, low: u64, buffer: u64) -> i32;
    pub(super) safe fn gpu_session_mem_copy(
        high: u64,
        low: u64,
        stream: u64,
        dst: u64,
        dst_offset: u64,
        src: u64,
        src_offset: u64,
        len: u64,
    ) -> i32;
    pub(super) safe fn gpu_session_mem_fill(
        high: u64,
        low: u64,
        stream: u64,
        buffer: u64,
        offset: u64,
        len: u64,
        pattern: u32,
        pattern_len: u32,
    ) -> i32;
    pub(super) safe fn gpu_session_module_unload(high: u64, low: u64, module: u64) -> i32;
    pub(super) safe fn gpu_session_stream_destroy(high: u64, low: u64, stream: u64) -> i32;
    pub(super) safe fn gpu_session_stream_sync(
        high: u64,
        low: u64,
        stream: u64,
        timeout_ns: u64,
    ) -> i32;
    pub(super) safe fn gpu_session_sync(high: u64, low: u64, timeout_ns: u64) -> i32;
    pub(super) safe fn gpu_session_poll(high: u64, low: u64) -> i32;
    pub(super) safe fn gpu_session_event_destroy(high: u64, low: u64, event: u64) -> i32;
    pub(super) safe fn gpu_session_event_record(
        high: u64,
        low: u64,
        event: u64,
        stream: u64,
    ) -> i32;
    pub(super) safe fn gpu_session_event_wait(high: u64, low: u64, stream: u64, event: u64) -> i32;
    pub(super) safe fn gpu_session_event_query(high: u64, low: u64, event: u64) -> i32;
    pub(super) safe fn gpu_session_event_sync(
        high: u64,
        low: u64,
        event: u64,
        timeout_ns: u64,
    ) -> i32;
}

/// Imports that read or write the guest's memory.
mod raw {
    #[link(wasm_import_module = "fabricbios_gpu_v1")]
    unsafe extern "C" {
        pub(super) fn gpu_error_text(text: *mut u8, capacity: usize) -> usize;
        pub(super) fn gpu_lease_alloc(
            resource_id: u32,
            lease_secs: u32,
            constraints: *const u8,
            constraints_len: usize,
            lease_id: *mut [u64; 2],
        ) -> i32;
        pub(super) fn gpu_lease_times(high: u64, low: u64, times: *mut [u64; 2]) -> i32;
        pub(super) fn gpu_session_mem_alloc(high: u64, low: u64, size: u64, out: *mut u64) -> i32;
        pub(super) fn gpu_session_mem_write(
            high: u64,
            low: u64,
            stream: u64,
            buffer: u64,
            offset: u64,
            data: *const u8,
            len: usize,
        ) -> i32;
        pub(super) fn gpu_session_mem_read(
            high: u64,
            low: u64,
            stream: u64,
            buffer: u64,
            offset: u64,
            out: *mut u8,
            len: usize,
        ) -> i32;
        pub(super) fn gpu_session_mem_info(high: u64, low: u64, out: *mut [u64; 5]) -> i32;
        pub(super) fn gpu_session_mem_trim(high: u64, low: u64, out: *mut u64) -> i32;
        pub(super) fn gpu_session_module_load(
            high: u64,
            low: u64,
            image: *const u8,
            len: usize,
            out: *mut u64,
        ) -> i32;
        pub(super) fn gpu_session_module_kernel(
            high: u64,
            low: u64,
            module: u64,
            name: *const u8,
            len: usize,
            out: *mut u64,
        ) -> i32;
        pub(super) fn gpu_session_module_kernel_names(
            high: u64,
            low: u64,
            module: u64,
            out: *mut u8,
            capacity: usize,
        ) -> i32;
        pub(super) fn gpu_session_module_global(
            high: u64,
            low: u64,
            module: u64,
            name: *const u8,
            len: usize,
            out: *mut [u64; 2],
        ) -> i32;
        pub(super) fn gpu_session_launch(
            high: u64,
            low: u64,
            stream: u64,
            kernel: u64,
            dimensions: *const [u32; 7],
            args: *const u8,
            args_len: usize,
            arg_sizes: *const u32,
            arg_count: usize,
        ) -> i32;
        pub(super) fn gpu_session_stream_create(high: u64, low: u64, out: *mut u64) -> i32;
        pub(super) fn gpu_session_event_create(high: u64, low: u64, out: *mut u64) -> i32;
        pub(super) fn gpu_session_event_elapsed(
            high: u64,
            low: u64,
            start: u64,
            end: u64,
            out: *mut u64,
        ) -> i32;
    }
}

/// The halves of a lease id, high and low.
pub(super) fn halves(id: u128) -> (u64, u64) {
    ((id >> 64) as u64, id as u64)
}

/// The text of the last failure on this guest.
pub(super) fn error_text() -> String {
    let mut text = alloc::vec![0u8; 1024];
    // SAFETY: the host writes at most `capacity` bytes, which the vector has.
    let len = unsafe { raw::gpu_error_text(text.as_mut_ptr(), text.len()) };
    text.truncate(len);
    String::from_utf8_lossy(&text).into_owned()
}

pub(super) fn lease_alloc(
    resource_id: u32,
    lease_secs: u32,
    constraints: &[u8],
) -> Result<u128, i32> {
    let mut halves = [0u64; 2];
    // SAFETY: the slice and the array live through the call, at the lengths that are given.
    let status = unsafe {
        raw::gpu_lease_alloc(
            resource_id,
            lease_secs,
            constraints.as_ptr(),
            constraints.len(),
            &raw mut halves,
        )
    };
    let [high, low] = halves;
    check(status).map(|_| (u128::from(high) << 64) | u128::from(low))
}

/// When a lease was created and when it ends, in unix seconds.
pub(super) fn lease_times(id: u128) -> Option<[u64; 2]> {
    let (high, low) = halves(id);
    let mut times = [0u64; 2];
    // SAFETY: the array lives through the call.
    let status = unsafe { raw::gpu_lease_times(high, low, &raw mut times) };
    check(status).ok().map(|_| times)
}

pub(super) fn mem_alloc(id: u128, size: u64) -> Result<u64, i32> {
    let (high, low) = halves(id);
    let mut out = 0;
    // SAFETY: the number lives through the call.
    let status = unsafe { raw::gpu_session_mem_alloc(high, low, size, &raw mut out) };
    check(status).map(|_| out)
}

pub(super) fn mem_write(
    id: u128,
    stream: u64,
    buffer: u64,
    offset: u64,
    data: &[u8],
) -> Result<i32, i32> {
    let (high, low) = halves(id);
    let (start, len) = (data.as_ptr(), data.len());
    // SAFETY: the slice lives through the call, at the length that is given.
    check(unsafe { raw::gpu_session_mem_write(high, low, stream, buffer, offset, start, len) })
}

pub(super) fn mem_read(
    id: u128,
    stream: u64,
    buffer: u64,
    offset: u64,
    out: &mut [u8],
) -> Result<i32, i32> {
    let (high, low) = halves(id);
    let (start, len) = (out.as_mut_ptr(), out.len());
    // SAFETY: the slice lives through the call, at the length that is given.
    check(unsafe { raw::gpu_session_mem_read(high, low, stream, buffer, offset, start, len) })
}

/// Total, free, live bytes, live buffers and reserved bytes.
pub(super) fn mem_info(id: u128) -> Result<[u64; 5], i32> {
    let (high, low) = halves(id);
    let mut out = [0; 5];
    // SAFETY: the array lives through the call.
    let status = unsafe { raw::gpu_session_mem_info(high, low, &raw mut out) };
    check(status).map(|_| out)
}

pub(super) fn mem_trim(id: u128) -> Result<u64, i32> {
    let (high, low) = halves(id);
    let mut out = 0;
    // SAFETY: the number lives through the call.
    let status = unsafe { raw::gpu_session_mem_trim(high, low, &raw mut out) };
    check(status).map(|_| out)
}

pub(super) fn module_load(id: u128, image: &[u8]) -> Result<u64, i32> {
    let (high, low) = halves(id);
    let (start, len) = (image.as_ptr(), image.len());
    let mut out = 0;
    // SAFETY: the slice and the number live through the call, at the length that is given.
    let status = unsafe { raw::gpu_session_module_load(high, low, start, len, &raw mut out) };
    check(status).map(|_| out)
}

pub(super) fn module_kernel(id: u128, module: u64, name: &str) -> Result<u64, i32> {
    let (high, low) = halves(id);
    let (start, len) = (name.as_ptr(), name.len());
    let mut out = 0;
    // SAFETY: the text and the number live through the call, at the length that is given.
    let status =
        unsafe { raw::gpu_session_module_kernel(high, low, module, start, len, &raw mut out) };
    check(status).map(|_| out)
}

/// Writes the names, each followed by a line feed, as far as they fit, and answers how many bytes
/// all of them take.
pub(super) fn module_kernel_names(id: u128, module: u64, out: &mut [u8]) -> Result<usize, i32> {
    let (high, low) = halves(id);
    let (start, capacity) = (out.as_mut_ptr(), out.len());
    // SAFETY: the slice lives through the call, at the length that is given.
    let status =
        unsafe { raw::gpu_session_module_kernel_names(high, low, module, start, capacity) };
    check(status).map(|len| len as usize)
}

/// Address and size of a global variable.
pub(super) fn module_global(id: u128, module: u64, name: &str) -> Result<[u64; 2], i32> {
    let (high, low) = halves(id);
    let (start, len) = (name.as_ptr(), name.len());
    let mut out = [0; 2];
    // SAFETY: the text and the array live through the call, at the length that is given.
    let status =
        unsafe { raw::gpu_session_module_global(high, low, module, start, len, &raw mut out) };
    check(status).map(|_| out)
}

/// `dimensions` are grid x y z, block x y z and the dynamic shared memory in bytes.
pub(super) fn launch(
    id: u128,
    stream: u64,
    kernel: u64,
    dimensions: &[u32; 7],
    args: &[u8],
    arg_sizes: &[u32],
) -> Result<i32, i32> {
    let (high, low) = halves(id);
    // SAFETY: the slices and the array live through the call, at the lengths that are given.
    check(unsafe {
        raw::gpu_session_launch(
            high,
            low,
            stream,
            kernel,
            dimensions,
            args.as_ptr(),
            args.len(),
            arg_sizes.as_ptr(),
            arg_sizes.len(),
        )
    })
}

pub(super) fn stream_create(id: u128) -> Result<u64, i32> {
    let (high, low) = halves(id);
    let mut out = 0;
    // SAFETY: the number lives through the call.
    let status = unsafe { raw::gpu_session_stream_create(high, low, &raw mut out) };
    check(status).map(|_| out)
}

pub(super) fn event_create(id: u128) -> Result<u64, i32> {
    let (high, low) = halves(id);
    let mut out = 0;
    // SAFETY: the number lives through the call.
    let status = unsafe { raw::gpu_session_event_create(high, low, &raw mut out) };
    check(status).map(|_| out)
}

/// Nanoseconds between two events.
pub(super) fn event_elapsed(id: u128, start: u64, end: u64) -> Result<u64, i32> {
    let (high, low) = halves(id);
    let mut out = 0;
    // SAFETY: the number lives through the call.
    let status = unsafe { raw::gpu_session_event_elapsed(high, low, start, end, &raw mut out) };
    check(status).map(|_| out)
}

/// A count, or the status of a failure.
pub(super) fn check(status: i32) -> Result<i32, i32> {
    if status < 0 { Err(status) } else { Ok(status) }
}
