//! Values with units: durations (`30s`), sizes (`4MiB`) and rates (`600/min`).
//!
//! A number without a unit is refused: the reader of a file should not have to know whether 30 means seconds or minutes.

use std::{fmt, num::NonZeroU32, time::Duration};

use crate::load::declare::text;

/// Longer than any timeout or lifetime that makes sense, and far from the end of every clock.
const MAX_DURATION: Duration = Duration::from_hours(3650 * 24);

/// A duration in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Period(pub(crate) Duration);

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// So many per so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub count: NonZeroU32,
    /// Per how long.
    pub per: Per,
}

/// The time a [`Rate`] is counted over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// `/s`
    Second,
    /// `/min`
    Minute,
    /// `/h`
    Hour,
}

/// Why a text is no value with a unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// It does not begin with a whole number.
    #[error("does not begin with a whole number")]
    Number,
    /// A number and nothing else.
    #[error("has no unit")]
    NoUnit,
    /// A unit that does not exist here.
    #[error("has the unknown unit `{0}`")]
    UnknownUnit(String),
    /// More than can be counted or makes sense.
    #[error("is too large")]
    Large,
    /// Zero, where there is `off` for that.
    #[error("is zero")]
    Zero,
}

text!(Period, "a duration with a unit, such as `30s`, `5m` or `1h`", r"[0-9]+(?:ms|s|m|h|d)", |text| {
    duration(text).map(Period)
});
text!(Size, "a size with a unit, such as `512KiB` or `4MiB`", r"[0-9]+(?:B|KiB|MiB|GiB)", Size::parse);
text!(Rate, "a rate such as `10/s`, `600/min` or `1000/h`, or `off`", r"[0-9]+/(?:s|min|h)", Rate::parse);

/// Reads `250ms`, `30s`, `5m`, `1h` or `7d`.
fn duration(text: &str) -> Result<Duration, UnitError> {
    let (number, unit) = split(text)?;
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return Err(unknown(unit)),
    };
    let duration = Duration::from_millis(number.checked_mul(millis).ok_or(UnitError::Large)?);
    if duration > MAX_DURATION { Err(UnitError::Large) } else { Ok(duration) }
}

impl Size {
    /// Reads `100B`, `512KiB`, `4MiB` or `1GiB`.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split(text)?;
        let bytes: u64 = match unit {
            "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(unknown(unit)),
        };
        number.checked_mul(bytes).map(Self).ok_or(UnitError::Large)
    }
}

impl Rate {
    /// `count` per `per`; zero counts as one.
    pub const fn new(count: u32, per: Per) -> Self {
        let count = match NonZeroU32::new(count) {
            Some(count) => count,
            None => NonZeroU32::MIN,
        };
        Self { count, per }
    }

    /// Reads `10/s`, `600/min` or `1000/h`.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split(text)?;
        let per = match unit {
            "/s" => Per::Second,
            "/min" => Per::Minute,
            "/h" => Per::Hour,
            _ => return Err(unknown(unit)),
        };
        let count = u32::try_from(number).map_err(|_| UnitError::Large)?;
        Ok(Self { count: NonZeroU32::new(count).ok_or(UnitError::Zero)?, per })
    }
}

impl Per {
    /// How long it is.
    pub const fn duration(self) -> Duration {
        match self {
            Self::Second => Duration::from_secs(1),
            Self::Minute => Duration::from_mins(1),
            Self::Hour => Duration::from_hours(1),
        }
    }
}

fn split(text: &str) -> Result<(u64, &str), UnitError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).unwrap_or((text, ""));
    if number.is_empty() {
        return Err(UnitError::Number);
    }
    if unit.is_empty() {
        return Err(UnitError::NoUnit);
    }
    Ok((number.parse().map_err(|_| UnitError::Large)?, unit))
}

fn unknown(unit: &str) -> UnitError {
    UnitError::UnknownUnit(unit.to_owned())
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
            .into_iter()
            .find(|(unit, _)| self.0 > 0 && self.0.is_multiple_of(*unit))
            .unwrap_or((1, "B"));
        write!(f, "{}{name}", self.0 / unit)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = match self.per {
            Per::Second => "s",
            Per::Minute => "min",
            Per::Hour => "h",
        };
        write!(f, "{}/{per}", self.count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, millis) in [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000), ("0s", 0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(duration("7d"), Ok(Duration::from_hours(7 * 24)));
        assert_eq!(duration("30"), Err(UnitError::NoUnit));
        assert_eq!(duration(""), Err(UnitError::Number));
        assert_eq!(duration("s"), Err(UnitError::Number));
        assert_eq!(duration("-1s"), Err(UnitError::Number));
        assert_eq!(duration("1.5s"), Err(UnitError::UnknownUnit(".5s".to_owned())));
        assert_eq!(duration("5min"), Err(UnitError::UnknownUnit("min".to_owned())));
        assert_eq!(duration("99999999999999999999s"), Err(UnitError::Large));
        assert_eq!(duration("18446744073709551615h"), Err(UnitError::Large));
        assert_eq!(duration("4000d"), Err(UnitError::Large));
    }

    #[test]
    fn sizes_are_binary() {
        assert_eq!(Size::parse("4MiB"), Ok(Size(4 << 20)));
        assert_eq!(Size::parse("512KiB"), Ok(Size(512 << 10)));
        assert_eq!(Size::parse("100B"), Ok(Size(100)));
        assert_eq!(Size::parse("4MB"), Err(UnitError::UnknownUnit("MB".to_owned())));
        assert_eq!(Size::parse("17179869184GiB"), Err(UnitError::Large));
    }

    #[test]
    fn rates_count_per_second_minute_or_hour() {
        assert_eq!(Rate::parse("600/min"), Ok(Rate::new(600, Per::Minute)));
        assert_eq!(Rate::parse("10/s").map(|rate| rate.per.duration()), Ok(Duration::from_secs(1)));
        assert_eq!(Rate::parse("1000/h").map(|rate| rate.per.duration()), Ok(Duration::from_hours(1)));
        assert_eq!(Rate::parse("0/s"), Err(UnitError::Zero));
        assert_eq!(Rate::parse("5000000000/s"), Err(UnitError::Large));
        assert_eq!(Rate::parse("10/day"), Err(UnitError::UnknownUnit("/day".to_owned())));
        assert_eq!(Rate::parse("10"), Err(UnitError::NoUnit));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(bytes in any::<u64>(), count in 1..=u32::MAX, per in 0_usize..3) {
            prop_assert_eq!(Size::parse(&Size(bytes).to_string()), Ok(Size(bytes)));
            let rate = Rate::new(count, [Per::Second, Per::Minute, Per::Hour][per]);
            prop_assert_eq!(Rate::parse(&rate.to_string()), Ok(rate));
        }

        #[test]
        fn durations_scale_with_their_unit(number in 0_u64..3650) {
            for (unit, millis) in [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)] {
                prop_assert_eq!(duration(&format!("{number}{unit}")), Ok(Duration::from_millis(number * millis)));
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9]{0,25}(|ms|s|KiB|/min|\\PC{0,5})") {
            let (_, _, _) = (duration(&text), Size::parse(&text), Rate::parse(&text));
        }
    }
}
