//! Vulkan's two shapes of answers: lists that are asked for twice, and chains of structures.

#![expect(unsafe_code, reason = "walks memory that a caller of Vulkan gives")]

use ash::vk;

/// Answers a question for a list: its length without a place for it, as much as fits with one.
///
/// # Safety
///
/// `count` can be read and written; `items` is null or has room for as many.
pub(super) unsafe fn list<T: Copy>(all: &[T], count: *mut u32, items: *mut T) -> vk::Result {
    if items.is_null() {
        // SAFETY: the caller vouches for it.
        unsafe { count.write(all.len() as u32) };
        return vk::Result::SUCCESS;
    }
    // SAFETY: the caller vouches for it.
    let room = unsafe { count.read() } as usize;
    let given = room.min(all.len());
    // SAFETY: `given` is in both.
    unsafe { items.copy_from_nonoverlapping(all.as_ptr(), given) };
    // SAFETY: the caller vouches for it.
    unsafe { count.write(given as u32) };
    if given < all.len() {
        vk::Result::INCOMPLETE
    } else {
        vk::Result::SUCCESS
    }
}

/// Finds a structure in a chain.
///
/// # Safety
///
/// `first` begins a chain, and structures of type `kind` are of the type `T`.
pub(super) unsafe fn find<T>(
    first: *mut vk::BaseOutStructure<'_>,
    kind: vk::StructureType,
) -> Option<*mut T> {
    let mut node = first;
    while !node.is_null() {
        // SAFETY: a chain's members begin with their type and the next member.
        let head = unsafe { node.read() };
        if head.s_type == kind {
            return Some(node.cast());
        }
        node = head.p_next.cast();
    }
    None
}

/// Takes a structure out of a chain while `call` runs, so that a driver that does not know it does
/// not see it.
///
/// # Safety
///
/// `first` begins a chain that nobody else uses, and is not of type `kind` itself.
pub(super) unsafe fn without(
    first: *mut vk::BaseOutStructure<'_>,
    kind: vk::StructureType,
    call: impl FnOnce(),
) {
    let mut previous = first;
    loop {
        // SAFETY: a chain's members begin with their type and the next member.
        let next = unsafe { &mut *previous }.p_next;
        if next.is_null() {
            return call();
        }
        // SAFETY: as above.
        let head = unsafe { next.read() };
        if head.s_type == kind {
            // SAFETY: as above.
            unsafe { &mut *previous }.p_next = head.p_next;
            call();
            // SAFETY: as above.
            unsafe { &mut *previous }.p_next = next;
            return;
        }
        previous = next.cast();
    }
}
