//! The one table of versions: what we read and write, where flexible versions begin, what we advertise.
//!
//! Everything that asks about a version asks here: the headers, the messages, the server's answer to
//! ApiVersions and its refusal of what it cannot read.

use std::ops::RangeInclusive;

use super::api_key::ApiKey;

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiSpec {
    /// The API.
    pub api: ApiKey,
    /// The versions whose requests and responses are defined here.
    pub defined: RangeInclusive<i16>,
    /// The first version with compact lengths, tagged fields and the longer headers.
    pub flexible_from: i16,
    /// The versions to announce in ApiVersions.
    pub advertised: RangeInclusive<i16>,
}

const fn row(api: ApiKey, min: i16, max: i16, flexible_from: i16) -> ApiSpec {
    ApiSpec {
        api,
        defined: min..=max,
        flexible_from,
        advertised: min..=max,
    }
}

/// All rows, ascending by key.
pub static TABLE: [ApiSpec; 18] = [
    // Announced from 0 although versions 0 to 2 are refused, as Apache Kafka does (KAFKA-18659):
    // librdkafka before 2.11.1 switches off gzip, snappy and lz4 when 0 is not in the range.
    ApiSpec {
        advertised: 0..=12,
        ..row(ApiKey::Produce, 3, 12, 9)
    },
    row(ApiKey::Fetch, 4, 17, 12),
    row(ApiKey::ListOffsets, 1, 10, 6),
    row(ApiKey::Metadata, 0, 13, 9),
    row(ApiKey::FindCoordinator, 0, 5, 3),
    row(ApiKey::ApiVersions, 0, 4, 3),
    row(ApiKey::CreateTopics, 2, 7, 5),
    row(ApiKey::DeleteTopics, 1, 6, 4),
    row(ApiKey::DeleteRecords, 0, 2, 2),
    row(ApiKey::InitProducerId, 0, 5, 2),
    row(ApiKey::OffsetForLeaderEpoch, 2, 4, 4),
    row(ApiKey::DescribeConfigs, 1, 4, 4),
    row(ApiKey::AlterConfigs, 0, 2, 2),
    row(ApiKey::DescribeLogDirs, 1, 4, 2),
    row(ApiKey::CreatePartitions, 0, 3, 2),
    row(ApiKey::IncrementalAlterConfigs, 0, 1, 1),
    row(ApiKey::DescribeCluster, 0, 1, 0),
    row(ApiKey::DescribeTopicPartitions, 0, 0, 0),
];

/// The row of an API.
#[must_use]
pub fn of(api: ApiKey) -> &'static ApiSpec {
    let index = TABLE
        .binary_search_by_key(&api, |row| row.api)
        .expect("every API has a row");
    &TABLE[index]
}

/// The versions of the API with this key that can be read and written; `None` for an API without
/// messages here.
#[must_use]
pub fn supported(api_key: i16) -> Option<RangeInclusive<i16>> {
    ApiKey::from_key(api_key).map(|api| of(api).defined.clone())
}

/// Whether a version of an API is flexible (KIP-482).
#[must_use]
pub fn is_flexible(api: ApiKey, version: i16) -> bool {
    version >= of(api).flexible_from
}

/// The header version of a request: 1, or 2 with tagged fields.
#[must_use]
pub fn request_header(api: ApiKey, version: i16) -> i16 {
    if is_flexible(api, version) { 2 } else { 1 }
}

/// The header version of a response: 0, or 1 with tagged fields. ApiVersions keeps 0 in all versions,
/// because its client does not know yet what the broker speaks.
#[must_use]
pub fn response_header(api: ApiKey, version: i16) -> i16 {
    i16::from(api != ApiKey::ApiVersions && is_flexible(api, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_one_row_per_api_in_order() {
        assert!(TABLE.iter().map(|row| row.api).eq(ApiKey::ALL.iter().copied()));
        for row in &TABLE {
            assert!(row.defined.start() <= row.defined.end());
            assert_eq!(row.defined.end(), row.advertised.end());
            assert_eq!(of(row.api), row);
        }
    }

    #[test]
    fn produce_is_announced_from_0_and_read_from_3() {
        assert_eq!(of(ApiKey::Produce).advertised, 0..=12);
        assert_eq!(supported(0), Some(3..=12));
    }

    #[test]
    fn api_versions_response_keeps_the_short_header() {
        assert_eq!(request_header(ApiKey::ApiVersions, 3), 2);
        assert_eq!(response_header(ApiKey::ApiVersions, 4), 0);
        assert_eq!(response_header(ApiKey::Metadata, 8), 0);
        assert_eq!(response_header(ApiKey::Metadata, 9), 1);
    }

    #[test]
    fn api_without_messages_is_not_supported() {
        assert_eq!(supported(61), None);
        assert_eq!(supported(-1), None);
    }
}
