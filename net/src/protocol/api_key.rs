//! The APIs that have messages here.

use std::fmt;

/// Defines [`ApiKey`]: one line per API.
macro_rules! api_keys {
    ($($name:ident = $key:literal;)*) => {
        /// What a request asks for, as its header numbers it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum ApiKey {
            $(
                #[doc = concat!("API key ", $key, ".")]
                $name = $key,
            )*
        }

        impl ApiKey {
            /// Every API, ascending by key.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The API with this key; `None` if it has no messages here.
            #[must_use]
            pub fn from_key(key: i16) -> Option<Self> {
                match key {
                    $($key => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

api_keys! {
    Produce = 0;
    Fetch = 1;
    ListOffsets = 2;
    Metadata = 3;
    FindCoordinator = 10;
    ApiVersions = 18;
    CreateTopics = 19;
    DeleteTopics = 20;
    DeleteRecords = 21;
    InitProducerId = 22;
    OffsetForLeaderEpoch = 23;
    DescribeConfigs = 32;
    AlterConfigs = 33;
    DescribeLogDirs = 35;
    CreatePartitions = 37;
    IncrementalAlterConfigs = 44;
    DescribeCluster = 60;
    DescribeTopicPartitions = 75;
}

impl ApiKey {
    /// The number on the wire.
    #[must_use]
    pub const fn key(self) -> i16 {
        self as i16
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
