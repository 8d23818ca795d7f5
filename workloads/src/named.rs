//! Enums whose variants have names in files and reports.

/// Declares an enum with a name for each variant.
macro_rules! named {
    (
        $(#[$meta:meta])*
        pub enum $enum:ident {
            $($(#[$about:meta])* $variant:ident = $name:literal),* $(,)?
        }
    ) => {
        $(#[$meta])*
        pub enum $enum {
            $($(#[$about])* $variant,)*
        }

        impl $enum {
            /// All of them, in the order of reports.
            pub const ALL: &'static [Self] = &[$($enum::$variant),*];

            /// The name in files and reports.
            pub fn name(self) -> &'static str {
                match self {
                    $($enum::$variant => $name,)*
                }
            }
        }
    };
}
