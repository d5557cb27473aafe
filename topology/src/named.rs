//! Gives the variants of enums their names in files and flags.

use std::borrow::Borrow;
use std::fmt::Display;

/// Gives an enum its `ALL`, `name`, `Display` and `FromStr`; variants after a semicolon have a name but are not read.
///
/// ```
/// #[derive(Debug, Clone, Copy, PartialEq)]
/// enum Side { Left, Right }
/// lockstep_topology::named!(Side, "side": Left = "left", Right = "right");
/// assert_eq!("left".parse(), Ok(Side::Left));
/// assert_eq!("LEFT".parse(), Ok(Side::Left));
/// assert_eq!("up".parse::<Side>(), Err("\"up\" is not a side: write left or right".to_owned()));
/// assert_eq!(Side::ALL.map(|side| side.to_string()), ["left", "right"]);
/// ```
#[macro_export]
macro_rules! named {
    ($of:ident, $what:literal: $($variant:ident = $name:literal),+ $(; $($hidden:ident = $other:literal),+)?) => {
        #[allow(dead_code, reason = "not every enum has a use for all of it")]
        impl $of {
            /// All that can be written.
            pub const ALL: [$of; { [$($name),+].len() }] = [$($of::$variant),+];

            /// Its name in files and flags.
            pub fn name(self) -> &'static str {
                match self {
                    $($of::$variant => $name,)+
                    $($($of::$hidden => $other,)+)?
                }
            }
        }

        impl ::std::fmt::Display for $of {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl ::std::str::FromStr for $of {
            type Err = ::std::string::String;

            fn from_str(text: &str) -> ::std::result::Result<$of, ::std::string::String> {
                let names = $of::ALL.map($of::name);
                let ours = $crate::aliases::ours($what, text, names)?;
                let known = $of::ALL.into_iter().find(|one| one.name() == ours);
                known.ok_or_else(|| $crate::unknown_name(text, $what, &names))
            }
        }
    };
}

/// The error message for a text that is none of `names`.
pub fn unknown_name(text: &str, what: &str, names: &[&str]) -> String {
    let article = if what.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{text:?} is not {article} {what}: write {}", listed(names))
}

/// `ring, direct or tree`.
pub(crate) fn listed(names: &[impl Borrow<str> + Display]) -> String {
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}
