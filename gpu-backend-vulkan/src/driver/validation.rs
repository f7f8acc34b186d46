//! The Khronos validation layer's messages.

#![expect(
    unsafe_code,
    reason = "the layer calls back through a C function pointer with C strings"
)]

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ash::vk;

/// A message of the Khronos validation layer.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationMessage {
    /// Whether the layer calls it an error; otherwise a warning.
    pub is_error: bool,
    /// The rule's name in the specification, such as `VUID-vkCmdDispatch-groupCountX-00386`.
    pub id: String,
    /// The layer's text.
    pub text: String,
}

/// Receives messages, from any thread.
pub(crate) type Sink = Box<dyn Fn(ValidationMessage) + Send + Sync>;

/// The layer's name.
pub(super) const LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

/// Asks for warnings and errors about wrong use of the API, delivered to `sink`.
///
/// `sink` must outlive the messenger that is created from this.
pub(super) fn messenger_info(sink: &Sink) -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
    let mut info = vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(
            vk::DebugUtilsMessageSeverityFlagsEXT::WARNING
                | vk::DebugUtilsMessageSeverityFlagsEXT::ERROR,
        )
        .message_type(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION)
        .pfn_user_callback(Some(callback));
    info.p_user_data = std::ptr::from_ref(sink).cast_mut().cast();
    info
}

unsafe extern "system" fn callback(
    severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _types: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    user: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: `user` is what `messenger_info` stored: a sink that outlives the messenger.
    let sink = unsafe { user.cast::<Sink>().as_ref() };
    // SAFETY: the layer passes a valid structure, or null, for the time of the call.
    let data = unsafe { data.as_ref() };
    if let (Some(sink), Some(data)) = (sink, data) {
        let message = ValidationMessage {
            is_error: severity.contains(vk::DebugUtilsMessageSeverityFlagsEXT::ERROR),
            id: text(data.p_message_id_name),
            text: text(data.p_message),
        };
        // A panic must not unwind into the driver; it has been reported by the panic hook.
        let _ = catch_unwind(AssertUnwindSafe(|| sink(message)));
    }
    // The call that caused the message goes on.
    vk::FALSE
}

fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: the layer's strings are valid and end with a NUL for the time of the call.
    unsafe { CStr::from_ptr(pointer) }
        .to_string_lossy()
        .into_owned()
}
