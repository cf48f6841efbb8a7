//! What is known of a stored text beside the text itself: the row that lists are made of.

use std::{
    fmt,
    time::{Duration, UNIX_EPOCH},
};

use moongate_storage as storage;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::Error;

/// Characters of a text that lists show.
const PREVIEW: usize = 200;

/// Of what kind a text is that nobody says anything about.
pub(crate) const PLAIN: &str = "text/plain";

/// The first millisecond of the year 10000, which has no place in the four digits of a year.
const UNWRITABLE: u64 = 253_402_300_800_000;

/// One stored text. Unknown members of a row, which a newer build may have written, are ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Item {
    pub(crate) filename: String,
    pub(crate) mime_type: String,
    /// Bytes of the text.
    pub(crate) size: usize,
    pub(crate) line_count: usize,
    pub(crate) chunk_count: usize,
    pub(crate) preview: String,
    pub(crate) uploaded_at: Moment,
    /// When it was last used; coarse, so that reading does not write each time.
    pub(crate) last_accessed_at: Moment,
}

/// An item as callers see it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown<'a> {
    pub(crate) content_id: &'a str,
    pub(crate) session_id: &'a str,
    #[serde(flatten)]
    pub(crate) item: &'a Item,
}

/// Milliseconds since 1970, written as people read them. One that is read can be written, so it lies before the year 10000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(pub(crate) u64);

impl Item {
    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers are JSON")
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(body).map_err(|error| storage::Error::Corrupt(error.into()).into())
    }
}

impl Moment {
    /// Reads `2026-01-31T12:00:00Z` and `2026-01-31T21:00:00+09:00`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (local, ahead) = match text.split_at_checked(text.len().checked_sub("+09:00".len())?) {
            Some((local, zone)) if zone.starts_with(['+', '-']) => (format!("{local}Z"), offset(zone)?),
            _ => (text.to_owned(), 0),
        };
        let since = humantime::parse_rfc3339(&local).ok()?.duration_since(UNIX_EPOCH).ok()?;
        let millis = u64::try_from(since.as_millis()).ok()?.checked_add_signed(-ahead)?;
        // The zone may have led out of the years that were read.
        (millis < UNWRITABLE).then_some(Self(millis))
    }
}

/// By how many milliseconds clocks in the zone `+09:00` are ahead.
fn offset(zone: &str) -> Option<i64> {
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let number = |digits: &str, below: i64| {
        let sound = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<i64>().ok().filter(|number| sound && *number < below)
    };
    let ahead = (number(hours, 24)? * 60 + number(minutes, 60)?) * 60_000;
    Some(if zone.starts_with('-') { -ahead } else { ahead })
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(self.0)).fmt(f)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).ok_or_else(|| de::Error::custom("not a time"))
    }
}

/// The beginning of a text.
pub(crate) fn preview(text: &str) -> String {
    text.chars().take(PREVIEW).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_zones() {
        let noon = Moment::parse("2026-01-31T12:00:00Z");
        assert!(noon.is_some());
        for same in
            ["2026-01-31T21:00:00+09:00", "2026-01-31T08:30:00.000-03:30", "2026-01-31T12:00:00-00:00"]
        {
            assert_eq!(Moment::parse(same), noon, "{same}");
        }
        for wrong in [
            "",
            "+09:00",
            "2026-01-31T12:00:00+9:00",
            "2026-01-31T12:00:00+09:60",
            "2026-01-31T12:00:00+24:00",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-00:01",
            "9999-12-31T23:59:59.999-23:59",
            "한2026-01",
            "2026-01-31T12:00:00++1:00",
        ] {
            assert_eq!(Moment::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn every_time_that_is_read_can_be_written() {
        for (text, written) in [
            ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
            ("1970-01-01T23:59:00+23:59", "1970-01-01T00:00:00.000Z"),
            ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999Z"),
            ("9999-12-31T23:58:59.999-00:01", "9999-12-31T23:59:59.999Z"),
        ] {
            let moment = Moment::parse(text).unwrap();
            assert_eq!(serde_json::to_value(moment).unwrap(), written, "{text}");
            assert_eq!(Moment::parse(written), Some(moment), "{text}");
        }
    }
}
