//! Durations and sizes as people write them: `200ms`, `2s`, `5m`, `48h`, `7d`; `512B`, `64KiB`, `16MiB`, `1GiB`.

use std::{borrow::Cow, fmt, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A length of time with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A number of bytes with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const SPANS_MS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZES_B: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// The form of a span, as the configuration's schema states it.
pub const SPAN_PATTERN: &str = "^[0-9]+(ms|s|m|h|d)$";
/// The form of a size, as the configuration's schema states it.
pub const SIZE_PATTERN: &str = "^[0-9]+(B|KiB|MiB|GiB)$";

impl Span {
    /// # Errors
    /// What is wrong and which forms are right, in one sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        parse(text, &SPANS_MS).map(|ms| Self(Duration::from_millis(ms))).ok_or_else(|| {
            "not a duration; write a whole number with its unit: ms, s, m, h or d, such as 200ms or 5m".to_owned()
        })
    }
}

impl Size {
    /// # Errors
    /// What is wrong and which forms are right, in one sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        parse(text, &SIZES_B).map(Self).ok_or_else(|| {
            "not a size; write a whole number with its unit: B, KiB, MiB or GiB, such as 16MiB".to_owned()
        })
    }
}

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

fn show(value: u64, units: &[(&str, u64)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let largest = units.iter().rev().find(|(_, factor)| value != 0 && value.is_multiple_of(*factor));
    match largest.or_else(|| units.first()) {
        Some((name, factor)) => write!(f, "{}{name}", value / factor),
        None => write!(f, "{value}"),
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX), &SPANS_MS, f)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self.0, &SIZES_B, f)
    }
}

macro_rules! as_text {
    ($type:ident, $pattern:expr, $description:literal) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::parse(&Cow::<str>::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern, "description": $description })
            }
        }
    };
}

as_text!(Span, SPAN_PATTERN, "A duration: a whole number with ms, s, m, h or d.");
as_text!(Size, SIZE_PATTERN, "A size: a whole number with B, KiB, MiB or GiB.");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_sizes_are_read_and_shown_with_their_largest_whole_unit() {
        for (text, ms, shown) in
            [("200ms", 200, "200ms"), ("60s", 60_000, "1m"), ("48h", 172_800_000, "2d"), ("0s", 0, "0ms")]
        {
            let span = Span::parse(text).unwrap();
            assert_eq!((span.0.as_millis(), span.to_string().as_str()), (ms, shown));
        }
        for (text, bytes, shown) in [("16MiB", 16 << 20, "16MiB"), ("1024B", 1024, "1KiB")] {
            let size = Size::parse(text).unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, shown));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "5", "5 s", "-5s", "1.5s", "5S", "s", "99999999999999999999s", "18446744073709551615d"] {
            assert!(Span::parse(text).is_err(), "{text:?}");
        }
        for text in ["", "5", "5MB", "5 MiB", "99999999999999GiB"] {
            assert!(Size::parse(text).is_err(), "{text:?}");
        }
    }
}
