//! Enums whose variants have names in words.

/// Declares an enum with a name for each variant, and a method that returns the name.
#[macro_export]
macro_rules! named {
    (
        $(#[$meta:meta])*
        $vis:vis enum $enum:ident, $method:ident {
            $($(#[$about:meta])* $variant:ident = $name:expr,)*
        }
    ) => {
        $(#[$meta])*
        $vis enum $enum {
            $($(#[$about])* $variant,)*
        }

        impl $enum {
            /// In the words of files and reports.
            $vis fn $method(self) -> &'static str {
                match self {
                    $($enum::$variant => $name,)*
                }
            }
        }
    };
}
