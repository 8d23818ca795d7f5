//! Enums whose variants have names in files and reports.

/// Declares an enum with a method that returns the name of a variant. Without a method's name it is `name`, and `ALL`
/// lists the variants.
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
            /// The name in files and reports.
            $vis fn $method(self) -> &'static str {
                match self {
                    $($enum::$variant => $name,)*
                }
            }
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis enum $enum:ident {
            $($(#[$about:meta])* $variant:ident = $name:expr),* $(,)?
        }
    ) => {
        $crate::named! {
            $(#[$meta])*
            $vis enum $enum, name {
                $($(#[$about])* $variant = $name,)*
            }
        }

        impl $enum {
            /// All of them, in the order of reports.
            $vis const ALL: &'static [Self] = &[$($enum::$variant),*];
        }
    };
}
