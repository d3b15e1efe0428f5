//! DescribeConfigs (key 32): configs of topics and brokers, with source and synonyms (KIP-226).
//!
//! Version 3 brought types and documentation.

messages! {
    /// Resources to describe.
    pub struct DescribeConfigsRequest<'a> for DescribeConfigs {
        /// Each resource.
        resources: Vec<DescribeConfigsResource<'a>>, [0+];
        /// Whether to tell where a config could be set.
        include_synonyms: bool, [0+];
        /// Whether to tell what a config means.
        include_documentation: bool, [3+];
    }

    /// One resource, and which of its configs.
    pub struct DescribeConfigsResource<'a> {
        /// 2 topic, 4 broker.
        resource_type: i8, [0+];
        /// Name of the topic, id of the broker.
        resource_name: &'a str, [0+];
        /// Which configs; null for all.
        configuration_keys: Option<Vec<&'a str>>, [0+];
    }

    /// The configs of each resource.
    pub struct DescribeConfigsResponse<'a> for DescribeConfigs {
        /// How long the client should hold back, because of a quota.
        throttle_time_ms: i32, [0+];
        /// Each result.
        results: Vec<DescribeConfigsResult<'a>>, [0+];
    }

    /// The configs of one resource.
    pub struct DescribeConfigsResult<'a> {
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0+];
        /// The error in words.
        error_message: Option<&'a str>, [0+];
        /// 2 topic, 4 broker.
        resource_type: i8, [0+];
        /// Name of the topic, id of the broker.
        resource_name: &'a str, [0+];
        /// Each config.
        configs: Vec<DescribeConfigsResourceResult<'a>>, [0+];
    }

    /// One config.
    pub struct DescribeConfigsResourceResult<'a> {
        /// Its name.
        name: &'a str, [0+];
        /// Its value; null for none.
        value: Option<&'a str>, [0+];
        /// Whether it cannot be changed.
        read_only: bool, [0+];
        /// 1 topic, 2 and 3 dynamic broker, 4 static broker, 5 default.
        config_source: i8, [0+] = -1;
        /// Whether the value is withheld.
        is_sensitive: bool, [0+];
        /// Places where it could be set.
        synonyms: Vec<DescribeConfigsSynonym<'a>>, [0+];
        /// 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
        config_type: i8, [3+];
        /// What it means.
        documentation: Option<&'a str>, [3+];
    }

    /// A place where the config could be set, in the order of precedence.
    pub struct DescribeConfigsSynonym<'a> {
        /// Its name.
        name: &'a str, [0+];
        /// Its value; null for none.
        value: Option<&'a str>, [0+];
        /// As `config_source`.
        source: i8, [0+];
    }
}
