//! The text after `--from`: where a consumer begins.

use std::str::FromStr;

use crate::client::Start;

/// A parsed `--from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StartArgument(pub(super) Start);

impl FromStr for StartArgument {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let start = match text {
            "beginning" => Some(Start::Beginning),
            "end" => Some(Start::End),
            _ => match text.strip_prefix('@') {
                Some(milliseconds) => milliseconds
                    .parse()
                    .ok()
                    .filter(|&ms| ms >= 0)
                    .map(Start::Timestamp),
                None if text.contains('T') => utc_milliseconds(text).map(Start::Timestamp),
                None => text.parse().ok().filter(|&offset| offset >= 0).map(Start::Offset),
            },
        };
        start
            .map(Self)
            .ok_or("expected beginning, end, an OFFSET from 0 on, @MILLISECONDS since 1970 or a UTC time like 2026-01-31T12:00:00Z")
    }
}

/// Milliseconds since 1970 of `YYYY-MM-DDThh:mm:ssZ` (RFC 3339, UTC only, whole seconds), years from 1970.
fn utc_milliseconds(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of_months = [
        31,
        if leap { 29 } else { 28 },
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let month_index = usize::try_from(month).ok()?.checked_sub(1)?;
    let days_of_month = *days_of_months.get(month_index)?;
    let sensible = (1970..10_000).contains(&year)
        && (1..=days_of_month).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !sensible {
        return None;
    }
    let before = year - 1;
    let leap_days = before / 4 - before / 100 + before / 400 - (1969 / 4 - 1969 / 100 + 1969 / 400);
    let days = (year - 1970) * 365 + leap_days + days_of_months[..month_index].iter().sum::<i64>() + day - 1;
    Some((days * 86_400 + hour * 3600 + minute * 60 + second) * 1000)
}

fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let parts: Option<Vec<i64>> = text
        .split(separator)
        .map(|part| {
            part.bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| part.parse().ok())
                .flatten()
        })
        .collect();
    parts?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(text: &str) -> Option<Start> {
        text.parse::<StartArgument>().ok().map(|argument| argument.0)
    }

    #[test]
    fn each_form_is_understood() {
        assert_eq!(start("beginning"), Some(Start::Beginning));
        assert_eq!(start("end"), Some(Start::End));
        assert_eq!(start("42"), Some(Start::Offset(42)));
        assert_eq!(start("@1700000000000"), Some(Start::Timestamp(1_700_000_000_000)));
        assert_eq!(
            start("2023-11-14T22:13:20Z"),
            Some(Start::Timestamp(1_700_000_000_000))
        );
        assert_eq!(
            start("2000-02-29T00:00:00Z"),
            Some(Start::Timestamp(951_782_400_000))
        );
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for text in [
            "",
            "-1",
            "@-1",
            "middle",
            "2023-02-29T00:00:00Z",
            "2023-13-01T00:00:00Z",
            "2023-1T0Z",
        ] {
            assert_eq!(start(text), None, "{text}");
        }
    }
}
