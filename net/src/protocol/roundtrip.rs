//! Every message, every version, both ways, against the independent crate kafka-protocol.
//!
//! Sample values are drawn by seed. What we write, the oracle must read, and write again as the same
//! bytes; what it wrote, we must read as the value we began with. That both gave every field the same
//! name is seen by comparing the debug output, field by field.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as oracle;
use kafka_protocol::protocol::{Decodable, Encodable};

use super::api_key::ApiKey;
use super::api_versions;
use super::decode::DecodeError;
use super::encode::{Encoder, SIZE_PREFIX_LEN_BYTES, Segment};
use super::messages::Message;
use super::sample::Sampler;
use super::wire::Version;

/// Fields that the oracle knows from versions beyond those defined here.
const BEYOND: [(&str, &str); 7] = [
    ("DescribeClusterRequest", "include_fenced_brokers"),
    ("DescribeClusterResponse", "is_fenced"),
    ("FetchRequest", "high_watermark"),
    ("InitProducerIdRequest", "enable_2_pc"),
    ("InitProducerIdRequest", "keep_prepared_txn"),
    ("ProduceRequest", "topic_id"),
    ("ProduceResponse", "topic_id"),
];

const SEEDS: std::ops::Range<u64> = 0..24;

/// The bytes of a message alone.
fn encoded<'a>(message: &impl Message<'a>, version: i16) -> Vec<u8> {
    let mut encoder = Encoder::default();
    message.encode(&mut encoder, version);
    let frame = encoder.finish().unwrap();
    let bytes: Vec<u8> = frame
        .into_segments()
        .into_iter()
        .flat_map(|segment| match segment {
            Segment::Bytes(bytes) => bytes,
            Segment::External { .. } => panic!("samples hold their bytes"),
        })
        .collect();
    assert_eq!(bytes[..4], u32::try_from(bytes.len() - 4).unwrap().to_be_bytes());
    bytes[SIZE_PREFIX_LEN_BYTES..].to_vec()
}

fn sample<'a, T: Message<'a>>(seed: u64, number: i16) -> T {
    let flexible = api_versions::is_flexible(T::API, number);
    T::sample(&mut Sampler::new(seed), Version { number, flexible })
}

/// Names and values in the debug output of a message, in order. Left out: what stands for nothing
/// (null and empty, because defaults differ in that), signs, wrappers, record bytes.
fn fields(debug: &str) -> Vec<(String, String)> {
    let beyond = |name: &str| {
        BEYOND
            .iter()
            .any(|(message, field)| debug.starts_with(message) && *field == name)
    };
    let unsigned = debug.replace('-', "");
    let mut fields = Vec::new();
    let mut name = String::new();
    let mut rest = unsigned.as_str();
    while let Some(first) = rest.chars().next() {
        let len = if first == '"' {
            rest[1..].find('"').unwrap() + 2
        } else {
            let word = |c: char| c.is_alphanumeric() || c == '_';
            rest.find(|c| !word(c))
                .unwrap_or(rest.len())
                .max(first.len_utf8())
        };
        let (token, behind) = rest.split_at(len);
        rest = behind;
        let is_value = first == '"' || first.is_ascii_digit() || token == "true" || token == "false";
        let is_uuid = token.len() == 32 && token.chars().all(|c| c.is_ascii_hexdigit());
        if rest.starts_with(": ") {
            name = token.trim_start_matches("r#").trim_matches('_').to_owned();
        } else if (is_value || is_uuid)
            && name != "records"
            && !beyond(&name)
            && token.len() > 2 - usize::from(first != '"')
        {
            fields.push((name.clone(), token.to_owned()));
        }
    }
    fields
}

fn assert_round_trip<T: Decodable + Encodable + std::fmt::Debug>(ours: &[u8], debug: &str, version: i16) {
    let mut bytes = Bytes::copy_from_slice(ours);
    let theirs = T::decode(&mut bytes, version)
        .unwrap_or_else(|error| panic!("version {version}: {error}: {debug} as {ours:?}"));
    assert!(bytes.is_empty(), "version {version}: {bytes:?} left of {debug}");
    assert_eq!(fields(&format!("{theirs:?}")), fields(debug), "version {version}");
    let mut again = BytesMut::new();
    theirs.encode(&mut again, version).unwrap();
    assert_eq!(again, ours, "version {version}: {debug}");
}

/// What the tests do with any message, its type forgotten.
#[derive(Clone)]
pub(super) struct Codec {
    pub(super) name: &'static str,
    pub(super) api: ApiKey,
    /// Bytes of a sample by seed and version.
    pub(super) sample: fn(u64, i16) -> Vec<u8>,
    /// Decodes a body by version.
    pub(super) decode: fn(&[u8], i16) -> Result<(), DecodeError>,
}

/// Both messages of each API, in every version that is defined.
macro_rules! round_trips {
    ($($module:ident: $($message:ident)*;)*) => {
        $(
            #[test]
            fn $module() {$({
                use super::messages::$module::$message;
                for version in api_versions::of($message::API).defined.clone() {
                    for seed in SEEDS {
                        let value: $message = sample(seed, version);
                        let bytes = encoded(&value, version);
                        assert_round_trip::<oracle::$message>(&bytes, &format!("{value:?}"), version);
                        assert_eq!($message::decode_body(&bytes, version), Ok(value), "version {version}");
                    }
                }
                let default = format!("{:?}", $message::default());
                assert_eq!(fields(&default), fields(&format!("{:?}", oracle::$message::default())));
            })*}
        )*

        /// Every message.
        pub(super) const CODECS: &[Codec] = &[$($({
            use super::messages::$module::$message;
            Codec {
                name: stringify!($message),
                api: $message::API,
                sample: |seed, version| encoded(&sample::<$message>(seed, version), version),
                decode: |body, version| $message::decode_body(body, version).map(|_| ()),
            }
        }),*),*];
    };
}

round_trips! {
    produce: ProduceRequest ProduceResponse;
    fetch: FetchRequest FetchResponse;
    list_offsets: ListOffsetsRequest ListOffsetsResponse;
    metadata: MetadataRequest MetadataResponse;
    find_coordinator: FindCoordinatorRequest FindCoordinatorResponse;
    api_versions: ApiVersionsRequest ApiVersionsResponse;
    create_topics: CreateTopicsRequest CreateTopicsResponse;
    delete_topics: DeleteTopicsRequest DeleteTopicsResponse;
    delete_records: DeleteRecordsRequest DeleteRecordsResponse;
    init_producer_id: InitProducerIdRequest InitProducerIdResponse;
    offset_for_leader_epoch: OffsetForLeaderEpochRequest OffsetForLeaderEpochResponse;
    describe_configs: DescribeConfigsRequest DescribeConfigsResponse;
    alter_configs: AlterConfigsRequest AlterConfigsResponse;
    describe_log_dirs: DescribeLogDirsRequest DescribeLogDirsResponse;
    create_partitions: CreatePartitionsRequest CreatePartitionsResponse;
    incremental_alter_configs: IncrementalAlterConfigsRequest IncrementalAlterConfigsResponse;
    describe_cluster: DescribeClusterRequest DescribeClusterResponse;
    describe_topic_partitions: DescribeTopicPartitionsRequest DescribeTopicPartitionsResponse;
}
