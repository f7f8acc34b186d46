//! Where the SDK reports what happens, at no cost where nobody can listen.

/// Reports an event where the feature `observe` is on; else its fields are only type-checked.
#[cfg(feature = "observe")]
macro_rules! observe {
    ($event:ident { $($field:ident: $value:expr),* $(,)? }) => {
        $crate::observe::emit(|| $crate::observe::Event::$event { $($field: $value),* })
    };
}
/// Reports an event where the feature `observe` is on; else its fields are only type-checked.
#[cfg(not(feature = "observe"))]
macro_rules! observe {
    ($event:ident { $($field:ident: $value:expr),* $(,)? }) => {
        $( let _ = || { let _ = &$value; }; )*
    };
}
pub(crate) use observe;
